"""everleaf store: tables of bytes, in and out."""

import csv
import io
import json
import os
import signal
import subprocess
import time
import unittest

from harness import PROGRAM, SANITIZED, CliTest, escape, unescape


def tsv(entries):
    return b"".join(escape(key) + b"\t" + escape(value) + b"\n" for key, value in entries.items())


class Stores(CliTest):
    def fill(self, entries, *arguments, table="t"):
        return self.ok("store", "load", self.pool, table, "-", *arguments, input=tsv(entries))

    def entries(self, *arguments, table="t", pool=None):
        out = self.ok("store", "dump", pool or self.pool, table, *arguments)
        lines = out.split(b"\n")
        self.assertEqual(lines.pop(), b"")
        pairs = [tuple(map(unescape, line.split(b"\t"))) for line in lines]
        self.assertEqual(pairs, sorted(pairs), "not in order")
        return dict(pairs)

    def dump_as(self, form):
        """With the warning that mdb_load takes no empty key."""
        run = self.everleaf("store", "dump", self.pool, "t", "--format", form)
        self.assertEqual((run.returncode, run.stderr != b""), (0, form == "mdb"), run.stderr)
        return run.stdout

    def random_entries(self, n):
        return {self.random_key(): self.random_key(300) for _ in range(n)}

    def test_put_get_del(self):
        self.assertEqual(self.ok("store", "put", self.pool, "users", "ada", "Countess"), b"")
        self.assertEqual(self.ok("store", "get", self.pool, "users", "ada"), b"Countess\n")
        self.ok("store", "put", self.pool, "users", "ada", "")
        self.assertEqual(self.ok("store", "get", self.pool, "users", "ada"), b"\n")
        self.fails(1, "no key 'alan' in 'users'", "store", "get", self.pool, "users", "alan")
        self.fails(1, "no key 'alan' in 'users'", "store", "del", self.pool, "users", "alan")
        self.assertEqual(self.ok("store", "del", self.pool, "users", "ada"), b"")
        self.fails(1, "no key 'ada'", "store", "get", self.pool, "users", "ada")
        self.ok("store", "put", self.pool, "users", r"a\x00b", "v", "--escaped")
        self.assertEqual(self.entries(table="users"), {b"a\0b": b"v"})

    def test_numbers_as_keys(self):
        for key in (0, 7, 2**64 - 1):
            self.ok("store", "put", self.pool, "n", key, f"v{key}", "--keys", "u64")
        self.assertEqual(self.ok("store", "get", self.pool, "n", 7), b"v7\n")
        self.assertEqual(self.ok("store", "dump", self.pool, "n"),
                         b"0\tv0\n7\tv7\n18446744073709551615\tv18446744073709551615\n")
        self.fails(2, "is not a number from 0 to", "store", "get", self.pool, "n", "x")
        self.fails(2, "--prefix is of bytes keys", "store", "dump", self.pool, "n", "--prefix", "1")

    def test_what_was_dumped_is_loaded(self):
        entries = self.random_entries(500)
        entries[b"long"] = bytes(range(256)) * 4000
        self.assertEqual(self.fill(entries), b"%d records loaded\n" % len(entries))
        self.assertEqual(self.entries(), entries)
        entries[b""] = b""
        entries[b'quotes " and, commas\r'] = b'"'
        entries["\u00e4\u20ac\U0001f343\x00\x1f".encode()] = b"\xff\x00"
        self.fill(entries)
        for form in ("tsv", "csv", "jsonl", "mdb"):
            text = self.dump_as(form)
            copy = self.dir / form
            self.ok("store", "load", copy, "t", "-", "--format", form, input=text)
            self.assertEqual(self.entries(pool=copy), entries)
            file = self.dir / f"dump.{form}"  # the format is that of the name
            file.write_bytes(text)
            copy = self.dir / f"{form}-by-name"
            self.ok("store", "load", copy, "t", file)
            self.assertEqual(self.entries(pool=copy), entries)
        some = {key: value for key, value in entries.items() if key.startswith(b"a")}
        self.assertEqual(self.entries("--prefix", "a"), some)

    def test_others_read_json_and_csv(self):
        entries = {b"a": b"1", b"b\n,": b'say "hi"', "\u00e4".encode(): b"\x00", b"\xff": b"\xfe"}
        self.fill(entries)
        lines = self.ok("store", "dump", self.pool, "t", "--format", "jsonl").splitlines()

        def of(field):
            return field.encode() if isinstance(field, str) else bytes.fromhex(field["hex"])

        read = [json.loads(line) for line in lines]
        self.assertEqual({of(one["key"]): of(one["value"]) for one in read}, entries)
        text = self.ok("store", "dump", self.pool, "t", "--format", "csv").decode("latin-1")
        rows = list(csv.reader(io.StringIO(text, newline="")))
        self.assertEqual({k.encode("latin-1"): v.encode("latin-1") for k, v in rows}, entries)
        self.fill({b"7": b"seven"}, "--keys", "u64", table="n")
        self.assertEqual(self.ok("store", "dump", self.pool, "n", "--format", "jsonl"),
                         b'{"key":7,"value":"seven"}\n')

    def test_repair(self):
        entries = {b"key%04d" % i: b"value %d " % i * 20 for i in range(400)}
        self.fill(entries)
        new = self.dir / "new"
        out = self.ok("store", "repair", self.pool, "-o", new)
        self.assertEqual(out, b"table 't': 400 records read\n")
        self.assertEqual(self.entries(pool=new), entries)
        self.fails(3, "is there already", "store", "repair", self.pool, "-o", new)
        self.fails(2, "-o NEW", "store", "repair", self.pool)
        new.unlink()
        file = bytearray(self.pool.read_bytes())
        at = file.index(b"value 7 ")
        file[at] ^= 1
        self.pool.write_bytes(file)
        self.fails(1, "is damaged: 1 problem", "check", self.pool)
        self.assertIn("does not fit its checksum at offset",
                      self.everleaf("check", self.pool).stdout.decode())
        run = self.everleaf("store", "repair", self.pool, "-o", new)
        self.assertEqual(run.returncode, 1)
        self.assertIn(b"table 't': 399 records read, 1 key lost with a damaged value", run.stdout)
        self.assertIn(b"what could be read is in", run.stderr)
        self.assertEqual(self.pool.read_bytes(), file, "written to")
        del entries[b"key0007"]
        self.assertEqual(self.entries(pool=new), entries)
        self.assert_sound(new)
        # The whole directory: the name has to be given.
        new.unlink()
        file[12288:28416] = bytes(28416 - 12288)
        self.pool.write_bytes(file)
        run = self.everleaf("store", "repair", self.pool, "-o", new, "--table", "t",
                            "--table", "n:u64")
        self.assertEqual(run.returncode, 1, run.stderr)
        self.assertEqual(self.entries(pool=new), entries)

    def test_repair_of_a_damaged_name(self):
        entries = {b"key%04d" % i: b"value %d " % i * 20 for i in range(100)}
        self.fill(entries, table="users")
        file = self.pool.read_bytes()
        self.pool.write_bytes(file.replace(b"users\0", b"uzers\0", 1))
        new = self.dir / "new"
        run = self.everleaf("store", "repair", self.pool, "-o", new)
        self.assertEqual(run.returncode, 1, run.stderr)
        self.assertIn(b"nothing was found of a table 'uzers'", run.stdout)
        self.assertIn(b"was another: --table NAME", run.stdout)
        self.fails(2, "no table 'uzers'", "store", "dump", new, "uzers")
        new.unlink()
        run = self.everleaf("store", "repair", self.pool, "-o", new, "--table", "users")
        self.assertEqual(run.returncode, 1, run.stderr)
        self.assertEqual(self.entries(table="users", pool=new), entries)

    def test_repair_of_a_table_of_another_type(self):
        entries = {b"key": b"value"}
        self.fill(entries, table="a:b")
        new = self.dir / "new"
        for wrong in ("t:foo", "t:", "t:U64", "t:u64 ", "a:b"):
            self.fails(2, "is no type of keys", "store", "repair", self.pool, "-o", new,
                       "--table", wrong)
            self.assertFalse(new.exists())
        file = bytearray(self.pool.read_bytes())
        file[12288:28416] = bytes(28416 - 12288)  # the whole directory
        self.pool.write_bytes(file)
        run = self.everleaf("store", "repair", self.pool, "-o", new, "--table", "a:b:bytes")
        self.assertEqual(run.returncode, 1, run.stderr)
        self.assertEqual(self.entries(table="a:b", pool=new), entries)

    def test_repair_of_what_is_no_store(self):
        self.pool.write_bytes(self.random.randbytes(1 << 20))
        self.fails(3, "has no table, and no value of one", "store", "repair", self.pool, "-o",
                   self.dir / "new")
        self.assertFalse((self.dir / "new").exists())

    def test_a_killed_backup_leaves_nothing(self):
        self.fill({b"%06d" % i: b"v" * 500 for i in range(40000)})
        copy = self.dir / "copy"
        for delay in (0.02, 0.05, 0.1):
            run = subprocess.Popen([PROGRAM, "store", "backup", self.pool, copy])
            time.sleep(delay)
            run.kill()
            run.wait()
            if copy.exists():  # it was faster
                self.assert_sound(copy)
                copy.unlink()
            self.assertEqual([one.name for one in self.dir.iterdir()], [self.pool.name])

    def test_numbers_survive_mdb(self):
        entries = {b"%d" % key: b"%d" % key for key in (0, 255, 256, 2**63, 2**64 - 1)}
        self.fill(entries, "--keys", "u64")
        text = self.ok("store", "dump", self.pool, "t", "--format", "mdb")
        copy = self.dir / "copy"
        self.ok("store", "load", copy, "t", "-", "--format", "mdb", "--keys", "u64", input=text)
        self.assertEqual(self.ok("store", "dump", copy, "t"),
                         self.ok("store", "dump", self.pool, "t"))

    def test_lmdb_reads_and_writes_the_same(self):
        # LMDB takes no empty key, and mdb_dump -p of 0.9.24 writes a backslash as it is.
        entries = {key: value for key, value in self.random_entries(300).items()
                   if key and b"\\" not in key + value}
        self.fill(entries)
        text = self.ok("store", "dump", self.pool, "t", "--format", "mdb")
        (self.dir / "lmdb").mkdir()
        subprocess.run(["mdb_load", self.dir / "lmdb"], input=text, check=True)
        for options in ([], ["-p"]):
            dumped = subprocess.run(["mdb_dump", *options, self.dir / "lmdb"], check=True,
                                    capture_output=True).stdout
            copy = self.dir / f"copy{len(options)}"
            self.ok("store", "load", copy, "t", "-", "--format", "mdb", input=dumped)
            self.assertEqual(self.entries(pool=copy), entries)

    def lmdb(self, name, text, *options):
        """What mdb_load makes of the text."""
        (self.dir / name).mkdir()
        subprocess.run(["mdb_load", *options, self.dir / name], input=text, check=True)
        return self.dir / name

    def test_integer_keys_of_lmdb(self):
        for size, keys in ((4, [1, 256, 2**32 - 1]), (8, [1, 256, 2**40, 2**64 - 1])):
            data = b"".join(b" %s\n 76\n" % key.to_bytes(size, "little").hex().encode()
                            for key in keys)
            made = self.lmdb(f"lmdb{size}", b"VERSION=3\nformat=bytevalue\ndatabase=n\ntype=btree\n"
                             b"integerkey=1\nHEADER=END\n" + data + b"DATA=END\n", "-s", "n")
            dumped = subprocess.run(["mdb_dump", "-s", "n", made], check=True,
                                    capture_output=True).stdout
            self.assertIn(b"integerkey=1\n", dumped)
            self.ok("store", "load", self.pool, f"n{size}", "-", "--format", "mdb", "--keys", "u64",
                    input=dumped)
            read = self.ok("store", "dump", self.pool, f"n{size}").splitlines()
            self.assertEqual([int(line.split(b"\t")[0]) for line in read], keys)
            self.fails(2, "integerkey=1 .* load it with --keys u64", "store", "load", self.pool, "b",
                       "-", "--format", "mdb", input=dumped)

    def test_keys_that_lmdb_does_not_take(self):
        for entries in ({b"": b"1"}, {b"k" * 512: b"1", b"k" * 513: b"2"}, {b"k" * 511: b"1", b"a": b"2"}):
            self.pool.unlink(missing_ok=True)
            self.fill(entries)
            run = self.everleaf("store", "dump", self.pool, "t", "--format", "mdb")
            self.assertEqual(run.returncode, 0)
            (self.dir / "lmdb").mkdir(exist_ok=True)
            loaded = subprocess.run(["mdb_load", self.dir / "lmdb"], input=run.stdout, check=False,
                                    stderr=subprocess.DEVNULL)
            refused = sum(not 0 < len(key) <= 511 for key in entries)
            self.assertEqual(loaded.returncode != 0, refused != 0)
            if refused:
                self.assert_one_line(run.stderr, rf"warning: keys that mdb_load .* bytes: {refused}\n")
            else:
                self.assertEqual(run.stderr, b"")

    def test_backslashes_of_mdb_dump(self):
        for value in (b"C:\\tmp", b"a\\41", b"end\\"):
            self.pool.unlink(missing_ok=True)
            made = self.lmdb(f"lmdb{value.hex()}", b"VERSION=3\nformat=bytevalue\nHEADER=END\n"
                             b" 6b\n %s\nDATA=END\n" % value.hex().encode())
            dumped = subprocess.run(["mdb_dump", "-p", made], check=True, capture_output=True).stdout
            if b"\n " + value + b"\n" not in dumped:  # mended in later versions of LMDB
                dumped = b"format=print\nHEADER=END\n k\n %s\nDATA=END\n" % value
            self.fails(2, "value: .* is no escape: .* dump without -p", "store", "load", self.pool,
                       "t", "-", "--format", "mdb", input=dumped)

    def test_lmdb_reads_more_than_its_default_map(self):
        entries = {b"%08d" % n: b"v" * 200 for n in range(20000)}
        self.fill(entries)
        text = self.ok("store", "dump", self.pool, "t", "--format", "mdb")
        (self.dir / "lmdb").mkdir()
        subprocess.run(["mdb_load", self.dir / "lmdb"], input=text, check=True)
        dumped = subprocess.run(["mdb_dump", self.dir / "lmdb"], check=True,
                                capture_output=True).stdout
        self.assertEqual(dumped.count(b"\n "), 40000)

    def test_printed_bytes(self):
        text = (b"VERSION=3\nformat=print\ntype=btree\nHEADER=END\n"
                b" a\\00b\\\\\n \\ff value\n \n \nDATA=END\n")
        self.ok("store", "load", self.pool, "t", "-", "--format", "mdb", input=text)
        self.assertEqual(self.entries(), {b"a\0b\\": b"\xff value", b"": b""})

    def test_malformed(self):
        good = b"VERSION=3\nformat=bytevalue\nHEADER=END\n"
        for text, form, problem in (
                (b"a\n", "tsv", "line 1: value: missing"),
                (b"a\tb\nb\tc\td\n", "tsv", "line 2: value: a further field"),
                (b"a\\q\tb\n", "tsv", "line 1: key: .* unknown escape"),
                (b"a\tb\\q\n", "tsv", "line 1: value: .* unknown escape"),
                (b"a,b\nb\n", "csv", "standard input: line 2: value: missing"),
                (b"a,b,c\n", "csv", "line 1: value: a further field"),
                (b'a,"b\n', "csv", "line 1: value: the quote is never closed"),
                (b'a,"b"c\n', "csv", "line 1: value: text after the closing quote"),
                (b'{"key":"a","value":"b"}\n{"key":"a"}\n', "jsonl", "line 2: line: not a JSON"),
                (b'{"key":"a","value":"1"}\0{"key":"b","value":"2"}\n', "jsonl", "line 1: line: has a zero"),
                (b'{"key":"a","key":"b","value":"1"}\n', "jsonl", "line 1: line: not a JSON object"),
                (b"[" * 100000 + b"\n", "jsonl", "line 1: line: not a JSON object"),
                (b'{"key":"\xff","value":"b"}\n', "jsonl", "line 1: line: not a JSON object"),
                (b'{"key":7,"value":"b"}\n', "jsonl", "line 1: key: a number"),
                (b'{"key":"a","value":7}\n', "jsonl", "line 1: value: 7 is neither a string nor"),
                (b'{"key":-1,"value":"b"}\n', "jsonl", "line 1: key: -1 is neither .* nor a number from 0"),
                (b'{"key":1.5,"value":"b"}\n', "jsonl", "line 1: key: 1.5 is neither .* nor a number"),
                (b'{"key":' + b"[" * 100000 + b"]" * 100000 + b',"value":""}\n', "jsonl",
                 "line 1: line: not a JSON object"),
                (b'{"key":["a"],"value":""}\n', "jsonl", "line 1: key: neither a string nor .* nor a number"),
                (b'{"key":{"hex":["a"]},"value":""}\n', "jsonl", "line 1: line: not a JSON object"),
                (b'{"key":{"hex":"0"},"value":""}\n', "jsonl", "line 1: key: two hexadecimal"),
                (b"", "mdb", "header: missing"),
                (b"nonsense\n", "mdb", "line 1: header: not what mdb_dump writes"),
                (b"VERSION=3\n", "mdb", "HEADER=END is missing"),
                (b"VERSION=3\ndupsort=1\nHEADER=END\n", "mdb", "line 2: header: .*several values"),
                (b"VERSION=3\nreversekey=1\nHEADER=END\n", "mdb", "line 2: header: .*reversekey"),
                (b"VERSION=2\nHEADER=END\n", "mdb", "line 1: header: VERSION=3"),
                (b"format=hex\nHEADER=END\n", "mdb", "line 1: header: format=bytevalue and"),
                (b"type=recno\nHEADER=END\n", "mdb", "line 1: header: type=btree"),
                (good + b" 61\n 6\nDATA=END\n", "mdb", "line 5: value: two hexadecimal digits"),
                (good + b" 6g\n 62\nDATA=END\n", "mdb", "line 4: key: two hexadecimal digits"),
                (good + b"61\n 62\nDATA=END\n", "mdb", "begins with a blank"),
                (good + b" 61\nDATA=END\n", "mdb", "line 4: value: missing"),
                (good + b" 61\n 62\n", "mdb", "DATA=END is missing"),
                (good + b" 61\n 62\nDATA=END\n" + good, "mdb", "line 7: line: a further table")):
            self.fails(2, problem, "store", "load", self.pool, "t", "-", "--format", form,
                       input=text)
        self.fails(2, "there are tsv, csv, jsonl and mdb", "store", "dump", self.pool, "t", "--format", "xml")

    def test_too_long(self):
        key, value = b"k" * 70000, b"v" * 2**28
        head = b"VERSION=3\nformat=bytevalue\nHEADER=END\n"
        json_line = b'{"key":"%s","value":"%s"}\n'
        for form, text, problem in (
                ("tsv", b"a\tb\n%s\tv\n" % key, "line 2: key: 70,000 bytes, the limit is 65,536 "),
                ("csv", b"a,b\n%s,v\n" % key, "line 2: key: longer than 65,536 bytes "),
                ("csv", b"%s,v\n" % key[:65537], "line 1: key: 65,537 bytes, the limit is 65,536 "),
                ("jsonl", json_line % (b"a", b"b") + json_line % (key, b"v"),
                 "line 2: key: 70,000 bytes, the limit is 65,536 "),
                ("jsonl", b'{"key":{"hex":"%s"},"value":""}\n' % key.hex().encode(),
                 "line 1: key: 70,000 bytes, the limit is 65,536 "),
                ("mdb", head + b" 61\n 62\n %s\n 76\nDATA=END\n" % key.hex().encode(),
                 "line 6: key: 70,000 bytes, the limit is 65,536 "),
                ("tsv", b"a\t%s\n" % value, "line 1: value: 268,435,456 bytes, the limit is 268,435,455 "),
                ("csv", b"a,%s\n" % value, "line 1: value: 268,435,456 bytes, the limit is 268,435,455 ")):
            if SANITIZED and len(text) > 2**28:
                continue
            self.fails(2, rf"standard input: {problem}.*\(0 records loaded", "store", "load", self.pool,
                       "t", "-", "--format", form, input=text)

    def test_a_bad_first_line_makes_nothing(self):
        for arguments, text in (([], b"bad\n"), (["--keys", "u64"], b"a\tb\n"),
                                (["--format", "mdb"], b"")):
            self.fails(2, r"\(0 records loaded and kept\)", "store", "load", self.pool, "t", "-",
                       *arguments, input=text)
            self.assertFalse(self.pool.exists())
        self.fill({b"a": b"1"})
        self.fails(2, "is not a number", "store", "load", self.pool, "n", "-", "--keys", "u64",
                   input=b"a\tb\n")
        self.fails(2, "is not a number", "store", "put", self.pool, "n", "a", "b", "--keys", "u64")
        self.fails(2, "no table 'n'", "store", "dump", self.pool, "n")
        self.assertEqual(self.fill({}, table="empty"), b"0 records loaded\n")
        self.assertEqual(self.entries(table="empty"), {})
        # Nor of a pool of indexes.
        pool = self.dir / "indexes"
        self.ok("put", pool, "a", 1)
        before = pool.read_bytes()
        self.fails(2, "keys are bytes", "store", "load", pool, "t", "-", "--format", "jsonl",
                   input=b'{"key":7,"value":"a"}\n')
        self.fails(2, "escape", "store", "put", pool, "t", "\\q", "v", "--escaped")
        self.fails(2, "name", "store", "put", pool, "", "k", "v")
        self.assertEqual(pool.read_bytes(), before)
        self.fails(3, "no store", "store", "dump", pool, "t")

    def test_extensions(self):
        line = b'{"key":"a","value":"1"}\n'
        for name in ("a.jsonl", "a.ndjson", "a.json"):
            (self.dir / name).write_bytes(line)
        self.fails(2, "--format jsonl", "store", "load", self.pool, "t", self.dir / "a.json")
        self.assertFalse(self.pool.exists())
        for arguments in (["a.jsonl"], ["a.ndjson"], ["a.json", "--format", "jsonl"]):
            self.pool.unlink(missing_ok=True)
            self.ok("store", "load", self.pool, "t", self.dir / arguments.pop(0), *arguments)
            self.assertEqual(self.entries(), {b"a": b"1"})

    def test_what_was_loaded_before_a_bad_line_is_kept(self):
        text = b"".join(b"%06d\tv\n" % i for i in range(5000)) + b"bad\n"
        self.fails(2, r"standard input: line 5001: value: missing \(4,096 records loaded and kept\)",
                   "store", "load", self.pool, "t", "-", input=text)
        self.assertEqual(len(self.entries()), 4096)

    def test_drop_and_backup(self):
        self.fill({b"a": b"1"}, table="t")
        self.fill({b"b": b"2"}, table="u")
        copy = self.dir / "copy"
        self.ok("store", "backup", self.pool, copy)
        self.fails(3, "is there already", "store", "backup", self.pool, copy)
        self.ok("store", "drop", self.pool, "t")
        self.fails(2, "no table 't'", "store", "dump", self.pool, "t")
        self.fails(2, "no table 't'", "store", "drop", self.pool, "t")
        self.assertEqual(self.entries(table="t", pool=copy), {b"a": b"1"})
        self.assertEqual(self.entries(table="u"), {b"b": b"2"})
        self.assert_sound()
        self.assert_sound(copy)

    def test_options_of_writers(self):
        options = ["--domain", "process", "--epoch", "5ms", "--max-bytes", "64M", "--private-bytes", "0"]
        self.fill({b"a": b"1", b"b": b"2"}, *options)
        self.ok("store", "put", self.pool, "t", "c", "3", *options)
        self.ok("store", "del", self.pool, "t", "a", *options)
        self.assertEqual(self.entries(), {b"b": b"2", b"c": b"3"})
        self.ok("store", "drop", self.pool, "t", *options)
        for command in ("put", "load", "del", "drop", "dump"):
            text = self.ok("store", command, "--help").decode()
            self.assertEqual("--domain" in text, command != "dump")
            self.assertEqual("--durability" in text, command in ("put", "load"))
            self.assertEqual("--format" in text, command in ("load", "dump"))

    def test_refusals_say_what_to_do(self):
        put = ("store", "put", self.pool)
        self.fails(2, "the name of a table has 1 to 63 bytes", *put, "t" * 64, "k", "v")
        self.fails(2, r"with emulate \(--emulate\)", *put, "t", "k", "v", "--domain", "memory")
        self.fails(2, "log=7 is not a power of two from 256 to 4096, or a multiple of 16128 up to 258048",
                   *put, "t", "k", "v", "--durability", "strict", "--index", "lodgetree:log=7")
        self.fails(2, "t=0 is not a number from 1 to 1000", *put, "t", "k", "v", "--durability",
                   "strict", "--index", "lodgetree:t=0")
        self.assertFalse(self.pool.exists())
        self.ok(*put, "users", "ada", "1")
        self.fails(2, "table 'users' has bytes keys, not u64", *put, "users", "7", "v", "--keys", "u64")
        self.fails(2, "table 'users' is a bdtree.*, not a bdtree:node=256", *put, "users", "k", "v",
                   "--index", "bdtree:node=256")

    def test_info_and_what_is_for_indexes(self):
        self.fill({b"a": b"12345678", b"b": b""})
        info = json.loads(self.ok("info", self.pool, "--json"))
        self.assertEqual(info["store"]["durability"], "buffered")
        self.assertEqual(info["store"]["records"], 2)
        table = info["indexes"][0]
        self.assertEqual((table["name"], table["table"], table["keys"], table["value_bytes"]),
                         ("t", True, 2, 8))
        self.assertIn("table 't': 2 keys (bytes)", self.ok("info", self.pool).decode())
        self.fails(2, "table 't' is opened by a Store", "get", self.pool, "a", "--table", "t")

    def test_info_of_a_damaged_table(self):
        self.fill({b"a": b"1"})
        self.ok("store", "put", self.pool, "other", "b", "2")
        data = bytearray(self.pool.read_bytes())
        at = data.index(b"other\0")
        data[at:at + 5] = b"OTHER"
        self.pool.write_bytes(data)
        answer = self.everleaf("info", self.pool, "--json")
        self.assertEqual(answer.returncode, 1)
        info = json.loads(answer.stdout)
        self.assertEqual([one["name"] for one in info["indexes"]], ["t"])
        self.assertEqual(len(info["problems"]), 1)
        self.assertGreater(info["store"]["record_bytes_used"], 0)
        text = self.everleaf("info", self.pool)
        self.assertEqual(text.returncode, 1)
        self.assertIn(b"problem: ", text.stdout)
        self.assertIn(b"table 't': 1 key ", text.stdout)

    def test_no_store(self):
        self.ok("put", self.pool, "a", "1")
        copy = self.dir / "copy"
        self.fails(3, "there is no store", "store", "repair", self.pool, "-o", copy)
        self.assertFalse(copy.exists())
        self.fails(3, "there is no store", "store", "get", self.pool, "t", "k")
        self.fails(2, "there is no tree", "store", "put", self.pool, "t", "k", "v", "--index", "no")
        self.fails(3, "there is no store", "store", "get", self.pool, "t", "k")

    def test_strict(self):
        self.fill({b"a": b"1"}, "--durability", "strict")
        self.assertEqual(json.loads(self.ok("info", self.pool, "--json"))["store"]["durability"],
                         "strict")
        self.fails(2, "strict", "store", "put", self.pool, "t", "b", "2", "--durability", "buffered")
        self.ok("store", "put", self.pool, "t", "b", "2")
        self.assertEqual(self.entries(), {b"a": b"1", b"b": b"2"})

    def batch_word(self):
        """That of the store's root: what batch is under way."""
        with open(self.pool, "rb") as file:
            def word(at):
                file.seek(at)
                return int.from_bytes(file.read(8), "little")
            root = word(28416)
            return word(root + 16) if root else 0

    def stop_inside_a_batch(self, run):
        """After some batches. It may end first. Any time to wait would be wrong on some machine."""
        passed, batches = set(), self.random.randrange(8)
        while run.poll() is None:
            try:
                if self.batch_word() == 0:
                    continue
            except FileNotFoundError:
                continue
            run.send_signal(signal.SIGSTOP)
            os.waitid(os.P_PID, run.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
            passed.add(self.batch_word())
            if 0 not in passed and len(passed) > batches:
                return
            passed.discard(0)
            run.send_signal(signal.SIGCONT)

    def test_killed_inside_a_strict_batch(self):
        batch = 1024
        source = self.dir / "source"
        source.write_bytes(b"".join(b"%06d\tv%d\n" % (i, i) for i in range(40 * batch)))
        for _ in range(60):
            self.pool.unlink(missing_ok=True)
            run = subprocess.Popen([PROGRAM, "store", "load", self.pool, "t", source,
                                    "--durability", "strict"], stdout=subprocess.DEVNULL)
            self.stop_inside_a_batch(run)
            run.kill()
            run.wait()
            if self.pool.exists() and self.batch_word() != 0:
                break
        else:
            self.fail("never inside a batch")
        before = self.pool.read_bytes()
        self.assert_sound()
        entries = self.entries()
        self.assertEqual(len(entries) % batch, 0)
        self.assertEqual(entries, {b"%06d" % i: b"v%d" % i for i in range(len(entries))})
        info = json.loads(self.ok("info", self.pool, "--json"))
        self.assertEqual((info["store"]["records"], info["problems"]), (len(entries), []))
        for command in ("backup", "repair"):
            copy = self.dir / command
            self.ok("store", command, self.pool, *(["-o"] if command == "repair" else []), copy)
            self.assertEqual(self.entries(pool=copy), entries)
        self.assertEqual(self.pool.read_bytes(), before, "written to")

    def test_usage(self):
        self.fails(2, "everleaf store --help", "store")
        for arguments in (["nonsense"], ["get"], ["get", self.pool], ["get", self.pool, "t"],
                          ["put", self.pool, "t", "k"], ["load", self.pool, "t"]):
            self.fails(2, "--help", "store", *arguments)
        self.assertIn(b"backup", self.ok("store", "--help"))
        self.fails(2, "buffered or strict", "store", "put", self.pool, "t", "k", "v",
                   "--durability", "some")
        self.assertFalse(self.pool.exists())
        self.fails(2, "there is no tree", "store", "put", self.pool, "t", "k", "v", "--index", "nope")
        self.fails(2, "the store is buffered", "store", "put", self.pool, "t", "k", "v",
                   "--index", "wbtree")
        self.assertFalse(self.pool.exists())
        self.fails(3, "No such file", "store", "get", self.pool, "t", "k")
        self.fails(2, "is not a number", "store", "put", self.pool, "t", "k", "v", "--keys", "u64")
        self.assertFalse(self.pool.exists())


if __name__ == "__main__":
    unittest.main()
