"""everleaf report: a page of real results, and clear errors for what is none.

Usage: report_test.py PATH-TO-EVERLEAF-REPORT PATH-TO-EVERLEAF-BENCH
"""

import copy
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree

BENCH = sys.argv.pop(2)
PROGRAM = sys.argv.pop(1)

CLAIM = {"id": "zz:fig1", "paper": "a < b", "verdict": "does not hold", "sentence": "1 does not",
         "checks": [{"what": "x", "paper": "2x", "rule": "at least 1.50x", "text": "0.50x", "holds": False}],
         "date": "2020-01-01", "machine": None, "scale": 0.5, "invocation": "everleaf paper zz:fig1"}
TRAFFIC = [{"index": index, "workload": "u1", "ops": 1000, "read_mib": size, "written_mib": 1,
            "media_read_mib": 2, "media_written_mib": 3} for index, size in (("wbtree", 5), ("bdtree", 7))]


class Report(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        holder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(holder.cleanup)
        cls.place = pathlib.Path(holder.name)
        common = ["--index", "wbtree,bdtree,absl-btree", "--records", "2000", "--domain", "process"]
        cls.rows = cls.bench("rows.json", *common, "--workload", "load,find", "--threads", "1,2",
                             "--repeat", "2")
        cls.recovery = cls.bench("recovery.json", *common, "--recovery", "--repeat", "1")
        cls.claims = cls.place / "claims.json"
        cls.claims.write_text(json.dumps({"program": "everleaf-paper", "schema": 1, "claims": [CLAIM]}))
        cls.traffic = cls.place / "traffic.json"
        cls.traffic.write_text(json.dumps({"schema": 1, "traffic": TRAFFIC}))
        cls.out = cls.place / "report.html"

    @classmethod
    def bench(cls, name, *arguments):
        path = cls.place / name
        subprocess.run([BENCH, *arguments, "--json", path], check=True, capture_output=True)
        return path

    def report(self, *arguments, expected=0):
        done = subprocess.run([PROGRAM, *map(str, arguments)], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, expected, done.stderr)
        return done.stderr

    def page(self, *files):
        self.report(*files, "-o", self.out)
        return self.out.read_text(encoding="utf-8")

    def test_one_page_of_everything(self):
        text = self.page(self.rows, self.recovery, self.claims, self.traffic)
        for title in ("Throughput", "Latency", "Threads", "Persistence", "Space", "Opening after a crash",
                      "Traffic of the model", "What the papers claim", "All rows"):
            self.assertIn(f"<h2>{title}", text)
        # 2 phases x 2 numbers of threads twice, 2 phases, space, opening, lines and media.
        self.assertEqual(text.count("<svg "), 8 + 2 + 1 + 1 + 2)
        self.assertIn('class="verdict not">does not hold', text)
        self.assertIn("a &lt; b", text)
        self.assertIn("width=device-width", text)

    def test_nothing_is_loaded(self):
        text = self.page(self.rows, self.claims)
        for link in re.findall(r'(?:src|href|url)\s*[=(]\s*["\']?([^"\')\s>]+)', text):
            self.assertTrue(link.startswith("#"), link)
        self.assertNotIn("@import", text)
        self.assertNotIn("<script", text)

    def test_ids_are_unique_and_charts_are_xml(self):
        text = self.page(self.rows)
        ids = re.findall(r'\bid="([^"]+)"', text)
        self.assertEqual(len(ids), len(set(ids)))
        for used in re.findall(r'(?:url\(#|href="#)([^")]+)', text):
            self.assertIn(used, ids)
        for chart in re.findall(r"<svg .*?</svg>", text, re.S):
            xml.etree.ElementTree.fromstring(chart)

    def test_the_best_is_named_with_what_it_survives(self):
        content = json.loads(self.rows.read_text())
        content["rows"] = [row for row in content["rows"] if row["threads"] == 1 and row["phase"] == "load"]
        for row in content["rows"]:
            row["mops"] = row["mops_min"] = row["mops_max"] = 4 if row["index"] == "absl-btree" else 1
            if row["index"] == "wbtree":
                row |= {"survives": "power loss", "mops": 2, "mops_max": 2}
        path = self.place / "made_up.json"
        path.write_text(json.dumps(content))
        text = self.page(path)
        self.assertIn("Best: absl-btree, which survives nothing.", text)
        self.assertIn("Best that survives power loss: wbtree, 50% of it.", text)
        self.assertIn("wbtree: 2, 50% of the best", text)
        self.assertNotIn("overlaps", text)
        content["rows"][0]["mops_max"] = 5
        path.write_text(json.dumps(content))
        self.assertIn(f"overlaps with that of {content['rows'][0]['index']}", self.page(path))

    def test_what_was_measured_otherwise_stands_apart(self):
        content = json.loads(self.rows.read_text())
        content["rows"] = [row for row in content["rows"] if row["threads"] == 1 and row["phase"] == "find"]
        other = copy.deepcopy(content)
        path, again = self.place / "one.json", self.place / "two.json"
        path.write_text(json.dumps(content))

        def charts(**change):
            for row in other["rows"]:
                row |= change
            again.write_text(json.dumps(other))
            return self.page(path, again)

        text = charts(domain="memory")  # in one chart, by other names
        self.assertEqual(text.count("<svg "), 2 + 1)
        self.assertIn("wbtree (domain process): ", text)
        self.assertIn("wbtree (domain memory): ", text)
        text = charts(domain="process")
        self.assertIn("wbtree (run 2): ", text)
        self.assertNotIn("2 MiB pages", text)
        text = charts(pages="huge")  # two charts of each kind
        self.assertEqual(text.count("<svg "), 2 * (2 + 1))
        self.assertIn("<h3>find, 1 thread, 2 MiB pages</h3>", text)
        every = text[text.index("<h2>All rows</h2>"):]
        for pages in ("4 KiB pages", "2 MiB pages"):  # which row is of which
            self.assertEqual(every.count(f"<td>{pages}</td>"), len(content["rows"]))
        self.assertIn("wbtree: ", text)
        text = charts(pages="small", batch=16)
        self.assertIn("<h3>find, 1 thread, 16 at once</h3>", text)
        # Nothing to a look-up: the same chart.
        self.assertIn("wbtree (run 2): ", charts(batch=1, scan_length=5))

    def test_models_and_recoveries_that_differ_stand_apart(self):
        path = self.place / "other.json"

        def titles(name, rows):
            path.write_text(json.dumps({"schema": 1, name: rows}))
            return re.findall("<h3>(.*?)</h3>", self.page(path))

        how = {"machine": "optane", "flush": "none", "records": 7, "cache_bytes": 4096, "epoch_ops": 9}
        for field, other, said in (("machine", "pcm", "machine pcm"), ("flush", "clwb", "flush clwb"),
                                   ("records", 8, "8 records"), ("ops", 2000, "2,000 operations"),
                                   ("cache_bytes", 64, "64 bytes of cache"), ("epoch_ops", 3, "epochs of 3 ")):
            rows = [TRAFFIC[0] | how, TRAFFIC[0] | how | {field: other}]
            found = titles("traffic", rows)
            self.assertEqual(len(found), 4, found)
            self.assertEqual(sum(said in title for title in found), 2, found)
        self.assertEqual(len(titles("traffic", [TRAFFIC[0] | how, TRAFFIC[1] | how])), 2)
        self.assertEqual(len(titles("traffic", [TRAFFIC[0]] * 2)), 2)
        self.assertIn("wbtree (run 2): ", self.page(path))
        row = json.loads(self.recovery.read_text())["recovery"][0]
        for field, other, said in (("domain", "disk", "domain disk"), ("pages", "huge", "2 MiB pages"),
                                   ("keys", "bytes", "bytes keys")):
            found = titles("recovery", [row, row | {field: other}])
            self.assertEqual(len(found), 2, found)
            self.assertTrue(any(said in title for title in found), found)

    def test_counts_say_what_they_are_of(self):
        content = json.loads(self.rows.read_text())
        rows = [row for row in content["rows"] if (row["index"], row["phase"], row["threads"]) == ("wbtree", "load", 1)]
        content["rows"] = rows + [row | {"keys": "bytes"} for row in rows]
        path = self.place / "keys.json"
        path.write_text(json.dumps(content))
        self.assertIn("<td>load, bytes keys</td><td>wbtree</td>", self.page(path))

    def test_when_and_how(self):
        text = self.page(self.rows, self.recovery, self.claims)
        self.assertRegex(text, r"20\d\d-\d\d-\d\dT[\d:]{8}Z, Everleaf \d+\.\d+\.\d+: <code>everleaf-bench --index")
        self.assertIn("--recovery", text)
        self.assertIn("2020-01-01: <code>everleaf paper zz:fig1</code>", text)
        older = {key: value for key, value in json.loads(self.rows.read_text()).items()
                 if key not in ("date", "version", "command")}
        path = self.place / "older.json"
        path.write_text(json.dumps(older))
        self.assertNotIn("<code>", self.page(path))

    def test_wrong_files_are_2_and_named(self):
        good = json.loads(self.rows.read_text())
        wrong = {"text": "no json", "empty": "", "list": "[]", "other": '{"schema": 1}',
                 "version": json.dumps(good | {"schema": 2}), "nothing": '{"schema": 1, "rows": []}',
                 "bytes": None}
        for name, value in (("mops", "fast"), ("mops", None), ("mops", float("nan")), ("mops", 0),
                            ("index", 3), ("threads", True), ("pages", [1]), ("batch", "x"), ("flushes_per_op", "x"), ("p50_ns", -1)):
            changed = copy.deepcopy(good)
            changed["rows"][0][name] = value
            wrong[f"{name} {value}"] = json.dumps(changed)
        del good["rows"][0]["p50_ns"]
        wrong["missing"] = json.dumps(good)
        for name, text in wrong.items():
            with self.subTest(name):
                path = self.place / "wrong.json"
                path.write_bytes(b"\xff\xfe{}" if text is None else text.encode())
                self.out.unlink(missing_ok=True)
                error = self.report(path, "-o", self.out, expected=2)
                self.assertIn("wrong.json", error)
                self.assertEqual(len(error.splitlines()), 1, error)
                self.assertFalse(self.out.exists())

    def test_io_is_3(self):
        absent = self.place / "absent"
        self.assertIn(str(absent), self.report(absent, expected=3))
        self.assertIn(str(absent), self.report(self.rows, "-o", absent / "x.html", expected=3))
        self.report(expected=2)


if __name__ == "__main__":
    unittest.main()
