"""load and dump: formats, bad lines, signals, SIGKILL and going on."""

import json
import os
import pty
import signal
import subprocess
import unittest

from harness import SANITIZED, CliTest, acknowledged, escape, tsv, unescape


class Formats(CliTest):
    def test_round_trip_of_random_bytes(self):
        entries = {self.random_key(): self.random.randrange(2**64) for _ in range(3000)}
        entries |= {b"": 0, b"\0": 2**64 - 1, bytes(range(256)): 1, b"x" * 65536: 2,
                    b"\0" * 65536: 3, b" lead": 4, b"trail ": 5, b"\r": 6, b"\xef\xbb\xbf": 7}
        self.load(entries)
        self.assert_holds(entries)
        for format_name in ("tsv", "csv"):
            other = self.dir / f"{format_name}.pool"
            text = self.ok("dump", self.pool, "--format", format_name)
            if format_name == "tsv":
                text.decode()  # always UTF-8
            self.ok("load", other, "-", "--format", format_name, input=text)
            self.assertEqual(self.ok("dump", other, "--format", format_name), text)
            self.assert_holds(entries, pool=other)
            self.assert_sound(other)

    def test_numbers_round_trip(self):
        entries = {self.random.randrange(2**64): self.random.randrange(2**64) for _ in range(3000)}
        entries |= {0: 0, 2**64 - 1: 2**64 - 1}
        text = b"".join(b"%d\t%d\n" % pair for pair in sorted(entries.items()))
        self.ok("load", self.pool, "-", "--keys", "u64", input=text)
        self.assertEqual(self.ok("dump", self.pool), text)
        csv = self.ok("dump", self.pool, "--format", "csv")
        self.assertEqual(csv, text.replace(b"\t", b","))
        other = self.dir / "b.pool"
        self.ok("load", other, "-", "--keys", "u64", "--format", "csv", input=csv)
        self.assertEqual(self.ok("dump", other), text)

    def test_what_tsv_means(self):
        self.ok("load", self.pool, "-",
                input=rb"tab\tnl\nback\\x\x00y" b"\t1\n" b"crlf\t2\r\n" b"\t3\n" b"last\t4")
        self.assert_holds({b"tab\tnl\nback\\x\0y": 1, b"crlf": 2, b"": 3, b"last": 4})

    def test_what_csv_means(self):
        file = self.dir / "a.csv"  # the extension tells the format
        file.write_bytes(b'plain,1\n"a,b",2\r\n"say ""hi""",3\n"two\nlines","4"\n,5\n"",6\n'
                         b'back\\slash,7\nlast,8')
        self.ok("load", self.pool, file)
        self.assertEqual(self.dump(), {b"plain": 1, b"a,b": 2, b'say "hi"': 3, b"two\nlines": 4,
                                       b"": 6, b"back\\slash": 7, b"last": 8})

    def test_last_line_of_a_key_wins_and_loading_again_changes_nothing(self):
        out = self.ok("load", self.pool, "-", input=b"a\t1\nb\t2\na\t3\n")
        self.assertRegex(out.decode(), r"\A3 lines loaded in ")
        self.assert_holds({b"a": 3, b"b": 2})
        self.ok("load", self.pool, "-", input=b"b\t2\n")
        self.assert_holds({b"a": 3, b"b": 2})

    def test_word_list(self):
        self.ok("load", self.pool, "-", "--number-lines", input=b"one\ntwo\nthree\t33\n")
        self.assert_holds({b"one": 1, b"two": 2, b"three": 33})

    def test_tables_and_trees_of_one_pool(self):
        self.load({b"a": 1})
        self.load({b"b": 2}, "--table", "second", "--index", "wbtree:node=1024")
        self.ok("load", self.pool, "-", "--table", "third", "--keys", "u64", input=b"7\t3\n")
        self.assert_holds({b"a": 1})
        self.assertEqual(self.dump("--table", "second"), {b"b": 2})
        self.assertEqual(self.ok("dump", self.pool, "--table", "third"), b"7\t3\n")
        self.assertIn(b"node=1024", self.ok("info", self.pool))
        self.assert_sound()

    def test_progress_on_a_terminal(self):
        file = self.dir / "many.tsv"
        file.write_bytes(tsv({b"%d" % n: n for n in range(20000)}))
        ours, theirs = pty.openpty()
        self.ok_on_terminal(theirs, "load", self.pool, file)
        os.close(theirs)
        self.assertRegex(os.read(ours, 65536).decode(), r"\[=* *\] +\d+%  [\d,]+ lines  .*/s  \d+ s left")
        os.close(ours)

    def ok_on_terminal(self, terminal, *arguments):
        run = self.everleaf(*arguments, capture_output=False, stdout=subprocess.PIPE,
                            stderr=terminal)
        self.assertEqual(run.returncode, 0)


