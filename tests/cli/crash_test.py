"""everleaf crash: answers, tables, bad usage. What it finds is the business of tests/crash."""

import json
import os
import pathlib
import signal
import subprocess
import tempfile
import unittest

PROGRAM = os.environ["EVERLEAF"]


def crash(*arguments):
    return subprocess.run([PROGRAM, "crash", *map(str, arguments)], capture_output=True, text=True,
                          timeout=120, check=False)


@unittest.skipIf(os.environ.get("EVERLEAF_SANITIZED"), "its hooks are those of a sanitizer")
class Crash(unittest.TestCase):
    def test_rows(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "rows.json"
            few = ["--ops", 20, "--most", 20]
            for more in (few, ["--threads", 2, "--processor-time"],
                         ["--exhaustive", 1, "--most", 20],
                         [*few, "--domain", "disk", "--processor-time"]):
                done = crash("--index", "wbtree:node=128", "--keys", "u64", "--budget", 2,
                             "--json", path, *more)
                self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
                (row,) = json.loads(path.read_text())
                self.assertEqual(row["index"], "wbtree:node=128")
                self.assertEqual(row["keys"], "u64")
                self.assertEqual(row["failures"], 0)
                for name in ("operations", "crash_points", "executions", "executions_per_second"):
                    self.assertGreater(row[name], 0, name)

    def test_counts(self):
        with tempfile.TemporaryDirectory() as place:
            path = pathlib.Path(place) / "counts.json"
            done = crash("--counts", "--json", path)
            self.assertEqual(done.returncode, 0, done.stdout)
            self.assertIn("Table 3", done.stdout)
            counts = json.loads(path.read_text())["counts"]
        self.assertEqual(len([one for one in counts if one["paper"]]), 6)
        for one in counts:
            if one["paper"]:
                self.assertAlmostEqual(one["measured"]["fences"], one["paper"]["fences"], msg=one)

    def test_bad_usage(self):
        for arguments, words in ((["--index", "oak"], "there is no tree 'oak'"),
                                 (["--index", "wbtree:node=100"], "node=100 is not"),
                                 (["--replay", "nothing"], "no replay line"),
                                 (["--replay", "spec=wbtree program=x switches="], "no replay line"),
                                 (["--domain", "volatile"], "volatile"),
                                 (["--threads", "99"], "99"),
                                 (["--program", "1/x"], "--program"),
                                 (["--threads", "2", "--unordered"], "--unordered has no meaning"),
                                 (["--site", "heap"], "--site has no meaning"),
                                 (["--pmwcas", "--index", "wbtree"], "--index has no meaning"),
                                 (["--exhaustive", "2", "--ops", "9"], "--ops has no meaning"),
                                 (["--replay", "nothing", "--ops", "9"], "--ops has no meaning"),
                                 (["--counts", "--budget", "9"], "--budget has no meaning"),
                                 (["--nonsense"], "nonsense")):
            done = crash(*arguments)
            self.assertEqual(done.returncode, 2, arguments)
            self.assertIn(words, done.stderr)

    def test_no_place_for_rows(self):
        for way in (["--index", "wbtree"], ["--mutate"], ["--planted"], ["--counts"], ["--pmwcas"]):
            budget = [] if way == ["--counts"] else ["--budget", 100]
            done = crash(*way, *budget, "--json", "/nonexistent/rows.json")
            self.assertEqual(done.returncode, 3, way)
            self.assertIn("cannot write", done.stderr)
            self.assertEqual(done.stdout, "", "nothing was done")

    def test_mutants(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "rows.json"
            done = crash("--mutate", "--index", "wbtree:node=128", "--keys", "u64", "--ops", 20,
                         "--budget", 5, "--site", "wbtree/write.cpp", "--json", path)
            self.assertIn(done.returncode, (0, 1), done.stdout + done.stderr)
            row, everything = json.loads(path.read_text())
        self.assertEqual((row["index"], row["keys"]), ("wbtree:node=128", "u64"))
        self.assertEqual(everything["index"], "all")
        self.assertGreater(row["caught"], 0)
        self.assertEqual(row["sites"], row["caught"] + row["justified"] + row["failures"])
        self.assertEqual(row["sites"], everything["sites"])
        self.assertEqual(done.returncode, 0 if row["failures"] == 0 else 1)

    def test_words(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "rows.json"
            done = crash("--pmwcas", "--budget", 1, "--json", path)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            (row,) = json.loads(path.read_text())
        self.assertEqual((row["index"], row["keys"], row["failures"]), ("pmwcas", None, 0))
        for name in ("operations", "crash_points", "executions", "executions_per_second"):
            self.assertGreater(row[name], 0, name)

    def test_interrupt(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "rows.json"
            for jobs in (1, 2):
                with subprocess.Popen(
                        [PROGRAM, "crash", "--index", "wbtree", "--budget", "600", "--jobs",
                         str(jobs), "--json", path], stdout=subprocess.PIPE, text=True) as process:
                    process.stdout.read(5)  # the head of the table: it has begun
                    process.send_signal(signal.SIGINT)
                    self.assertEqual(process.wait(60), 130)
                rows = json.loads(path.read_text())
                # Of two processes none may have begun.
                self.assertGreaterEqual(len(rows), 2 - jobs)
                self.assertFalse(any(row["complete"] for row in rows))


if __name__ == "__main__":
    unittest.main()
