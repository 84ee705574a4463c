"""Comparisons of tools/compare with peers that only pretend."""

import os
import sys
import tempfile
import unittest

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
sys.path.insert(0, os.path.join(ROOT, "tools", "compare"))
import environment  # noqa: E402
import peer_list  # noqa: E402
import rounds  # noqa: E402
import summary  # noqa: E402

# A peer whose settings say what it does: rate and peak_mb by batch, end, ids.
FAKE = '''
import json, os, signal, subprocess, sys, time
GROUP = {group!r}
FORM = "source"
VARIANTS = {variants!r}
if __name__ == "__main__":
    with open(sys.argv[1]) as file:
        job = json.load(file)
    batch, settings = len(job["prompts"]), job["settings"]
    with open(settings["log"], "a") as file:
        file.write(job["peer"] + " " + str(batch) + "\\n")
    end = settings.get("end")
    print("some words of the package")
    if end == "signal":
        print("cannot go on", file=sys.stderr, flush=True)
        os.kill(os.getpid(), signal.SIGSEGV)
    if end == "hang":
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)", settings["log"]])
        time.sleep(600)
    if end == "status":
        print("first", "last words", sep="\\n", file=sys.stderr)
        sys.exit(3)
    tokens = batch * job["new_tokens"]
    ids = [[p * 100 + i for i in range(job["new_tokens"])] for p in range(batch)]
    for prompt, token in settings.get("wrong", []):
        ids[prompt][token] = -1
    print(json.dumps({{
        "seconds": tokens / settings.get("rate", {{}}).get(str(batch), 10.0), "prefill_s": 0.1,
        "tokens": tokens, "peak_bytes": settings.get("peak_mb", {{}}).get(str(batch), 50) * 10**6,
        "read_bytes": 0, "caches": "kept", "versions": {{"fake": "1.0"}}, "settings": {{}},
        "token_ids": ids}}))
'''


class NoModels:
    """Gives the peers the model as it is."""

    def form(self, source, form, dtype=None):
        return source, None


class FailingEnvironment(environment.Environment):
    """Nothing can be installed."""

    def install(self, name):
        return None if name is None else "not installed: no such package"


class Fakes(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="transload-")
        self.addCleanup(folder.cleanup)
        self.folder, self.said = folder.name, []
        self.peers_folder = os.path.join(self.folder, "peers")
        os.mkdir(self.peers_folder)
        self.log, self.variants = os.path.join(self.folder, "log"), {}

    def fake(self, name, group=None, **settings):
        variants = {name: {"log": self.log, **settings}}
        path = os.path.join(self.peers_folder, f"{name.replace('-', '_')}_peer.py")
        with open(path, "w", encoding="utf-8") as file:
            file.write(FAKE.format(group=group, variants=variants))

    def plan(self, names, batches=(1,), count=1, **options):
        peers = peer_list.find(self.peers_folder)
        prompts = [[1, 2, 3]] * max(batches)
        return rounds.Plan([peers[name] for name in names], list(batches), count, 1, 4, prompts,
                           "job", **options)

    def run_plan(self, plan):
        """(cells by (peer, batch), what ran: "peer batch" a run)."""
        if os.path.exists(self.log):
            os.remove(self.log)
        runner = rounds.Runner(plan, "model", rounds.Results(self.results),
                               FailingEnvironment(self.folder), NoModels(), "transload",
                               os.path.join(self.folder, "work"), self.said.append)
        cells = summary.cells(runner.run(), plan, runner.left_out)
        return {(cell.peer, cell.batch): cell for cell in cells}, self.ran()

    def ran(self):
        if not os.path.exists(self.log):
            return []
        with open(self.log, encoding="utf-8") as file:
            return file.read().splitlines()

    @property
    def results(self):
        return os.path.join(self.folder, "results.jsonl")