class BadInput(CliTest):
    def bad(self, text, line, field, problem, *arguments, loaded=None):
        """Line `line` is refused with the field and the reason; what stood before it is in."""
        message = rf"line {line}: {field}: {problem}"
        self.fails(2, message, "load", self.pool, "-", *arguments, input=text)
        run = self.everleaf("load", self.pool, "-", *arguments, input=text)
        loaded = line - 1 if loaded is None else loaded
        self.assertRegex(run.stderr.decode(), rf"\({loaded:,} lines? acknowledged and kept; go on with ")
        self.assert_sound()

    def test_malformed_lines_of_tsv(self):
        good = b"a\t1\nb\t2\n"
        for text, field, problem in (
                (b"key\n", "value", "missing; --number-lines"),
                (b"\n", "value", "missing"),
                (b"key\t\n", "value", "'' is not a number from 0 to 18446744073709551615"),
                (b"key\t12x\n", "value", "'12x' is not a number"),
                (b"key\t-1\n", "value", "'-1' is not a number"),
                (b"key\t1.5\n", "value", "'1.5' is not a number"),
                (b"key\t18446744073709551616\n", "value", "'18446744073709551616' is not a number"),
                (b"key\t1\t2\n", "value", "a further field follows"),
                (b"ke\\qy\t1\n", "key", r"'ke\\\\qy' has an unknown escape"),
                (b"key\\\t1\n", "key", ".* has an unknown escape"),
                (b"key\\x1\t1\n", "key", ".* has an unknown escape"),
                (b"key\\xg1\t1\n", "key", ".* has an unknown escape"),
                (b"\x1b[31m\t\x1b[0m\n", "value", r"'\\x1B\[0m' is not a number"),
                (b"x" * 65537 + b"\t1\n", "key", "65,537 bytes, the limit is 65,536"),
                (b"x" * 400000 + b"\t1\n", "key", "longer than 65,536 bytes"),
                (b"x" * 400000, "key", "longer than 65,536 bytes")):
            self.bad(good + text + b"c\t3\n", 3, field, problem)
            self.assert_holds({b"a": 1, b"b": 2})

    def test_malformed_lines_of_csv(self):
        good = b'a,1\n"two\nlines",2\n'
        for text, field, problem in (
                (b"key\n", "value", "missing"),
                (b"\n", "value", "missing"),
                (b"key,x\n", "value", "'x' is not a number"),
                (b"key,1,2\n", "value", "a further field follows"),
                (b'ke"y,1\n', "key", "a quote inside a field that is not quoted"),
                (b'"key"x,1\n', "key", "text after the closing quote"),
                (b'"key",1"\n', "value", "a quote inside"),
                (b'"never closed,1\n', "key", "the quote is never closed"),
                (b'key,"1\n', "value", "the quote is never closed"),
                (b"x" * 70000 + b",1\n", "key", "longer than 65,536 bytes"),
                (b'"' + b"x" * 70000, "key", "longer than 65,536 bytes")):
            self.bad(good + text, 4, field, problem, "--format", "csv", loaded=2)
            self.assert_holds({b"a": 1, b"two\nlines": 2})

    def test_malformed_numbers(self):
        self.bad(b"1\t1\nx\t2\n", 2, "key", "'x' is not a number", "--keys", "u64")
        self.bad(b"1\t1\n\t2\n", 2, "key", "'' is not a number")

    def test_garbage_never_crashes(self):
        for n in range(20 if SANITIZED else 60):
            garbage = self.random.randbytes(self.random.randrange(5000))
            for format_name in ("tsv", "csv"):
                pool = self.dir / f"{n}.pool"
                run = self.everleaf("load", pool, "-", "--format", format_name, "--number-lines",
                                    input=garbage)
                self.assertIn(run.returncode, (0, 2))
                self.assert_sound(pool)

    def test_no_such_file_leaves_no_pool(self):
        self.fails(3, "cannot read .*none.tsv: No such file", "load", self.pool, self.dir / "none.tsv")
        self.fails(3, "cannot read .*: Is a directory", "load", self.pool, self.dir)
        self.assertFalse(self.pool.exists())

    def test_unknown_index_option_key_type_format(self):
        for pattern, arguments in (
                ("'?nosuch'?", ["--index", "nosuch"]),
                ("nosuch", ["--index", "wbtree:nosuch=1"]),
                ("nosuch", ["--index", "wbtree:structure=nosuch"]),
                ("node", ["--index", "wbtree:node=7"]),
                ("of the form name=value", ["--index", "wbtree:node"]),
                ("unknown key type 'nosuch': there are u64 and bytes", ["--keys", "nosuch"]),
                ("unknown format 'xml': there are tsv and csv", ["--format", "xml"]),
                ("name", ["--table", "x" * 64]),
                ("unknown domain 'nosuch': there are process, cache, memory and disk",
                 ["--domain", "nosuch"])):
            self.fails(2, pattern, "load", self.pool, "-", *arguments, input=b"a\t1\n")
            self.assertFalse(self.pool.exists(), arguments)
            if "--format" not in arguments:
                self.fails(2, pattern, "put", self.pool, "a", 1, *arguments)
                self.assertFalse(self.pool.exists(), arguments)

    def test_other_tree_or_key_type_than_asked_for(self):
        self.load({b"a": 1}, "--index", "wbtree:node=512")
        self.fails(2, "node=512", "load", self.pool, "-", "--index", "wbtree:node=1024",
                   input=b"b\t2\n")
        self.fails(2, "bytes", "load", self.pool, "-", "--keys", "u64", input=b"2\t2\n")
        self.fails(2, "bytes", "put", self.pool, "2", 2, "--keys", "u64")
        self.load({b"b": 2}, "--index", "wbtree:node=512", "--keys", "bytes")
        self.assert_holds({b"a": 1, b"b": 2})

    def test_unknown_table_names_those_that_are(self):
        self.load({b"a": 1}, "--table", "words")
        for command in (["get", self.pool, "a"], ["del", self.pool, "a"], ["dump", self.pool],
                        ["scan", self.pool]):
            self.fails(2, "no index 'main' in .*a.pool; it has 'words'", *command)

    def test_full_output(self):
        self.load({b"%d" % n: n for n in range(3000)})
        with open("/dev/full", "wb") as full:
            for command in ("dump", "scan", "info", "check"):
                self.fails(3, "cannot write to standard output", command, self.pool,
                           capture_output=False, stdout=full, stderr=subprocess.PIPE)


