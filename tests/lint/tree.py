"""The files that the lint tests look at, and how a test reports."""

import os
import subprocess
import sys

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
CODE = (".h", ".cc", ".cu", ".cuh")
SKIPPED = 77  # what CTest takes for "skipped"


def files():
    """Paths from the root: those git knows or would add; without git, all outside build folders."""
    listing = subprocess.run(
        ["git", "-C", ROOT, "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        capture_output=True)
    if listing.returncode == 0:
        paths = [path for path in listing.stdout.decode().split("\0") if path]
    else:
        paths = []
        for folder, folders, names in os.walk(ROOT):
            folders[:] = [f for f in folders if f not in ("build", ".git", ".cache", "__pycache__")]
            paths += [os.path.relpath(os.path.join(folder, name), ROOT) for name in names]
    return sorted(path for path in set(paths) if os.path.isfile(os.path.join(ROOT, path)))


def code_files():
    return [path for path in files() if path.endswith(CODE)]


def read(path):
    with open(os.path.join(ROOT, path), encoding="utf-8") as file:
        return file.read()


def report(name, checked, findings):
    """Prints the findings, one a line, and ends the process."""
    for finding in findings:
        print(finding)
    print(f"{name}: {checked} files, {len(findings)} findings")
    sys.exit(1 if findings or not checked else 0)


def skip(name, why):
    print(f"{name}: skipped: {why}")
    sys.exit(SKIPPED)
