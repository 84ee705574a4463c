"""lint.sizes: no source is longer than 400 lines; headers over 150 are named.

Functions and parameters are counted by clang-tidy (preset tidy)."""

import tree

SOURCE_LINES = 400
HEADER_LINES = 150
SOURCES = tree.CODE + (".py", ".sh", ".cmake")


def check_size(path, lines):
    """(finding, warning), each None or a line."""
    if lines > SOURCE_LINES:
        return f"{path}: {lines} lines, at most {SOURCE_LINES}: split it", None
    if path.endswith((".h", ".cuh")) and lines > HEADER_LINES:
        return None, f"{path}: warning: {lines} lines, a header has {HEADER_LINES}"
    return None, None


def main():
    paths = [path for path in tree.files() if path.endswith(SOURCES)]
    checked = [check_size(path, tree.read(path).count("\n")) for path in paths]
    for _, warning in checked:
        if warning:
            print(warning)
    tree.report("lint.sizes", len(paths), [finding for finding, _ in checked if finding])


if __name__ == "__main__":
    main()
