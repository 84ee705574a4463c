#!/usr/bin/env python3
"""Runs one job through transload and through what people use now, side by side.

    tools/compare/run.py --gate memory        a model in memory, batches 1 to 64
    tools/compare/run.py --gate larger        a model larger than the memory that it gets
    tools/compare/run.py --peers transload-fast,llama.cpp --batches 1,4 --model FILE.gguf

Makes a virtual environment with the peers' real packages, pinned, in $TRANSLOAD_CACHE/compare (6 GB
with PyTorch), then runs each peer in a process of its own, all in turn, round by round. Writes
NAME.txt, .md, .csv, .json and .svg, and NAME.jsonl with every run: what that has is not run again
unless --fresh says so. Exit status: 0, or 1 where a gate was missed or not measured."""

import argparse
import dataclasses
import hashlib
import json
import os
import re
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import environment  # noqa: E402
import models  # noqa: E402
import peer_list  # noqa: E402
import report  # noqa: E402
import rounds  # noqa: E402
import summary  # noqa: E402

ROOT = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
UNITS = {"": 1, "B": 1, "MB": 10**6, "GB": 10**9, "MIB": 2**20, "GIB": 2**30}
# What --gate sets where no option says otherwise, and what it asks for.
GATES = {
    "memory": ({"peers": "transload-fast,transformers-float32,transformers-bfloat16,llama.cpp",
                "batches": "1,4,16,64", "prompt_tokens": 512, "new_tokens": 32, "rounds": 3,
                "contenders": 0.5},
               summary.Gate(1.5, 0.5, at_each_batch=True, required=(
                   "transformers-float32", "transformers-bfloat16", "llama.cpp"))),
    "larger": ({"peers": "accelerate-disk-bfloat16,accelerate-disk-float16,transload-fast",
                "batches": "4,8,16", "prompt_tokens": 128, "new_tokens": 8, "rounds": 3,
                "contenders": 0.5, "memory": "accelerate-disk-bfloat16", "model": "opt",
                "drop_caches": True},
               summary.Gate(4.0, 1.0, at_each_batch=False, required=(
                   "accelerate-disk-bfloat16", "accelerate-disk-float16"))),
}
DEFAULTS = {"peers": "all", "batches": "1,4", "prompt_tokens": 512, "new_tokens": 32, "rounds": 3,
            "contenders": 0.0, "memory": None, "model": None, "drop_caches": False}


class Usage(Exception):
    """What is wrong with the options."""


def size_bytes(text):
    match = re.fullmatch(r"([0-9.]+)\s*([A-Za-z]*)", text)
    if not match or match[2].upper() not in UNITS:
        raise Usage(f"--memory {text}: a size as 1.1GB or 900MiB, or the name of a peer")
    return int(float(match[1]) * UNITS[match[2].upper()])


def parse(arguments):
    ap = argparse.ArgumentParser(description=__doc__,
                                 formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--gate", choices=GATES, help="settings for a gate, and its verdict")
    ap.add_argument("--peers", help="names, comma-separated, or all; tokens are compared with the "
                                    "first in float32, or else the first")
    ap.add_argument("--batches", help="as 1,4,16")
    ap.add_argument("--rounds", type=int)
    ap.add_argument("--threads", type=int, default=1)
    ap.add_argument("--prompt-tokens", type=int)
    ap.add_argument("--new-tokens", type=int)
    ap.add_argument("--memory", help="star each peer's best batch within this peak memory: 1.1GB, "
                                     "or a peer's name for its peak at the first batch")
    ap.add_argument("--model", help="a .gguf file, a folder, or opt (1.3B, random weights); "
                                    "left out: $TRANSLOAD_MODEL")
    ap.add_argument("--text", help="prompts are cut from it; left out: Debian's bible-kjv-text")
    ap.add_argument("--drop-caches", action="store_true", default=None,
                    help="empty the page cache before each forward pass: all of the machine's")
    ap.add_argument("--contenders", type=float, metavar="SHARE", help="a peer below this share of "
                    "the best peer's rate is not repeated, nor run at larger batches")
    ap.add_argument("--timeout", type=float, default=600, help="seconds of one run")
    ap.add_argument("--transload", default=os.path.join(ROOT, "build/release/transload"))
    ap.add_argument("--venv", help="the virtual environment, in the cache if left out")
    ap.add_argument("--output", help="NAME of the files; left out: in the cache")
    ap.add_argument("--peers-folder", default=peer_list.FOLDER, help=argparse.SUPPRESS)
    ap.add_argument("--fresh", action="store_true", help="measure again what was measured")
    ap.add_argument("--retry", action="store_true", help="run again what met an obstacle")
    ap.add_argument("--list", action="store_true", help="name the peers and end")
    ap.add_argument("--dry-run", action="store_true", help="say what would run and end")
    ap.add_argument("--no-chart", action="store_true", help="matplotlib is not installed for it")
    ap.add_argument("--json", action="store_true", help="the summary as JSON instead of text")
    options = ap.parse_args(arguments)
    preset = {**DEFAULTS, **(GATES[options.gate][0] if options.gate else {})}
    for name, value in preset.items():
        if getattr(options, name) is None:
            setattr(options, name, value)
    return options


def choose(names, peers):
    if names == "all":
        return list(peers.values())
    unknown = [name for name in names.split(",") if name not in peers]
    if unknown:
        raise Usage(f"--peers: no peer {', '.join(unknown)}; --list names them")
    return [peers[name] for name in names.split(",")]


def cache_folder():
    cache = os.environ.get("TRANSLOAD_CACHE") or os.path.expanduser("~/.cache/transload")
    return os.path.join(os.path.abspath(cache), "compare")


def batch_list(text):
    batches = [int(part) for part in text.split(",")]
    if min(batches) < 1:
        raise Usage("--batches: at least 1")
    return batches


def job_digest(options, source, prompts):
    parts = [os.path.basename(source), models.source_bytes(source), prompts, options.new_tokens,
             options.threads, bool(options.drop_caches)]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:12]


