"""What a job means does not depend on how it is run: batches, order, ends, seeds, refill."""

import json
import os
import random
import shutil

from support import CommandTest, main, prompt_ids, read_lines, read_records, tiny

CONTEXT = 256  # of the tiny models


def mixed(count, seed=3, longest=200, **fields):
    """Requests with prompts of 1 to `longest` tokens."""
    lengths = random.Random(seed)
    return [{"id": f"p{i}", "prompt_token_ids": prompt_ids(seed * 1000 + i,
                                                           lengths.randint(1, longest)),
             "max_tokens": lengths.randint(1, 12), **fields} for i in range(count)]


def shuffled(requests, seed=5):
    return random.Random(seed).sample(requests, len(requests))


class Batches(CommandTest):
    def test_64_prompts_answer_alike_in_batches_of_1_7_and_64_and_shuffled(self):
        for model, longest in (("llama-mha", 200), ("opt-preln", 50), ("gpt-neox-parallel", 50)):
            requests = mixed(64, longest=longest, ignore_eos=True, logprobs=2)
            want = self.generate(tiny(model), requests, "--batch-size", 64, "--num-batches", 1)
            self.assertEqual(len(read_records(want)), 64)
            for flags in (["--batch-size", 1], ["--batch-size", 7], ["--batch-size", 7,
                          "--num-batches", 3, "--weights", "20/40/40", "--kv", "0/50/50"]):
                got = self.generate(tiny(model), requests, *flags)
                self.check_same_lines(want, got, f"{model} {flags}")
            got = self.generate(tiny(model), shuffled(requests), "--batch-size", 7)
            self.check_same_lines(want, got, f"{model} shuffled")

    def test_no_line_is_dropped_when_the_block_does_not_divide_the_job(self):
        block = ["--batch-size", 8, "--num-batches", 3]
        for count in (101, 25, 24, 1):
            with self.subTest(prompts=count):
                records = read_records(self.generate(tiny(), mixed(count), *block))
                self.assertEqual(sorted(records), sorted(f"p{i}" for i in range(count)))

    def test_an_empty_job_gives_an_empty_output(self):
        for text in (b"", b"\n", b" \r\n\n", b"\xef\xbb\xbf"):
            with self.subTest(text):
                path, output = self.fresh(), self.fresh()
                with open(path, "wb") as file:
                    file.write(text)
                self.check_status(self.transload("generate", "--model", tiny(), "--input", path,
                                                 "--output", output))
                self.assertEqual(read_lines(output), [])
        _, summary = self.generate_json(tiny(), [])
        self.assertEqual((summary["finished"], summary["errors"]), (0, 0))

    def test_rows_that_end_make_room_for_waiting_ones(self):
        """One answer of 500 tokens beside 99 of 5: nobody waits for the long one."""
        model = self.path("model")
        self.check_status(self.transload("synth", "--family", "llama", "--shape",
                                         "32,2,2,64,128", "--max-positions", 1024, "-o", model))
        requests = [{"id": i, "prompt_token_ids": [1 + i], "ignore_eos": True,
                     "max_tokens": 500 if i == 0 else 5} for i in range(100)]
        output, summary = self.generate_json(model, requests, "--batch-size", 4, "--num-batches",
                                             2)
        lengths = [record["usage"]["completion_tokens"]
                   for record in read_records(output).values()]
        self.assertEqual(sorted(lengths), [5] * 99 + [500])
        self.assertGreaterEqual(summary["row_steps"], sum(lengths))
        self.assertLessEqual(summary["row_steps"], 1.3 * sum(lengths))
        self.assertLessEqual(summary["sweeps"], 510)
        self.assertEqual(json.loads(read_lines(output)[-1])["id"], 0)


