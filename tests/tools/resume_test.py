"""Jobs that are killed, stopped and resumed end as if nothing had happened."""

import json
import os
import random
import shutil
import signal
import subprocess
import unittest

from support import (BINARY, LIMIT_S, CommandTest, interrupt, main, prompt_ids, read_lines,
                     read_records, tiny, wait_for)

# A sweep takes at least 20 ms (0.8 MB over the link), the whole job 2 s.
SLOW = ["--weights", "0/100/0", "--link-rate", "40MB", "--batch-size", 10, "--num-batches", 1]


def requests(count=100):
    random_number = random.Random(1)
    return [{"id": f"q{i}", "prompt_token_ids": prompt_ids(i, random_number.randint(1, 30)),
             "max_tokens": random_number.randint(3, 16), "ignore_eos": True,
             "temperature": 0 if i % 2 else 0.8, "seed": i} for i in range(count)]


class ResumeTest(CommandTest):
    def setUp(self):
        super().setUp()
        self.input = self.job(requests())
        self.output = self.path("out.jsonl")

    def command(self, *flags, output=None, model=None, job=None):
        return ["generate", "--model", model or tiny(), "--input", job or self.input, "--output",
                output or self.output, *flags]

    def lines_of(self, path):
        return read_lines(path) if os.path.exists(path) else []

    def whole_lines(self):
        return [line for line in self.lines_of(self.output) if line.endswith(b"\n")]

    def check_folder(self):
        """Beside the output lies OUT.state, small, and nothing else."""
        beside = [name for name in os.listdir(self.folder) if name.startswith("out.jsonl")]
        self.assertEqual(sorted(beside), ["out.jsonl", "out.jsonl.state"])
        self.assertLessEqual(os.path.getsize(self.output + ".state"), 4096)

    def stop_after(self, lines, number, *flags):
        """Starts, sends the signal once there are so many more lines; (status, seconds, err)."""
        had = len(self.whole_lines())
        process = self.start(*self.command(*SLOW, *flags))
        wait_for(lambda: len(self.whole_lines()) >= had + lines or process.poll() is not None)
        self.assertIsNone(process.poll(), "the run ended before it could be stopped")
        return interrupt(process, number)

    def finish(self, *flags, status=0):
        return self.check_status(self.transload(*self.command(*flags)), status)


class Killed(ResumeTest):
    def test_a_job_killed_at_twenty_random_moments_ends_as_an_uninterrupted_one(self):
        want = self.generate(tiny(), self.input)
        moments = random.Random(7)
        inside = 0
        for _ in range(20):
            before = self.whole_lines()
            process = self.start(*self.command(*SLOW))
            goal = len(before) + moments.randint(0, 4)
            wait_for(lambda: len(self.whole_lines()) >= goal or process.poll() is not None)
            try:  # up to two sweeps later
                process.wait(moments.uniform(0, 0.04))
            except subprocess.TimeoutExpired:
                pass
            status, _, _ = interrupt(process, signal.SIGKILL)
            inside += status == -signal.SIGKILL
            after = self.whole_lines()
            self.assertEqual(after[:len(before)], before, "a finished line changed")
        self.assertGreaterEqual(inside, 15, "too few kills landed inside the job")
        result = self.finish()
        self.assertIn(f"{len(after)} were done before", result.err)
        self.assertEqual(len(read_records(self.output)), 100)
        self.check_same_lines(want, self.output, "after 20 kills")
        self.check_folder()

    def test_an_output_cut_at_every_byte_of_its_last_record_is_repaired(self):
        job = self.job([{"id": i, "prompt_token_ids": [5 + i], "max_tokens": 1} for i in range(3)])
        want = self.generate(tiny(), job)
        whole = b"".join(read_lines(want))
        last = len(read_lines(want)[-1])
        self.assertEqual(whole[-1:], b"\n")
        for cut in range(1, last + 1):
            with self.subTest(bytes_cut=cut):
                with open(self.output, "wb") as file:
                    file.write(whole[:-cut])
                shutil.copy(want + ".state", self.output + ".state")
                self.check_status(self.transload(*self.command(job=job)))
                self.assertEqual(b"".join(read_lines(self.output)), whole)


