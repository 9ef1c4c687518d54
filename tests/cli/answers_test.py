"""get, put, del, scan, info, check, list, doctor, bench: answers, exit codes, JSON."""

import json
import os
import shutil
import unittest

from harness import PROGRAM, CliTest, unescape


class Answers(CliTest):
    def test_put_get_del(self):
        self.assertEqual(self.ok("put", self.pool, "apple", 5), b"")
        self.assertEqual(self.ok("get", self.pool, "apple"), b"5\n")
        self.ok("put", self.pool, "apple", 2**64 - 1)
        self.assertEqual(self.ok("get", self.pool, "apple"), b"18446744073709551615\n")
        self.fails(1, "no key 'pear' in 'main'", "get", self.pool, "pear")
        self.fails(1, "no key 'pear' in 'main'", "del", self.pool, "pear")
        self.assertEqual(self.ok("del", self.pool, "apple"), b"")
        self.fails(1, "no key 'apple'", "get", self.pool, "apple")

    def test_keys_of_every_kind(self):
        self.ok("put", self.pool, "", 1)
        self.assertEqual(self.ok("get", self.pool, ""), b"1\n")
        self.ok("put", self.pool, r"a\x00b", 2, "--escaped")
        self.ok("put", self.pool, r"a\x00b", 3)
        self.assert_holds({b"": 1, b"a\0b": 2, rb"a\x00b": 3})
        self.assertEqual(self.ok("get", self.pool, r"a\x00b", "--escaped"), b"2\n")
        self.fails(2, "unknown escape", "get", self.pool, r"a\q", "--escaped")
        self.ok("put", self.pool, "--", "-dash", 4)
        self.assertEqual(self.ok("get", self.pool, "--", "-dash"), b"4\n")
        self.ok("put", self.pool, b"\xff\xfe", 6)
        self.assertEqual(self.ok("get", self.pool, b"\xff\xfe"), b"6\n")

    def test_numbers(self):
        for key in (0, 1, 2**63, 2**64 - 1):
            self.ok("put", self.pool, key, key, "--keys", "u64")
            self.assertEqual(self.ok("get", self.pool, key), b"%d\n" % key)
        for wrong in ("x", "", "1x", "18446744073709551616", " 1"):
            self.fails(2, "is not a number from 0 to", "get", self.pool, wrong)
            self.fails(2, "is not a number from 0 to", "put", self.pool, wrong, 1)
            self.fails(2, "value .* is not a number from 0 to", "put", self.pool, 1, wrong)
        self.fails(2, "--prefix is for bytes keys", "scan", self.pool, "--prefix", "1")

    def test_key_over_the_limit(self):
        self.ok("put", self.pool, "k" * 65536, 1)
        self.assertEqual(self.ok("get", self.pool, "k" * 65536), b"1\n")
        for command in (["put", self.pool, "k" * 65537, 1], ["get", self.pool, "k" * 65537],
                        ["del", self.pool, "k" * 65537]):
            self.fails(2, "the key has 65,537 bytes, the limit is 65,536", *command)
        self.assert_sound()

    def test_payloads(self):
        tree = ("--index", "bztree:values=bytes")
        self.fails(2, "value .* is not a number from 0 to", "put", self.pool, "ada", "Countess")
        self.fails(2, "the value has 65,537 bytes", "put", self.pool, "ada", "x" * 65537, *tree)
        self.assertFalse(os.path.exists(self.pool))
        self.ok("put", self.pool, "ada", "Countess", *tree)
        self.ok("put", self.pool, "grace", "x" * 65536)
        self.ok("put", self.pool, "tab", "a\tb")
        self.ok("put", self.pool, "none", "")
        self.assertEqual(self.ok("get", self.pool, "ada"), b"Countess\n")
        self.assertEqual(self.ok("get", self.pool, "grace"), b"x" * 65536 + b"\n")
        self.assertEqual(self.ok("get", self.pool, "none"), b"\n")
        self.assertEqual(json.loads(self.ok("get", self.pool, "tab", "--json"))["value"], "a\\tb")
        self.fails(1, "no key 'pear'", "get", self.pool, "pear")
        for more in ([], ["--table", "new", *tree]):
            self.fails(2, "the value has 65,537 bytes, the limit is 65,536", "put", self.pool,
                       "grace", "x" * 65537, *more)
        self.assertNotIn(b"new", self.ok("info", self.pool))
        self.fails(2, "'values' is there more than once", "put", self.pool, "k", "v", "--table",
                   "new", "--index", "bztree:values=numbers:values=bytes")
        self.assertEqual(self.ok("scan", self.pool, "--from", "n"), b"none\t\ntab\ta\\tb\n")
        self.assertEqual(self.ok("scan", self.pool, "--reverse", "--limit", 1), b"tab\ta\\tb\n")
        entries = json.loads(self.ok("scan", self.pool, "--to", "b", "--json"))["entries"]
        self.assertEqual(entries, [{"key": "ada", "value": "Countess"}])
        # Numbers in another index of the same pool are numbers.
        self.fails(2, "value .* is not a number", "put", self.pool, "k", "v", "--table", "other")
        self.assertNotIn(b"other", self.ok("info", self.pool))
        self.assert_sound()
        for form in ("tsv", "csv"):
            text = self.ok("dump", self.pool, "--format", form)
            again = self.pool.with_suffix("." + form)
            self.ok("load", again, "-", "--format", form, *tree, input=text)
            self.assertEqual(self.ok("dump", again, "--format", form), text)
            self.assertEqual(self.ok("get", again, "tab"), b"a\tb\n")
        self.ok("del", self.pool, "grace")
        self.assert_sound()
        self.fails(2, "line 1: value: .*unknown escape", "load", self.pool, "-", input=b"k\t\\q\n")
        self.fails(2, "line 1: value: longer than 65,536 bytes", "load", self.pool, "-",
                   input=b"k\t" + b"v" * 600000)
        self.fails(2, "line 1: value: 65,537 bytes", "load", self.pool, "-",
                   input=b"k\t" + b"v" * 65537)
        self.fails(2, "line 1: value: missing", "load", self.pool, "-", input=b"k\n")
        self.fails(2, "line 1: value: a further field", "load", self.pool, "-", input=b"k\ta\tb\n")
        self.ok("load", self.pool, "-", "--number-lines", input=b"k\n")
        self.assertEqual(self.ok("get", self.pool, "k"), b"1\n")

    def test_scan(self):
        entries = {self.random_key(6): n for n in range(9000)}
        self.load(entries)
        order = sorted(entries)

        def scan(*arguments):
            out = self.ok("scan", self.pool, "--escaped", *arguments)
            keys = [unescape(line.split(b"\t")[0]) for line in out.split(b"\n")[:-1]]
            for line, key in zip(out.split(b"\n"), keys):
                self.assertEqual(int(line.split(b"\t")[1]), entries[key])
            return keys

        self.assertEqual(scan(), order)
        self.assertEqual(scan("--reverse"), order[::-1])
        for limit in (0, 1, 7, 4095, 4096, 4097, len(order), len(order) + 1):
            self.assertEqual(scan("--limit", limit), order[:limit])
            self.assertEqual(scan("--limit", limit, "--reverse"), order[::-1][:limit])
        for _ in range(20):
            low, high = (self.random.choice([self.random_key(6), self.random.choice(order)])
                         for _ in range(2))
            arguments = ["--from", argument(low), "--to", argument(high)]
            wanted = [key for key in order if low <= key <= high]
            self.assertEqual(scan(*arguments), wanted)
            self.assertEqual(scan(*arguments, "--reverse"), wanted[::-1])
            self.assertEqual(scan(*arguments, "--limit", 5, "--reverse"), wanted[::-1][:5])
        for prefix in (b"", b"a", b"ab", b"abc", b"\xff", b"\xff\xff", b"\0", b"no such"):
            wanted = [key for key in order if key.startswith(prefix)]
            arguments = ["--prefix", argument(prefix)]
            self.assertEqual(scan(*arguments), wanted)
            self.assertEqual(scan(*arguments, "--reverse"), wanted[::-1])
            self.assertEqual(scan(*arguments, "--limit", 3), wanted[:3])
            self.assertEqual(scan(*arguments, "--limit", 3, "--reverse"), wanted[::-1][:3])
        self.fails(2, "--prefix", "scan", self.pool, "--prefix", "a", "--from", "a")

    def test_scan_of_numbers_and_of_nothing(self):
        self.ok("load", self.pool, "-", "--keys", "u64",
                input=b"0\t1\n5\t2\n18446744073709551615\t3\n")
        self.assertEqual(self.ok("scan", self.pool), b"0\t1\n5\t2\n18446744073709551615\t3\n")
        self.assertEqual(self.ok("scan", self.pool, "--from", 1, "--to", 5), b"5\t2\n")
        self.assertEqual(self.ok("scan", self.pool, "--from", 6, "--to", 5), b"")
        self.ok("del", self.pool, 5)
        self.ok("load", self.pool, "-", "--table", "empty", input=b"")
        self.assertEqual(self.ok("scan", self.pool, "--table", "empty"), b"")
        self.assertEqual(self.ok("dump", self.pool, "--table", "empty"), b"")
        self.assert_sound()

    def test_json(self):
        self.load({b"a\tb": 1, b"\xff": 2})
        one = json.loads(self.ok("get", self.pool, "a\tb", "--json"))
        self.assertEqual(one, {"table": "main", "key_type": "bytes", "key": "a\\tb", "found": True,
                               "value": 1})
        none = json.loads(self.fails(1, "no key 'q'", "get", self.pool, "q", "--json"))
        self.assertEqual((none["found"], none["value"]), (False, None))
        scan = json.loads(self.ok("scan", self.pool, "--json"))
        self.assertEqual(scan, {"table": "main", "key_type": "bytes", "entries": [
            {"key": "a\\tb", "value": 1}, {"key": "\\xFF", "value": 2}]})
        empty = json.loads(self.ok("scan", self.pool, "--json", "--from", "z", "--to", "y"))
        self.assertEqual(empty["entries"], [])
        info = json.loads(self.ok("info", self.pool, "--json"))
        self.assertEqual(list(info), [
            "path", "uuid", "version", "domain", "domain_emulated", "domain_reason", "clean",
            "replayed_records", "header_copy_damaged", "file_bytes", "heap_bytes", "block_bytes",
            "lost_blocks", "open_ns", "epoch", "durable_epoch", "store", "problems", "indexes"])
        self.assertEqual(list(info["indexes"][0]), [
            "name", "spec", "key_type", "keys", "height", "inner_nodes", "leaf_nodes",
            "pool_bytes", "dram_bytes", "more", "table", "value_bytes"])
        self.assertIs(info["store"], None)
        self.assertEqual((info["clean"], info["indexes"][0]["keys"]), (True, 2))
        self.assertEqual(info["file_bytes"], self.pool.stat().st_size)
        check = json.loads(self.ok("check", self.pool, "--json"))
        self.assertEqual(list(check), ["path", "sound", "keys", "blocks_allocated",
                                       "blocks_reachable", "problems"])
        self.assertEqual((check["sound"], check["keys"], check["problems"]), (True, 2, []))

    def test_list(self):
        trees = json.loads(self.ok("list", "--json"))["trees"]
        self.assertIn("wbtree", [tree["name"] for tree in trees])
        for tree in trees:
            self.assertEqual(list(tree), ["name", "summary", "paper", "durability", "inner_nodes",
                                          "recovery", "latch_free", "whole_batches",
                                          "options"])
            self.assertIn(tree["name"], self.ok("list").decode())
            for option in tree["options"]:
                self.assertEqual(list(option), ["name", "default", "values", "help"])
                self.assertIn(f"{option['name']}={option['default']}", self.ok("list").decode())

    def test_doctor(self):
        doctor = json.loads(self.ok("doctor", self.dir, "--json"))
        self.assertEqual(list(doctor), ["version", "flush_instruction", "page_bytes", "cores",
                                        "huge_pages", "shmem_huge_pages", "directories"])
        self.assertIn(doctor["flush_instruction"], ["clwb", "clflushopt", "clflush"])
        place = doctor["directories"][0]
        self.assertEqual(list(place), ["path", "domain", "reason", "writable", "free_bytes"])
        self.assertEqual(place["path"], str(self.dir))
        self.assertTrue(place["writable"] and place["reason"])
        self.assertIn(b"/dev/shm", self.ok("doctor"))
        self.fails(3, "no such file or directory", "doctor", self.dir / "none")

    def test_text_for_people(self):
        self.load({b"a": 1})
        info = self.ok("info", self.pool).decode()
        for part in (str(self.pool), "closed properly", "index 'main': 1 key (bytes)", "wbtree:"):
            self.assertIn(part, info)
        self.assertRegex(self.ok("check", self.pool).decode(), r"\Asound: 1 key, .* reachable\n\Z")

    def test_usage(self):
        for arguments in ([], ["nonsense"], ["get"], ["get", self.pool], ["put", self.pool, "a"],
                          ["get", self.pool, "a", "b"], ["get", self.pool, "a", "--nonsense"],
                          ["scan", self.pool, "--limit", "x"], ["load", self.pool, "-", "--skip", "-1"],
                          ["scan", self.pool, "--limit", "-1"],
                          ["load", self.pool, "-", "--max-bytes", "many"],
                          ["load", self.pool, "-", "--max-bytes", "-1M"],
                          ["load", self.pool, "-", "--max-bytes", "99999999999999999999"],
                          ["load", self.pool, "-", "--private-bytes", "some"]):
            self.fails(2, "--help", *arguments)
        self.fails(2, "unknown command 'nonsense'; see everleaf --help", "nonsense")
        self.assertFalse(self.pool.exists())
        for command in ("demo", "load", "dump", "get", "put", "del", "scan", "info", "check",
                        "doctor", "list"):
            self.assertIn(command.encode(), self.ok("--help"))
            self.assertIn(b"Usage: everleaf " + command.encode(), self.ok(command, "--help"))
        self.assertRegex(self.ok("--version").decode(), r"\Aeverleaf \d+\.\d+\.\d+\n\Z")

    def test_bench_beside_the_program(self):
        alone = self.dir / "bin" / "everleaf"
        alone.parent.mkdir()
        shutil.copy(PROGRAM, alone)
        nowhere = {"PATH": str(self.dir)}
        self.fails(3, "everleaf-bench is not there", "bench", program=alone, env=nowhere)
        for place in ("bin", "libexec", ""):
            bench = self.dir / place / "everleaf-bench"
            bench.parent.mkdir(exist_ok=True)
            bench.write_text("#!/bin/sh\necho bench \"$@\"\nexit 7\n")
            bench.chmod(0o755)
            run = self.everleaf("bench", "--index", "a,b", "--help", program=alone, env=nowhere)
            self.assertEqual((run.returncode, run.stdout), (7, b"bench --index a,b --help\n"))
            bench.unlink()


def argument(key):
    return "".join(f"\\x{byte:02X}" for byte in key)


if __name__ == "__main__":
    unittest.main()
