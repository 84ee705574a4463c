"""batch_lines_test.py TRANSLOAD: batch files as clients write and read them.

RR-04: ids that repeat or lack. RR-11: each kind of output line against a schema of the API's
objects (tests/data/openai), by the jsonschema of Debian's python3-jsonschema."""

import copy
import json
import os
import subprocess
import unittest

import batch_test
from batch_test import CHAT, COMPLETION, code_of, request, user
from support import python_with

SCHEMA = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "data", "openai",
                      "batch_output.schema.json")
VALIDATE = """
import json, sys, jsonschema
with open(sys.argv[1], encoding="utf-8") as file:
    validator = jsonschema.Draft202012Validator(json.load(file))
for line in sys.stdin:
    error = next(validator.iter_errors(json.loads(line)), None)
    print(json.dumps(error and f"{error.json_path}: {error.message}"))
"""


def findings(records):
    """For each record what the schema finds wrong first, or None."""
    done = subprocess.run([python_with("jsonschema"), "-c", VALIDATE, SCHEMA], text=True,
                          input="".join(json.dumps(record) + "\n" for record in records),
                          capture_output=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


class Ids(batch_test.BatchJobs):
    """RR-04."""

    def test_a_line_whose_id_repeats_or_lacks_is_refused_with_its_number(self):
        no_id = request("x", COMPLETION, prompt="d")
        del no_id["custom_id"]
        lines = [request("a", COMPLETION, prompt="first"), no_id,
                 request("b", CHAT, messages=user("hi")), request("a", COMPLETION, prompt="other"),
                 request(7, COMPLETION, prompt="e"), request(None, COMPLETION, prompt="f"),
                 request("a", CHAT, messages=user("third")), request("", COMPLETION, prompt="g")]
        records = self.generate(lines, status=1)
        self.assertEqual(len(records), len(lines))
        errors = {record["id"]: record for record in records if code_of(record)}
        self.assertEqual({name: code_of(record) for name, record in errors.items()}, {
            "batch_req_2": "missing_id", "batch_req_4": "duplicate_id",
            "batch_req_5": "invalid_value", "batch_req_6": "invalid_value",
            "batch_req_7": "duplicate_id"})
        for name in ("batch_req_4", "batch_req_7"):
            self.assertIn("line 1 has the same id",
                          errors[name]["response"]["body"]["error"]["message"])
        self.check_answers_alone(lines, records)

    def check_answers_alone(self, lines, records):
        """The lines that run have the answers that they have in a file of their own."""
        answers = {record["id"]: record["response"]["body"]["choices"]
                   for record in records if not code_of(record)}
        self.assertEqual(sorted(answers), ["batch_req_1", "batch_req_3", "batch_req_8"])
        for number in (1, 3, 8):
            self.start_anew()
            alone, = self.generate([lines[number - 1]])
            self.assertEqual(alone["response"]["body"]["choices"], answers[f"batch_req_{number}"])

    def test_a_file_of_one_id_ends_with_one_answer(self):
        records = self.generate([request("same", COMPLETION, prompt=f"p{i}") for i in range(300)],
                                status=1)
        self.assertEqual(len(records), 300)
        self.assertEqual([record["id"] for record in records if not code_of(record)],
                         ["batch_req_1"])
        self.assertEqual({code_of(record) for record in records}, {None, "duplicate_id"})


@unittest.skipUnless(python_with("jsonschema"), "needs python3-jsonschema")
class Schema(batch_test.BatchJobs):
    """RR-11."""

    def some_of_each_kind(self):
        """Records of success, bad request, too long and internal failure."""
        records = self.generate([
            request("c", COMPLETION, prompt="abc", n=2),
            request("lp", COMPLETION, prompt="abc", logprobs=2),
            request("m", CHAT, messages=user("hi")),
            request("mlp", CHAT, messages=user("hi"), logprobs=True, top_logprobs=2),
            request("bad", COMPLETION, prompt="x", temperature="hot"),
            request("wide", COMPLETION, prompt="x", seed=2**64),
            request("long", CHAT, messages=user("x" * 500)),
            {"custom_id": "get", "method": "GET", "url": CHAT, "body": {}}, "{", "[]"], status=1)
        self.start_anew()
        self.spoil_model()
        return records + self.generate([request("i", COMPLETION, prompt="x"),
                                        request("j", CHAT, messages=user("x"))], status=1)

    def test_each_kind_of_line_is_as_the_schema_says(self):
        records = self.some_of_each_kind()
        codes = [code_of(record) for record in records]
        self.assertEqual({code: codes.count(code) for code in set(codes)},
                         {None: 4, "invalid_value": 3, "prompt_too_long": 1, "invalid_json": 2,
                          "internal": 2})
        for record, finding in zip(records, findings(records)):
            self.assertIsNone(finding, record)

    def test_the_schema_sees_a_spoiled_line(self):
        good, = self.generate([request("mlp", CHAT, messages=user("hi"), logprobs=True,
                                       top_logprobs=1)])
        spoiled = []

        def spoil(change):
            record = copy.deepcopy(good)
            change(record)
            spoiled.append(record)

        spoil(lambda record: record.pop("custom_id"))
        spoil(lambda record: record.update(error={"code": "x", "message": "y"}))
        spoil(lambda record: record["response"].update(status_code=400))
        spoil(lambda record: record["response"]["body"].update(object="text_completion"))
        spoil(lambda record: record["response"]["body"]["choices"][0].pop("logprobs"))
        spoil(lambda record: record["response"]["body"]["choices"][0].update(finish_reason="end"))
        spoil(lambda record: record["response"]["body"]["choices"][0]["logprobs"]["content"][0]
              .pop("top_logprobs"))
        # As the reference has it: an error stands where there is no response.
        no_response = {**good, "response": None, "error": {"code": "batch_expired", "message": "x"}}
        self.assertEqual(findings([good, no_response]), [None, None])
        spoiled += [{**no_response, "error": None}, {**good, "error": no_response["error"]}]
        self.assertNotIn(None, findings(spoiled))


if __name__ == "__main__":
    unittest.main()
