"""Every user's error is one line with a stable code; flags that cannot act are errors."""

import json
import os
import re
import shutil
import struct
import subprocess
import unittest

from support import BINARY, CommandTest, main, prompt_ids, read_lines, tiny

STATUS = {"usage": 2, "bad_input": 3, "does_not_fit": 4, "io": 5, "unsupported": 6}


class ErrorsTest(CommandTest):
    def setUp(self):
        super().setUp()
        self.input = self.job([{"id": i, "prompt_token_ids": prompt_ids(i, 6), "max_tokens": 4}
                               for i in range(3)])

    def check_error(self, code, *arguments, says="."):
        """The command ends with that code on one line, which says so; gives the line."""
        with self.subTest(arguments=arguments):
            result = self.transload(*arguments)
            errors = [line for line in result.err.splitlines() if "error [" in line]
            self.assertEqual((result.status, len(errors)), (STATUS[code], 1), result.err)
            self.assertEqual(result.err.splitlines()[-1], errors[0], "the error is not last")
            self.assertRegex(errors[0], rf"^transload: error \[{code}\]: \S")
            self.assertLess(len(errors[0]), 500)
            self.assertRegex(errors[0], says)
            self.assertEqual(result.out, "")
            return errors[0]

    def generate_flags(self, *flags, output=None):
        return ["generate", "--model", tiny(), "--input", self.input, "--output",
                output or self.fresh(), *flags]

    def check_flags(self, code, cases):
        for says, *flags in cases:
            self.check_error(code, *self.generate_flags(*flags), says=says)


