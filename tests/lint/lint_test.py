"""lint.self: each rule of the lint tests finds what it is there for, and no more."""

import os
import tempfile
import unittest

import docs
import formatting
import headers
import includes
import paths
import sizes
import tree


def findings(path, text, known=()):
    return includes.check_file(path, text, set(known).__contains__)


class Includes(unittest.TestCase):
    def test_permits_what_the_table_permits(self):
        self.assertEqual([], findings("quant/a.cc", '#include "quant/a.h"\n#include "base/b.h"\n',
                                      ["quant/a.h", "base/b.h"]))

    def test_refuses_an_arrow_that_points_down(self):
        found = findings("base/a.cc", '#include "quant/b.h"\n', ["quant/b.h"])
        self.assertEqual(["base/a.cc:1: base/ may not include quant/b.h: move the code down"], found)

    def test_the_planner_knows_no_kernels(self):
        self.assertEqual(1, len(findings("planner/a.h", '#include "kernels/backend.h"\n',
                                         ["kernels/backend.h"])))

    def test_refuses_relative_includes(self):
        self.assertEqual(1, len(findings("base/a.cc", '#include "../base/b.h"\n', ["base/b.h"])))
        self.assertEqual(1, len(findings("base/a.cc", '#include "b.h"\n', ["base/b.h"])))

    def test_refuses_ours_in_angle_brackets(self):
        self.assertEqual(1, len(findings("base/a.cc", "#include <base/b.h>\n", ["base/b.h"])))

    def test_own_header_comes_first(self):
        text = '#include <vector>\n\n#include "base/a.h"\n'
        self.assertEqual(1, len(findings("base/a.cc", text, ["base/a.h"])))

    def test_hides_libraries_in_sources_of_one_folder(self):
        self.assertEqual([], findings("offload/a.cc", "#include <liburing.h>\n"))
        self.assertEqual(1, len(findings("offload/a.h", "#include <liburing.h>\n")))
        self.assertEqual(1, len(findings("engine/a.cc", "#include <liburing.h>\n")))
        self.assertEqual(1, len(findings("offload/a.cc", "#include <cuda_runtime.h>\n")))
        self.assertEqual(1, len(findings("kvcache/a.cc", "#include <ClpSimplex.hpp>\n")))
        self.assertEqual(1, len(findings("base/a.cc", '#include "hwy/highway.h"\n')))

    def test_refuses_conditions_on_a_backend(self):
        self.assertEqual(1, len(findings("engine/a.cc", "#ifdef TRANSLOAD_CUDA\n")))
        self.assertEqual([], findings("kernels/a.cc", "#ifdef TRANSLOAD_CUDA\n"))


class Headers(unittest.TestCase):
    def test_a_stamp_ends_with_a_newer_file(self):
        with tempfile.TemporaryDirectory() as folder:
            header, stamp = os.path.join(folder, "a.h"), os.path.join(folder, "stamp")
            for name, text in ((header, ""), (stamp, f"x: \\\n {header}\n")):
                with open(name, "w", encoding="utf-8") as file:
                    file.write(text)
            os.utime(header, (1000, 1000))
            os.utime(stamp, (2000, 2000))
            self.assertTrue(headers.is_current(stamp))
            os.utime(header, (3000, 3000))
            self.assertFalse(headers.is_current(stamp))
            os.remove(header)
            self.assertFalse(headers.is_current(stamp))

    def test_leaves_to_the_build_what_a_source_includes_first(self):
        self.assertTrue(headers.has_source("base/a.h", {"base/a.cc"}.__contains__))
        self.assertFalse(headers.has_source("base/a.h", {"base/b.cc"}.__contains__))

    def test_names_a_header_that_needs_another(self):
        compiler = os.environ.get("CXX", "c++")
        with tempfile.TemporaryDirectory() as folder:
            for name, text, wrong in (("good.h", "#include <vector>\nstd::vector<int> v;\n", False),
                                      ("bad.h", "std::vector<int> v;\n", True)):
                path = os.path.join(folder, name)
                with open(path, "w", encoding="utf-8") as file:
                    file.write(text)
                result = headers.check_header(folder, [compiler, "-std=c++20"], path)
                self.assertEqual(wrong, result is not None and "does not compile alone" in result)


class Text(unittest.TestCase):
    def test_names_blanks_tabs_and_a_missing_newline(self):
        self.assertEqual([], formatting.check_text("a.cc", "int x;\n"))
        self.assertEqual(["a.cc:1: blanks at the end of the line"],
                         formatting.check_text("a.cc", "int x; \n"))
        self.assertEqual(["a.cc:1: a tab"], formatting.check_text("a.cc", "\tint x;\n"))
        self.assertEqual(["a.md: no newline at the end"], formatting.check_text("a.md", "x"))


class Sizes(unittest.TestCase):
    def test_refuses_long_sources_and_names_long_headers(self):
        self.assertEqual((None, None), sizes.check_size("a.cc", 400))
        self.assertIn("401 lines", sizes.check_size("a.cc", 401)[0])
        self.assertIn("401 lines", sizes.check_size("a.h", 401)[0])
        self.assertIn("warning", sizes.check_size("a.h", 151)[1])
        self.assertEqual((None, None), sizes.check_size("a.h", 150))


class Paths(unittest.TestCase):
    def test_names_folders_and_hosts(self):
        self.assertEqual(1, len(paths.check_bytes("a", b"x\n/" + b"work/main/x")))
        self.assertEqual(1, len(paths.check_bytes("a", b"\"/" + b"root/.cache\"")))
        self.assertEqual(1, len(paths.check_bytes("a", b"https://py" + b"pi.org/simple")))
        self.assertEqual(["a:2: names /" "home/"], paths.check_bytes("a", b"\n\xff /" + b"home/me"))

    def test_permits_paths_below_something(self):
        self.assertEqual([], paths.check_bytes("a", b"~/work/ $ROOT/root/ a/home/b /etc /tmp/x"))


class Docs(unittest.TestCase):
    def test_reads_codes_and_flags(self):
        self.assertEqual({"io", "invalid_utf8"},
                         docs.codes_in_docs("| `io` | 5 |\n| `invalid_utf8` | x |\n"))
        self.assertEqual({"--top-p", "--json"}, docs.flags("`--top-p`, `--json FILE` a--b ---"))
        self.assertEqual(["lacks: b"], docs.difference("lacks", {"a", "b"}, {"a", "c"}))
        self.assertIn("does_not_fit", docs.codes_in_sources())
        self.assertIn("missing_text", docs.codes_in_sources())


class Tree(unittest.TestCase):
    def test_finds_this_file(self):
        self.assertIn("tests/lint/lint_test.py", tree.files())
        self.assertIn("base/error.h", tree.code_files())


if __name__ == "__main__":
    unittest.main()
