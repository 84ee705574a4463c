"""batch_test.py TRANSLOAD: OpenAI's batch file and several samples a line, from the command on."""

import json
import os
import subprocess
import sys
import tempfile
import unittest

import tiny_model

TRANSLOAD = sys.argv.pop(1) if len(sys.argv) > 1 else "transload"
CHAT, COMPLETION = "/v1/chat/completions", "/v1/completions"

# The batch output line of OpenAI's API reference: type of each required field.
NULL = type(None)
USAGE = {"prompt_tokens": int, "completion_tokens": int, "total_tokens": int}
BODIES = {
    COMPLETION: {"id": str, "object": str, "created": int, "model": str, "usage": USAGE, "choices": [
        {"index": int, "text": str, "finish_reason": str, "logprobs": (dict, NULL)}]},
    CHAT: {"id": str, "object": str, "created": int, "model": str, "usage": USAGE, "choices": [
        {"index": int, "finish_reason": str, "logprobs": (dict, NULL),
         "message": {"role": str, "content": str, "refusal": (str, NULL)}}]},
    None: {"error": {"message": str, "type": str, "param": (str, NULL), "code": str}},
}


def check(value, schema, place="line"):
    """Raises where `value` lacks a field of `schema`, has one of another type, or one more."""
    if isinstance(schema, dict):
        assert isinstance(value, dict) and set(value) == set(schema), f"{place}: {value}"
        for name, inner in schema.items():
            check(value[name], inner, f"{place}.{name}")
    elif isinstance(schema, list):
        assert isinstance(value, list) and value, f"{place}: {value}"
        for item in value:
            check(item, schema[0], place + "[]")
    else:
        assert isinstance(value, schema) and not isinstance(value, bool), f"{place}: {value!r}"


def check_line(record, url):
    """`url`: of the request; None for one that failed."""
    check(record, {"id": str, "custom_id": (str, NULL), "response": dict, "error": NULL})
    check(record["response"], {"status_code": int, "request_id": str, "body": dict})
    check(record["response"]["body"], BODIES[url])
    assert (record["response"]["status_code"] == 200) == (url is not None)


def code_of(record):
    """The code of a failure, or None."""
    if record["response"]["status_code"] == 200:
        return None
    return record["response"]["body"]["error"]["code"]


def read_as_client(path):
    """What a client makes of an output file: text by custom_id, or None for a failure."""
    results = {}
    with open(path, encoding="utf-8") as file:
        for line in file:
            record = json.loads(line)
            if record["error"] or record["response"]["status_code"] != 200:
                results[record["custom_id"]] = None
                continue
            choice = record["response"]["body"]["choices"][0]
            results[record["custom_id"]] = choice.get("text", choice.get("message", {}).get("content"))
    return results


def request(custom_id, url, **body):
    return {"custom_id": custom_id, "method": "POST", "url": url, "body": {"model": "m", **body}}


def user(content):
    return [{"role": "user", "content": content}]


class BatchJobs(unittest.TestCase):
    """Jobs of a tiny model."""

    @classmethod
    def setUpClass(cls):
        cls.shared = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.shared.cleanup)
        cls.model = os.path.join(cls.shared.name, "model")
        tiny_model.make(TRANSLOAD, cls.model)

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.input = os.path.join(folder.name, "in.jsonl")
        self.output = os.path.join(folder.name, "out.jsonl")

    def generate(self, lines, *flags, status=0, environment=None):
        with open(self.input, "w", encoding="utf-8") as file:
            file.writelines((line if isinstance(line, str) else json.dumps(line)) + "\n"
                            for line in lines)
        done = subprocess.run(
            [TRANSLOAD, "generate", "--model", self.model, "--input", self.input, "--output",
             self.output, "--threads", "1", "--max-tokens", "4", *flags],
            capture_output=True, text=True, env={**os.environ, **(environment or {})})
        self.assertEqual(done.returncode, status, done.stderr)
        self.said = done.stderr
        with open(self.output, encoding="utf-8") as file:
            return [json.loads(line) for line in file]

    def lines(self):
        with open(self.output, "rb") as file:
            return sorted(file)

    def start_anew(self):
        os.remove(self.output)
        os.remove(self.output + ".state")

    def spoil_model(self):
        """Makes the model compute NaN, for this test."""
        spoiled = tempfile.TemporaryDirectory()
        self.addCleanup(spoiled.cleanup)
        self.model = os.path.join(spoiled.name, "model")
        tiny_model.make(TRANSLOAD, self.model)
        tiny_model.spoil(self.model)


