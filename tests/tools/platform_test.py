"""Processors and builds: each instruction set, and what is optional when configuring."""

import os
import re
import subprocess
import tempfile
import unittest

from measured import MeasuredTest, token_requests
from support import main, read_records, tiny

SETS = ("baseline", "sse4", "avx2", "avx512")  # at least these
MODELS = ("llama-gqa-tied", "opt-preln", "gpt-neox-parallel")
ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")


class Processors(MeasuredTest):
    def run_set(self, model, name):
        """Tokens by id; None where this processor has not the instructions."""
        job = self.job(token_requests(5, 20, 16))
        output = self.fresh()
        run = self.measure("generate", "--model", model, "--input", job, "--output", output,
                           "--json", "--compute", "float32", TRANSLOAD_CPU=name)
        if run.status == 6:
            self.assertIn(name, run.err)
            return None
        self.check_status(run)
        self.assertIn(name, run.summary["compute"])
        return {key: record["token_ids"] for key, record in read_records(output).items()}

    def known_sets(self):
        """Those that the error about an unknown one lists."""
        run = self.run_job(tiny(), token_requests(1, 4, 1), status=2, TRANSLOAD_CPU="avx1024")
        lines = [line for line in run.err.splitlines() if "error" in line]
        self.assertEqual(len(lines), 1, run.err)
        self.assertIn("'avx1024' is not known: use ", lines[0])
        return re.split(r", | or ", lines[0].rsplit("use ", 1)[1])

    def test_all_instruction_sets_give_the_same_greedy_tokens(self):
        for model in MODELS:
            with self.subTest(model=model):
                tokens = {name: self.run_set(tiny(model), name) for name in self.known_sets()}
                tokens = {name: what for name, what in tokens.items() if what is not None}
                self.assertIn("baseline", tokens)
                self.assertEqual(len(tokens["baseline"]), 5)
                for name, what in tokens.items():
                    self.assertEqual(what, tokens["baseline"], name)

    def test_an_unknown_instruction_set_is_an_error_of_one_line_that_lists_the_known(self):
        self.assertLessEqual(set(SETS), set(self.known_sets()))


class Configure(unittest.TestCase):
    """Only configures: the parts that are optional are absent, the command's target is there."""

    def configure(self, *settings):
        folder = tempfile.TemporaryDirectory(prefix="transload-")
        self.addCleanup(folder.cleanup)
        done = subprocess.run(["cmake", "-S", ROOT, "-B", folder.name, "-G", "Ninja", *settings],
                              capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        targets = subprocess.run(["ninja", "-C", folder.name, "-t", "targets", "all"],
                                 capture_output=True, text=True, check=True).stdout
        with open(os.path.join(folder.name, "build.ninja"), encoding="utf-8") as file:
            return targets, file.read()

    def test_without_tests_only_the_command_is_built(self):
        targets, rules = self.configure("-DTRANSLOAD_TESTS=OFF",
                                        "-DCMAKE_DISABLE_FIND_PACKAGE_GTest=ON")
        self.assertIn("\ntransload: ", targets)
        self.assertNotIn("planner_test", targets)
        self.assertNotIn("gtest", rules)

    def test_without_allocator_and_benchmark_all_else_is_built(self):
        targets, rules = self.configure("-DCMAKE_DISABLE_FIND_PACKAGE_mimalloc=ON",
                                        "-DCMAKE_DISABLE_FIND_PACKAGE_benchmark=ON")
        self.assertIn("\ntransload: ", targets)
        self.assertIn("planner_test: ", targets)
        self.assertNotIn("_bench: ", targets)
        self.assertNotIn("mimalloc", rules)


if __name__ == "__main__":
    main()
