"""lint.docs: docs/errors.md has the error codes of the sources, README.md the flags.

docs.py [TRANSLOAD]: with the binary, flags are compared with what its --help says."""

import os
import re
import subprocess
import sys

import tree

COMMANDS = ("generate", "score", "tokenize", "inspect", "synth", "doctor")
# Flags in README.md that other programs take.
NOT_OURS = {"--asan", "--tsan", "--fuzz", "--tidy", "--fix", "--preset", "--build", "--help"}
COMPARE = "tools/compare/run.py"  # README.md names some of its flags
FLAG = re.compile(r"(?<![\w-])--[a-z][a-z-]+")


def codes_in_sources():
    kinds = re.findall(r'case Kind::\w+:\s+return "(\w+)"', tree.read("base/error.cc"))
    listed = tree.read("engine/job/line.h").split("// A line that cannot run", 1)[1]
    lines = re.findall(r'^  // .*', listed.split("std::string code;")[0], re.MULTILINE)
    thrown = []
    for path in tree.code_files():
        if path.startswith(("engine/job/", "tools/")):
            thrown += re.findall(r'\bfail\(\s*"([a-z_0-9]+)"', tree.read(path))
    return set(kinds) | set(re.findall(r'"([a-z_0-9]+)"', "\n".join(lines))) | set(thrown)


def codes_in_docs(text):
    return set(re.findall(r"^\| `([a-z_0-9]+)` \|", text, re.MULTILINE))


def flags(text):
    return set(FLAG.findall(text))


def difference(what, here, there):
    return [f"{what}: {name}" for name in sorted(set(here) - set(there))]


def flags_of(*command):
    """Those that its help names."""
    return flags(subprocess.run([*command, "--help"], capture_output=True, text=True,
                                check=True).stdout)


def check_flags(binary, readme):
    """README.md against the help of all commands."""
    known = set().union(*(flags_of(binary, command) for command in COMMANDS))
    named = flags(readme) - NOT_OURS
    all_known = known | flags_of(sys.executable, os.path.join(tree.ROOT, COMPARE))
    return (difference("README.md names a flag that no command has", named, all_known) +
            difference("README.md lacks the flag", known - NOT_OURS, named))


def main():
    written, found = codes_in_docs(tree.read("docs/errors.md")), codes_in_sources()
    findings = difference("docs/errors.md lacks the code", found, written)
    findings += difference("docs/errors.md has a code that no source has", written, found)
    if len(sys.argv) > 1:
        findings += check_flags(sys.argv[1], tree.read("README.md"))
    tree.report("lint.docs", 2, findings)


if __name__ == "__main__":
    main()
