"""lint.paths: no file names a folder of somebody's machine or the host of a package registry.

The product is built from the system's packages and reads what it is given."""

import os
import re

import tree

# Written in parts, so that this file passes its own test.
FOLDERS = rb"(?<![\w.$}~-])/(?:work|root|home|Users|opt/wheels)/|/tmp/(?:build|bash)[-_]"
HOSTS = ["py" "pi.org", "python" "hosted.org", "deb." "debian.org", "hugging" "face.co",
         "npm" "js.org", "crates" ".io", "proxy." "golang.org"]
PATTERN = re.compile(FOLDERS + b"|" + "|".join(re.escape(host) for host in HOSTS).encode())


def check_bytes(path, data):
    """All findings of a file, text or not."""
    return [f"{path}:{number}: names {match.group().decode()}"
            for number, line in enumerate(data.split(b"\n"), 1) for match in PATTERN.finditer(line)]


def main():
    findings = []
    paths = tree.files()
    for path in paths:
        with open(os.path.join(tree.ROOT, path), "rb") as file:
            findings += check_bytes(path, file.read())
    tree.report("lint.paths", len(paths), findings)


if __name__ == "__main__":
    main()