class Epochs(CliTest):
    def epoch(self):
        return json.loads(self.ok("info", self.pool, "--json"))["epoch"]

    def test_zero_leaves_the_clock_to_sync(self):
        seen = []
        self.load({b"a": 1, b"b": 2}, "--index", "bdtree", "--epoch", "0")
        for value in range(3):
            seen.append(self.epoch())
            self.ok("put", self.pool, "a", value, "--epoch", "0")
        seen.append(self.epoch())
        self.ok("del", self.pool, "b", "--epoch", "0")
        seen.append(self.epoch())
        steps = {after - before for before, after in zip(seen, seen[1:])}
        self.assertEqual(len(steps), 1, seen)  # a clock that ran by itself would differ once
        self.assert_holds({b"a": 2})

    def test_every_unit(self):
        for length in ("1us", "1000ns", "5ms", "10s", "10000ms"):
            self.load({length.encode(): 1}, "--index", "bdtree", "--epoch", length)
            self.ok("put", self.pool, "a", 1, "--epoch", length)
        self.ok("del", self.pool, "a", "--epoch", "1us")
        self.assert_sound()
        # For a strict tree it means nothing.
        self.ok("put", self.pool, "a", 1, "--table", "strict", "--index", "wbtree", "--epoch", "1us")

    def test_what_is_not_a_length(self):
        pattern = "--epoch: '.*' is not a length from 1us to 10s with its unit"
        for length in ("", "5", "ms", "-5ms", "5 ms", "5m", "5msx", "1.5ms", "999ns", "0us", "11s",
                       "10000000001ns", "99999999999999999999s", "18446744073709551615s"):
            self.fails(2, pattern, "load", self.pool, "-", "--epoch", length, input=b"a\t1\n")
            self.fails(2, pattern, "put", self.pool, "a", 1, "--epoch", length)
            self.assertFalse(self.pool.exists(), length)
        self.load({b"a": 1})
        self.fails(2, pattern, "del", self.pool, "a", "--epoch", "x")
        self.assert_holds({b"a": 1})


