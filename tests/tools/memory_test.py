"""Memory: what a plan says is never exceeded, whatever the job and the budgets."""

import ctypes
import json
import re
import resource
import shutil
import subprocess
import unittest

from measured import MIB, MeasuredTest, file_bytes, model_files, token_requests
from support import BINARY, MODEL, main, needs_model, tiny

BUDGETS = {
    "no budget": [],
    "device 24 MB": ["--device-memory", "24MB"],
    "device 24 MB, host 40 MB": ["--device-memory", "24MB", "--host-memory", "40MB"],
    "device 120 MB": ["--device-memory", "120MB"],
    "KV on disk": ["--device-memory", "60MB", "--weights", "30/30/40", "--kv", "0/0/100"],
    "weights on disk, device 9 MB": ["--device-memory", "9MB", "--host-memory", "9MB",
                                     "--weights", "0/0/100"],
}
SHAPE = "256,4,4,1024,4096"  # 26 MB in float16


def available_bytes():
    with open("/proc/meminfo", encoding="ascii") as file:
        for line in file:
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    raise AssertionError("no MemAvailable")


@needs_model
class RealModel(MeasuredTest):
    """VmHWM of SmolLM2 stays within tiers and process line; that line within 64 MiB."""

    def check_budgets(self, job, status):
        for name, flags in BUDGETS.items():
            with self.subTest(budgets=name):
                run = self.run_job(MODEL, job, *flags, status=status)
                self.check_peak(run, name)
                memory = run.summary["placement"]["memory"]
                self.assertLessEqual(memory["process_bytes"], 64 * MIB)
                for tier in ("device", "host", "disk"):
                    self.assertLessEqual(memory[tier]["bytes"], memory[tier]["budget_bytes"])

    def test_twelve_lines_stay_within_the_plan_under_six_budgets(self):
        self.check_budgets(self.job(
            {"id": i, "prompt": f"The capital of country number {i} is", "max_tokens": 3}
            for i in range(12)), 0)

    def test_twenty_thousand_lines_stay_within_the_plan_under_six_budgets(self):
        self.check_budgets(self.job(
            {"id": i, "prompt": "word", "max_tokens": 1} if i % 2000 == 0 else
            {"id": i, "prompt": "word", "max_tokens": 0} for i in range(20000)), 1)


class Index(MeasuredTest):
    def plan_of(self, lines):
        job = self.job({"id": i, "prompt_token_ids": [5, 6], "max_tokens": 1}
                       for i in range(lines))
        run = self.measure("generate", "--model", tiny(), "--input", job, "--output",
                           self.path("unused"), "--dry-run", "--json", "--batch-size", 1,
                           "--num-batches", 1)
        self.check_status(run)
        process = run.summary["memory"]["process_bytes"]
        self.assertLessEqual(run.peak_bytes, process)
        return process

    def test_the_process_line_counts_the_lines_of_the_job(self):
        few, many = self.plan_of(10), self.plan_of(100_000)
        self.assertGreater(many - few, 99_990 * 32)

    def test_the_process_line_stays_within_64_mib_at_two_million_lines(self):
        self.assertLessEqual(self.plan_of(2_000_000), 64 * MIB)


class Answers(MeasuredTest):
    """What is gathered for records is counted before the run."""

    FLAGS = ["--batch-size", 16, "--num-batches", 1]

    def check(self, *requests, status=0):
        self.check_peak(self.run_job(tiny(), self.job(requests), *self.FLAGS, status=status))

    def test_the_log_probabilities_of_all_tokens(self):
        self.check(*({"id": i, "prompt_token_ids": [5, 6 + i], "max_tokens": 250,
                      "ignore_eos": True, "logprobs": 512} for i in range(32)))

    def test_samples_that_wait_for_each_other(self):
        self.check({"id": 1, "prompt_token_ids": [5, 6], "max_tokens": 250, "ignore_eos": True,
                    "logprobs": 100, "n": 40, "temperature": 1})

    def test_a_long_line_even_when_it_is_bad(self):
        self.check({"id": 1, "prompt_token_ids": [5], "max_tokens": 1},
                   {"id": 2, "prompt": "text " * 3_000_000}, status=1)


