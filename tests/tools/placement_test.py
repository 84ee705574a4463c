"""Placements are chosen, explained and kept; slow runs say that they are alive."""

import json
import os
import re
import shutil
import struct
import threading
import time

from support import CommandTest, main, prompt_ids, read_lines, tiny


def requests(count=4, **fields):
    return [{"id": i, "prompt_token_ids": prompt_ids(i, 6), "max_tokens": 4, "ignore_eos": True,
             **fields} for i in range(count)]


class Explained(CommandTest):
    def test_without_a_flag_a_placement_is_chosen_and_explained(self):
        result = self.check_status(self.transload(
            "generate", "--model", tiny(), "--input", self.job(requests()), "--output",
            self.fresh()))
        for line in (r"^placement \(percent on device/host/disk\): weights 100/0/0, KV cache "
                     r"100/0/0, activations 100/0/0$", r"^device: .* of .*: .*weights .*KV cache",
                     r"^process: ", r"^batch size \d+, number of batches \d+, effective batch \d+$",
                     r"^predicted: .*tokens/s", r"^predicted: \w+-bound: ",
                     r"where a line says nothing: temperature 0, max_tokens 256",
                     r"^4 requests finished, 0 error records, 0 were done before$",
                     r"tokens/s \(predicted [\d.]+\)", r"^device_compute .*%.*%$"):
            self.assertRegex(result.err, re.compile(line, re.MULTILINE))
        self.assertEqual(result.out, "")

    def test_a_dry_run_prints_the_plan_and_writes_nothing(self):
        job, output = self.job(requests()), self.path("out.jsonl")
        command = ["generate", "--model", tiny(), "--input", job, "--output", output, "--dry-run"]
        before = sorted(os.listdir(self.folder))
        text = self.check_status(self.transload(*command)).out
        self.assertRegex(text, r"^placement \(percent")
        plan = json.loads(self.check_status(self.transload(*command, "--json")).out)
        self.assertEqual(plan["plan"]["weights"], {"device": 1, "host": 0, "disk": 0})
        for name, tier in plan["memory"].items():
            if name != "process_bytes":
                self.assertLessEqual(sum(tier["parts"].values()), tier["bytes"])
                self.assertLessEqual(tier["bytes"], tier["budget_bytes"])
        self.assertEqual(sorted(os.listdir(self.folder)), before)

    def test_a_plan_from_a_file_is_run_as_it_stands(self):
        job = self.job(requests(8))
        flags = ["--weights", "25/25/50", "--kv", "0/50/50", "--batch-size", 2, "--num-batches", 2]
        command = ["generate", "--model", tiny(), "--input", job, "--output", self.fresh()]
        printed = self.check_status(self.transload(*command, *flags, "--dry-run", "--json")).out
        path = self.path("plan.json")
        with open(path, "w", encoding="utf-8") as file:
            file.write(printed)
        output, summary = self.generate_json(tiny(), job, "--plan", path)
        self.assertEqual(summary["placement"]["plan"], json.loads(printed)["plan"])
        self.check_same_lines(self.generate(tiny(), job), output)

    def test_a_finished_run_is_a_trace_with_a_row_a_lane(self):
        trace = self.path("trace.json")
        _, summary = self.generate_json(tiny(), requests(), "--weights", "20/40/40", "--trace",
                                        trace)
        with open(trace, encoding="utf-8") as file:
            events = json.load(file)
        rows = {event["tid"]: event["args"]["name"] for event in events
                if event["name"] == "thread_name"}
        tasks = {name: 0 for name in rows.values()}
        for event in events:
            if event["ph"] == "X":
                tasks[rows[event["tid"]]] += 1
                self.assertGreaterEqual(event["dur"], 0)
        self.assertEqual({name for name, count in tasks.items() if count},
                         set(summary["lanes"]))
        for name, lane in summary["lanes"].items():  # and what was loaded ahead at the end
            self.assertGreaterEqual(tasks[name], lane["tasks"])


