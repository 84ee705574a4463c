"""The real model against an independent implementation, under every kind of placement."""

import json
import math
import re
import statistics
import unittest

from support import (EXACT, MODEL, CommandTest, main, needs_model, read_json, read_lines,
                     read_records)

WEIGHTS_ON_DISK = ["--weights", "0/0/100"]
PLACEMENTS = {
    "on the device, two threads": ["--threads", 2],
    "a device of 24 MB": ["--device-memory", "24MB"],
    "KV on the host, batch 3": ["--kv", "0/100/0", "--batch-size", 3, "--num-batches", 1],
    "KV on the disk, batch 3 x 4": ["--kv", "0/0/100", "--batch-size", 3, "--num-batches", 4],
    "attention on the host, batch 16": ["--attention", "host", "--kv", "0/60/40", "--batch-size",
                                        16, "--num-batches", 1],
    "mixed shares, batch 1 x 4": ["--weights", "25/50/25", "--kv", "30/30/40", "--activations",
                                  "50/50", "--batch-size", 1, "--num-batches", 4],
    "mixed shares, batch 16 x 4": ["--weights", "40/20/40", "--kv", "10/80/10", "--activations",
                                   "0/100", "--batch-size", 16, "--num-batches", 4],
}


class ReferenceTest(CommandTest):
    """Requests and answers of tests/data/smollm2/generate.json."""

    @classmethod
    def setUpClass(cls):
        cls.items = read_json("smollm2", "generate.json")["items"]

    def requests(self, items=None):
        return [{"id": item["id"], "prompt": item["prompt"], "max_tokens": len(item["greedy_ids"]),
                 "ignore_eos": True, "logprobs": 10} for item in items or self.items]

    def check_tokens(self, path, items=None):
        records = read_records(path)
        self.assertEqual(sorted(records), sorted(item["id"] for item in items or self.items))
        for item in items or self.items:
            with self.subTest(id=item["id"]):
                self.assertEqual(records[item["id"]]["token_ids"], item["greedy_ids"])
        return records


@needs_model
class Generate(ReferenceTest):
    def test_tokens_text_and_log_probabilities_equal_the_reference(self):
        records = self.check_tokens(self.generate(MODEL, self.requests(), *EXACT, "--threads", 1))
        for item in self.items:
            with self.subTest(id=item["id"]):
                record = records[item["id"]]
                self.assertEqual(record["finish_reason"], "length")
                self.assertEqual(record["usage"], {
                    "prompt_tokens": len(item["prompt_ids"]),
                    "completion_tokens": len(item["greedy_ids"])})
                self.assertEqual(record["text"], item["greedy_text"])
                self.check_first_position(item["first_top10"], record["logprobs"][0])

    def check_first_position(self, want, entry):
        self.assertEqual([top["token_id"] for top in entry["top"]], want["ids"])
        for top, logit in zip(entry["top"], want["values"]):
            self.assertAlmostEqual(top["logprob"], logit - want["logsumexp"], delta=1e-3)
        self.assertEqual(entry["token_id"], want["ids"][0])
        self.assertEqual(entry["logprob"], entry["top"][0]["logprob"])

    def test_end_tokens_stop_where_the_reference_has_one(self):
        requests = self.requests()
        for request in requests:
            del request["ignore_eos"], request["logprobs"]
        records = read_records(self.generate(MODEL, requests, *EXACT))
        stopped = 0
        for item in self.items:
            with self.subTest(id=item["id"]):
                at = item["eos_at"]
                record = records[item["id"]]
                want = item["greedy_ids"] if at is None else item["greedy_ids"][:at + 1]
                self.assertEqual(record["token_ids"], want)
                self.assertEqual(record["finish_reason"], "length" if at is None else "stop")
                self.assertNotIn("<|im_end|>", record["text"])
                stopped += at is not None
        self.assertGreater(stopped, 0)

    def test_each_instruction_set_gives_the_tokens_of_the_reference(self):
        items = [item for item in self.items if len(item["prompt_ids"]) < 30][:4]
        for name in ("baseline", "sse4", "avx2", "avx512"):
            with self.subTest(instructions=name):
                output = self.fresh()
                result = self.transload("generate", "--model", MODEL, "--input",
                                        self.job(self.requests(items)), "--output", output, *EXACT,
                                        TRANSLOAD_CPU=name)
                if result.status == 6:  # this machine lacks it, and the error says so
                    self.assertIn(name, result.err)
                    continue
                self.check_status(result)
                self.assertIn(f"cpu, {name}", result.err)
                self.check_tokens(output, items)