class Flags(ErrorsTest):
    def test_wrong_flags_are_named(self):
        for arguments in ([], ["nosuch"], ["generate"], ["generate", "--model"], ["inspect"],
                          ["synth"], ["tokenize"], ["score", "--model", tiny()]):
            self.check_error("usage", *arguments, says="--help")
        self.check_flags("usage", [
            ("--nosuch", "--nosuch"), ("--threads.*'0'", "--threads", 0),
            ("--batch-size.*'0'", "--batch-size", 0), ("--num-batches.*'x'", "--num-batches", "x"),
            ("--prefill-tokens.*'-1'", "--prefill-tokens", -1), ("5000", "--threads", 5000),
            ("--prefill-tokens 3 .*6 tokens", "--prefill-tokens", 3),
            ("--attention: 'gpu'", "--attention", "gpu"),
            ("--compute: 'bfloat8'", "--compute", "bfloat8"),
            ("--kv-bits: '4' is neither 16 nor 32", "--kv-bits", 4), ("--seed", "--seed", "abc"),
            ("--seed", "--seed", -1), ("--seed", "--seed", 2 ** 64)])
        self.check_flags("unsupported", [("cuda", "--device", "cuda"),
                                         ("disk", "--activations", "50/0/50")])

    def test_wrong_sizes_rates_and_shares_show_an_example(self):
        self.check_flags("usage", [
            *((f"{flag}: '{value}' is not a size.*64MiB", flag, value)
              for flag in ("--device-memory", "--host-memory", "--disk-memory", "--reserve")
              for value in ("12XB", "-5", "x", "9" * 30, "GB")),
            *((f"{flag}.*at least 1", flag, 0, "--kv", "0/100/0")
              for flag in ("--link-rate", "--disk-rate")),
            *((f"{flag}: '.*' is not . percentages.*such as", flag, value)
              for flag in ("--weights", "--kv", "--activations")
              for value in ("a/b/c", "50/49/0", "-10/110/0", "100", "25/25/25/25", "50/50/0x",
                            "nan/0/0", "101/0/0"))])

    def test_wrong_sampling_defaults_are_named(self):
        self.check_flags("usage", [(flag, flag, value) for flag, values in {
            "--temperature": [-1, "nan", "inf", "x"], "--top-p": [0, 1.1, "nan"],
            "--top-k": [-1, 1.5, 2**31], "--min-p": [-0.1, 1.1, "nan"],
            "--repetition-penalty": [0, -1, "nan", "inf"], "--presence-penalty": [2.1, "nan"],
            "--frequency-penalty": [-2.1], "--max-tokens": [0, -1, 2**31]}.items()
                                   for value in values])

    def test_flags_that_cannot_act_are_errors(self):
        plan = self.path("plan.json")
        result = self.transload(*self.generate_flags("--dry-run", "--json"))
        with open(plan, "w", encoding="utf-8") as file:
            file.write(self.check_status(result).out)
        self.check_flags("usage", [
            ("no host tier", "--pinned-memory", "1MB"), ("no host tier", "--link-rate", "1MB"),
            ("no host tier", "--plan", plan, "--pinned-memory", "1MB"),
            *((f"{flags[0][2:]}|--plan", "--plan", plan, *flags) for flags in (
                ["--weights", "100/0/0"], ["--batch-size", 1], ["--num-batches", 1],
                ["--device-memory", "1GB"], ["--disk-memory", "1GB"], ["--reserve", "1MB"],
                ["--link-rate", "1MB"], ["--disk-rate", "1MB"], ["--attention", "host"],
                ["--prefill-tokens", 100])),
            ("dry run", "--dry-run", "--trace", self.path("trace")),
            ("dry run", "--dry-run", "--dump-activations", self.path("dump"))])
        self.check_flags("unsupported", [
            ("--kv 0/x/y", "--attention", "host", "--kv", "100/0/0")])
        self.assertEqual([name for name in ("trace", "dump") if os.path.exists(self.path(name))],
                         [])

    def test_two_outputs_never_share_a_file(self):
        self.check_error("usage", "generate", "--model", tiny(), "--input", self.input, "--output",
                         "-", "--json", says="--json.*--output -")
        self.check_error("usage", "score", "--model", tiny(), "--input", self.input, "--output",
                         "-", "--json", says="--json.*--output -")
        output = self.fresh()
        self.check_status(self.transload(*self.generate_flags(output=output)))
        files = {path: read_lines(path) for path in (self.input, output, output + ".state")}
        for flag in ("--trace", "--dump-activations"):
            for path in (*files, os.path.join(self.folder, ".", os.path.basename(output))):
                self.check_error("usage", *self.generate_flags(flag, path, output=output),
                                 says=f"{flag}: would overwrite")
        self.check_error("usage", *self.generate_flags("--trace", self.path("t"),
                                                       "--dump-activations", self.path("t")))
        self.check_error("usage", *self.generate_flags(output=self.input), says="overwritten")
        for path, lines in files.items():
            self.assertEqual(read_lines(path), lines)


