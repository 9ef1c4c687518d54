"""everleaf-traffic: rows that make sense, bad usage. What the model does is tested in traffic_test.

Usage: traffic_program_test.py PATH-TO-EVERLEAF-TRAFFIC
"""

import json
import os
import subprocess
import sys
import tempfile
import unittest

PROGRAM = sys.argv.pop(1)


class Program(unittest.TestCase):
    def run_program(self, *arguments):
        return subprocess.run([PROGRAM, *arguments], capture_output=True, text=True, check=False)

    def rows(self, *arguments, ops="5000"):
        with tempfile.TemporaryDirectory() as place:
            path = os.path.join(place, "rows.json")
            done = self.run_program("--records", "5000", "--ops", ops, "--cache-scale", "0.001",
                                    "--json", path, *arguments)
            self.assertEqual(done.returncode, 0, done.stderr)
            with open(path, encoding="utf-8") as file:
                content = json.load(file)
            self.assertEqual((content["program"], content["command"][0]), ("everleaf-traffic",) * 2)
            self.assertRegex(content["version"] + " " + content["date"], r"^\d+\.\d+\.\d+ 20\d\d-\d\d-\d\dT")
            return content["traffic"]

    def test_every_tree(self):
        rows = self.rows()
        self.assertEqual(len({row["index"] for row in rows}), 5)
        for row in rows:
            name = (row["index"], row["workload"])
            self.assertEqual(row["ops"], 4500, name)  # but for the first tenth
            self.assertGreater(row["read_mib"], 0, name)
            if row["workload"] == "find":
                self.assertEqual((row["flushes_per_op"], row["bits_changed_per_op"]), (0, 0), name)
                continue
            self.assertGreater(row["written_mib"], 0, name)
            self.assertGreater(row["media_written_mib"], 0, name)
            self.assertGreater(row["picojoules_per_op"], 0, name)

    def test_nodes_that_a_bulk_load_filled_split_at_once(self):
        lines = [self.rows("--index", "wbtree", "--workload", f"{load},insert", ops="500")[0]["flushes_per_op"]
                 for load in ("bulk-load:60", "bulk-load")]
        self.assertGreater(lines[1], 1.5 * lines[0])

    def test_sparse_bulk_loads_have_room(self):
        done = self.run_program("--index", "bztree", "--workload", "bulk-load:10,find", "--records", "300000", "--ops", "1000")
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_counts_are_the_papers(self):
        spec = "wbtree:structure=bitmap-leaf:node=512"
        rows = self.rows("--index", spec, "--workload", "remove", "--machine", "pcm", ops="1000")
        self.assertAlmostEqual(rows[0]["fences_per_op"], 1, delta=0.1)  # Table 3, and emptied leaves

    def test_flushes_that_throw_lines_away_cost_reads(self):
        least, most = (self.rows("--index", "wbtree", "--workload", "t2", "--flush", by)[0]
                       for by in ("none", "clflushopt"))
        self.assertGreater(most["read_mib"], 2 * least["read_mib"])
        self.assertGreater(most["written_mib"], 10 * least["written_mib"])

    def test_same_seed_same_rows(self):
        self.assertEqual(self.rows("--index", "bdtree"), self.rows("--index", "bdtree"))

    def test_bad_usage(self):
        for arguments, word in ((["--index", "oak"], "oak"), (["--index", "std-map"], "std-map"),
                                (["--index", "lmdb-sync"], "lmdb-sync is no tree of this library"),
                                (["--machine", "tape"], "tape"), (["--flush", "x"], "x"),
                                (["--cache-scale", "0"], "cache-scale"),
                                (["--workload", "fnd"], "fnd"), (["--index", "wbtree:node=1"], "node")):
            done = self.run_program("--records", "100", *arguments)
            self.assertEqual(done.returncode, 2, done.stdout + done.stderr)
            self.assertIn(word, done.stderr)
        done = self.run_program("--records", "100", "--json", "/nonexistent/x.json")
        self.assertEqual(done.returncode, 3, done.stderr)


if __name__ == "__main__":
    unittest.main()
