"""everleaf paper: its rules on made-up measurements, and every claim once at a tiny scale.

Usage: paper_test.py PATH-TO-EVERLEAF-PAPER
"""

import importlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import unittest.mock

PROGRAM = pathlib.Path(sys.argv.pop(1))
SOURCES = pathlib.Path(__file__).resolve().parents[1] / "paper"
sys.path.insert(0, str(SOURCES))
sys.dont_write_bytecode = True

import book  # noqa: E402
import host  # noqa: E402
import judge  # noqa: E402
import lab  # noqa: E402
import page  # noqa: E402


def holds(claim, seen):
    """Of each check, in its order."""
    return [check.holds for check in book.load()[claim].judge(seen)]


class Rules(unittest.TestCase):
    def test_all_rounds_must_agree(self):
        for values, expected in (([2, 3], True), ([2], True), ([0.5, 0.9], False), ([0.9, 1.1], None)):
            self.assertIs(judge.at_least("x", "1", values, 1).holds, expected, values)
            negated = {True: False, False: True, None: None}[expected]
            self.assertIs(judge.at_most("x", "1", values, 0.99).holds, negated, values)
        self.assertIs(judge.between("x", "1", [0.9, 1.1], 0.9, 1.1).holds, True)
        self.assertIs(judge.between("x", "1", [0.8, 1.2], 0.9, 1.1).holds, False)
        with self.assertRaises(ValueError):
            judge.at_least("x", "1", [], 1)

    def test_limits_come_from_the_papers_figure(self):
        self.assertTrue(judge.gain("x", 1.5, [1.25]).holds)
        self.assertFalse(judge.gain("x", 1.5, [1.24]).holds)
        self.assertTrue(judge.loss("x", 5, [10]).holds)
        self.assertFalse(judge.loss("x", 5, [10.1]).holds)
        self.assertTrue(judge.near("x", 40, [20, 60]).holds)
        self.assertFalse(judge.near("x", 40, [19, 61]).holds)
        self.assertTrue(judge.exactly("x", 2, 2).holds)
        self.assertFalse(judge.exactly("x", 2, 2.01).holds)
        self.assertTrue(judge.exactly("x", 2, 2.001, slack=0.001).holds)

    def test_verdicts(self):
        def check(result):
            return judge.Check("", "", "", (1,), "1", result)

        for results, needs, expected in (
                ([True, True], (), judge.HOLDS), ([True], ("a rival",), judge.PART),
                ([True, False], (), judge.PART), ([True, None], (), judge.PART),
                ([False], (), judge.NOT), ([False, None], ("a rival",), judge.NOT),
                ([None], (), judge.CANNOT), ([], ("a rival",), judge.OPEN)):
            word, sentence = judge.verdict([check(result) for result in results], needs)
            self.assertEqual(word, expected, results)
            self.assertEqual("a rival" in sentence, bool(needs))

    def test_a_busy_machine_decides_nothing(self):
        checks = judge.undecided([judge.at_least("x", "1", [2], 1), judge.at_least("x", "1", [0], 1)])
        self.assertEqual([check.holds for check in checks], [None, None])
        count = judge.counted(judge.at_least("x", "1", [2], 1))
        self.assertTrue(judge.undecided([count])[0].holds)
        self.assertEqual(judge.verdict(checks)[0], judge.CANNOT)

    def test_figures_for_people(self):
        self.assertEqual(judge.show([1.234, 1, 2], "x"), "1.23x (1.00 to 2.00)")
        self.assertEqual(judge.show([0.00012], " %"), "1.20e-04 %")
        self.assertEqual([judge.number(value) for value in (0, 12.34, 1234)], ["0", "12.3", "1234"])


