"""streaming_test.py TRANSLOAD: what tests/bench/streaming.py makes of what it measured."""

import os
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "bench"))
import streaming  # noqa: E402


class FixedBench(streaming.Bench):
    """Runs whose loads last as long as `load_s` says, one after the other."""

    def __init__(self, load_s, compute_s=1.0):
        self.load_s, self.compute_s, self.runs = list(load_s), compute_s, []

    def generate(self, batch, tokens, *flags):
        self.runs.append((batch, *flags))
        load_s = self.load_s.pop(0)
        return {"lanes": {"disk_read": {"busy_s": load_s, "bytes": 100},
                          "device_compute": {"busy_s": self.compute_s, "bytes": 0}},
                "seconds": 1.2 * max(load_s, self.compute_s), "load_seconds": 0.0}


def round_of(lane=0.9, sweep=0.9, busiest="disk_read"):
    return {"fio": 1.0, "lane": lane, "sweep": sweep, "busiest": busiest}


def verdicts(rounds=(round_of(),), balance=1.0, longer=1.1):
    return {what: verdict for what, _, verdict in
            streaming.judge(streaming.report_of(list(rounds), balance, longer))}


def passes(*arguments, **names):
    return streaming.passed(streaming.judge(streaming.report_of(*arguments, **names)))


class Gates(unittest.TestCase):
    def test_all_hold(self):
        self.assertEqual(set(verdicts().values()), {"held"})
        self.assertTrue(passes([round_of()], 1.0, 1.15))

    def test_a_run_that_is_not_balanced_proves_nothing(self):
        for balance in (0.89, 1.11):
            found = verdicts(balance=balance, longer=1.0)
            self.assertRegex(found["load / compute"], "^not balanced")
            self.assertRegex(found["time / busiest lane"], "^not measured")
            self.assertFalse(passes([round_of()], balance, 1.0))

    def test_the_balanced_run_has_a_gate(self):
        self.assertRegex(verdicts(longer=1.16)["time / busiest lane"], "^missed")
        self.assertFalse(passes([round_of()], 1.0, 1.16))

    def test_the_lane_has_a_gate(self):
        rounds = [round_of(lane=0.8), round_of(lane=0.84), round_of(lane=0.9)]
        self.assertRegex(verdicts(rounds)["disk lane / fio"], "^missed")
        self.assertFalse(passes(rounds, 1.0, 1.0))

    def test_whole_sweeps_have_a_gate_where_the_disk_is_what_they_wait_for(self):
        rounds = [round_of(sweep=0.84)]
        self.assertRegex(verdicts(rounds)["whole sweep / fio"], "^missed")
        self.assertFalse(passes(rounds, 1.0, 1.0))
        rounds = [round_of(sweep=0.4, busiest="device_compute")]
        self.assertRegex(verdicts(rounds)["whole sweep / fio"], "^not gated")
        self.assertTrue(passes(rounds, 1.0, 1.0))
        self.assertEqual(verdicts([*rounds, round_of()])["whole sweep / fio"], "held")


class Balance(unittest.TestCase):
    def test_more_sequences_then_a_slower_disk_balance_a_run(self):
        bench = FixedBench([2.0, 0.5, 1.0])
        self.assertEqual(bench.balanced(10), (1.0, 1.2))
        self.assertEqual(bench.runs, [(10,), (24,), (24, "--disk-rate", 100)])

    def test_what_stays_unbalanced_is_reported_as_it_is(self):
        bench = FixedBench([0.5] * 9)
        balance, _ = bench.balanced(10)
        self.assertEqual((balance, len(bench.runs)), (0.5, 5))


if __name__ == "__main__":
    sys.argv = sys.argv[:1]  # without the binary, which this does not run
    unittest.main()
