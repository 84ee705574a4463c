"""transload, as a user runs it: a job file in, a job file out.

Under a budget the share of weights in memory is the largest with which the whole process, as
--dry-run says it, stays within; the rest is streamed from the checkpoint. Its time is that of all
sweeps, in which weights are read as well: there is no loading to leave out."""

import json
import os
import subprocess
import tempfile

import common

GROUP = None
FORM = "source"
VARIANTS = {f"transload-{compute}": {"compute": compute} for compute in ("fast", "float32")}


class Refused(Exception):
    """What the command said."""


class Command:
    def __init__(self, job, folder):
        self.job = job
        self.output = os.path.join(folder, "output.jsonl")
        requests = os.path.join(folder, "input.jsonl")
        with open(requests, "w", encoding="utf-8") as file:
            for i, ids in enumerate(job.prompts):
                line = {"id": i, "prompt_token_ids": ids, "ignore_eos": True}
                file.write(json.dumps(line) + "\n")
        self.line = [job.transload, "generate", "--model", job.model, "--input", requests,
                     "--output", self.output, "--json", "--threads", str(job.threads),
                     "--max-tokens", str(job.new_tokens), "--compute", job.settings["compute"]]

    def __call__(self, *flags):
        """(summary or plan, what the process used)."""
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            process = subprocess.Popen([*self.line, *flags], stdout=out, stderr=err,
                                       stdin=subprocess.DEVNULL)
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
            err.seek(0)
            if process.returncode != 0:
                lines = err.read().decode().strip().splitlines() or ["no message"]
                raise Refused(f"exit status {process.returncode}: {lines[-1]}")
            out.seek(0)
            return json.load(out), usage

    def needs_bytes(self, percent):
        """What a plan with that share of the weights in memory takes, process included."""
        plan, _ = self(*weights(percent), "--dry-run")
        memory = plan.get("placement", plan)["memory"]
        return memory["process_bytes"] + sum(memory[tier]["bytes"] for tier in ("device", "host"))

    def token_ids(self):
        with open(self.output, encoding="utf-8") as file:
            records = {record["id"]: record for record in map(json.loads, file)}
        return [records[i]["token_ids"] for i in range(len(self.job.prompts))]


def weights(percent):
    return ["--weights", f"{percent}/0/{100 - percent}"]


def placement(command, budget_bytes):
    """Flags of the largest share of weights in memory that stays within the budget."""
    if budget_bytes is None or command.needs_bytes(100) <= budget_bytes:
        return []
    low, high = 0, 100  # `low` fits, `high` does not
    needed = command.needs_bytes(low)
    if needed > budget_bytes:
        raise Refused(f"needs {needed / common.MB:.0f} MB with all weights on disk, "
                      f"may have {budget_bytes / common.MB:.0f} MB")
    while high - low > 1:
        middle = (low + high) // 2
        fits = command.needs_bytes(middle) <= budget_bytes
        low, high = (middle, high) if fits else (low, middle)
    return weights(low)


def load(job):
    version = subprocess.run([job.transload, "--version"], capture_output=True, text=True,
                             check=True).stdout.split()[-1]
    return {"transload": version}


def measure(job, versions):
    with tempfile.TemporaryDirectory(prefix="run-", dir=job.work) as folder:
        command = Command(job, folder)
        flags = placement(command, job.budget_bytes)
        caches = common.drop_caches([]) if job.drop_caches else "kept"
        before = common.bytes_read()
        summary, usage = command(*flags)
        token_ids, read_bytes = command.token_ids(), common.bytes_read() - before
    batch, share = summary["placement"]["batch"], summary["placement"]["plan"]["weights"]
    settings = {**job.settings, "kernels": summary["compute"], "disk": summary["disk"],
                "batch": f"{batch['num_batches']} x {batch['batch_size']}",
                "weights in memory": f"{1 - share['disk']:.0%}"}
    if job.drop_caches:
        caches = "direct I/O" if "O_DIRECT" in summary["disk"] else f"{caches.split()[0]} once"
    return {"seconds": summary["seconds"], "prefill_s": summary["first_sweep_s"],
            "timed_cpu_s": usage.ru_utime + usage.ru_stime, "tokens": summary["tokens"],
            "peak_bytes": usage.ru_maxrss * 1024, "read_bytes": read_bytes,
            "caches": caches, "versions": versions, "settings": settings, "token_ids": token_ids}


if __name__ == "__main__":
    common.run(load, measure)
