"""doctor_test.py TRANSLOAD: DK-08, what `transload doctor` finds and what its selftest says."""

import json
import os
import resource
import subprocess
import sys
import tempfile
import unittest

from system import deny_io_uring

TRANSLOAD = sys.argv.pop(1) if len(sys.argv) > 1 else "transload"
FAULTS = ["short I/O", "EIO on a read", "EIO on a write", "no space", "denied io_uring",
          "failed allocation", "none, after all these"]


# Hides headers and compilers from what it runs, and leaves it no search path.
BARE = """
set -e
for hidden in /usr/include /usr/local/include /usr/lib/gcc /usr/libexec/gcc /usr/lib/llvm-*; do
  [ ! -d "$hidden" ] || mount -t tmpfs none "$hidden"
done
export PATH=/nowhere
exec "$@"
"""


def can_hide():
    done = subprocess.run(["unshare", "--mount", "sh", "-c", BARE, "sh", "/bin/true"],
                          capture_output=True, check=False)
    return done.returncode == 0


class Doctor(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def doctor(self, *flags, status=0, environment=None):
        done = subprocess.run([TRANSLOAD, "doctor", "--disk-dir", self.folder, *flags],
                              capture_output=True, text=True,
                              env={**os.environ, **(environment or {})})
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        return done.stdout

    def test_reports_each_part(self):
        report = json.loads(self.doctor("--json"))
        self.assertEqual(set(report), {"cpu", "memory", "disk", "chat", "versions"})
        self.assertGreater(report["memory"]["free_bytes"], 0)
        self.assertLessEqual(report["memory"]["pinnable_bytes"], report["memory"]["free_bytes"] + 4096)
        self.assertEqual([e["engine"] for e in report["disk"]["engines"]], ["io_uring", "threads"])
        for engine in report["disk"]["engines"]:
            self.assertTrue(engine["reason"])
        self.assertGreater(report["disk"]["read_bytes_per_s"], 0)
        self.assertIn("baseline", report["cpu"]["instruction_sets"])
        self.assertRegex(report["versions"]["transload"], r"^\d+\.\d+\.\d+$")
        self.assertEqual(os.listdir(self.folder), [])

    def test_says_it_to_people(self):
        text = self.doctor()
        for word in ("kernels:", "page-locked", "io_uring", "threads: works", "reads", "versions"):
            self.assertIn(word, text)

    def test_names_the_libraries_that_it_runs_on(self):
        libraries = json.loads(self.doctor("--json"))["versions"]["libraries"]
        linked = {"Highway", "ICU", "PCRE2", "fmt", "glibc", "liburing", "oneTBB", "simdjson",
                  "xxHash"}
        self.assertEqual(set(libraries) - {"mimalloc"}, linked)
        for name, version in libraries.items():
            self.assertRegex(version, r"^\d+\.\d+", name)
        self.assertIn(f"oneTBB {libraries['oneTBB']}", self.doctor())

    def test_names_the_limit_of_page_locking(self):
        before = resource.getrlimit(resource.RLIMIT_MEMLOCK)
        self.addCleanup(resource.setrlimit, resource.RLIMIT_MEMLOCK, before)
        for text, value, limit in (("4.19 MB", 4 << 20, (4 << 20, before[1])),
                                   ("unlimited", "unlimited", (resource.RLIM_INFINITY,) * 2)):
            try:
                resource.setrlimit(resource.RLIMIT_MEMLOCK, limit)
            except (OSError, ValueError):  # a hard limit below
                continue
            report = json.loads(self.doctor("--json"))
            self.assertEqual(report["memory"]["pin_limit_bytes"], value)
            self.assertIn(f"limit (ulimit -l) {text}", self.doctor())

    def test_names_what_is_missing(self):
        report = json.loads(self.doctor("--json", environment={"TRANSLOAD_PYTHON": "/nowhere/py",
                                                               "TRANSLOAD_CPU": "baseline"}))
        self.assertFalse(report["chat"]["works"])
        self.assertIn("/nowhere/py", report["chat"]["reason"])
        self.assertIn("baseline", report["cpu"]["kernels"])
        self.assertEqual({*report["cpu"]["products"].values()}, {"float32 by baseline"})

    def test_says_what_multiplies_each_format(self):
        report = json.loads(self.doctor("--json"))["cpu"]
        self.assertIn("fast", report["kernels"])
        sets, products = report["instruction_sets"], report["products"]
        self.assertRegex(products["F32"], "^float32 by ")
        self.assertEqual("8-bit codes by " in products["Q4_1"], "avx2" in sets)
        self.assertEqual("bfloat16 by " in products["F16"], "avx512_bf16" in report["features"])
        self.assertIn("products in " + products["Q8_0"], self.doctor())

    def test_an_engine_that_is_denied_is_named_with_the_reason(self):
        done = subprocess.run([TRANSLOAD, "doctor", "--disk-dir", self.folder, "--json"],
                              capture_output=True, text=True, preexec_fn=deny_io_uring, check=True)
        engines = {e["engine"]: e for e in json.loads(done.stdout)["disk"]["engines"]}
        self.assertFalse(engines["io_uring"]["works"])
        self.assertIn("not permitted", engines["io_uring"]["reason"])
        self.assertTrue(engines["threads"]["works"])

    @unittest.skipUnless(can_hide(), "needs a mount namespace")
    def test_the_disk_tier_needs_no_headers_and_no_compiler(self):
        bare = ["unshare", "--mount", "sh", "-c", BARE, "sh", os.path.abspath(TRANSLOAD)]
        seen = subprocess.run(bare[:-1] + ["/bin/ls", "/usr/include"], capture_output=True,
                              check=True)
        self.assertEqual(seen.stdout, b"")
        report = json.loads(subprocess.run([*bare, "doctor", "--disk-dir", self.folder, "--json"],
                                           capture_output=True, check=True).stdout)
        plain = json.loads(self.doctor("--json"))
        self.assertEqual(report["disk"]["engines"], plain["disk"]["engines"])
        job, model = (os.path.join(self.folder, name) for name in ("job", "model"))
        subprocess.run([TRANSLOAD, "synth", "--family", "opt", "--shape", "32,2,4,64,128", "-o",
                        model], capture_output=True, check=True)
        with open(job, "w", encoding="utf-8") as file:
            file.writelines(json.dumps({"id": i, "prompt_token_ids": [5, 6 + i]}) + "\n"
                            for i in range(3))
        answers = []
        for command in ([TRANSLOAD], bare):
            output = f"{job}.{len(answers)}"
            done = subprocess.run([*command, "generate", "--model", model, "--input", job,
                                   "--output", output, "--disk-dir", self.folder, "--weights",
                                   "0/0/100", "--kv", "0/0/100"], capture_output=True, text=True,
                                  check=True)
            self.assertRegex(done.stderr, "disk_write +[1-9]")
            with open(output, encoding="utf-8") as file:
                answers.append(sorted(file))
        self.assertEqual(answers[0], answers[1])

    def test_a_bad_disk_directory_is_a_finding(self):
        self.folder = os.path.join(self.folder, "file")
        with open(self.folder, "w", encoding="utf-8"):
            pass
        report = json.loads(self.doctor("--json", status=1))
        self.assertIn("not a directory", report["disk"]["reason"])

    def test_selftest_passes(self):
        report = json.loads(self.doctor("--selftest", "--json"))
        self.assertEqual([result["fault"] for result in report["selftest"]], FAULTS)
        what = {result["fault"]: result["what"] for result in report["selftest"]}
        self.assertIn("Input/output error", what["EIO on a read"])
        self.assertIn("No space left", what["no space"])
        self.assertRegex(what["denied io_uring"], "the same tokens; .*threads with pread/pwrite.*"
                         r"io_uring is refused by this system \(Operation not permitted\)")
        self.assertEqual(os.listdir(self.folder), [])


if __name__ == "__main__":
    unittest.main()
