"""Runs the peers in turn, a process a run, and keeps what each said in a file that is appended.

All peers run once, then all again: what disturbs the machine meets everybody alike. What the file
has already is not run again."""

import contextlib
import dataclasses
import json
import os
import resource
import signal
import subprocess
import sys
import time

import summary

MB = 1_000_000


@dataclasses.dataclass
class Plan:
    peers: list  # of Peer, in order; the first in float32, or else the first, is the reference
    batches: list
    rounds: int
    threads: int
    new_tokens: int
    prompts: list
    job: str  # a digest of model, prompts, tokens and threads
    timeout_s: float = 600
    limit_bytes: int | None = None  # of peak memory
    limit_peer: str | None = None  # whose peak memory at the first batch is the limit
    drop_caches: bool = False
    contenders: float = 0.0  # share of the best peer's rate below which a peer is not repeated
    retry: bool = False  # run again what met an obstacle

    @property
    def reference(self):
        return next((peer for peer in self.peers if peer.is_float32), self.peers[0])


class Results:
    """Rows by what they measured; the file has a JSON object a line, the last one counts."""

    def __init__(self, path):
        self.path, self.rows = path, {}
        if path and os.path.exists(path):
            with open(path, encoding="utf-8") as file:
                for line in file:
                    with contextlib.suppress(ValueError):  # torn where a run ended as it wrote
                        row = json.loads(line)
                        self.rows[tuple(row["key"])] = row

    def get(self, key):
        return self.rows.get(tuple(key))

    def add(self, row):
        self.rows[tuple(row["key"])] = row
        if self.path:
            os.makedirs(os.path.dirname(os.path.abspath(self.path)), exist_ok=True)
            torn = os.path.exists(self.path) and not ends_whole(self.path)
            with open(self.path, "a", encoding="utf-8") as file:
                file.write("\n" * torn + json.dumps(row) + "\n")


def ends_whole(path):
    with open(path, "rb") as file:
        file.seek(0, os.SEEK_END)
        if file.tell() == 0:
            return True
        file.seek(-1, os.SEEK_END)
        return file.read(1) == b"\n"


def last_json(text):
    """The last line that is a JSON object, or None."""
    for line in reversed(text.splitlines()):
        if line.startswith("{"):
            try:
                return json.loads(line)
            except ValueError:
                pass
    return None


def how_it_ended(status, err):
    """The obstacle of a process that printed no result."""
    lines = err.strip().splitlines() or ["no message"]
    if status < 0:
        return f"died of {signal.Signals(-status).name}: {lines[-1][:200]}"
    return f"exit status {status}: {lines[-1][:200]}"


def run_process(command, timeout_s, variables):
    """What a peer printed, or its obstacle; with the seconds of the whole process."""
    before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, start_new_session=True, text=True,
                               errors="replace", env={**os.environ, **variables})
    try:
        out, err = process.communicate(timeout=timeout_s)
        row = last_json(out) or {"obstacle": how_it_ended(process.returncode, err)}
    except subprocess.TimeoutExpired:
        row = {"obstacle": f"not done after {timeout_s:g} s"}
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)  # its own session: all that it started
            process.communicate()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    row["process_s"] = time.monotonic() - begin
    row["cpu_s"] = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return row