class Accepted(MeasuredTest):
    def test_what_a_dry_run_accepts_stays_within_its_budgets_in_the_run(self):
        model = self.synth(SHAPE, "--max-positions", 512)
        ran, refused = 0, 0
        for prompt_tokens in (8, 100, 400):
            job = self.job(token_requests(18, prompt_tokens, 2))
            for batch in (1, 4, 16):
                for device, host in ((4, 4), (6, 12), (12, 6), (30, 30), (100, 40)):
                    flags = ["--device-memory", f"{device}MB", "--host-memory", f"{host}MB",
                             "--batch-size", batch, "--num-batches", 1]
                    with self.subTest(prompt=prompt_tokens, batch=batch, device=device, host=host):
                        status, plan, err = self.dry_run(model, job, *flags)
                        if plan is None:
                            self.assertEqual(status, 4, err)
                            self.assertRegex(err.splitlines()[-1], r"^transload: error .*need")
                            refused += 1
                            continue
                        ran += 1
                        run = self.run_job(model, job, *flags)
                        self.check_peak(run)
                        memory = run.summary["placement"]["memory"]
                        for tier, most in (("device", device), ("host", host)):
                            self.assertLessEqual(memory[tier]["bytes"], most * 1_000_000)
        self.assertGreater(ran, 20)
        self.assertGreater(refused, 0, "no budget was too small: the boundary is not covered")


@unittest.skipUnless(shutil.which("strace"), "needs strace")
class HostBudget(MeasuredTest):
    """MP-01: a model of four host budgets, on the disk."""

    BUDGET = 40_000_000

    def allocations(self, *arguments):
        """(summary of a run, bytes of each mapping of memory and of each step of the heap)."""
        trace = self.path("trace")
        done = subprocess.run(
            ["strace", "-f", "--seccomp-bpf", "-e", "trace=mmap,mremap,brk", "-o", trace,
             BINARY, *map(str, arguments)], capture_output=True, check=False, text=True,
            env=self.environment())
        self.assertEqual(done.returncode, 0, done.stderr)
        sizes, heap = [], {}
        with open(trace, encoding="utf-8") as file:
            for line in file:
                process, call = line.split(maxsplit=1)
                self.assertFalse(call.startswith("mremap"), "mremap is not counted")
                if "MAP_ANONYMOUS" in call:
                    sizes.append(int(re.search(r"mmap\([^,]*, (\d+)", call)[1]))
                elif end := re.search(r"^brk.* = 0x([0-9a-f]+)", call):
                    sizes.append(int(end[1], 16) - heap.get(process, int(end[1], 16)))
                    heap[process] = int(end[1], 16)
        return json.loads(done.stdout), sizes

    def test_no_allocation_is_above_the_host_budget_and_the_plan_says_the_need_before(self):
        model = self.synth("768,8,12,3072,8192")
        self.assertGreater(file_bytes(model_files(model)), 4 * self.BUDGET)
        job = self.job(token_requests(4, 20, 4))
        flags = ["--weights", "0/0/100", "--kv", "0/0/100", "--host-memory", self.BUDGET,
                 "--device-memory", self.BUDGET]
        status, plan, err = self.dry_run(model, job, *flags)
        self.assertEqual(status, 0, err)
        need = plan["memory"]["host"]["bytes"]
        self.assertLessEqual(need, self.BUDGET)
        summary, sizes = self.allocations("generate", "--model", model, "--input", job, "--output",
                                          self.fresh(), "--json", *flags)
        self.assertEqual(summary["placement"]["memory"]["host"]["bytes"], need)
        self.assertIn(need, sizes)
        self.assertLessEqual(max(sizes), self.BUDGET)


class Pinned(MeasuredTest):
    FLAGS = ["--weights", "0/60/40", "--kv", "0/50/50"]
    WARNING = "can be page-locked, the rest is pageable"

    def setUp(self):
        super().setUp()
        self.work = self.job(token_requests(4, 20, 8))
        self.plain = self.run_job(tiny(), self.work, *self.FLAGS)

    def check_limited(self, run, most):
        self.check_same_lines(self.plain.output, run.output)
        self.assertEqual(run.err.count(self.WARNING), 1, run.err)
        self.assertLessEqual(run.summary["pinned_bytes"], most)
        memory = run.summary["placement"]["memory"]["host"]
        self.assertEqual(memory["pinned_bytes"], run.summary["pinned_bytes"])
        self.assertLess(memory["pinned_bytes"], memory["bytes"])

    def test_little_pinned_memory_warns_once_and_changes_no_line(self):
        run = self.run_job(tiny(), self.work, *self.FLAGS, "--pinned-memory", "64KiB")
        self.check_limited(run, 64 << 10)
        self.assertGreater(run.summary["pinned_bytes"], 0)

    def test_a_low_limit_of_the_system_warns_once_and_changes_no_line(self):
        def limit():
            # Even root has to keep to the limit without CAP_IPC_LOCK (14).
            ctypes.CDLL(None).prctl(24, 14, 0, 0, 0)  # PR_CAPBSET_DROP
            resource.setrlimit(resource.RLIMIT_MEMLOCK, (64 << 10, 64 << 10))
        run = self.run_job(tiny(), self.work, *self.FLAGS, before_exec=limit)
        self.check_limited(run, 64 << 10)

    def test_pinned_memory_without_a_host_tier_is_refused(self):
        self.run_job(tiny(), self.work, "--pinned-memory", "1MiB", status=2)


