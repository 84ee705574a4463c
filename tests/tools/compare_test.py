"""compare_test.py TRANSLOAD: tools/compare with peers that only pretend, and with transload."""

import contextlib
import csv
import dataclasses
import io
import json
import os
import shutil
import sys
import unittest
import unittest.mock

from compare_fakes import Fakes  # finds the modules of tools/compare
import report
import rounds
import run
import summary

TRANSLOAD = os.path.abspath(sys.argv.pop(1) if len(sys.argv) > 1 else "transload")
MB = 10**6


class Rounds(Fakes):
    def test_all_peers_run_once_before_any_runs_again(self):
        self.fake("a")
        self.fake("b")
        _, ran = self.run_plan(self.plan(["b", "a"], (1, 2), count=2))
        self.assertEqual(ran, ["b 1", "a 1", "b 1", "a 1", "b 2", "a 2", "b 2", "a 2"])

    def test_what_was_measured_is_not_run_again(self):
        self.fake("a")
        self.fake("b")
        first, _ = self.run_plan(self.plan(["a"], count=2))
        second, ran = self.run_plan(self.plan(["a", "b"], count=3))
        self.assertEqual(ran, ["b 1", "b 1", "a 1", "b 1"])
        self.assertEqual((first["a", 1].rounds, second["a", 1].rounds), (2, 3))

    def test_a_run_whose_line_is_torn_is_run_again_and_the_others_are_kept(self):
        self.fake("a")
        self.run_plan(self.plan(["a"], (1, 2)))
        with open(self.results, "r+b") as file:
            file.truncate(os.path.getsize(self.results) - 9)
        for again in (["a 2"], []):
            cells, ran = self.run_plan(self.plan(["a"], (1, 2)))
            self.assertEqual(ran, again)
            self.assertEqual([cell.rounds for cell in cells.values()], [1, 1])

    def test_a_peer_that_changed_is_run_again(self):
        self.fake("a")
        self.run_plan(self.plan(["a"]))
        self.fake("a", rate={"1": 20.0})
        cells, ran = self.run_plan(self.plan(["a"]))
        self.assertEqual(ran, ["a 1"])
        self.assertAlmostEqual(cells["a", 1].tokens_per_s, 20.0)

    def test_a_slow_peer_is_neither_repeated_nor_run_at_larger_batches(self):
        self.fake("quick", rate={"1": 100.0})
        self.fake("slow", rate={"1": 40.0})
        self.fake("transload-fast", rate={"1": 1.0})
        plan = self.plan(["quick", "slow", "transload-fast"], (1, 2), count=2, contenders=0.5)
        cells, ran = self.run_plan(plan)
        self.assertEqual([ran.count(f"slow {batch}") for batch in (1, 2)], [1, 0])
        self.assertEqual([ran.count(f"transload-fast {batch}") for batch in (1, 2)], [2, 2])
        self.assertEqual(cells["slow", 2].obstacle, "below 0.5 of the best at batch 1")


class Obstacles(Fakes):
    def obstacle_of(self, timeout_s=60, **settings):
        self.fake("bad", **settings)
        self.fake("good")
        cells, ran = self.run_plan(self.plan(["bad", "good"], count=2, timeout_s=timeout_s))
        self.assertEqual(cells["good", 1].rounds, 2)
        self.assertLessEqual(ran.count("bad 1"), 1, "what cannot run is tried once")
        return cells["bad", 1].obstacle

    def test_a_signal(self):
        self.assertEqual(self.obstacle_of(end="signal"), "died of SIGSEGV: cannot go on")

    def test_an_exit_status(self):
        self.assertEqual(self.obstacle_of(end="status"), "exit status 3: last words")

    def test_too_long_a_run_is_ended_with_all_that_it_started(self):
        self.assertEqual(self.obstacle_of(end="hang", timeout_s=1.5), "not done after 1.5 s")
        left = [pid for pid in filter(str.isdigit, os.listdir("/proc"))
                if self.log.encode() in command_of(pid)]
        self.assertEqual(left, [])

    def test_packages_that_cannot_be_installed(self):
        self.assertEqual(self.obstacle_of(group="torch"), "not installed: no such package")

    def test_retry_runs_it_again(self):
        self.fake("bad", end="status")
        self.run_plan(self.plan(["bad"]))
        self.assertEqual(self.run_plan(self.plan(["bad"]))[1], [])
        self.assertEqual(self.run_plan(self.plan(["bad"], retry=True))[1], ["bad 1"])