@needs_model
class Placements(ReferenceTest):
    COMPUTE, COUNT = EXACT, None

    def setUp(self):
        super().setUp()
        self.items = self.items[:self.COUNT]
        self.input = self.job(self.requests())
        self.want = self.generate(MODEL, self.input, *self.COMPUTE, "--threads", 1)
        if self.COMPUTE is EXACT:
            self.check_tokens(self.want)

    def test_every_line_is_the_same_under_every_placement(self):
        for name, flags in PLACEMENTS.items():
            with self.subTest(placement=name):
                got = self.generate(MODEL, self.input, *self.COMPUTE, "--disk-dir", self.folder,
                                    *flags)
                self.check_same_lines(self.want, got, name)

    def test_the_least_budgets_that_a_refusal_names_are_enough_and_change_nothing(self):
        few = self.generate(MODEL, self.requests(self.items[:2]), *self.COMPUTE)
        for kv, items, want in (("0/0/100", self.items, self.want),
                                ("0/100/0", self.items[:2], few)):
            with self.subTest(kv=kv):
                job = self.job(self.requests(items))
                flags = [*self.COMPUTE, *WEIGHTS_ON_DISK, "--kv", kv, "--num-batches", 1]
                refused = self.transload("generate", "--model", MODEL, "--input", job,
                                         "--output", self.fresh(), "--device-memory", 1, *flags)
                self.check_status(refused, 4)
                least = re.findall(r"(--[a-z-]+) (\d+)", refused.err.split("the least is")[1])
                got, summary = self.generate_json(MODEL, job, *flags,
                                                  *(part for pair in least for part in pair))
                self.check_same_lines(want, got, kv)
                self.check_least(summary, dict(least))

    def check_least(self, summary, least):
        """All weights came from the disk in every sweep, and no budget is a byte too large."""
        weights = 96e6
        self.assertGreater(summary["lanes"]["disk_read"]["bytes"],
                           0.95 * weights * summary["sweeps"])
        budgets = summary["placement"]["plan"]["budget_bytes"]
        for tier, flag in zip(("device", "host"), ("--device-memory", "--host-memory")):
            self.assertEqual(budgets[tier], int(least[flag]))


class FastPlacements(Placements):
    """With some of the requests, which is enough to compare runs with each other."""
    COMPUTE, COUNT = ["--compute", "fast"], 5


@needs_model
class Score(CommandTest):
    """Windows of tests/data/smollm2/perplexity.json."""

    def check_window(self, number, *flags):
        item = read_json("smollm2", "perplexity.json")["items"][number]
        output = self.fresh()
        result = self.check_status(self.transload(
            "score", "--model", MODEL, "--input",
            self.job([{"id": item["id"], "token_ids": item["ids"]}]), "--output", output, "--json",
            "--token-logprobs", *EXACT, *flags))
        record = json.loads(read_lines(output)[0])
        nll = [-value for value in record["token_logprobs"]]
        self.assertEqual((record["count"], len(nll)), (item["tokens_scored"],) * 2)
        self.assertAlmostEqual(-record["logprob_sum"] / record["count"], item["mean_nll"],
                               delta=1e-4)
        self.assertAlmostEqual(statistics.fmean(nll), item["mean_nll"], delta=1e-4)
        self.assertAlmostEqual(statistics.fmean(nll[-1024:]), item["mean_nll_last_1024"],
                               delta=1e-4)
        for i, want in enumerate(item["nll_every_128"]):
            self.assertAlmostEqual(statistics.fmean(nll[128 * i:128 * (i + 1)]), want, delta=1e-4)
        summary = json.loads(result.out)
        self.assertAlmostEqual(summary["mean_nll"], item["mean_nll"], delta=1e-4)
        self.assertAlmostEqual(summary["perplexity"], math.exp(summary["mean_nll"]), places=9)
        return output

    def test_a_window_has_the_nll_of_the_reference_with_weights_on_the_disk_too(self):
        want = self.check_window(0)
        got = self.check_window(0, *WEIGHTS_ON_DISK, "--activations", "0/100")
        self.check_same_lines(want, got, "weights on the disk")


@needs_model
class ScoreSlow(Score):
    def test_a_window_has_the_nll_of_the_reference_with_weights_on_the_disk_too(self):
        for number in (1, 2):
            with self.subTest(window=number):
                self.check_window(number)

    def test_a_small_device_scores_the_same(self):
        want = self.check_window(1)
        got = self.check_window(1, "--device-memory", "24MB")
        self.check_same_lines(want, got, "a device of 24 MB")


if __name__ == "__main__":
    main()