class Stopped(ResumeTest):
    def test_a_signal_flushes_and_exits_with_75_and_the_job_goes_on(self):
        want = self.generate(tiny(), self.input)
        for number in (signal.SIGTERM, signal.SIGINT):
            before = self.whole_lines()
            status, seconds, err = self.stop_after(5, number)
            self.assertEqual(status, 75, err)
            self.assertLess(seconds, 20)  # a sweep takes 20 ms; the machine may be busy
            self.assertIn("requests finished", err)
            self.assertNotIn("error [", err)
            lines = self.lines_of(self.output)
            self.assertTrue(lines[-1].endswith(b"\n"), "a torn line after a signal")
            self.assertGreaterEqual(len(lines), len(before) + 5)
            self.assertLess(len(lines), 100)
            self.check_folder()
        self.finish()
        self.check_same_lines(want, self.output)

    def test_a_signal_while_the_model_is_opened_exits_with_75_too(self):
        fifo = self.path("fifo")  # opening it waits for somebody who writes
        os.mkfifo(fifo)
        process = self.start(*self.command(job=fifo))
        with open(fifo, "wb"):
            status, _, err = interrupt(process)
        self.assertEqual((status, "error [" in err), (75, False), err)

    def test_a_signal_ends_the_loading_of_a_large_model(self):
        process = self.start(*self.command("--weights", "0/100/0", "--disk-rate", "20kB"))  # 40 s
        for line in process.stderr:
            if line.startswith(b"load: "):
                break
        status, seconds, err = interrupt(process)
        self.assertEqual(status, 75, err)
        self.assertLess(seconds, 20)
        self.assertEqual(read_lines(self.output), [])

    def test_placement_batch_and_threads_may_change_between_runs(self):
        want = self.generate(tiny(), self.input)
        changes = [["--threads", 1], ["--kv", "0/0/100", "--disk-dir", self.folder],
                   ["--prefill-tokens", 64], ["--activations", "50/50"]]
        for flags in changes:
            status, _, err = self.stop_after(4, signal.SIGTERM, *flags)
            self.assertEqual(status, 75, err)
        self.finish("--weights", "0/0/100", "--batch-size", 3, "--num-batches", 4)
        self.check_same_lines(want, self.output)

    def test_a_finished_job_has_nothing_left_to_compute(self):
        self.finish()
        whole = read_lines(self.output)
        result = self.finish()
        self.assertIn("nothing left to compute: 100 requests were done before", result.err)
        self.assertEqual(read_lines(self.output), whole)
        summary = json.loads(self.finish("--json").out)
        self.assertEqual((summary["finished"], summary["skipped"], summary["errors"]), (0, 100, 0))


class FailedBefore(ResumeTest):
    def test_error_records_of_an_earlier_run_count_in_the_status(self):
        job = self.job([{"id": i, "prompt_token_ids": [5 + i], "max_tokens": 1} for i in range(3)])
        self.check_status(self.transload(*self.command(job=job)))
        answered = [line for line in read_lines(self.output) if json.loads(line)["id"] == 1]
        failed = {"id": 0, "line": 1, "error": {"code": "internal", "message": "no numbers"}}
        with open(self.output, "wb") as file:
            file.writelines([json.dumps(failed).encode() + b"\n", *answered])
        for finished, skipped in ((1, 1), (0, 2)):  # a line is left, then nothing
            result = self.check_status(self.transload(*self.command("--json", job=job)), 1)
            summary = json.loads(result.out)
            self.assertEqual((summary["finished"], summary["skipped"], summary["errors"]),
                             (finished, skipped, 1))
        self.assertEqual(len(read_records(self.output)), 3)