class Reserve(MeasuredTest):
    """A large KV cache, as much of it in memory as may be."""

    BALLAST = 3 << 30

    def setUp(self):
        super().setUp()
        if available_bytes() < 8 << 30:
            self.skipTest("needs 8 GiB of free memory")
        self.model = self.synth("1024,8,16,64,512", "--max-positions", 512)
        self.work = self.job(token_requests(64, 8, 480))  # 1.1 GB of KV cache

    def device_bytes(self, reserve):
        status, plan, err = self.dry_run(self.model, self.work, "--batch-size", 64, "--num-batches",
                                         1, "--kv", "100/0/0", "--weights", "100/0/0",
                                         "--reserve", reserve)
        self.assertIn(status, (0, 4), err)
        if plan is None:
            self.assertIn("device: ", err.splitlines()[-1])
        return plan["memory"]["device"]["bytes"] if plan else None

    def test_a_reserve_is_left_alone(self):
        self.assertGreater(self.device_bytes(0), 1 << 30)
        self.assertIsNone(self.device_bytes(available_bytes() - (512 << 20)))

    def test_memory_that_others_took_is_not_planned_with(self):
        reserve = available_bytes() - (self.BALLAST + (1 << 29))
        self.assertGreater(self.device_bytes(reserve), 1 << 30)
        ballast = bytearray(self.BALLAST)
        ballast[::4096] = b"1" * len(ballast[::4096])
        self.assertIsNone(self.device_bytes(reserve), "the plan counts memory that is taken")


class Loaded(MeasuredTest):
    def test_weights_of_the_device_have_no_second_copy_on_the_host(self):
        model = self.synth("1024,6,16,4096,8192")
        run = self.run_job(model, token_requests(1, 8, 4), "--weights", "100/0/0", "--kv",
                           "0/100/0", "--device-memory", "400MB")
        self.check_peak(run)
        memory = run.summary["placement"]["memory"]
        weights = memory["device"]["parts"]["weights"]
        self.assertGreater(weights, 200_000_000)
        self.assertLess(memory["host"]["bytes"], weights / 4)
        self.assertLess(run.peak_bytes, 1.5 * weights)


class Staging(MeasuredTest):
    def test_staging_below_a_layer_is_right_slower_and_named(self):
        model = self.synth("512,4,8,2048,512")
        job = self.job(token_requests(2, 8, 3))
        rates = ["--link-rate", "60MB", "--disk-rate", "60MB"]
        status, placement, err = self.dry_run(model, job, "--weights", "0/0/100",
                                              "--device-memory", "60MB", "--host-memory", "60MB",
                                              *rates)
        self.assertEqual(status, 0, err)
        plan = placement["plan"]
        layer_bytes = 2 * (4 * 512 * 512 + 3 * 512 * 2048)
        plan["staging_bytes"] = 2 * layer_bytes
        wide = self.run_plan(model, job, plan)
        self.assertEqual(wide.summary["placement"]["predicted"]["staging_limit"], "")
        plan["staging_bytes"] = plan["piece_bytes"] + 8192
        narrow = self.run_plan(model, job, plan)
        self.check_same_lines(wide.output, narrow.output)
        self.check_peak(narrow)
        self.assertIn("staging", narrow.summary["placement"]["predicted"]["staging_limit"])
        self.assertGreater(narrow.summary["decode_sweep_s"], 1.3 * wide.summary["decode_sweep_s"])

    def run_plan(self, model, job, plan):
        path = self.fresh(".json")
        with open(path, "w", encoding="utf-8") as file:
            json.dump(plan, file)
        return self.run_job(model, job, "--plan", path)

    def test_staging_below_a_piece_is_refused_with_what_it_needs(self):
        job = self.job(token_requests(1, 8, 3))
        _, placement, _ = self.dry_run(tiny(), job, "--weights", "0/0/100", "--device-memory",
                                       "8MB", "--host-memory", "8MB")
        plan = placement["plan"]
        plan["staging_bytes"] = 0
        path = self.fresh(".json")
        with open(path, "w", encoding="utf-8") as file:
            json.dump(plan, file)
        run = self.run_job(tiny(), job, "--plan", path, status=4)
        self.assertIn("its largest piece needs", run.err)


if __name__ == "__main__":
    main()
