"""Fields of a line: what each does, what a bad one becomes, and stop strings on the real model."""

import collections
import json
import math

from support import (EXACT, MODEL, CommandTest, main, needs_model, prompt_ids, read_json, read_lines,
                     read_records, tiny)

# A value of the wrong type and values out of range, for every field but id and prompt.
BAD_VALUES = {
    "max_tokens": ["7", 0, -1, 1.5, 2**31, True, []],
    "temperature": ["1", -0.1, [1], True],
    "top_p": [0, 1.01, -1, "1"],
    "top_k": [-1, 1.5, "4"],
    "min_p": [-0.1, 1.1, "0"],
    "repetition_penalty": [0, -1, "1"],
    "presence_penalty": [-2.1, 2.1, "0"],
    "frequency_penalty": [-2.1, 2.1, {}],
    "seed": [1.5, "1", True, 2**64, -2**63 - 1],
    "stop": [5, [5], "", [""], {}],
    "stop_token_ids": [5, ["5"], [-1], [512], [1.5]],
    "min_tokens": [-1, "1", 1.5, 9],
    "ignore_eos": [1, "true", []],
    "logprobs": [-1, 1001, True, "3"],
    "n": [0, 129, "2", 1.5],
    "messages": [[], "hi", ["hi"], [{"content": "hi"}]],
    "max_completion_tokens": [3],
    "prompt": [5, ["text"], None],
    "prompt_token_ids": ["5", [], [512], [-1], [1.5], None, [[5]]],
}