class Stopping(CliTest):
    def feed_until(self, loader, ack, lines):
        loader.stdin.write(b"".join(b"k%05d\t%d\n" % (n, n) for n in range(1, lines + 1)))
        loader.stdin.flush()
        self.wait_for(lambda: acknowledged(ack) == lines, "the acknowledgement")

    def test_signals(self):
        for number, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
            pool, ack = self.dir / f"{code}.pool", self.dir / f"{code}.ack"
            loader = self.start("load", pool, "-", "--ack", ack)
            self.feed_until(loader, ack, 1000)
            loader.send_signal(number)
            _, stderr = loader.communicate(timeout=60)
            self.assertEqual(loader.returncode, code)
            self.assert_one_line(stderr, rf"stopped by {number.name}: 1,000 lines acknowledged and kept; "
                                         r"go on with --skip 1000")
            self.assert_holds({b"k%05d" % n: n for n in range(1, 1001)}, pool=pool)
            self.assertIn(b"closed properly", self.ok("info", pool))

    def test_signal_in_the_middle_of_a_file(self):
        file, ack = self.dir / "many.tsv", self.dir / "ack"
        file.write_bytes(b"".join(b"%06d\t%d\n" % (n, n) for n in range(1, 300001)))
        loader = self.start("load", self.pool, file, "--ack", ack)
        self.wait_for(lambda: acknowledged(ack) > 1000, "the first lines")
        loader.send_signal(signal.SIGINT)
        _, stderr = loader.communicate(timeout=60)
        self.assertEqual(loader.returncode, 130)
        lines = acknowledged(ack)
        self.assert_one_line(stderr, rf"SIGINT: {lines:,} lines ack")
        self.assert_holds({b"%06d" % n: n for n in range(1, lines + 1)})
        self.ok("load", self.pool, file, "--skip", lines)
        self.assertEqual(len(self.dump()), 300000)

    def test_killed_and_resumed(self):
        self.kill_and_resume("wbtree", 1)

    def test_killed_and_resumed_buffered(self):
        self.kill_and_resume("bdtree", 2 * 4096)  # it acknowledges by thousands, and two epochs late

    def kill_and_resume(self, tree, behind):
        """Of lines that were not acknowledged, at most `behind` may be there."""
        lines = 30000 if SANITIZED else 100000
        keys = [escape(b"%d-" % number + self.random_key(20))
                for number in self.random.sample(range(10**9), lines)]
        file, ack = self.dir / "many.tsv", self.dir / "ack"
        file.write_bytes(b"".join(b"%s\t%d\n" % (key, n + 1) for n, key in enumerate(keys)))
        whole = self.dir / "whole.pool"
        self.ok("load", whole, file, "--index", tree)
        killed = 0
        for _ in range(4 if SANITIZED else 10):
            skip = acknowledged(ack)
            stop = skip + self.random.randrange(1, lines // 8)
            loader = self.start("load", self.pool, file, "--skip", skip, "--ack", ack,
                                "--index", tree)
            self.wait_for(lambda: loader.poll() is not None or acknowledged(ack) >= stop,
                          "lines to be acknowledged")
            loader.kill()
            loader.communicate()
            if loader.returncode != -signal.SIGKILL:
                break
            killed += 1
            before = self.pool.read_bytes()
            self.assert_sound()
            entries = self.dump()
            self.assertEqual(self.pool.read_bytes(), before, "reading changed a crashed pool")
            sure = acknowledged(ack)
            self.assertGreaterEqual(sure, stop)
            for line in range(sure):
                self.assertEqual(entries.get(unescape(keys[line])), line + 1, f"line {line + 1} is lost")
            self.assertLessEqual(len(entries), sure + behind)
        self.assertGreater(killed, 0)
        self.ok("load", self.pool, file, "--skip", acknowledged(ack))
        self.assertEqual(self.ok("dump", self.pool), self.ok("dump", whole))
        self.assert_sound()

    # What an acknowledgement would overwrite: the pool, the lines, anything else.
    def test_ack_is_no_other_file(self):
        lines, ack, other = self.dir / "lines", self.dir / "ack", self.dir / "other"
        lines.write_bytes(b"a\t1\n")
        self.ok("load", self.pool, lines, "--ack", ack)
        self.ok("load", self.pool, lines, "--ack", ack)  # its own again
        (self.dir / "link").hardlink_to(self.pool)
        for content in (b"\n", b"x" * 21, b"1" * 21, b"1" * 20 + b"\n1"):
            other.write_bytes(content)
            self.fails(2, "is there, and no file of --ack", "load", self.pool, lines, "--ack", other)
            self.assertEqual(other.read_bytes(), content)
        os.mkfifo(self.dir / "fifo")
        for name in ("lines", "a.pool", "link", "fifo"):
            self.fails(2, "is there, and no file of --ack", "load", self.pool, lines, "--ack",
                       self.dir / name)
        self.assertEqual(lines.read_bytes(), b"a\t1\n")
        self.assert_holds({b"a": 1})
        self.assert_sound()

    # Nobody writes to it yet: it can be stopped. Then somebody does.
    def test_fifo(self):
        fifo = self.dir / "fifo"
        os.mkfifo(fifo)
        loader = self.start("load", self.pool, fifo)
        self.wait_for(self.pool.exists, "the pool")
        loader.send_signal(signal.SIGTERM)
        _, stderr = loader.communicate(timeout=60)
        self.assertEqual(loader.returncode, 143)
        self.assert_one_line(stderr, "stopped by SIGTERM: 0 lines")
        loader = self.start("load", self.pool, fifo)
        fifo.write_bytes(b"a\t1\nb\t2\n")
        loader.communicate(timeout=60)
        self.assertEqual(loader.returncode, 0)
        self.assert_holds({b"a": 1, b"b": 2})

    def test_skip(self):
        self.ok("load", self.pool, "-", "--skip", 2, input=b"a\t1\nb\t2\nc\t3\nd\t4\n")
        self.assert_holds({b"c": 3, b"d": 4})
        self.ok("load", self.pool, "-", "--skip", 4, input=b"a\t1\nb\t2\nc\t3\nd\t4\n")
        self.fails(2, "there are no 5 lines to pass over, the last one has number 4", "load",
                   self.pool, "-", "--skip", 5, input=b"a\t1\nb\t2\nc\t3\nd\t4\n")
        self.assert_holds({b"c": 3, b"d": 4})


if __name__ == "__main__":
    unittest.main()
