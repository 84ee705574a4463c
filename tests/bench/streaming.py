"""Streamed weights beside fio, and a balanced run beside its busiest lane.

  python3 tests/bench/streaming.py [--transload BINARY] [--folder FOLDER] [--rounds 3] [--json]

Makes a model of 1.1 GB with random weights in FOLDER, reads its file with fio (Debian's package) in
the blocks and at the depth of the disk lane, and runs a job with all weights on the disk, round by
round: the disk lane should reach most of fio's rate, and so should whole sweeps where they wait for
that lane. Then makes loads and computation last equally long, by a larger batch or a slower disk:
the run should take little longer than one of them. Prints ratios; exit status 1 when one misses its
gate or the two cannot be balanced. Needs a machine without other work: ratios are of wall time.
"""

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile

SHAPE = "2048,12,16,5632,32000"
BLOCK_KIB, DEPTH = 512, 16  # offload/disk.h, DiskOptions
SWEEPS = 9  # over the file, in either program
FIO_GATE, BALANCE_GATE = 0.85, 1.15
BALANCED = (0.9, 1.1)  # load / compute, where time / busiest lane is judged


def run(*command):
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        sys.exit(f"streaming: {os.path.basename(str(command[0]))} failed: {last}")
    return done.stdout


class Bench:
    def __init__(self, binary, folder, compute):
        self.binary, self.folder, self.compute = binary, folder, compute
        self.model = os.path.join(folder, "model")
        if not os.path.isdir(self.model):
            run(binary, "synth", "--family", "llama", "--shape", SHAPE, "-o", self.model)
        self.weights = os.path.join(self.model, "model.safetensors")

    def fio_rate(self):
        out = run("fio", "--name=weights", f"--filename={self.weights}", "--rw=read", "--readonly",
                  "--direct=1", "--ioengine=io_uring", f"--bs={BLOCK_KIB}k",
                  f"--iodepth={DEPTH}", f"--loops={SWEEPS}", "--output-format=json")
        return json.loads(out[out.index("{"):])["jobs"][0]["read"]["bw_bytes"]

    def generate(self, batch, tokens, *flags):
        job = os.path.join(self.folder, "job.jsonl")
        with open(job, "w", encoding="ascii") as file:
            for i in range(batch):
                line = {"id": i, "prompt_token_ids": [5 + i], "max_tokens": tokens,
                        "ignore_eos": True}
                file.write(json.dumps(line) + "\n")
        output = os.path.join(self.folder, "out.jsonl")
        for path in (output, output + ".state"):
            if os.path.exists(path):
                os.remove(path)
        return json.loads(run(
            self.binary, "generate", "--model", self.model, "--input", job, "--output", output,
            "--weights", "0/0/100", "--batch-size", batch, "--num-batches", 1, "--compute",
            self.compute, "--json", *flags))

    def streaming(self):
        """Bytes/s of the lane while it is busy and of whole sweeps; the lane that is busiest."""
        summary = self.generate(1, SWEEPS)
        lanes = summary["lanes"]
        lane = lanes["disk_read"]
        per_sweep = lane["bytes"] / summary["sweeps"]
        return {"lane": lane["bytes"] / lane["busy_s"],
                "sweep": per_sweep / summary["decode_sweep_s"],
                "busiest": max(lanes, key=lambda name: lanes[name]["busy_s"])}

    def balanced(self, batch):
        """(load / compute, time of all sweeps / busy time of the busiest lane) of the first run
        that is balanced, or of the last of five."""
        flags = []
        for _ in range(5):
            summary = self.generate(batch, 12, *flags)
            lanes = summary["lanes"]
            load, compute = lanes["disk_read"]["busy_s"], lanes["device_compute"]["busy_s"]
            seconds = summary["seconds"] - summary["load_seconds"]
            if is_balanced(load / compute):
                break
            if load > compute and not flags:  # no disk gets faster: compute more
                batch = math.ceil(1.2 * batch * load / compute)
            else:
                flags = ["--disk-rate", int(lanes["disk_read"]["bytes"] / compute)]
        return load / compute, seconds / max(load, compute)


def is_balanced(load_to_compute):
    return BALANCED[0] <= load_to_compute <= BALANCED[1]


def report_of(rounds, balance, longer):
    """sweep_to_fio: of the rounds in which no lane is busier than the disk's; else None."""
    bound = [r["sweep"] / r["fio"] for r in rounds if r["busiest"] == "disk_read"]
    return {"lane_to_fio": statistics.median(r["lane"] / r["fio"] for r in rounds),
            "sweep_to_fio": statistics.median(bound) if bound else None,
            "load_to_compute": balance, "time_to_busiest_lane": longer, "rounds": rounds}


def judge(report):
    """[(what, ratio or None, "held", "not gated: ..." or what is wrong)]"""
    def at_least(value, gate):
        return "held" if value >= gate else f"missed: at least {gate}"

    sweep, longer = report["sweep_to_fio"], report["time_to_busiest_lane"]
    balanced = is_balanced(report["load_to_compute"])
    return [("disk lane / fio", report["lane_to_fio"], at_least(report["lane_to_fio"], FIO_GATE)),
            ("whole sweep / fio", sweep,
             "not gated: a sweep waits for another lane than the disk's"
             if sweep is None else at_least(sweep, FIO_GATE)),
            ("load / compute", report["load_to_compute"],
             "held" if balanced else f"not balanced: {BALANCED[0]} to {BALANCED[1]}"),
            ("time / busiest lane", longer,
             "not measured: not balanced" if not balanced else
             "held" if longer <= BALANCE_GATE else f"missed: at most {BALANCE_GATE}")]


def passed(verdicts):
    return all(verdict.startswith(("held", "not gated")) for _, _, verdict in verdicts)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--transload", default="build/release/transload")
    parser.add_argument("--folder", help="where the model is kept; left out: a temporary one")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--batch", type=int, default=64, help="sequences of the balanced run")
    parser.add_argument("--compute", default="fast")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="transload-streaming-") as temporary:
        folder = arguments.folder or temporary
        os.makedirs(folder, exist_ok=True)
        bench = Bench(os.path.abspath(arguments.transload), folder, arguments.compute)
        rounds = []
        for number in range(arguments.rounds):
            rounds.append({"fio": bench.fio_rate(), **bench.streaming()})
            fio, lane, sweep = (rounds[-1][name] / 1e9 for name in ("fio", "lane", "sweep"))
            print(f"round {number + 1}: fio {fio:.2f} GB/s, disk lane {lane:.2f}, "
                  f"whole sweep {sweep:.2f}, busiest {rounds[-1]['busiest']}", file=sys.stderr)
        report = report_of(rounds, *bench.balanced(arguments.batch))
    verdicts = judge(report)
    if arguments.json:
        print(json.dumps({**report, "verdicts": {what: verdict for what, _, verdict in verdicts}}))
    else:
        for what, ratio, verdict in verdicts:
            print(f"{what:<22}{'' if ratio is None else f'{ratio:.2f}':>6}  {verdict}")
    return 0 if passed(verdicts) else 1


if __name__ == "__main__":
    sys.exit(main())