def command_of(pid):
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return file.read()
    except OSError:
        return b""


class Memory(Fakes):
    def test_the_best_batch_is_the_fastest_within_the_limit(self):
        self.fake("a", rate={"1": 5.0, "4": 20.0, "16": 40.0}, peak_mb={"4": 100, "16": 200})
        cells, _ = self.run_plan(self.plan(["a"], (1, 4, 16), limit_bytes=100 * MB))
        best = summary.best_batches(cells.values())
        self.assertEqual({name: cell.batch for name, cell in best.items()}, {"a": 4})
        self.assertIs(cells["a", 16].within_memory, False)

    def test_a_peer_over_the_limit_is_not_run_at_larger_batches(self):
        self.fake("a", peak_mb={"4": 101})
        cells, ran = self.run_plan(self.plan(["a"], (1, 4, 16), count=2, limit_bytes=100 * MB))
        self.assertEqual(ran, ["a 1", "a 1", "a 4"])
        self.assertEqual(cells["a", 16].obstacle, "over the memory limit at batch 4")

    def test_we_stay_within_the_limit_in_each_round_and_others_in_one(self):
        peaks = [100 * MB, 101 * MB]
        self.assertIs(summary.within(peaks, 100 * MB, is_ours=True), False)
        self.assertIs(summary.within(peaks, 100 * MB, is_ours=False), True)
        self.assertIs(summary.within(peaks, 99 * MB, is_ours=False), False)

    def test_the_limit_may_be_the_peak_of_a_peer(self):
        self.fake("a", peak_mb={"1": 70})
        self.fake("b", peak_mb={"1": 71})
        cells, ran = self.run_plan(self.plan(["b", "a"], limit_peer="a"))
        self.assertEqual(ran, ["a 1", "b 1"])
        self.assertEqual([cells[name, 1].within_memory for name in "ab"], [True, False])


class Tokens(Fakes):
    def test_they_are_compared_with_the_first_peer_in_float32(self):
        self.fake("first-bfloat16", wrong=[[0, 1], [1, 0], [1, 3]])
        self.fake("second-float32")
        self.fake("third-float32", wrong=[[1, 2]])
        cells, _ = self.run_plan(self.plan(["first-bfloat16", "second-float32", "third-float32"],
                                           (2,)))
        seen = [(cell.equal_tokens, cell.first_difference) for cell in cells.values()]
        self.assertEqual(seen, [(5 / 8, "token 2 of prompt 1"), (1.0, ""),
                                (7 / 8, "token 3 of prompt 2")])

    def test_without_float32_they_are_compared_with_the_first_peer(self):
        self.fake("a-bfloat16")
        self.fake("b-float16", wrong=[[0, 3]])
        cells, _ = self.run_plan(self.plan(["a-bfloat16", "b-float16"]))
        self.assertEqual(cells["b-float16", 1].first_difference, "token 4 of prompt 1")

    def test_a_token_that_is_missing_differs(self):
        self.assertEqual(summary.compare_tokens([[1, 2, 3, 4]], [[1, 2]]),
                         (0.5, "token 3 of prompt 1"))


def cell(peer, batch, rate, peak_mb):
    return summary.Cell(peer, batch, 1, tokens_per_s=rate, peak_mb=peak_mb)


