"""lint.headers: every header compiles alone.

A header that its own source includes first is compiled alone by the build (lint.includes sees to
the order); the others are compiled here.

headers.py STAMPS COMPILER [FLAG...]: keeps in the folder STAMPS what each header read when it last
passed, and compiles again only where one of these files is newer.
"""

import concurrent.futures
import hashlib
import os
import subprocess
import sys

import tree


def stamp_of(stamps, command, path):
    key = hashlib.sha256("\0".join(command + [path]).encode()).hexdigest()[:16]
    return os.path.join(stamps, path.replace("/", "_") + "." + key)


def is_current(stamp):
    """Whether everything that the stamp's make rule names is older than the stamp."""
    try:
        passed = os.path.getmtime(stamp)
        with open(stamp, encoding="utf-8") as rule:
            read = rule.read().replace("\\\n", " ").split(":", 1)[1].split()
        return all(os.path.getmtime(os.path.join(tree.ROOT, name)) <= passed for name in read)
    except (OSError, IndexError):
        return False


def check_header(stamps, command, path):
    """None, or what the compiler says."""
    stamp = stamp_of(stamps, command, path)
    if is_current(stamp):
        return None
    fresh = stamp + ".new"
    done = subprocess.run(
        command + ["-I.", "-fsyntax-only", "-MD", "-MT", "x", "-MF", fresh, "-x", "c++", path],
        cwd=tree.ROOT, capture_output=True, text=True)
    if done.returncode != 0:
        return f"{path}:1: does not compile alone:\n{done.stderr[:1500]}"
    os.utime(fresh)
    os.replace(fresh, stamp)
    return None


def has_source(path, exists):
    return any(exists(path.removesuffix(".h") + ending) for ending in (".cc", ".cu"))


def main():
    stamps, command = sys.argv[1], sys.argv[2:]
    os.makedirs(stamps, exist_ok=True)
    exists = set(tree.files()).__contains__
    paths = [path for path in tree.code_files()
             if path.endswith(".h") and not has_source(path, exists)]
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        results = list(pool.map(lambda path: check_header(stamps, command, path), paths))
    tree.report("lint.headers", len(paths), [result for result in results if result])


if __name__ == "__main__":
    main()
