"""lint.format: code is as clang-format 14 (Debian 12's) writes it; text files end well.

formatting.py --fix rewrites instead.
"""

import shutil
import subprocess
import sys

import tree

VERSION = "14."
TEXT = tree.CODE + (".py", ".sh", ".cmake", ".md", ".txt", ".json", ".jsonl", ".dict")


def check_text(path, text):
    """Findings of what no formatter looks at."""
    findings = []
    if text and not text.endswith("\n"):
        findings.append(f"{path}: no newline at the end")
    for number, line in enumerate(text.split("\n"), 1):
        if line != line.rstrip():
            findings.append(f"{path}:{number}: blanks at the end of the line")
        if "\t" in line and path.endswith(tree.CODE):
            findings.append(f"{path}:{number}: a tab")
    return findings


def find_clang_format():
    for name in ("clang-format-14", "clang-format"):
        program = shutil.which(name)
        if program:
            version = subprocess.run([program, "--version"], capture_output=True, text=True).stdout
            if f"version {VERSION}" in version:
                return program
    return None


def main():
    findings = []
    for path in tree.files():
        if path.endswith(TEXT) and not path.startswith(("tests/data/", "tests/fuzz/corpus/")):
            findings += check_text(path, tree.read(path))
    paths = tree.code_files()
    program = find_clang_format()
    if program is None and not findings:
        tree.skip("lint.format", f"no clang-format {VERSION}x (Debian package clang-format)")
    if program:
        mode = ["-i"] if "--fix" in sys.argv else ["--dry-run"]
        done = subprocess.run([program, *mode, *paths], cwd=tree.ROOT, capture_output=True,
                              text=True)
        findings += [line for line in done.stderr.split("\n") if "warning:" in line]
    tree.report("lint.format", len(paths), findings)


if __name__ == "__main__":
    main()
