"""The peers: each NAME_peer.py of a folder, with the variants that it names."""

import dataclasses
import glob
import hashlib
import importlib.util
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
FOLDER = os.path.join(HERE, "peers")
OURS = "transload"


@dataclasses.dataclass
class Peer:
    name: str
    path: str
    group: str | None
    form: str
    settings: dict
    identity: str  # changes with what measures it

    @property
    def is_ours(self):
        return self.name.startswith(OURS)

    @property
    def is_float32(self):
        return self.name.endswith("float32")


def digest(*paths):
    hashed = hashlib.sha256()
    for path in paths:
        with open(path, "rb") as file:
            hashed.update(file.read())
    return hashed.hexdigest()[:16]


def import_file(path):
    """A peer's module. Those import their packages where they load, so this takes none."""
    folder = os.path.dirname(path)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    name = os.path.splitext(os.path.basename(path))[0]
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def find(folder=FOLDER, transload=None):
    """{name: Peer} of all variants; transload's results are those of this binary."""
    peers = {}
    for path in sorted(glob.glob(os.path.join(folder, "*_peer.py"))):
        module = import_file(path)
        shared = [os.path.join(folder, "common.py"), os.path.join(HERE, "to_folder.py")]
        for name, settings in module.VARIANTS.items():
            parts = [path, *filter(os.path.exists, shared)]
            if transload and name.startswith(OURS):
                parts.append(transload)
            peers[name] = Peer(name, path, module.GROUP, module.FORM, settings, digest(*parts))
    return peers