class Runner:
    """environment and models: as in environment.py and models.py."""

    def __init__(self, plan, source, results, environment, models, transload, work, say=print):
        self.plan, self.source, self.results = plan, source, results
        self.environment, self.models = environment, models
        self.transload, self.work, self.say = transload, work, say
        self.left_out = {}  # (peer, batch) -> why
        self.used = []  # rows of this comparison, old ones too

    def run(self):
        """All rows of the plan."""
        if self.plan.limit_peer:
            self.find_limit()
        for batch in self.plan.batches:
            for number in range(self.plan.rounds):
                for peer in self.plan.peers:
                    if (peer.name, batch) not in self.left_out:
                        self.used.append(self.one(peer, batch, number))
                self.leave_out(batch, number)
        return self.used

    def find_limit(self):
        peer = next(peer for peer in self.plan.peers if peer.name == self.plan.limit_peer)
        row = self.one(peer, self.plan.batches[0], 0)
        if "obstacle" in row:
            raise RuntimeError(f"--memory {peer.name}: {row['obstacle']}")
        self.plan.limit_bytes = row["peak_bytes"]
        self.say(f"memory limit: {row['peak_bytes'] / MB:.0f} MB, the peak of {peer.name} "
                 f"at batch {self.plan.batches[0]}")

    def key(self, peer, batch, number):
        budget = self.plan.limit_bytes if peer.is_ours else None
        return [self.plan.job, peer.name, peer.identity, batch, number, budget]

    def one(self, peer, batch, number):
        key = self.key(peer, batch, number)
        row = self.results.get(key)
        if row and not (self.plan.retry and "obstacle" in row):
            self.say(self.progress(row, "kept"))
            return row
        row = self.measure(peer, batch)
        row.update(key=key, peer=peer.name, batch=batch, round=number,
                   time=time.strftime("%Y-%m-%dT%H:%M:%S"), load_1m=os.getloadavg()[0],
                   threads=self.plan.threads)
        self.results.add(row)
        self.say(self.progress(row, "ran"))
        return row

    def measure(self, peer, batch):
        obstacle = self.environment.install(peer.group)
        model, problem = (None, None) if obstacle else self.models.form(
            self.source, peer.form, peer.settings.get("dtype"))
        if obstacle or problem:
            return {"obstacle": obstacle or problem}
        python = self.environment.python if peer.group else sys.executable
        job = {"peer": peer.name, "model": model, "prompts": self.plan.prompts[:batch],
               "new_tokens": self.plan.new_tokens, "threads": self.plan.threads,
               "work": os.path.join(self.work, self.plan.job, peer.name),
               "settings": peer.settings, "drop_caches": self.plan.drop_caches,
               "budget_bytes": self.plan.limit_bytes, "transload": self.transload}
        os.makedirs(job["work"], exist_ok=True)
        path = os.path.join(job["work"], "job.json")
        with open(path, "w", encoding="utf-8") as file:
            json.dump(job, file)
        return run_process([python, "-B", peer.path, path], self.plan.timeout_s,
                           self.environment.variables(peer.group))

    def progress(self, row, how):
        text = (f"obstacle: {row['obstacle']}" if "obstacle" in row else
                f"{row['tokens'] / row['seconds']:.2f} tokens/s, "
                f"peak {row['peak_bytes'] / MB:.0f} MB")
        return (f"batch {row['batch']}, round {row['round'] + 1} of {self.plan.rounds}, "
                f"{row['peer']} ({how}): {text}")

    def leave_out(self, batch, number):
        """Drops, after a round, who need not or cannot go on."""
        rows = [row for row in self.used if row["batch"] == batch and row["round"] == number]
        rates = {row["peer"]: row["tokens"] / row["seconds"] for row in rows
                 if "obstacle" not in row}
        others = {peer.name for peer in self.plan.peers if not peer.is_ours}
        best = max((rate for name, rate in rates.items() if name in others), default=0.0)
        later = [b for b in self.plan.batches if b > batch]
        for row in rows:
            name, limit = row["peer"], self.plan.limit_bytes
            if "obstacle" in row:
                self.left_out.setdefault((name, batch), row["obstacle"])
            elif limit and not summary.within(self.peaks(name, batch), limit, name not in others):
                self.drop(name, [batch, *later], f"over the memory limit at batch {batch}")
            elif name in others and rates[name] < self.plan.contenders * best:
                reference = name == self.plan.reference.name
                self.drop(name, [batch, *([] if reference else later)],
                          f"below {self.plan.contenders:g} of the best at batch {batch}")

    def peaks(self, name, batch):
        return [row["peak_bytes"] for row in self.used
                if (row["peer"], row["batch"]) == (name, batch) and "obstacle" not in row]

    def drop(self, name, batches, why):
        for batch in batches:
            self.left_out.setdefault((name, batch), why)
