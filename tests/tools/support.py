"""What the tests of the command share: running it, jobs, temporary folders.

The binary is $TRANSLOAD, the real model $TRANSLOAD_MODEL (tests that need it are skipped by name
without it). Tiny models take token ids only."""

import collections
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
import unittest

DATA = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "data")
BINARY = os.path.abspath(os.environ.get("TRANSLOAD", "build/release/transload"))
MODEL = os.environ.get("TRANSLOAD_MODEL")
SKIPPED = 77  # what CTest takes for "skipped"
EXACT = ["--compute", "float32"]  # what the reference values are of
LIMIT_S = 300  # of one run; a hang fails the test instead of the whole suite

needs_model = unittest.skipUnless(MODEL and os.path.exists(MODEL),
                                  "needs TRANSLOAD_MODEL=SmolLM2-135M-Instruct.Q4_1.gguf")

Result = collections.namedtuple("Result", "status out err")


def tiny(name="llama-mha"):
    """A folder with a tiny model: a context of 256 tokens, no tokenizer."""
    return os.path.join(DATA, "tiny", name)


def read_json(*path):
    with open(os.path.join(DATA, *path), encoding="utf-8") as file:
        return json.load(file)


def prompt_ids(seed, length):
    """Token ids that every tiny model has."""
    return random.Random(seed).choices(range(3, 384), k=length)


def read_lines(path):
    with open(path, "rb") as file:
        return file.read().splitlines(keepends=True)


def read_records(path):
    """The records of a file by id. Fails for an id that is there twice."""
    records = [json.loads(line) for line in read_lines(path)]
    by_id = {record["id"]: record for record in records}
    assert len(by_id) == len(records), f"{path}: an id is there twice"
    return by_id


def environment(**extra):
    """No setting of the caller's but the search path; a cache of its own."""
    return {"PATH": os.environ.get("PATH", ""), **{key: value for key, value in os.environ.items()
            if key.endswith("SAN_OPTIONS")}, **extra}


def python_with(module):
    """An interpreter that has the module: this one or the system's; None without."""
    for python in (sys.executable, "/usr/bin/python3"):
        found = subprocess.run([python, "-c", f"import {module}"], capture_output=True, check=False)
        if found.returncode == 0:
            return python
    return None


class CommandTest(unittest.TestCase):
    """A temporary folder a test, and the command."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="transload-")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.count = 0

    def path(self, name):
        return os.path.join(self.folder, name)

    def fresh(self, ending=".jsonl"):
        """A path that no other call gets."""
        self.count += 1
        return self.path(f"{self.count}{ending}")

    def environment(self, **extra):
        return environment(TRANSLOAD_CACHE=self.path("cache"), **extra)

    def transload(self, *arguments, stdin=b"", **extra):
        """Runs to the end, whatever that is; out and err are text."""
        done = subprocess.run([BINARY, *map(str, arguments)], input=stdin, capture_output=True,
                              timeout=LIMIT_S, env=self.environment(**extra), check=False)
        return Result(done.returncode, done.stdout.decode(), done.stderr.decode())

    def start(self, *arguments, **extra):
        """A process that goes on; ended with the test."""
        process = subprocess.Popen([BINARY, *map(str, arguments)], stdin=subprocess.DEVNULL,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   env=self.environment(**extra))
        self.addCleanup(end, process)
        return process

    def job(self, requests):
        path = self.fresh()
        with open(path, "w", encoding="utf-8") as file:
            for request in requests:
                file.write(json.dumps(request) + "\n")
        return path

    def check_status(self, result, status=0):
        self.assertEqual(result.status, status, result.err)
        return result

    def generate(self, model, job, *flags, status=0, **extra):
        """Runs a job (a path, or requests) to a new file and gives that file's path."""
        path = job if isinstance(job, str) else self.job(job)
        output = self.fresh()
        self.check_status(self.transload("generate", "--model", model, "--input", path, "--output",
                                         output, *flags, **extra), status)
        return output

    def generate_json(self, model, job, *flags):
        """(path of the output, summary)."""
        path = job if isinstance(job, str) else self.job(job)
        output = self.fresh()
        result = self.check_status(self.transload("generate", "--model", model, "--input", path,
                                                  "--output", output, "--json", *flags))
        return output, json.loads(result.out)

    def check_same_lines(self, want, got, what=""):
        """The same lines in any order, byte for byte."""
        want, got = sorted(read_lines(want)), sorted(read_lines(got))
        differs = [line[:60] for line in got if line not in set(want)]
        self.assertEqual((len(got), differs), (len(want), []), f"{what}: lines differ")
        self.assertEqual(len(set(got)), len(want), f"{what}: a line is missing")


def end(process):
    if process.poll() is None:
        process.kill()
    process.communicate()


def wait_for(condition, limit_s=60):
    """Polls until the condition holds; false when it never did."""
    until = time.monotonic() + limit_s
    while time.monotonic() < until:
        if condition():
            return True
        time.sleep(0.002)
    return False


def interrupt(process, number=signal.SIGTERM):
    """Sends a signal; (exit status, seconds until it ended, standard error)."""
    begin = time.monotonic()
    process.send_signal(number)
    _, err = process.communicate(timeout=LIMIT_S)
    return process.returncode, time.monotonic() - begin, err.decode()


def main():
    """Runs the module's tests (arguments as unittest takes them); 77 when all were skipped."""
    program = unittest.main(module="__main__", exit=False, verbosity=2)
    result = program.result
    if result.testsRun == 0:
        sys.exit("no test ran")
    if not result.wasSuccessful():
        sys.exit(1)
    sys.exit(SKIPPED if len(result.skipped) == result.testsRun else 0)