class Batch(BatchJobs):
    def test_output_objects(self):
        urls = {"c": COMPLETION, "m": CHAT, "lp": COMPLETION, "clp": CHAT}
        records = self.generate([
            request("c", COMPLETION, prompt="abc"),
            request("m", CHAT, messages=user("hi"), n=2),
            request("lp", COMPLETION, prompt=[97, 98], logprobs=2),
            request("clp", CHAT, messages=user("hi"), logprobs=True, top_logprobs=1, user="u"),
            request("bad", COMPLETION, prompt="x", best_of=3),
            request("long", COMPLETION, prompt="x" * 200),
            request("c", COMPLETION, prompt="again"),
            "{"], status=1)
        self.assertEqual(len(records), 8)
        for record in records:
            check_line(record, None if code_of(record) else urls[record["custom_id"]])
        codes = {record["id"]: code_of(record) for record in records if code_of(record)}
        self.assertEqual(codes, {"batch_req_5": "unknown_field", "batch_req_6": "prompt_too_long",
                                 "batch_req_7": "duplicate_id", "batch_req_8": "invalid_json"})
        self.assertIn("accepted without effect: model, user", self.said)
        by_id = {record["id"]: record for record in records}
        self.assertEqual(len(by_id["batch_req_2"]["response"]["body"]["choices"]), 2)
        logprobs = by_id["batch_req_3"]["response"]["body"]["choices"][0]["logprobs"]
        self.assertEqual([len(top) for top in logprobs["top_logprobs"]], [2] * 4)
        results = read_as_client(self.output)
        self.assertIsNone(results["long"])
        self.assertIsInstance(results["m"], str)

    def test_equals_our_own_format(self):
        batch = self.generate([request("a", COMPLETION, prompt="abc", temperature=1, seed=5)])
        self.start_anew()
        own = self.generate([{"id": "a", "prompt": "abc", "temperature": 1, "seed": 5}])
        self.assertEqual(batch[0]["response"]["body"]["choices"][0]["text"], own[0]["text"])

    def test_resumes_with_the_same_bytes(self):
        job = [request(f"r{i}", CHAT if i % 2 else COMPLETION, n=1 + i % 3, temperature=1,
                       **({"messages": user("a" * i)} if i % 2 else {"prompt": "b" * i}))
               for i in range(1, 9)] + ["{"]
        self.generate(job, status=1)
        whole = self.lines()
        for cut in (1, 400, sum(map(len, whole)) // 2, sum(map(len, whole)) - 1):
            os.truncate(self.output, cut)
            self.generate(job, "--batch-size", "3", status=1)
            self.assertEqual(self.lines(), whole)

    def test_samples_have_streams_of_their_own(self):
        records = self.generate([{"id": 1, "prompt": "ab", "n": 5, "temperature": 1, "seed": 3},
                                 {"id": 2, "prompt": "ab", "n": 3}])
        by_id = {record["id"]: record for record in records}
        tokens = [choice["token_ids"] for choice in by_id[1]["choices"]]
        self.assertEqual([choice["index"] for choice in by_id[1]["choices"]], list(range(5)))
        self.assertEqual(len({tuple(ids) for ids in tokens}), 5)
        self.assertEqual(by_id[1]["usage"], {"prompt_tokens": 2, "completion_tokens": 20})
        self.assertEqual(len({tuple(c["token_ids"]) for c in by_id[2]["choices"]}), 1)  # greedy
        before = self.lines()
        self.start_anew()
        self.generate([{"id": 1, "prompt": "ab", "n": 5, "temperature": 1, "seed": 3},
                       {"id": 2, "prompt": "ab", "n": 3}], "--batch-size", "2")
        self.assertEqual(self.lines(), before)
        self.start_anew()
        alone = self.generate([{"id": 1, "prompt": "ab", "temperature": 1, "seed": 3}])
        self.assertEqual(alone[0]["token_ids"], tokens[0])

    def test_internal_failures_are_records(self):
        self.spoil_model()
        job = [request("a", COMPLETION, prompt="x", n=5), request("b", CHAT, messages=user("x"))]
        records = self.generate(job, "--batch-size", "2", status=1)
        self.assertEqual(len(records), 2)
        for record in records:
            check_line(record, None)
            self.assertEqual(record["response"]["status_code"], 500)
            self.assertEqual(code_of(record), "internal")
        for keep in (2, 1):  # nothing is left, or one line; the status is the same
            whole = self.lines()
            with open(self.output, "wb") as file:
                file.writelines(whole[:keep])
            self.generate(job, status=1)
            self.assertEqual(self.lines(), whole)

    def test_a_chat_line_without_python_is_no_fault_of_the_request(self):
        records = self.generate([request("m", CHAT, messages=user("hi")),
                                 request("c", COMPLETION, prompt="hi")], status=1,
                                environment={"TRANSLOAD_PYTHON": "/nowhere/python3"})
        by_id = {record["custom_id"]: record for record in records}
        check_line(by_id["m"], None)
        self.assertEqual(by_id["m"]["response"]["status_code"], 500)
        self.assertEqual(by_id["m"]["response"]["body"]["error"]["type"], "server_error")
        self.assertEqual(code_of(by_id["m"]), "chat_unavailable")
        self.assertIsNone(code_of(by_id["c"]))


if __name__ == "__main__":
    unittest.main()