class Refused(ResumeTest):
    def setUp(self):
        super().setUp()
        status, _, err = self.stop_after(3, signal.SIGTERM)
        self.assertEqual(status, 75, err)
        self.before = read_lines(self.output)

    def check_refused(self, name, command, **extra):
        result = self.check_status(self.transload(*command, **extra), 2)
        self.assertRegex(result.err, rf"error \[usage\]: .*another run: .*\b{name} was ")
        self.assertEqual(read_lines(self.output), self.before, "a refused run wrote")

    def test_a_changed_kv_cache_and_each_changed_sampling_default_are_named(self):
        changes = {"kv_bits": 32, "max_tokens": 9, "temperature": 0.5, "top_p": 0.9, "top_k": 7,
                   "min_p": 0.1, "repetition_penalty": 1.1, "presence_penalty": 0.5,
                   "frequency_penalty": 0.5, "seed": 3}
        for name, value in changes.items():
            with self.subTest(name):
                self.check_refused(name, self.command(f"--{name.replace('_', '-')}", value))

    def test_other_instructions_are_named(self):
        self.check_refused("instructions", self.command(), TRANSLOAD_CPU="baseline")

    def test_a_changed_job_is_named(self):
        changed = requests()
        changed[99]["max_tokens"] += 1
        self.check_refused("job", self.command(job=self.job(changed)))

    def test_a_changed_model_is_named(self):
        copy = self.path("model")
        shutil.copytree(tiny(), copy)
        with open(os.path.join(copy, "model.safetensors"), "r+b") as file:
            file.seek(-4, os.SEEK_END)
            file.write(b"\0\0\0\0")
        self.check_refused("model", self.command(model=copy))

    def test_the_other_command_is_named(self):
        job = self.job([{"id": 1, "token_ids": [3, 4, 5]}])
        self.check_refused("command", ["score", "--model", tiny(), "--input", job, "--output",
                                       self.output])

    def test_a_second_process_is_locked_out(self):
        process = self.start(*self.command(*SLOW))
        self.assertTrue(wait_for(lambda: len(self.whole_lines()) > len(self.before)))
        result = self.transload(*self.command())
        self.check_status(result, 2)
        self.assertIn("another run is writing it", result.err)
        process.communicate(timeout=LIMIT_S)
        self.assertEqual(process.returncode, 0)
        self.assertEqual(len(read_records(self.output)), 100)

    def test_an_output_that_is_not_ours_is_left_alone(self):
        for text in (b"precious\n", b'{"id": 1}\n', b"\0\0\0"):
            with self.subTest(text):
                other = self.fresh()
                with open(other, "wb") as file:
                    file.write(text)
                self.check_status(self.transload(*self.command(output=other)), 2)
                shutil.copy(self.output + ".state", other + ".state")
                if text.endswith(b"\n"):  # else it is a torn line of a run of ours
                    self.check_status(self.transload(*self.command(output=other)), 3)
                    self.assertEqual(b"".join(read_lines(other)), text)


class Streams(ResumeTest):
    def test_standard_input_and_output_carry_a_job(self):
        want = self.generate(tiny(), self.input)
        with open(self.input, "rb") as file:
            stdin = file.read()
        done = subprocess.run([BINARY, "generate", "--model", tiny(), "--input", "-", "--output",
                               "-"], input=stdin, capture_output=True, timeout=LIMIT_S,
                              env=self.environment(), check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(sorted(done.stdout.splitlines(keepends=True)), sorted(read_lines(want)))

    def test_a_job_from_standard_input_resumes_and_leaves_only_the_state_beside_it(self):
        with open(self.input, "rb") as file:
            stdin = file.read()
        status, _, err = self.stop_after(3, signal.SIGTERM)
        self.assertEqual(status, 75, err)
        self.check_status(self.transload(*self.command(job="-"), stdin=stdin))
        self.check_same_lines(self.generate(tiny(), self.input), self.output)
        self.check_folder()

    def test_two_jobs_between_pipes_run_at_once(self):
        with open(self.input, "rb") as file:
            stdin = file.read()
        command = [BINARY, "generate", "--model", tiny(), "--input", "-", "--output", "-"]
        pair = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                 stderr=subprocess.PIPE, env=self.environment()) for _ in range(2)]
        for process in pair:
            process.stdin.write(stdin)
        outputs = []
        for process in pair:
            out, err = process.communicate(timeout=LIMIT_S)
            self.assertEqual(process.returncode, 0, err)
            outputs.append(sorted(out.splitlines()))
        self.assertEqual(outputs[0], outputs[1])
        self.assertEqual(len([json.loads(line) for line in outputs[0]]), 100)


if __name__ == "__main__":
    main()
