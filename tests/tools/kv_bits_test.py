"""A KV cache in float16: the flag, the plan, and the real model's answers."""

import json
import unittest

from support import (EXACT, MODEL, CommandTest, main, needs_model, prompt_ids, read_json,
                     read_records, tiny)

# Where the two best logits are so close, rounding keys and values may swap them.
LEAST_MARGIN = 0.05
PLACEMENTS = {
    "two threads, batch 5": ["--threads", 2, "--batch-size", 5, "--num-batches", 1],
    "KV on the host, batch 3 x 2": ["--kv", "0/100/0", "--batch-size", 3, "--num-batches", 2],
    "KV on the disk, batch 1 x 4": ["--kv", "0/0/100", "--batch-size", 1, "--num-batches", 4],
    "attention on the host, batch 16": ["--attention", "host", "--kv", "0/60/40", "--batch-size",
                                        16, "--num-batches", 1],
}


class Flag(CommandTest):
    def setUp(self):
        super().setUp()
        self.input = self.job([{"id": i, "prompt_token_ids": prompt_ids(i, 70), "max_tokens": 4,
                                "ignore_eos": True} for i in range(3)])

    def command(self, *flags, name="generate", job=None):
        return self.transload(name, "--model", tiny(), "--input", job or self.input, "--output",
                              self.fresh(), *flags)

    def plan(self, *flags):
        result = self.check_status(self.command("--dry-run", "--json", *flags))
        return json.loads(result.out)

    def test_left_out_it_follows_what_computes(self):
        for flags, bits in (([], 16), (["--compute", "fast"], 16), (["--compute", "float32"], 32),
                            (["--kv-bits", 32], 32),
                            (["--compute", "float32", "--kv-bits", 16], 16)):
            with self.subTest(flags=flags):
                self.assertEqual(self.plan(*flags)["plan"]["kv_bits"], bits)

    def test_plan_and_summary_say_it(self):
        for bits, name in ((16, "float16"), (32, "float32")):
            result = self.check_status(self.command("--kv-bits", bits))
            self.assertRegex(result.err, rf"(?m)^KV cache: {name}$")
            self.assertRegex(result.err, rf"(?m)^compute: .*; KV cache: {name}; disk: ")

    def test_half_the_bits_are_half_the_bytes(self):
        flags = ["--kv", "0/40/60", "--batch-size", 3, "--num-batches", 1]
        narrow, wide = (self.plan(*flags, "--kv-bits", bits)["memory"] for bits in (16, 32))
        for tier in ("host", "disk"):
            self.assertEqual(2 * narrow[tier]["parts"]["KV cache"], wide[tier]["parts"]["KV cache"])

    def test_a_plan_from_a_file_fixes_it_and_an_old_one_has_32(self):
        written = self.plan("--kv-bits", 16)["plan"]
        for bits in (16, 32):
            with self.subTest(bits=bits):
                if bits == 32:
                    del written["kv_bits"]
                path = self.path(f"plan-{bits}.json")
                with open(path, "w", encoding="utf-8") as file:
                    json.dump(written, file)
                # With what the arenas of 16 bits are in 32, the old plan does not fit.
                if bits == 16:
                    refused = self.check_status(self.command("--plan", path, "--kv-bits", 32), 2)
                    self.assertIn("--kv-bits: --plan fixes it", refused.err)
                    got, summary = self.generate_json(tiny(), self.input, "--plan", path)
                    self.assertEqual(summary["placement"]["plan"]["kv_bits"], 16)
                    self.check_same_lines(self.generate(tiny(), self.input, "--kv-bits", 16), got)
                else:
                    refused = self.check_status(self.command("--plan", path), 4)
                    self.assertRegex(refused.err, r"device: the plan needs \d+")

    def test_a_job_that_resumes_by_a_plan_is_held_to_its_bits(self):
        path = self.path("plan.json")
        with open(path, "w", encoding="utf-8") as file:
            json.dump(self.plan("--kv-bits", 32), file)
        output = self.path("out.jsonl")
        command = ["generate", "--model", tiny(), "--input", self.input, "--output", output]
        self.check_status(self.transload(*command, "--plan", path))
        self.check_status(self.transload(*command, "--kv-bits", 32))
        refused = self.check_status(self.transload(*command), 2)
        self.assertIn("kv_bits was 32 and is 16", refused.err)

    def test_scores_are_those_of_the_rounded_cache(self):
        job = self.job([{"id": "t", "token_ids": prompt_ids(9, 130)}])
        scores = {}
        for bits in (16, 32):
            output = self.fresh()
            self.check_status(self.transload("score", "--model", tiny(), "--input", job, "--output",
                                             output, "--kv-bits", bits))
            scores[bits] = read_records(output)["t"]["logprob_sum"]
        self.assertNotEqual(scores[16], scores[32])
        self.assertAlmostEqual(scores[16], scores[32], delta=0.5)


@needs_model
class Reference(CommandTest):
    """Requests and answers of tests/data/smollm2/generate.json."""

    def test_tokens_equal_the_reference_while_its_margin_is_sound_under_every_placement(self):
        items = read_json("smollm2", "generate.json")["items"]
        job = self.job([{"id": item["id"], "prompt": item["prompt"], "logprobs": 3,
                         "max_tokens": len(item["greedy_ids"]), "ignore_eos": True}
                        for item in items])
        flags = [*EXACT, "--kv-bits", 16, "--threads", 1]
        want = self.generate(MODEL, job, *flags)
        records = read_records(want)
        compared = 0
        for item in items:
            with self.subTest(id=item["id"]):
                sound = next((i for i, margin in enumerate(item["margins"])
                              if margin < LEAST_MARGIN), len(item["margins"]))
                self.assertEqual(records[item["id"]]["token_ids"][:sound],
                                 item["greedy_ids"][:sound])
                compared += sound
        self.assertGreater(compared, 300)
        for name, flags in PLACEMENTS.items():
            with self.subTest(placement=name):
                got = self.generate(MODEL, job, *EXACT, "--kv-bits", 16, "--disk-dir",
                                    self.folder, *flags)
                self.check_same_lines(want, got, name)


if __name__ == "__main__":
    main()