def machine():
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        name = next((line.split(":", 1)[1].strip() for line in file
                     if line.startswith("model name")), "unknown processor")
    return f"{name}, {os.cpu_count()} cores"


def make_plan(options, chosen, source, prompts):
    peer_limit = options.memory if options.memory in {peer.name for peer in chosen} else None
    limit = size_bytes(options.memory) if options.memory and not peer_limit else None
    return rounds.Plan(
        peers=chosen, batches=batch_list(options.batches), rounds=options.rounds,
        threads=options.threads, new_tokens=options.new_tokens, prompts=prompts,
        job=job_digest(options, source, prompts), timeout_s=options.timeout, limit_bytes=limit,
        limit_peer=peer_limit, drop_caches=bool(options.drop_caches),
        contenders=options.contenders, retry=options.retry)


def write_files(name, cells, content, plan):
    limited = plan.limit_bytes is not None
    parts = {".txt": report.text(cells, limited), ".md": report.markdown(cells, limited)}
    for ending, table in parts.items():
        body = [*content["notes"], "", table, "", *report.details(cells), *content["verdict"]]
        with open(name + ending, "w", encoding="utf-8") as file:
            file.write("\n".join(body) + "\n")
    with open(name + ".csv", "w", encoding="utf-8") as file:
        file.write(report.as_csv(cells))
    with open(name + ".json", "w", encoding="utf-8") as file:
        json.dump(content, file, indent=1)


def draw(name, environment_, say):
    obstacle = environment_.install("chart")
    if not obstacle:
        done = subprocess.run([environment_.python, os.path.join(peer_list.HERE, "chart.py"),
                               name + ".json", name + ".svg"], capture_output=True, text=True,
                              env={**os.environ, **environment_.variables("chart")}, check=False)
        lines = done.stderr.strip().splitlines() or ["no message"]
        obstacle = None if done.returncode == 0 else lines[-1]
    say(f"chart: {obstacle or name + '.svg'}")


def find_source(options, made):
    if options.model == "opt":
        return made.opt()
    source = options.model or os.environ.get("TRANSLOAD_MODEL")
    if not source or not os.path.exists(source):
        raise Usage(f"model {source or ''}: not there; --model or TRANSLOAD_MODEL names one, and "
                    "tools/demo.sh brings one")
    return source


def compare(options, say):
    """Runs, writes and prints; gives the exit status."""
    if not os.access(options.transload, os.X_OK):
        raise Usage(f"{options.transload}: not there; build it, or give --transload")
    cache = cache_folder()
    environment_ = environment.Environment(
        os.path.abspath(options.venv or os.path.join(cache, "venv")), say)
    made = models.Models(os.path.abspath(options.transload), cache, environment_, say)
    chosen = choose(options.peers, peer_list.find(options.peers_folder, options.transload))
    if options.dry_run:
        for batch in batch_list(options.batches):
            print(f"batch {batch}: {options.rounds} rounds of "
                  f"{', '.join(peer.name for peer in chosen)}")
        return 0
    source = os.path.abspath(find_source(options, made))
    prompts, text_name = made.prompts(source, options.prompt_tokens,
                                      max(batch_list(options.batches)), options.text)
    plan = make_plan(options, chosen, source, prompts)
    name = options.output or os.path.join(cache, "results", options.gate or "comparison")
    os.makedirs(os.path.dirname(os.path.abspath(name)), exist_ok=True)
    if options.fresh and os.path.exists(name + ".jsonl"):
        os.remove(name + ".jsonl")
    runner = rounds.Runner(plan, source, rounds.Results(name + ".jsonl"), environment_, made,
                           os.path.abspath(options.transload), os.path.join(cache, "work"), say)
    cells = summary.cells(runner.run(), plan, runner.left_out)
    checks = GATES[options.gate][1].check(cells) if options.gate else []
    content = {"notes": report.notes(cells, plan, machine(), os.path.basename(source), text_name),
               "cells": [dataclasses.asdict(cell) for cell in cells],
               "verdict": [f"gate {options.gate}: {line}" for _, line in checks]}
    write_files(name, cells, content, plan)
    if not options.no_chart:
        draw(name, environment_, say)
    with open(name + ".txt", encoding="utf-8") as file:
        print(json.dumps(content) if options.json else file.read(), end="\n" * options.json)
    return 0 if all(held for held, _ in checks) else 1


def main(arguments=None):
    options = parse(arguments)
    try:
        if options.list:
            for peer in peer_list.find(options.peers_folder).values():
                print(f"{peer.name}: {report.summary.pairs(peer.settings)}")
            return 0
        return compare(options, lambda line: print(line, file=sys.stderr, flush=True))
    except KeyboardInterrupt:
        print("compare: interrupted; run it again to go on", file=sys.stderr)
        return 130
    except (Usage, models.Missing, RuntimeError) as error:
        print(f"compare: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