class Claims(unittest.TestCase):
    """The judged rule of each sort of claim, on measurements that nobody made."""

    def test_every_claim_is_there(self):
        claims = book.load()
        self.assertEqual(list(claims), book.IDS)
        for claim in claims.values():
            self.assertTrue(claim.paper, claim.id)
            self.assertEqual(claim.measure is None, claim.judge is None and claim.show is None, claim.id)
            self.assertTrue(claim.measure or claim.needs or claim.cannot, claim.id)

    def test_losses(self):
        self.assertEqual(holds("bz:fig6", {"bz-read-mostly": [4, 9], "bz-read-heavy": [5, 2], "bz-balanced": [30, 40]}),
                         [True, False, None])
        self.assertEqual(holds("bz:fig8a", {"bz-read-only": {"128": [39]}, "bz-read-heavy": {"128": [5]}}), [True, False])
        self.assertEqual(holds("bd:fig1", {"lost": {"wbtree": [19], "pbtree": [100], "bztree": [141]},
                                           "more": {"writes": {"wbtree": 60}, "reads": {"wbtree": 2}}}),
                         [False, True, False, True, False])

    def test_ratios(self):
        self.assertEqual(holds("wb:fig14", {"leaves": [1.3], "long": [1.4]}), [True, False])
        self.assertEqual(holds("bz:fig8b", {"read-only": [1.3], "best": [0.9, 1.1]}), [True, None])
        self.assertEqual(holds("pb:fig7", {"falling": [0.8], "large": [1.1]}), [False, True])
        self.assertEqual(holds("pb:fig10", {"nodes": {"100 entries, before": [1.2, 1.3]}}), [None])
        self.assertEqual(holds("pb:fig8", {"rate": [1], "words": {"ascending": 1.1, "descending": None}}),
                         [True, False])
        self.assertEqual(holds("pb:fig8", {"rate": [1], "words": {"ascending": 1}}), [True, True])
        self.assertEqual(holds("bd:fig6", {"1ms": [1.05], "10s": [1.3]}), [True, False])
        self.assertEqual(holds("bd:fig7", {"2": [1.9, 1.6], "4": [3.5]}), [None, True])
        self.assertEqual(holds("lo:fig14", {"gain": [1.01]}), [False])
        self.assertEqual(holds("lo:fig15", {"twice": [1], "later": [2]}), [True, False])
        self.assertEqual(holds("lo:fig17", {"find": [2], "update": [1.1]}), [True, False])

    def test_figures(self):
        self.assertEqual(holds("bz:memory", [22.8, 28]), [True])
        self.assertEqual(holds("bz:memory", [30]), [False])
        self.assertEqual(holds("bd:table3", {"dram": [1], "pool": [50]}), [True, False])
        self.assertEqual(holds("lo:slots", [10]), [False])
        self.assertEqual(holds("lo:fig12", {"P99.999": [40]}), [False])
        enough = {"keys": [3.5, 3.6], "least": 1_000_000}
        for per_key, expected in (([1.2], True), ([0.5], False), ([2], False)):
            self.assertEqual(holds("lo:fig18", enough | {"per_key": per_key}), [expected])
        for few in ({"least": 1000}, {"keys": [1.5]}):
            self.assertEqual(holds("lo:fig18", enough | few | {"per_key": [1.2]}), [None])
        self.assertEqual(holds("bz:recovery", {"us": [250], "growth": [9], "keys": [8]}), [False, False])
        self.assertEqual(holds("bz:recovery", {"us": [100], "growth": [1], "keys": [2]}), [None, True])
        self.assertEqual(holds("bd:recovery", {"passes": [3], "keys": [2_000_000]}), [False])
        self.assertEqual(holds("bd:recovery", {"passes": [1], "keys": [300_000]}), [None])
        self.assertEqual(holds("bz:pmwcas", {"bz-balanced": [0.1], "load": [0.3]}), [True, False])
        self.assertEqual(holds("bz:fig9", {"words": [2], "search": [60], "search_mostly": [50]}),
                         [False, True, False])
        self.assertEqual(holds("pb:fig11", {"best": {"1": [0.5], "2": [1.5]}, "wrong": [0.1]}),
                         [False, True, False])
        self.assertEqual(holds("pb:fig9", {"ratios": {"median": [0.95]}, "tail": [0.9]}), [False, True])
        seen = {"same": [1.2], "flush": {"uniform": [3], "ascending": [3.3]}, "random": [2], "traversal": [-40]}
        self.assertEqual(holds("pb:fig7(d)", seen), [False, True, False, True, False])
        seen = {"same": [0.95], "flush": {}, "random": [0.9], "traversal": [60]}
        self.assertEqual(holds("pb:fig7(d)", seen), [True, False, True])
        curves = {"flush": [1.15], "fence": [1.1], "fewer": [0.9]}
        self.assertEqual(holds("wb:fig4", {"sequential": curves, "random": curves}), [False] * 6)
        self.assertEqual(holds("pb:fig1", {"512": [1.05], "1024": [1.2]}), [False, True])
        self.assertEqual(holds("bd:model", [{"ops": 1, "model": 100, "ours": 80}]), [False])
        split = {"lines": 20, "complexity": 8}
        self.assertEqual(holds("bz:complexity", {str(i): split for i in range(13)}), [True, True, False, True])
        self.assertEqual(holds("bz:complexity", {}), [False, False, True, True])

    def test_of_what_random_keys_cost_more(self):
        claim = importlib.import_module("claims.pb_fig7d")
        up = dict.fromkeys(claim.PARTS, 10)
        self.assertEqual(claim.traversal_ahead(up | {"traversal": 50, "flush": 35}, up), 15)
        self.assertEqual(claim.traversal_ahead(up | {"traversal": 50, "update": 70}, up), -20)

    def test_words_of_a_removal(self):
        """Phases with merges do not count."""
        claim = importlib.import_module("claims.pb_fig8")

        def row(words, merges, borrows):
            return {"words_per_op": words / 100, "ops": 100,
                    "tree": {"merges": {"change": merges}, "borrows": {"change": borrows}}}

        rows = [row(2000, 1, 0), row(3, 0, 0), row(5000, 0, 1), row(20, 0, 0)]
        self.assertAlmostEqual(claim.words_of_a_removal(rows), 23 / 6, 2)
        self.assertIsNone(claim.words_of_a_removal(rows[:1]))

    def test_figures_without_a_rule(self):
        claims = book.load()
        shown = dict(claims["lo:fig18"].show({"seconds": {"7 keys": [1.5]}, "alone": [1.25], "threads": 2,
                                                       "dram": [2.5]}))
        self.assertEqual(list(shown.values()), ["1.50 s", "2.50", "1.25x"])
        self.assertEqual(claims["bz:fig8a"].show({"bz-read-only": {"16": [3], "128": [40]}}),
                         [("throughput lost by keys of 16 bytes, bz-read-only", "3.00 %")])
        self.assertEqual(claims["pb:fig8"].show({"random": [0.5]})[0][1], "0.50x")
        self.assertEqual(claims["lo:fig12"].show({"P99": [3], "P99.999": [40]}), [("P99 of insertions", "3.00 us")])
        self.assertEqual(claims["lo:fig14"].show({"splits": {"adding": [4]}})[0][1], "4.00")
        self.assertEqual(claims["bd:recovery"].show({"keys": [5], "ms": [2]})[0][1], "2.00 ms")
        self.assertEqual(claims["pb:fig10"].show({"wbtree": {"x": [2]}}), [("x: PB+ over wB+", "2.00x")])
        self.assertEqual(claims["pb:fig7"].show({"rivals": {"x": [2]}}), [("x", "2.00x")])

    def test_recoveries_are_compared_by_the_keys_that_were_found(self):
        def rows(*opened):
            return [{"opened": [{"open_ns": ns, "index_ns": 0, "size": size, "dram_bytes": 1} for ns, size in opened]}]

        small, large = lab.Openings(rows((10, 100), (20, 200))), lab.Openings(rows((30, 200), (30, 800)))
        self.assertEqual(large.time_over(small), [3, 1.5])
        self.assertEqual(large.keys_over(small), [2, 4])

    def test_a_busy_recovery_is_made_again_and_counts_as_busy(self):
        class Busy(lab.Lab):
            def bench(self, *arguments, seed=1):
                return {"recovery": [{"opened": [{"cpu_share": 0.3}] * 3}]}

        place = Busy("", 1, 3)
        place.recovery("--index", "wbtree")
        self.assertEqual((place.least_cpu_share, place.repeated), (0.3, lab.TRIES))

    def test_the_machine_is_asked(self):
        self.assertEqual(host.cores(), len(os.sched_getaffinity(0)))
        for cores, expected in ((1, [1]), (2, [1, 2]), (6, [1, 2, 4, 6]), (8, [1, 2, 4, 8])):
            with unittest.mock.patch.object(host, "cores", return_value=cores):
                self.assertEqual(host.threads(20), expected)
                claim = importlib.reload(importlib.import_module("claims.lo_fig13"))
                self.assertEqual(hasattr(claim, "NEEDS"), cores > 4)
                for name in ("CANNOT", "NEEDS"):
                    claim.__dict__.pop(name, None)
        importlib.reload(claim)
        self.assertGreaterEqual(min(host.numa_nodes(), host.sockets()), 1)

    def test_counts(self):
        row = {"nodes": "", "operation": "insert", "entries": 5,
               "paper": {"words": 3, "flushes": 2, "fences": 2}}
        row["measured"] = {"words": 4, "flushes": 1, "fences": 3}
        self.assertEqual(holds("wb:table3", [row]), [False] * 3)
        row["measured"] = dict(row["paper"])
        self.assertEqual(holds("wb:table3", [row]), [True] * 3)

    def test_models(self):
        panels = ("lookup at 70 %", "insertion at 70 %", "insertion at 100 %", "deletion at 70 %")
        spec = "{}, wbtree:structure={}:node={}"
        seen = {spec.format(panel, structure, node): 100 for structure in ("slot-bitmap", "bitmap-leaf")
                for node in (256, 512) for panel in panels}
        self.assertEqual(holds("wb:fig11", seen), [True] * 4)
        seen[spec.format(panels[0], "bitmap-leaf", 256)] = 140
        seen[spec.format(panels[2], "bitmap-leaf", 512)] = 101
        self.assertEqual(holds("wb:fig11", seen), [False, True, False, True])
        spec = "wbtree:structure={}:node=512 {}"
        seen = {spec.format(structure, operation): {"fences_per_op": 3, "flushes_per_op": 4}
                for structure in ("slot-bitmap", "bitmap-leaf") for operation in ("insert", "remove")}
        self.assertEqual(holds("wb:fig12", seen),
                         [True, True, True, True, False, True, False, True])

    def test_words(self):
        names = ["consolidations", "splits", "inner_splits", "merges"]
        zero = dict.fromkeys(names, 0)
        seen = {"load": zero | {"ops": 100, "splits": 4, "pmwcas_1_words": 4, "pmwcas_2_words": 200,
                                "pmwcas_3_words": 4},
                "remove": zero | {"ops": 100, "merges": 2, "pmwcas_2_words": 102, "pmwcas_3_words": 2},
                "pointer": zero | {"ops": 100, "pmwcas_3_words": 100},
                "inline": zero | {"ops": 100, "pmwcas_2_words": 100}}
        self.assertEqual(holds("bz:table1", seen), [True] * 7)
        seen["load"]["pmwcas_2_words"] = 300
        seen["pointer"]["pmwcas_3_words"] = 50
        self.assertEqual(holds("bz:table1", seen), [False, True, True, True, True, False, True])