class Reports(Fakes):
    def test_the_csv_has_a_line_a_cell_and_a_column_a_field(self):
        self.fake("a")
        self.fake("b", end="status")
        cells, _ = self.run_plan(self.plan(["a", "b"], (1, 2)))
        table = list(csv.DictReader(io.StringIO(report.as_csv(cells.values()))))
        self.assertEqual(list(table[0]), [f.name for f in dataclasses.fields(summary.Cell)])
        self.assertEqual([(line["peer"], line["batch"], line["tokens_per_s"], line["peak_mb"],
                           line["versions"], line["obstacle"]) for line in table],
                         [("a", "1", "10.0", "50.0", "fake 1.0", ""),
                          ("b", "1", "", "", "", "exit status 3: last words"),
                          ("a", "2", "10.0", "50.0", "fake 1.0", ""),
                          ("b", "2", "", "", "", "exit status 3: last words")])

    def test_tables_name_the_obstacle_and_star_the_best_batch(self):
        cells = [cell("a", 1, 5.0, 10), cell("a", 4, 9.0, 20),
                 summary.Cell("b", 1, obstacle="died of SIGILL: a | b")]
        self.assertIn("a *", report.text(cells, limited=True).splitlines()[2])
        self.assertIn("died of SIGILL: a \\| b |", report.markdown(cells).splitlines()[-1])

    def test_a_gate_asks_at_each_batch_for_speed_and_memory(self):
        cells = [cell("transload-fast", 1, 30.0, 50), cell("p", 1, 20.0, 100), cell("q", 1, 9, 9),
                 cell("transload-fast", 4, 29.0, 50), cell("p", 4, 20.0, 100),
                 cell("transload-fast", 16, 90.0, 51), cell("p", 16, 20.0, 100)]
        checks = summary.Gate(1.5, 0.5, at_each_batch=True).check(cells)
        self.assertEqual([held for held, _ in checks], [True, False, False])

    def test_a_gate_says_the_ratio_by_processor_time_as_well(self):
        cells = [summary.Cell("transload-fast", 1, 1, tokens_per_s=8.0, seconds_median=4.0,
                              cpu_s_median=2.0, peak_mb=1),
                 summary.Cell("p", 1, 1, tokens_per_s=4.0, seconds_median=8.0, cpu_s_median=7.0,
                              peak_mb=9)]
        (held, line), = summary.Gate(1.5, 0.5, at_each_batch=True).check(cells)
        self.assertTrue(held)
        self.assertIn("2.00 times (asked 1.5; 3.50 by CPU time), 0.11 of its peak", line)

    def test_a_gate_compares_the_best_batches_within_the_limit(self):
        cells = [cell("transload-fast", 4, 4.0, 90), cell("transload-fast", 8, 9.0, 120),
                 cell("p", 4, 1.0, 100)]
        cells[1].within_memory = False
        gate = summary.Gate(4.0, 1.0, at_each_batch=False)
        self.assertEqual([held for held, _ in gate.check(cells)], [True])
        cells[0].tokens_per_s = 3.9
        self.assertEqual([held for held, _ in gate.check(cells)], [False])
        self.assertEqual(gate.check([cell("p", 4, 1.0, 100)])[0][0], False)


class RequiredPeers(Fakes):
    GATE = summary.Gate(1.5, 1.0, at_each_batch=True, required=("p", "q"))

    def check(self, names=("transload-fast", "p", "q"), batches=(1,), gate=GATE, **options):
        self.fake("transload-fast", rate={"1": 40.0, "2": 40.0})
        self.fake("p")
        cells, _ = self.run_plan(self.plan(list(names), batches, **options))
        return gate.check(cells.values())

    def test_nothing_holds_where_one_could_not_run(self):
        self.fake("q", end="status")
        for at_each_batch, where in ((True, "batch 1"), (False, "each at its best batch")):
            gate = dataclasses.replace(self.GATE, at_each_batch=at_each_batch)
            self.assertEqual(self.check(gate=gate), [
                (False, f"{where}: not measured: q: exit status 3: last words")])

    def test_one_that_cannot_be_installed_is_named(self):
        self.fake("q", group="torch")
        self.assertEqual(self.check(), [
            (False, "batch 1: not measured: q: not installed: no such package")])

    def test_one_that_was_not_asked_for_is_named(self):
        self.assertEqual(self.check(names=("transload-fast", "p")), [
            (False, "batch 1: not measured: q: not among the peers")])

    def test_a_slow_one_may_be_left_out(self):
        self.fake("q", rate={"1": 1.0, "2": 1.0})
        checks = self.check(batches=(1, 2), contenders=0.5)
        self.assertEqual([held for held, _ in checks], [True, True], checks)

    def test_one_over_the_memory_limit_may_be_left_out(self):
        self.fake("q", peak_mb={"1": 101, "2": 101})
        gate = dataclasses.replace(self.GATE, at_each_batch=False)
        checks = self.check(batches=(1, 2), gate=gate, limit_bytes=100 * MB)
        self.assertEqual([held for held, _ in checks], [True], checks)


