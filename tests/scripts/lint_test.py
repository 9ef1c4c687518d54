"""Every rule of scripts/lint finds what it is for, and only that."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

LINT = pathlib.Path(__file__).resolve().parents[2] / "scripts" / "lint"


class LintTest(unittest.TestCase):
    def lint(self, files, *arguments):
        """Exit code and output for a tree of these files."""
        with tempfile.TemporaryDirectory() as root:
            for name, text in files.items():
                path = pathlib.Path(root) / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
            run = subprocess.run([sys.executable, LINT, "--root", root, *arguments],
                                 capture_output=True, text=True, check=False)
            return run.returncode, run.stdout + run.stderr

    def assert_broken(self, rule, files):
        code, output = self.lint(files)
        self.assertEqual(code, 1, output)
        self.assertIn(f"[{rule}]", output)

    def assert_kept(self, files):
        code, output = self.lint(files)
        self.assertEqual(code, 0, output)
        self.assertIn("0 errors, 0 warnings", output)

    def test_an_empty_tree_keeps_every_rule(self):
        self.assert_kept({})

    def test_persistence_outside_pmem(self):
        for code in ("_mm_clwb(p);", "_mm_sfence();", "::msync(p, 1, MS_SYNC);", "mmap(0, 1);",
                     "posix_fallocate(fd, 0, 1);", "fallocate(fd, 0, 0, 1);",
                     'asm volatile("clwb (%0)" : : "r"(p));', "__builtin_ia32_clflushopt(p);"):
            for place in ("src/alloc/heap.cpp", "cli/load.cpp", "bench/run.cpp", "include/a.hpp"):
                self.assert_broken("persistence_in_pmem", {place: f"void f() {{\n  {code}\n}}\n"})

    def test_persistence_in_its_place_or_only_talked_about(self):
        self.assert_kept({"src/pmem/medium.cpp": "void f() { _mm_clwb(p); }\n"})
        self.assert_kept({"src/alloc/heap.cpp": '// one msync\nauto s = "mmap"; /* fallocate */\n'
                                                "int my_msync_count;\n"})

    def test_trees_apart(self):
        one = {"src/trees/one/node.hpp": "\n", "src/trees/one/README.md": "- **P1** x\n",
               "tests/t.cpp": "// one P1\n", "src/trees/two/README.md": "- **P1** x\n",
               "tests/u.cpp": "// two P1\n"}
        for target in ("trees/one/node.hpp", "../one/node.hpp"):
            self.assert_broken("trees_apart", {
                **one, "src/trees/one/a.cpp": "// P1\n",
                "src/trees/two/tree.cpp": f'// P1\n#include "{target}"\n'})
        self.assert_kept({**one, "src/trees/one/a.cpp": '// P1\n#include "trees/one/node.hpp"\n',
                          "src/trees/two/tree.cpp": '// P1\n#include "trees/contract.hpp"\n',
                          "src/trees/registry.cpp": '#include "trees/one/node.hpp"\n'})

    def test_rooms_in_order(self):
        self.assert_broken("rooms_in_order",
                           {"src/base/bits.hpp": '#include "alloc/heap.hpp"\n'})
        self.assert_kept({"src/alloc/heap.cpp": '#include "pmem/medium.hpp"\n'
                                                "#include <everleaf/pool.hpp>\n"})

    def test_faces_use_the_interface(self):
        for line in ('#include "pmem/medium.hpp"', "#include <pmem/medium.hpp>",
                     '#include "../src/base/spec.hpp"', "#include <src/base/spec.hpp>"):
            self.assert_broken("faces_use_the_interface", {"cli/load.cpp": line + "\n"})
            self.assert_broken("faces_use_the_interface", {"python/module.cpp": line + "\n"})
        self.assert_broken("faces_use_the_interface", {
            "cli/CMakeLists.txt": "target_include_directories(x PRIVATE ${PROJECT_SOURCE_DIR}/src)\n"})
        self.assert_kept({"cli/text.hpp": "\n", "cli/CMakeLists.txt": "# not src\n",
                          "cli/load.cpp": '#include "text.hpp"\n#include <everleaf/index.hpp>\n'})

    def test_steps_named(self):
        whole = {"src/trees/one/README.md": "## Persist steps\n- **P1** first\n- **A1** case\n",
                 "src/trees/one/write.cpp": "f();  // P1: before the bit\n",
                 "src/trees/one/recover.cpp": "// A1: nothing to do\n",
                 "tests/one_test.cpp": "// room one: P1, A1\n"}
        self.assert_kept(whole)
        for file, text in (("src/trees/one/write.cpp", "f();\n"),
                           ("src/trees/one/recover.cpp", "int A1;\n"),
                           ("tests/one_test.cpp", "// one: P1\n"),
                           ("tests/one_test.cpp", "// another room: P1, A1\n"),
                           ("src/trees/one/README.md", "- **P1** first\n"),
                           ("src/trees/one/README.md", "nothing\n")):
            self.assert_broken("steps_named", {**whole, file: text})

    def test_nothing_left_over(self):
        for word in ("TO" "DO", "FIX" "ME", "NO" "LINT", "NO" "LINTNEXTLINE", "no_" "sanitize"):
            for place in ("src/base/a.cpp", "docs/cli.md", "scripts/x", "tests/t.py", "Makefile"):
                self.assert_broken("nothing_left_over", {place: f"# {word}\n"})
        self.assert_kept({"src/base/a.cpp": "int todo_list;\n"})

    def test_readme_shows_the_example(self):
        program = "int main() {}\n"
        self.assert_kept({"README.md": f"# E\n```cpp\n{program}```\n", "examples/hello.cpp": program})
        self.assert_broken("readme_shows_the_example", {
            "README.md": "```cpp\nint main() { }\n```\n", "examples/hello.cpp": program})
        self.assert_broken("readme_shows_the_example", {"examples/hello.cpp": program})

    def test_long_functions_are_only_reported(self):
        def function(lines, head="int f(int a,\n      int b) {"):
            return head + "\n" + "  g();\n" * lines + "}\n"
        code, output = self.lint({"src/base/a.cpp": function(80)})
        self.assertEqual(code, 0)
        self.assertIn("src/base/a.cpp:1: warning: a function of 83 lines", output)
        in_class = "class C {\n  void m() {\n" + "    g();\n" * 80 + "  }\n};\n"
        self.assertIn("a.cpp:2: warning: a function of 82", self.lint({"src/base/a.cpp": in_class})[1])
        self.assert_kept({"src/base/a.cpp": function(50)})
        self.assert_kept({"src/base/a.cpp": "namespace n {\n" + function(50) * 3 + "}\n"})
        self.assert_kept({"src/base/a.cpp": "struct S {\n" + "  int f(int);\n" * 90 + "};\n"})

    def test_sources(self):
        code, output = self.lint({"cli/a.cpp": "", "build/b.cpp": "", "include/x/c.hpp": ""},
                                 "--list-sources")
        self.assertEqual((code, len(output.split())), (0, 2))

    def test_format(self):
        style = "BasedOnStyle: Google\n"
        good = {".clang-format": style, "cli/a.cpp": "int f() { return 1; }\n"}
        self.assertEqual(self.lint(good, "--format")[0], 0)
        bad = {".clang-format": style, "cli/a.cpp": "int  f( ) {return 1;}\n"}
        self.assertNotEqual(self.lint(bad, "--format")[0], 0)


if __name__ == "__main__":
    unittest.main()