class Ends(CommandTest):
    def setUp(self):
        super().setUp()
        self.requests = [{"id": i, "prompt_token_ids": prompt_ids(i, 5), "max_tokens": 12}
                         for i in range(6)]
        free = read_records(self.generate(tiny(), [{**request, "ignore_eos": True}
                                                   for request in self.requests]))
        self.tokens = {i: record["token_ids"] for i, record in free.items()}

    def model_with_ends(self, tokens):
        """A copy whose generation_config lists `tokens`; its config.json names the first."""
        copy = self.fresh(ending="")
        shutil.copytree(tiny(), copy)
        with open(os.path.join(copy, "generation_config.json"), "w", encoding="utf-8") as file:
            json.dump({"eos_token_id": tokens}, file)
        path = os.path.join(copy, "config.json")
        with open(path, encoding="utf-8") as file:
            config = json.load(file)
        with open(path, "w", encoding="utf-8") as file:
            json.dump({**config, "eos_token_id": tokens[0]}, file)
        return copy

    def cut(self, number, ends, first=0):
        """The answer up to the first of `ends` at or after place `first`, and its reason."""
        tokens = self.tokens[number]
        for place, token in enumerate(tokens):
            if token in ends and place >= first:
                return tokens[:place + 1], "stop"
        return tokens, "length"

    def check_cut(self, path, ends, first=0):
        reasons = set()
        for number, record in read_records(path).items():
            with self.subTest(id=number):
                want = self.cut(number, ends, first)
                self.assertEqual((record["token_ids"], record["finish_reason"]), want)
                reasons.add((want[1], want[0][-1]))
        return reasons

    def test_each_of_three_end_tokens_of_generation_config_stops(self):
        ends = [self.tokens[i][3 + i] for i in range(3)]
        self.assertEqual(len(set(ends)), 3)
        reasons = self.check_cut(self.generate(self.model_with_ends(ends), self.requests), ends)
        self.assertTrue({("stop", end) for end in ends} <= reasons, "an end token was not met")

    def test_stop_token_ids_add_to_the_end_tokens_and_ignore_eos_leaves_only_them(self):
        ends = [self.tokens[0][4], 2]
        model = self.model_with_ends(ends)
        extra = self.tokens[1][5]
        added = [{**request, "stop_token_ids": [extra]} for request in self.requests]
        self.check_cut(self.generate(model, added), [*ends, extra])
        only = [{**request, "stop_token_ids": [extra], "ignore_eos": True}
                for request in self.requests]
        self.check_cut(self.generate(model, only), [extra])
        self.assertEqual(self.cut(1, [extra])[1], "stop")
        self.assertEqual(self.cut(0, ends)[1], "stop")

    def test_end_tokens_are_not_chosen_before_min_tokens(self):
        ends = [self.tokens[0][2], 2]
        model = self.model_with_ends(ends)
        for least in (0, 2, 3, 7, 12):
            records = read_records(self.generate(model, [{**request, "min_tokens": least}
                                                         for request in self.requests]))
            for number, record in records.items():
                with self.subTest(id=number, min_tokens=least):
                    self.assertGreaterEqual(len(record["token_ids"]), least)
                    self.assertFalse(set(record["token_ids"][:least]) & set(ends))
            want = 3 if least <= 2 else least
            self.assertGreaterEqual(len(records[0]["token_ids"]), want)

    def test_a_prompt_that_is_too_long_is_one_error_record_and_the_others_run(self):
        for length, fits in ((CONTEXT - 2, True), (CONTEXT - 1, True), (CONTEXT, False),
                             (CONTEXT + 1, False), (5000, False)):
            with self.subTest(prompt_tokens=length):
                requests = [self.requests[0], {"id": "long", "max_tokens": 9, "ignore_eos": True,
                                               "prompt_token_ids": prompt_ids(1, length)},
                            self.requests[1]]
                records = read_records(self.generate(tiny(), requests, status=0 if fits else 1))
                self.assertEqual(len(records), 3)
                if fits:  # up to the context's end
                    self.assertEqual(len(records["long"]["token_ids"]), CONTEXT - length)
                    self.assertEqual(records["long"]["finish_reason"], "length")
                else:
                    self.assertEqual(records["long"]["line"], 2)
                    self.assertEqual(records["long"]["error"]["code"], "prompt_too_long")
                for i in (0, 1):
                    self.assertEqual((records[i]["token_ids"], records[i]["finish_reason"]),
                                     self.cut(i, [2]))


class Seeds(CommandTest):
    def setUp(self):
        super().setUp()
        self.requests = [{**request, "seed": i, "max_tokens": 12}
                         for i, request in enumerate(mixed(40, temperature=0.8, ignore_eos=True))]

    def test_a_seeded_answer_survives_shuffling_batches_and_a_resume(self):
        job = self.job(self.requests)
        want = self.generate(tiny(), job)
        for name, requests, flags in (
                ("shuffled", shuffled(self.requests), []),
                ("batch 1", self.requests, ["--batch-size", 1]),
                ("batch 7 x 4, shuffled", shuffled(self.requests, 6),
                 ["--batch-size", 7, "--num-batches", 4, "--kv", "0/100/0"])):
            self.check_same_lines(want, self.generate(tiny(), requests, *flags), name)
        half = self.path("half.jsonl")
        with open(half, "wb") as file:
            file.writelines(read_lines(want)[:20])
        shutil.copy(want + ".state", half + ".state")
        self.check_status(self.transload("generate", "--model", tiny(), "--input", job,
                                         "--output", half, "--batch-size", 3))
        self.check_same_lines(want, half, "resumed half way")

    def test_other_seeds_and_other_ids_draw_other_tokens(self):
        base = self.requests[0]
        variants = [{**base, "id": f"{i}", "seed": 1} for i in range(8)]
        by_id = read_records(self.generate(tiny(), variants))
        self.assertEqual(len({tuple(record["token_ids"]) for record in by_id.values()}), 8)
        answers = {tuple(read_records(self.generate(tiny(), [{**base, "seed": seed}]))
                         [base["id"]]["token_ids"]) for seed in (1, 2, -1, 2**63)}
        self.assertEqual(len(answers), 4)

    def test_the_flags_of_sampling_are_the_defaults_of_lines(self):
        bare = [{"id": request["id"], "prompt_token_ids": request["prompt_token_ids"],
                 "ignore_eos": True} for request in self.requests[:8]]
        full = [{**request, "max_tokens": 7, "temperature": 0.9, "top_p": 0.95, "top_k": 40,
                 "min_p": 0.01, "repetition_penalty": 1.2, "presence_penalty": 0.1,
                 "frequency_penalty": -0.1, "seed": 11} for request in bare]
        flags = ["--max-tokens", 7, "--temperature", 0.9, "--top-p", 0.95, "--top-k", 40,
                 "--min-p", 0.01, "--repetition-penalty", 1.2, "--presence-penalty", 0.1,
                 "--frequency-penalty", -0.1, "--seed", 11]
        want = self.generate(tiny(), full)
        self.check_same_lines(want, self.generate(tiny(), bare, *flags), "flags")
        nulls = [{**dict.fromkeys(full[0], None), **request} for request in bare]
        self.check_same_lines(want, self.generate(tiny(), nulls, *flags), "flags, fields null")
        self.check_same_lines(want, self.generate(tiny(), full, "--seed", 5, "--top-k", 1),
                              "a line's own fields come first")


if __name__ == "__main__":
    main()
