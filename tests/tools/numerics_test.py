"""16-bit weights: batches of very different lengths (NM-01), and GPT-NeoX against float32 (NM-03)."""

import json
import math
import os

from measured import MeasuredTest
from support import main, prompt_ids, read_records

COMPUTE = ("float32", "fast")


class Lengths(MeasuredTest):
    """NM-01: nothing is padded, so that no row is masked as a whole."""

    def test_prompts_of_1_and_200_tokens_in_a_batch_are_finite_and_as_alone(self):
        model = self.synth("64,3,4,256,512", "--dtype", "float16", "--max-positions", 256,
                           family="opt")
        requests = [{"id": length, "prompt_token_ids": prompt_ids(length, length),
                     "max_tokens": 12, "ignore_eos": True, "logprobs": 512}
                    for length in (1, 200, 2, 199)]
        for compute in COMPUTE:
            with self.subTest(compute=compute):
                flags = ["--compute", compute, "--num-batches", 1]
                together = read_records(self.generate(model, requests, *flags, "--batch-size", 4))
                for request in requests:
                    alone = read_records(self.generate(model, [request], *flags))
                    record = together[request["id"]]
                    self.assertEqual(alone, {request["id"]: record})
                    self.check_finite(record)

    def check_finite(self, record):
        self.assertEqual(len(record["logprobs"]), 12)
        for entry in record["logprobs"]:
            values = [top["logprob"] for top in entry["top"]]
            self.assertEqual(len(values), 512)
            self.assertTrue(all(map(math.isfinite, values)))
            self.assertAlmostEqual(math.fsum(map(math.exp, values)), 1, delta=1e-4)


class NeoX(MeasuredTest):
    """NM-03: at 1,000 positions the best token with float16 weights is that with float32 weights.

    That is of `--compute float32`. `fast` may multiply in bfloat16, and random weights make flat
    logits: it is held to the same tokens where the two best are 0.05 apart."""

    SHAPE = "128,3,4,512,1024"  # heads of 32, of which 8 rotate
    POSITIONS = 1000
    PROMPTS = 20

    def model(self, dtype, parallel):
        folder = self.synth(self.SHAPE, "--dtype", dtype, "--max-positions", 128, "--seed", 5,
                            family="gpt_neox")
        path = os.path.join(folder, "config.json")
        with open(path, encoding="utf-8") as file:
            config = json.load(file)
        self.assertEqual(config["rotary_pct"], 0.25)
        with open(path, "w", encoding="utf-8") as file:
            json.dump({**config, "use_parallel_residual": parallel}, file)
        return folder

    def best_tokens(self, model):
        """(context, best token, its lead in logits) at each position of greedy answers."""
        each = self.POSITIONS // self.PROMPTS
        requests = [{"id": i, "prompt_token_ids": prompt_ids(i, 1 + 3 * i), "max_tokens": each,
                     "ignore_eos": True, "logprobs": 2} for i in range(self.PROMPTS)]
        records = read_records(self.generate(model, requests, "--compute", "float32"))
        positions = []
        for request in requests:
            record = records[request["id"]]
            for i, entry in enumerate(record["logprobs"]):
                best, second = (top["logprob"] for top in entry["top"])
                positions.append((request["prompt_token_ids"] + record["token_ids"][:i],
                                  entry["token_id"], best - second))
        return positions

    def share_of_best(self, model, positions, compute):
        """Of the tokens given, how many are the best ones of this model after their contexts."""
        output = self.fresh()
        self.check_status(self.transload(
            "score", "--model", model, "--compute", compute, "--output", output, "--input",
            self.job([{"id": i, "prompt_token_ids": context, "continuation_token_ids": [token]}
                      for i, (context, token, _) in enumerate(positions)])))
        records = read_records(output)
        for record in records.values():
            self.assertTrue(math.isfinite(record["logprob_sum"]))
        return sum(record["is_greedy"] for record in records.values()) / len(positions)

    def check_residual(self, parallel):
        whole, half = (self.model(dtype, parallel) for dtype in ("float32", "float16"))
        positions = self.best_tokens(whole)
        self.assertEqual(len(positions), self.POSITIONS)
        self.assertGreater(len({token for _, token, _ in positions}), 20)
        self.assertGreaterEqual(self.share_of_best(half, positions, "float32"), 0.99)
        clear = [position for position in positions if position[2] >= 0.05]
        self.assertGreater(len(clear), self.POSITIONS / 2)
        self.assertEqual(self.share_of_best(half, clear, "fast"), 1)

    def test_sequential_residual(self):
        self.check_residual(False)

    def test_parallel_residual(self):
        self.check_residual(True)


if __name__ == "__main__":
    main()