class Budgets(ErrorsTest):
    def test_a_budget_too_small_names_tier_bytes_and_a_plan_that_fits(self):
        for tier, flags in (("device", ["--device-memory", 1000]),
                            ("device", ["--device-memory", "150kB", "--batch-size", 64]),
                            ("host", ["--host-memory", 1000, "--device-memory", "1MB"]),
                            ("disk", ["--kv", "0/0/100", "--disk-memory", 1000]),
                            ("device", ["--reserve", "900TB"])):
            line = self.check_error("does_not_fit", *self.generate_flags(*flags),
                                    says=rf"{tier}: .* needs .*\(\d+ bytes\), there are .*")
            self.assertRegex(line, "the least is|the nearest plan that fits has")
            named = re.findall(r"(--[a-z-]+) (\d+)", line.split("; ")[-1])
            self.check_status(self.transload(*self.generate_flags(
                *(flags[:2] if flags[0] == "--kv" else []), *(part for pair in named
                                                              for part in pair))))

    def test_a_budget_above_the_machine_is_refused_with_what_the_machine_has(self):
        for flag in ("--device-memory", "--host-memory"):
            line = self.check_error("does_not_fit", *self.generate_flags(flag, "99999GB"),
                                    says=rf"{flag} asks for .* this machine has only .*free")
            self.assertNotIn("the least is", line)

    def test_a_refused_run_leaves_nothing_and_can_be_repeated_with_other_budgets(self):
        output = self.fresh()
        command = self.generate_flags(output=output)
        before = set(os.listdir(self.folder))
        for flags in (["--device-memory", 1], ["--device-memory", "99999GB"],
                      ["--kv", "0/0/100", "--disk-dir", self.input]):
            self.check_error("io" if "--disk-dir" in flags else "does_not_fit", *command, *flags)
            self.assertEqual(set(os.listdir(self.folder)), before)
        self.check_status(self.transload(*command))
        self.assertEqual(len(read_lines(output)), 3)
        done = read_lines(output)
        more = self.job([{"id": i, "prompt_token_ids": [5, 6]} for i in range(2)] + [{"id": 0}])
        output = self.fresh()
        command = ["generate", "--model", tiny(), "--input", more, "--output", output]
        with open(output, "w", encoding="utf-8"):
            pass
        self.check_error("does_not_fit", *command, "--device-memory", 1)
        self.assertEqual(read_lines(output), [])
        self.check_status(self.transload(*command), 1)
        self.assertEqual((len(read_lines(output)), len(done)), (3, 3))

    def test_a_refused_score_leaves_nothing(self):
        output = self.fresh()
        job = self.job([{"id": 0, "token_ids": prompt_ids(0, 9)}])
        before = set(os.listdir(self.folder))
        self.check_error("does_not_fit", "score", "--model", tiny(), "--input", job, "--output",
                         output, "--device-memory", 1)
        self.assertEqual(set(os.listdir(self.folder)), before)

    @unittest.skipUnless(os.geteuid() == 0, "needs root to mount a small file system")
    def test_a_disk_directory_without_space_is_named(self):
        spill = self.path("small")
        os.mkdir(spill)
        if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", spill],
                          capture_output=True, check=False).returncode != 0:
            self.skipTest("mounts are not permitted here")
        self.addCleanup(subprocess.run, ["umount", "-l", spill], check=True)
        for budget in ([], ["--disk-memory", "1GB"]):
            self.check_error("does_not_fit", *self.generate_flags(
                "--kv", "0/0/100", "--batch-size", 64, "--disk-dir", spill, *budget),
                             says=r"^transload: error \[does_not_fit\]: disk: .* needs .*"
                                  r"\(65536 bytes\) free where --disk-dir points; .*another")
        self.assertEqual(os.listdir(spill), [])