class Command(Fakes):
    def compare(self, *arguments, status=0):
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            got = run.main(["--transload", TRANSLOAD, "--no-chart", "--output",
                            os.path.join(self.folder, "out"), *arguments])
        self.assertEqual(got, status, err.getvalue())
        return out.getvalue(), err.getvalue()

    def model(self, shape="32,2,2,64,260"):
        folder = os.path.join(self.folder, "model")
        os.environ["TRANSLOAD_CACHE"] = os.path.join(self.folder, "cache")
        rounds.run_process([TRANSLOAD, "synth", "--family", "llama", "--shape", shape,
                            "--max-positions", "64", "-o", folder], 60, {})
        return ["--model", folder, "--prompt-tokens", "8", "--new-tokens", "4", "--batches", "1,3"]

    def test_a_dry_run_names_the_order_and_measures_nothing(self):
        out, _ = self.compare("--gate", "memory", "--dry-run", "--batches", "4")
        self.assertEqual(out, "batch 4: 3 rounds of transload-fast, transformers-float32, "
                              "transformers-bfloat16, llama.cpp\n")
        self.assertEqual(os.listdir(self.folder), ["peers"])

    def test_a_gate_that_was_not_measured_is_an_exit_status(self):
        self.fake("transload-fast", rate={"1": 40.0})
        self.fake("p")
        gate = summary.Gate(1.5, 1.0, at_each_batch=True, required=("p",))
        arguments = [*self.model(), "--batches", "1", "--peers-folder", self.peers_folder, "--gate",
                     "fake", "--fresh"]
        with unittest.mock.patch.dict(run.GATES, {"fake": ({"peers": "transload-fast,p",
                                                            "rounds": 1}, gate)}):
            out, _ = self.compare(*arguments)
            self.assertIn("gate fake: batch 1: transload-fast", out)
            self.fake("p", end="status")
            out, _ = self.compare(*arguments, status=1)
        self.assertIn("gate fake: batch 1: not measured: p: exit status 3: last words\n", out)

    def test_every_gate_requires_the_peers_that_it_runs(self):
        for presets, gate in run.GATES.values():
            self.assertEqual({gate.ours, *gate.required}, set(presets["peers"].split(",")))

    def test_transload_is_a_peer(self):
        out, err = self.compare(*self.model(), "--peers", "transload-float32,transload-fast",
                                "--rounds", "2", "--json")
        cells = json.loads(out)["cells"]
        self.assertEqual([(c["peer"], c["batch"], c["rounds"], c["obstacle"]) for c in cells],
                         [("transload-float32", 1, 2, ""), ("transload-fast", 1, 2, ""),
                          ("transload-float32", 3, 2, ""), ("transload-fast", 3, 2, "")], err)
        self.assertTrue(all(c["peak_mb"] > 5 and c["seconds_median"] > 0 for c in cells))
        self.assertEqual([c["equal_tokens"] for c in cells[::2]], [1.0, 1.0])
        for ending in (".txt", ".md", ".csv", ".json", ".jsonl"):
            self.assertTrue(os.path.getsize(os.path.join(self.folder, "out" + ending)))

    def test_transload_stays_within_the_memory_that_it_gets(self):
        job = [*self.model("512,8,8,2048,2048"), "--peers", "transload-float32", "--rounds", "1"]
        whole = json.loads(self.compare(*job, "--json")[0])["cells"][0]
        limit = f"{whole['peak_mb'] * 0.8:.0f}MB"
        cells = json.loads(self.compare(*job, "--json", "--memory", limit)[0])["cells"]
        self.assertEqual([c["within_memory"] for c in cells], [True, True])
        self.assertNotIn("weights in memory 100%", cells[0]["settings"])

    def test_what_is_wrong_with_the_options_is_one_line(self):
        for arguments, what in ((["--peers", "nobody"], "no peer nobody"),
                                (["--model", "/nowhere"], "/nowhere: not there"),
                                (["--memory", "much", *self.model()], "much: a size as 1.1GB"),
                                ([*self.model(), "--prompt-tokens", "64"], "the model has 64")):
            shutil.rmtree(os.path.join(self.folder, "model"), ignore_errors=True)
            self.model()
            _, err = self.compare(*arguments, status=2)
            self.assertEqual(err.count("\n"), 1, err)
            self.assertIn(what, err)


if __name__ == "__main__":
    unittest.main(verbosity=2)