class Fields(CommandTest):
    def setUp(self):
        super().setUp()
        self.base = {"prompt_token_ids": prompt_ids(4, 9), "max_tokens": 8, "ignore_eos": True}

    def answers(self, variants):
        """Token ids by name."""
        records = read_records(self.generate(tiny(), [
            {"id": name, **self.base, **fields} for name, fields in variants.items()]))
        return {name: record["token_ids"] for name, record in records.items()}

    def test_each_way_to_draw_only_the_best_token_is_greedy(self):
        tokens = self.answers({"greedy": {}, "top_k": {"temperature": 2, "top_k": 1},
                               "top_p": {"temperature": 2, "top_p": 1e-9},
                               "min_p": {"temperature": 2, "min_p": 1},
                               "cold": {"temperature": 1e-6}, "hot": {"temperature": 2}})
        for name in ("top_k", "top_p", "min_p", "cold"):
            self.assertEqual(tokens[name], tokens["greedy"], name)
        self.assertNotEqual(tokens["hot"], tokens["greedy"])

    def test_penalties_and_their_reverse_change_how_often_tokens_repeat(self):
        long = {"max_tokens": 60}
        tokens = self.answers({"plain": long,
                               "repetition": {**long, "repetition_penalty": 1e6},
                               "presence": {**long, "presence_penalty": 2},
                               "frequency": {**long, "frequency_penalty": 2},
                               "again": {**long, "frequency_penalty": -2}})
        most = {name: max(collections.Counter(ids).values()) for name, ids in tokens.items()}
        self.assertGreater(most["plain"], 1)
        self.assertEqual(most["repetition"], 1)
        self.assertFalse(set(tokens["repetition"]) & set(self.base["prompt_token_ids"]))
        self.assertLess(len(set(tokens["plain"])), len(set(tokens["presence"])))
        self.assertLess(most["frequency"], most["plain"])
        self.assertGreater(most["again"], most["plain"])

    def test_log_probabilities_are_raw_and_sorted_however_tokens_are_drawn(self):
        records = read_records(self.generate(tiny(), [
            {"id": "all", **self.base, "logprobs": 512},
            {"id": "three", **self.base, "logprobs": 3},
            {"id": "none", **self.base, "logprobs": 0},
            {"id": "drawn", **self.base, "logprobs": 512, "temperature": 1.7, "seed": 3,
             "presence_penalty": 1, "top_k": 20},
            {"id": "absent", **self.base}]))
        self.assertNotIn("logprobs", records["absent"])
        for name in ("all", "drawn"):
            for token, entry in zip(records[name]["token_ids"], records[name]["logprobs"]):
                values = [top["logprob"] for top in entry["top"]]
                self.assertEqual(values, sorted(values, reverse=True))
                self.assertEqual(len({top["token_id"] for top in entry["top"]}), 512)
                self.assertAlmostEqual(math.fsum(map(math.exp, values)), 1, delta=1e-4)
                by_token = {top["token_id"]: top["logprob"] for top in entry["top"]}
                self.assertEqual((entry["token_id"], entry["logprob"]), (token, by_token[token]))
        for short, length in (("three", 3), ("none", 0)):
            for want, got in zip(records["all"]["logprobs"], records[short]["logprobs"]):
                self.assertEqual(got, {**want, "top": want["top"][:length]})
        # The first position has the same context: the same values, whatever was drawn from them.
        self.assertEqual(records["drawn"]["logprobs"][0]["top"],
                         records["all"]["logprobs"][0]["top"])

    def test_every_bad_value_is_an_error_record_that_names_the_field(self):
        requests = []
        for field, values in BAD_VALUES.items():
            for value in values:
                request = {"id": len(requests), **self.base, field: value}
                if field == "prompt":
                    del request["prompt_token_ids"]
                requests.append(request)
        records = read_records(self.generate(tiny(), requests, status=1))
        self.assertEqual(sorted(records), list(range(len(requests))))
        fields = [field for field, values in BAD_VALUES.items() for _ in values]
        for number, field in enumerate(fields):
            with self.subTest(field=field, value=requests[number][field]):
                error = records[number].get("error", {})
                self.assertIn(error.get("code"), ("invalid_value", "unknown_field"))
                self.assertEqual(error["code"] == "unknown_field",
                                 field == "max_completion_tokens")
                self.assertRegex(error["message"], rf"\b{field}\b|prompt is empty")
                self.assertEqual(records[number]["line"], number + 1)

    def test_a_file_with_everything_wrong_gives_one_result_a_line(self):
        good = json.dumps({**self.base, "id": 0})[:-len(', "id": 0}')]
        lines = [  # (bytes, id, error code or None)
            (b"\xef\xbb\xbf" + good.encode() + b', "id": "bom"}\r\n', "bom", None),
            (b"\n", None, "blank"),
            (b" \t \r\n", None, "blank"),
            (good.encode() + b', "id": "crlf"}\r\n', "crlf", None),
            (good.encode() + b', "id": "comma"},\n', None, "invalid_json"),
            (good.encode() + b', "id": "comma2",}\n', None, "invalid_json"),
            (b"{}\n", None, "missing_id"),
            (b'{"id": "bare"}\n', "bare", "missing_prompt"),
            (b"null\n", None, "invalid_json"),
            (b"[1, 2]\n", None, "invalid_json"),
            (b'{"id": "torn", "prompt_tok\n', None, "invalid_json"),
            (b'{"id": "utf8\xff", "prompt_token_ids": [5]}\n', None, "invalid_utf8"),
            (b'{"id": "half \\ud800", "prompt_token_ids": [5]}\n', None, "invalid_utf8"),
            (b'{"id": {}, "prompt_token_ids": [5]}\n', None, "invalid_value"),
            (good.encode() + b', "id": "crlf"}\n', "crlf2", "duplicate_id"),
            (b'{"id": "10MB", "prompt_token_ids": [' + b"5, " * (10 * 2**20 // 3) + b"5]}\n",
             "10MB", "prompt_too_long"),
            (b'{"id": "17MB", "stop": "' + b"x" * (17 * 2**20) + b'"}\n', None, "line_too_long"),
            (b'{"id": "nul\0", "prompt_token_ids": [5]}\n', None, "invalid_json"),
            (b'{"id": "deep", "stop": ' + b"[" * 5000 + b"]" * 5000 + b"}\n", None,
             "invalid_json"),
            (b'{"id": "text", "prompt": "no tokenizer here"}\n', "text", "invalid_value"),
            (good.encode() + b', "id": "last"}', "last", None)]
        path, output = self.fresh(), self.fresh()
        with open(path, "wb") as file:
            file.write(b"".join(line for line, _, _ in lines))
        command = ["generate", "--model", tiny(), "--input", path, "--output", output]
        self.check_status(self.transload(*command), 1)
        self.check_results(lines, [json.loads(line) for line in read_lines(output)])
        before = read_lines(output)
        self.check_status(self.transload(*command), 1)  # error records count as finished
        self.assertEqual(read_lines(output), before)

    def check_results(self, lines, records):
        want = {number: code for number, (_, _, code) in enumerate(lines, 1)
                if code not in (None, "blank")}
        self.assertEqual({record["line"]: record["error"]["code"] for record in records
                          if "error" in record}, want)
        self.assertEqual([record["id"] for record in records if "error" not in record],
                         [name for _, name, code in lines if code is None])
        for record in records:
            if "error" in record:
                name = lines[record["line"] - 1][1]
                self.assertEqual(record["id"], "crlf" if name == "crlf2" else name)
                self.assertNotIn("\n", record["error"]["message"])


@needs_model
class StopStrings(CommandTest):
    """Stop strings cut the text of greedy answers that are known."""

    @classmethod
    def setUpClass(cls):
        cls.items = {item["id"]: item for item in read_json("smollm2", "generate.json")["items"]}

    def check_stops(self, cases):
        """cases: (id of the reference, stops, the text that must remain)."""
        requests = [{"id": number, "prompt_token_ids": self.items[item]["prompt_ids"],
                     "max_tokens": 48, "ignore_eos": True, "stop": stops}
                    for number, (item, stops, _) in enumerate(cases)]
        records = read_records(self.generate(MODEL, requests, *EXACT))
        for number, (item, stops, text) in enumerate(cases):
            with self.subTest(id=item, stops=stops):
                record = records[number]
                self.assertEqual(record["text"], text)
                self.assertEqual(record["finish_reason"],
                                 "length" if text == self.items[item]["greedy_text"] else "stop")
                length = len(record["token_ids"])
                self.assertEqual(record["token_ids"], self.items[item]["greedy_ids"][:length])
                self.assertEqual(record["usage"]["completion_tokens"], length)

    def before(self, item, stop):
        text = self.items[item]["greedy_text"]
        self.assertIn(stop, text)
        return text[:text.index(stop)]

    def test_a_stop_string_ends_the_text_before_it_wherever_tokens_are_cut(self):
        split = "nswer is: 20"  # begins and ends inside tokens, with whole ones between
        special = "<|im_end|>"
        cases = [(0, split, self.before(0, split)),
                 (0, [special], self.before(0, special)),
                 (0, "end|>\n<|im_st", self.before(0, "end|>\n<|im_st")),
                 (0, ["The answer", "The"], self.before(0, "The")),
                 (0, ["The answer is", "Paris.\n\nT"], self.before(0, "Paris.\n\nT")),
                 (0, "never there", self.items[0]["greedy_text"]),
                 (0, " Paris", "")]
        self.check_stops(cases)

    def test_characters_of_several_bytes_are_cut_whole(self):
        cases = []
        for item, reference in self.items.items():
            text = reference["greedy_text"]
            wide = [place for place, char in enumerate(text) if ord(char) > 127]
            for place in wide[:1] + wide[-1:]:
                cases.append((item, text[place], text[:text.index(text[place])]))
                if place > 0:  # across the border of a character
                    pair = text[place - 1:place + 1]
                    cases.append((item, [pair], text[:text.index(pair)]))
        self.assertGreater(len(cases), 3)
        self.check_stops(cases)

    def test_before_min_tokens_a_stop_string_is_text_like_any_other(self):
        text = self.items[0]["greedy_text"]
        again = text.index("The answer", text.index("The answer") + 1)
        for least, kept in ((0, self.before(0, "The answer")), (20, text[:again])):
            record, = read_records(self.generate(MODEL, [
                {"id": 1, "prompt": self.items[0]["prompt"], "max_tokens": 48, "ignore_eos": True,
                 "min_tokens": least, "stop": "The answer"}], *EXACT)).values()
            self.assertEqual((record["text"], record["finish_reason"]), (kept, "stop"))


if __name__ == "__main__":
    main()