class Files(ErrorsTest):
    def test_missing_files_are_named(self):
        absent = self.path("absent")
        below = os.path.join(absent, "out")
        self.check_error("bad_input", "inspect", absent, says="absent: does not exist")
        self.check_error("bad_input", "generate", "--model", absent, "--input", self.input,
                         "--output", self.fresh(), says="absent: does not exist")
        self.check_error("io", "generate", "--model", tiny(), "--input", absent, "--output",
                         self.fresh(), says="absent: No such file")
        self.check_error("usage", "generate", "--model", tiny(), "--input", self.folder,
                         "--output", self.fresh(), says="is a directory")
        for flags in (["--trace", below], ["--dump-activations", below], ["--plan", absent]):
            self.check_error("io", *self.generate_flags(*flags), says="absent")
        self.check_error("bad_input", *self.generate_flags("--plan", self.folder),
                         says="is no regular file")
        self.check_error("io", *self.generate_flags(output=below), says="absent")
        self.check_error("io", *self.generate_flags(output=self.folder), says="directory")
        self.check_error("io", *self.generate_flags("--kv", "0/0/100", "--disk-dir", self.input),
                         says="--disk-dir")
        self.assertFalse(os.path.exists(absent))

    def test_a_configuration_nested_without_end_is_refused(self):
        copy = self.path("nested")
        shutil.copytree(tiny(), copy)
        with open(os.path.join(copy, "config.json"), "r+", encoding="utf-8") as file:
            text = file.read().rstrip()
            file.seek(0)
            file.write(text[:-1] + ', "x": ' + "[" * 200000 + "]" * 200000 + "}")
        self.check_error("bad_input", "inspect", copy, says="nested deeper than 100")
        self.check_error("bad_input", *self.generate_flags("--plan", os.path.join(
            copy, "config.json")), says="--plan: .*nested deeper than 100")

    def test_what_is_lost_on_standard_output_is_an_error(self):
        with open("/dev/full", "wb") as full:
            for arguments in (["inspect", tiny()], self.generate_flags("--dry-run", "--json")):
                done = subprocess.run([BINARY, *map(str, arguments)], stdout=full,
                                      stderr=subprocess.PIPE, env=self.environment(), check=False)
                self.assertEqual(done.returncode, 5)
                self.assertIn(b"error [io]: standard output: No space", done.stderr)

    def test_nobody_need_read_standard_error(self):
        output = self.fresh()
        with open("/dev/full", "wb") as full:
            done = subprocess.run([BINARY, *map(str, self.generate_flags(output=output))],
                                  stderr=full, env=self.environment(), check=False)
        self.assertEqual(done.returncode, 0)
        self.assertEqual(len(read_lines(output)), len(read_lines(self.input)))

    def test_closed_standard_streams_do_not_mix_with_the_output(self):
        output, whole = self.fresh(), self.fresh()
        self.check_status(self.transload(*self.generate_flags(output=whole)))
        done = subprocess.run(
            ["sh", "-c", 'exec "$0" "$@" <&- >&- 2>&-', BINARY,
             *map(str, self.generate_flags(output=output))], env=self.environment(), check=False)
        self.assertEqual(done.returncode, 0)
        self.check_same_lines(whole, output)

    def test_a_model_that_is_none_is_refused(self):
        os.mkdir(self.path("empty"))
        self.check_error("bad_input", "inspect", self.path("empty"), says="holds no .safetensors")
        self.check_error("bad_input", "inspect", self.input, says="neither a .safetensors nor")
        self.check_error("bad_input", "tokenize", "--model", tiny(), says="no tokenizer")
        copy = self.path("model")
        shutil.copytree(tiny(), copy)
        weights = os.path.join(copy, "model.safetensors")
        size = os.path.getsize(weights)
        os.truncate(weights, size - 1000)
        self.check_error("bad_input", "inspect", copy, says=f"model.safetensors.*{size - 1000}")
        with open(weights, "r+b") as file:
            file.write(struct.pack("<Q", 2**62))
        self.check_error("bad_input", "inspect", copy, says="model.safetensors")

    def test_a_model_that_cannot_run_is_refused_by_name(self):
        copy = self.path("model")
        shutil.copytree(tiny(), copy)
        path = os.path.join(copy, "config.json")
        with open(path, encoding="utf-8") as file:
            config = json.load(file)
        for key, value in (("model_type", "mamba"), ("hidden_act", "mish"),
                           ("sliding_window", 16)):
            with open(path, "w", encoding="utf-8") as file:
                json.dump({**config, key: value}, file)
            self.check_error("unsupported", "generate", "--model", copy, "--input", self.input,
                             "--output", self.fresh(), says=f"{key}|{value}")
            inspected = self.check_status(self.transload("inspect", copy))
            self.assertIn("cannot run", inspected.out)

    def test_a_damaged_plan_is_refused(self):
        good = json.loads(self.check_status(self.transload(
            *self.generate_flags("--dry-run", "--json"))).out)
        plan = self.path("plan.json")
        for change in ("not JSON", [], {"plan": {}}, {"plan": {**good["plan"], "batch_size": "x"}},
                       {"plan": {**good["plan"], "batch_size": -1}},
                       {"plan": {**good["plan"], "weights": {"device": 2}}}):
            with open(plan, "w", encoding="utf-8") as file:
                file.write(change if isinstance(change, str) else json.dumps(change))
            result = self.transload(*self.generate_flags("--plan", plan))
            with self.subTest(change=str(change)[:60]):
                self.assertIn(result.status, (2, 3), result.err)
                self.assertIn("plan", result.err.splitlines()[-1])
        with open(plan, "w", encoding="utf-8") as file:
            json.dump(good, file)
        self.check_status(self.transload(*self.generate_flags("--plan", plan)))


if __name__ == "__main__":
    main()