class Program(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.place = pathlib.Path(holder.name)
        self.json = self.place / "results.json"

    def run_paper(self, *arguments, program=PROGRAM):
        return subprocess.run([program, *map(str, arguments)], capture_output=True, text=True,
                              check=False)

    def test_all_at_a_tiny_scale(self):
        out = self.place / "page.md"
        done = self.run_paper("--all", "--scale", "0.0001", "--repeat", "1", "--json", self.json,
                              "--page", out)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        results = json.loads(self.json.read_text())["claims"]
        self.assertEqual([result["id"] for result in results], book.IDS)
        claims = book.load()
        for result in results:
            self.assertIn(result["verdict"], judge.PLURALS)
            self.assertNotIn("failed", result["sentence"])
            self.assertEqual(result["machine"] is None, not result["commands"], result["id"])
            if claims[result["id"]].measure is None:
                self.assertIn(result["verdict"], (judge.OPEN, judge.CANNOT))
                self.assertEqual((result["checks"], result["commands"]), ([], []))
            elif result["figures"] and not result["checks"]:
                self.assertEqual(result["verdict"], judge.OPEN)
            elif not result["checks"]:
                self.assertIn("is not there", result["sentence"])  # lizard; a test that was not built
            else:
                self.assertTrue(result["checks"] and result["commands"], result["id"])
            self.assertIn(f"\n{result['id']}: {result['verdict']}\n", "\n" + done.stdout)
        text = out.read_text()
        self.assertEqual(text.count("\n| "), text.count(" |\n"))
        self.assertIn("no more", text)  # than that the command works

    def test_results_are_kept(self):
        for claim in ("bz:fig4", "lo:fig16"):
            self.assertEqual(self.run_paper(claim, "--json", self.json).returncode, 0)
        results = json.loads(self.json.read_text())["claims"]
        self.assertEqual([(result["id"], result["verdict"]) for result in results],
                         [("bz:fig4", judge.OPEN), ("lo:fig16", judge.CANNOT if host.numa_nodes() == 1 else judge.OPEN)])

    def test_a_failure_takes_no_verdict_away(self):
        slots = ("lo:slots", "--scale", "0.0001", "--repeat", "1", "--json", self.json)
        self.assertEqual(self.run_paper(*slots).returncode, 0)
        before = self.json.read_text()
        self.assertIn('"verdict": ', before)
        self.assertEqual(self.run_paper(*slots, "--dir", self.place / "absent").returncode, 3)
        self.assertEqual(self.json.read_text(), before)

    def test_list(self):
        done = self.run_paper("--list")
        self.assertEqual(done.returncode, 0)
        for name in book.IDS:
            self.assertIn(f"{name:14} ", done.stdout)

    def test_bad_usage_is_2_and_names_the_word(self):
        self.json.write_text('{"rows": []}')
        for arguments, word in ((["bz:fug6"], "did you mean bz:fig6?"), ([], "--all"),
                                (["zzzz"], "no claim 'zzzz'; `everleaf paper --list`"),
                                (["--all", "--scale", "0"], "--scale"),
                                (["--all", "--scale", "x"], "--scale"),
                                (["--all", "--repeat", "0"], "--repeat"),
                                (["--all", "--page", "x"], "--json"), (["--nonsense"], "--nonsense"),
                                (["bz:fig4", "--json", self.json], "does not hold results")):
            done = self.run_paper(*arguments)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn(word, done.stderr)
            self.assertEqual(done.stdout, "")
        self.assertEqual(self.json.read_text(), '{"rows": []}')

    def test_io_is_3(self):
        absent = self.place / "absent"
        for arguments in (["bz:fig4", "--json", absent / "x.json"],
                          ["lo:slots", "--scale", "0.0001", "--dir", absent]):
            done = self.run_paper(*arguments)
            self.assertEqual(done.returncode, 3, done.stdout + done.stderr)
            self.assertIn(str(absent), done.stdout + done.stderr)

    def test_needs_the_bench(self):
        alone = self.place / "everleaf-paper"
        shutil.copy(PROGRAM, alone)
        path = [folder for folder in os.environ["PATH"].split(":")
                if not (pathlib.Path(folder) / "everleaf-bench").exists()]
        done = subprocess.run([alone, "lo:slots"], capture_output=True, text=True, check=False,
                              env=os.environ | {"PATH": ":".join(path)})
        self.assertEqual(done.returncode, 3, done.stdout)
        self.assertIn("everleaf-bench is not there", done.stderr)

    def test_a_signal_ends_what_runs_and_keeps_results(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            self.json.unlink(missing_ok=True)
            with tempfile.TemporaryDirectory() as pools, subprocess.Popen(
                    [PROGRAM, "bz:fig4", "lo:slots", "--scale", "0.1", "--repeat", "100", "--json",
                     self.json, "--dir", pools], stdout=subprocess.DEVNULL,
                    stderr=subprocess.PIPE, text=True) as running:
                while not os.listdir(pools) and running.poll() is None:
                    time.sleep(0.01)
                running.send_signal(number)
                said = running.communicate()[1]
                self.assertEqual(running.returncode, -number)
                self.assertIn(f"stopped in lo:slots, whose rounds so far are lost; {self.json} has", said)
                while os.listdir(pools):  # the bench is gone, and a moment later its pools
                    time.sleep(0.01)
            self.assertEqual([result["id"] for result in json.loads(self.json.read_text())["claims"]],
                             ["bz:fig4"])

    def test_the_array_of_micro(self):
        micro = PROGRAM.parent / "everleaf-micro"
        self.assertIn("at most 1 GiB", " ".join(self.run_paper("--help", program=micro).stdout.split()))
        out = json.loads(self.run_paper("--lines", "2000", "--repeat", "1", program=micro).stdout)
        self.assertEqual(out["bytes"], out["lines"] * 64)
        self.assertGreater(out["cache_bytes"], 0)
        self.assertEqual(lab.array_of({"bytes": 2**30, "cache_bytes": 260 * 2**20}), "1024 MiB and 260 MiB")

    def test_every_machine_is_on_the_page(self):
        def result(name, machine):
            return {"id": name, "invocation": "everleaf paper", "machine": machine, "date": "2026-01-01",
                    "cpu_share": None, "load_average": 0, "scale": 1, "rounds": None, "seconds": 1, "repeated": 0,
                    "commit": "0123456789"}

        one, other = ({"cpu": cpu, "cores": 2, "kernel": "6", "flush_instruction": "clwb"} for cpu in "AB")
        lines = "\n".join(page.machine_lines([result("x:1", one), result("x:2", other), result("x:3", one)]))
        self.assertIn("Machine: A, 2 cores, Linux 6, flush by clwb. There: x:1, x:3.", lines)
        self.assertIn("Machine: B, 2 cores, Linux 6, flush by clwb. There: x:2.", lines)
        self.assertIn("Checkout at 0123456789. Scale", lines)

    def test_page_escapes(self):
        self.assertEqual(page.cell("a|b\nc"), "a\\|b c")


if __name__ == "__main__":
    unittest.main()
