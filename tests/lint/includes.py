"""lint.includes: who may include whom, and how an include is written."""

import os
import re

import tree

# Each folder may include itself and these.
MAY_INCLUDE = {
    "base": [],
    "quant": ["base"],
    "layout": ["quant", "base"],
    "kernels": ["layout", "quant", "base"],
    "planner": ["layout", "quant", "base"],
    "offload": ["kernels", "layout", "quant", "base"],
    "kvcache": ["offload", "kernels", "layout", "quant", "base"],
    "engine": ["planner", "kvcache", "offload", "kernels", "layout", "quant", "base"],
}
MAY_INCLUDE["tools"] = ["engine"] + MAY_INCLUDE["engine"]
MAY_INCLUDE["tests"] = ["tools"] + MAY_INCLUDE["tools"]

# Headers of a library that one folder hides behind its own, in sources only.
HIDDEN = [
    (re.compile(r"liburing(\.h|/)"), "offload/"),
    (re.compile(r"(cuda|cublas|curand|nvrtc)[\w/]*\.h"), "kernels/cuda/"),
    (re.compile(r"(Clp|Coin|Osi)\w*\.hpp|coin/"), "planner/"),
]
INCLUDE = re.compile(r'\s*#\s*include\s*([<"])([^>"]+)[>"]')
BACKEND_IF = re.compile(r"\s*#\s*(if|ifdef|ifndef|elif)\b.*(CUDA|HWY_)")
# Highway's own headers are found like ours: foreach_target.h is part of the idiom.
THIRD_PARTY_QUOTED = re.compile(r"hwy/")


def check_ours(path, name, exists):
    """What is wrong with `#include "name"` in `path`, or None."""
    if THIRD_PARTY_QUOTED.match(name):
        of_kernels = path.startswith(("kernels/", "tests/kernels/"))
        return None if of_kernels else f"{name} is for kernels/ and its tests alone"
    if ".." in name.split("/") or not exists(name):
        return f'"{name}" is no file from the root; others\' headers stand in <>'
    folder, own = name.split("/")[0], path.split("/")[0]
    if own in MAY_INCLUDE and folder != own and folder not in MAY_INCLUDE[own]:
        return f"{own}/ may not include {name}: move the code down"
    return None


def check_hidden(path, name):
    for pattern, folder in HIDDEN:
        if pattern.match(name) and not (path.startswith(folder) and path.endswith((".cc", ".cu"))):
            return f"<{name}> belongs into a source of {folder}"
    return None


def check_file(path, text, exists):
    """All findings of a file. `exists` says whether a path from the root is a file."""
    findings, first = [], None
    for number, line in enumerate(text.split("\n"), 1):
        if BACKEND_IF.match(line) and not path.startswith(("kernels/", "tests/kernels/")):
            findings.append(f"{path}:{number}: a condition on a backend outside kernels/")
        match = INCLUDE.match(line)
        if not match:
            continue
        quote, name = match.groups()
        first = first or (number, name)
        wrong = check_hidden(path, name)
        if quote == '"':
            wrong = wrong or check_ours(path, name, exists)
        elif exists(name):
            wrong = wrong or f'<{name}> is ours: write it in ""'
        if wrong:
            findings.append(f"{path}:{number}: {wrong}")
    own_header = os.path.splitext(path)[0] + ".h"
    if not path.endswith(".h") and exists(own_header) and (first or (0, ""))[1] != own_header:
        findings.append(f'{path}:{(first or (1, ""))[0]}: "{own_header}" must be the first include')
    return findings


def main():
    known = set(tree.files())
    findings = []
    paths = tree.code_files()
    for path in paths:
        if path.split("/")[0] not in MAY_INCLUDE:
            findings.append(f"{path}:1: no folder of the design; see MAY_INCLUDE in {__file__}")
        findings += check_file(path, tree.read(path), known.__contains__)
    tree.report("lint.includes", len(paths), findings)


if __name__ == "__main__":
    main()
