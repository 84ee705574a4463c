"""Streamed weights beside fio, and a balanced run beside its busiest lane.

  python3 tests/bench/streaming.py [--transload BINARY] [--folder FOLDER] [--rounds 3] [--json]

Makes a model of 1.1 GB with random weights in FOLDER, reads its file with fio (Debian's package) in
the blocks and at the depth of the disk lane, and runs a job with all weights on the disk, round by
round. Then makes loads and computation last equally long, by a larger batch or a slower disk: the
run should take little longer than one of them. Prints ratios; exit status 1 when one misses its
gate. Needs a machine without other work: both ratios are of wall time.
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
        """(lane's bytes/s while it is busy, bytes/s over the whole of the sweeps)."""
        summary = self.generate(1, SWEEPS)
        lane = summary["lanes"]["disk_read"]
        per_sweep = lane["bytes"] / summary["sweeps"]
        return lane["bytes"] / lane["busy_s"], per_sweep / summary["decode_sweep_s"]

    def balanced(self, batch):
        """(load / compute, time of all sweeps / busy time of the busiest lane)."""
        flags = []
        for _ in range(5):
            summary = self.generate(batch, 12, *flags)
            lanes = summary["lanes"]
            load, compute = lanes["disk_read"]["busy_s"], lanes["device_compute"]["busy_s"]
            seconds = summary["seconds"] - summary["load_seconds"]
            if 0.9 <= load / compute <= 1.1:
                break
            if load > compute and not flags:  # no disk gets faster: compute more
                batch = math.ceil(1.2 * batch * load / compute)
            else:
                flags = ["--disk-rate", int(lanes["disk_read"]["bytes"] / compute)]
        return load / compute, seconds / max(load, compute)


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
            fio = bench.fio_rate()
            lane, sweep = bench.streaming()
            rounds.append({"fio": fio, "lane": lane, "sweep": sweep})
            print(f"round {number + 1}: fio {fio / 1e9:.2f} GB/s, disk lane {lane / 1e9:.2f}, "
                  f"whole sweep {sweep / 1e9:.2f}", file=sys.stderr)
        balance, longer = bench.balanced(arguments.batch)
    report = {"lane_to_fio": statistics.median(r["lane"] / r["fio"] for r in rounds),
              "sweep_to_fio": statistics.median(r["sweep"] / r["fio"] for r in rounds),
              "load_to_compute": balance, "time_to_busiest_lane": longer, "rounds": rounds}
    if arguments.json:
        print(json.dumps(report))
    else:
        print(f"disk lane / fio           {report['lane_to_fio']:.2f}  (gate: {FIO_GATE})\n"
              f"whole sweep / fio         {report['sweep_to_fio']:.2f}\n"
              f"load / compute            {balance:.2f}\n"
              f"time / busiest lane       {longer:.2f}  (gate: {BALANCE_GATE})")
    passed = report["lane_to_fio"] >= FIO_GATE and longer <= BALANCE_GATE
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