class HostBudget(CommandTest):
    def run_with(self, model, percent, total):
        """(weights' share on the host, bytes of them, bytes read from disk a sweep)."""
        flags = ["--device-memory", "3MB", "--host-memory", total * percent // 100, "--kv",
                 "0/100/0", "--batch-size", 1, "--num-batches", 1]
        output, summary = self.generate_json(model, requests(), *flags)
        memory = summary["placement"]["memory"]["host"]
        self.assertLessEqual(memory["bytes"], total * percent // 100)
        return (output, summary["placement"]["plan"]["weights"]["host"],
                memory["parts"]["weights"],
                summary["lanes"]["disk_read"]["bytes"] / summary["sweeps"])

    def test_a_larger_host_budget_holds_more_weights_and_reads_less_from_disk(self):
        model = self.path("model")
        self.check_status(self.transload("synth", "--family", "llama", "--shape",
                                         "256,8,4,768,1024", "-o", model))
        shown = self.check_status(self.transload("inspect", model, "--json"))
        total = json.loads(shown.out)["model"]["weight_bytes"]
        small_output, small, small_bytes, small_read = self.run_with(model, 25, total)
        large_output, large, large_bytes, large_read = self.run_with(model, 75, total)
        self.check_same_lines(small_output, large_output)
        self.assertAlmostEqual(large - small, 0.5, delta=0.05)
        self.assertAlmostEqual(large_bytes - small_bytes, 0.5 * total, delta=0.05 * total)
        self.assertAlmostEqual(small_read - large_read, 0.5 * total, delta=0.08 * total)


class Progress(CommandTest):
    def stamped(self, process):
        """(seconds, line) of what the process writes to standard error until it ends."""
        lines = []

        def read():
            for line in process.stderr:
                lines.append((time.monotonic(), line.decode().strip()))
        reader = threading.Thread(target=read)
        begin = time.monotonic()
        reader.start()
        status = process.wait()
        reader.join()
        return status, begin, time.monotonic(), lines

    def test_a_slow_run_reports_at_least_every_5_s_in_every_phase(self):
        """Weights come from the disk in 5 s, and over the link in 6 s for each sweep."""
        process = self.start("generate", "--model", tiny(), "--input",
                             self.job(requests(2, max_tokens=2)), "--output", self.fresh(),
                             "--weights", "0/100/0", "--disk-rate", "160kB", "--link-rate",
                             "140kB", "--batch-size", 2, "--num-batches", 1)
        status, begin, end, lines = self.stamped(process)
        self.assertEqual(status, 0, lines)
        self.assertGreater(end - begin, 12)
        times = [begin, *(stamp for stamp, _ in lines), end]
        gaps = [late - early for early, late in zip(times, times[1:])]
        self.assertLess(max(gaps), 5, lines)
        for phase, unit in (("open", "bytes"), ("load", "bytes"), ("prefill", "requests"),
                            ("decode", "requests")):
            records = [line for _, line in lines if line.startswith(f"{phase}: ")]
            self.assertGreaterEqual(len(records), 4 if phase in ("load", "decode") else 2,
                                    phase)
            for record in records:
                self.assertRegex(record, rf"^{phase}: \d+( of \d+)? {unit}")
            self.assertIn(", took ", records[-1])
        self.assertRegex("\n".join(line for _, line in lines), r"(?m)^decode: .* tokens/s")


class DumpedActivations(CommandTest):
    def copy_with_flipped_weight(self, tensor):
        """A copy in which the first number of a tensor has another sign."""
        copy = self.fresh(ending="")
        shutil.copytree(tiny(), copy)
        with open(os.path.join(copy, "model.safetensors"), "r+b") as file:
            size, = struct.unpack("<Q", file.read(8))
            begin, _ = json.loads(file.read(size))[tensor]["data_offsets"]
            file.seek(8 + size + begin + 3)  # float32, little-endian: the sign is in byte 3
            byte = file.read(1)[0]
            file.seek(-1, os.SEEK_CUR)
            file.write(bytes([byte ^ 0x80]))
        return copy

    def dump(self, model, *flags):
        path = self.fresh()
        self.generate(model, requests(2, max_tokens=1), "--dump-activations", path, *flags)
        return [json.loads(line) for line in read_lines(path)]

    def by_place(self, rows):
        return {(row["request"], row["position"], row["layer"]): row for row in rows}

    def test_the_layer_of_a_flipped_weight_is_the_first_that_differs(self):
        want = self.by_place(self.dump(tiny()))
        layers = sorted({layer for _, _, layer in want})
        self.assertEqual(layers, [-1, 0, 1, 2])
        for layer in (0, 1, 2):
            model = self.copy_with_flipped_weight(
                f"model.layers.{layer}.mlp.down_proj.weight")
            got = self.by_place(self.dump(model))
            self.assertEqual(set(got), set(want))
            differs = {place[2] for place in want if want[place]["hash"] != got[place]["hash"]}
            self.assertEqual(min(differs), layer)
            for place, row in want.items():
                same = abs(row["norm"] - got[place]["norm"]) < 1e-9
                self.assertEqual(same, place[2] < layer, place)

    def test_a_dump_is_the_same_under_every_placement(self):
        want = self.by_place(self.dump(tiny()))
        for flags in (["--weights", "0/0/100", "--activations", "0/100"],
                      ["--weights", "30/30/40", "--kv", "0/50/50", "--batch-size", 1]):
            got = self.by_place(self.dump(tiny(), *flags))
            self.assertEqual({place: row["hash"] for place, row in got.items()},
                             {place: row["hash"] for place, row in want.items()})

    def test_a_hash_stands_for_numbers_of_finite_norm(self):
        for row in self.dump(tiny()):
            self.assertGreater(row["norm"], 0)
            self.assertRegex(row["hash"], r"^[0-9a-f]{16}$")
            self.assertEqual(len(row["first"]), 4)
            self.assertLessEqual(sum(value * value for value in row["first"]),
                                 row["norm"] ** 2 * (1 + 1e-6))


if __name__ == "__main__":
    main()
