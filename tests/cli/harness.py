"""Runs the program `everleaf` as a user does and looks at what it says."""

import os
import pathlib
import random
import re
import shutil
import subprocess
import tempfile
import time
import unittest

PROGRAM = pathlib.Path(os.environ["EVERLEAF"])
FORGE = pathlib.Path(os.environ["EVERLEAF_FORGE"])
# Sanitizers make the program slow: the longest tests then take samples.
SANITIZED = bool(os.environ.get("EVERLEAF_SANITIZED"))
WORDS = pathlib.Path("/usr/share/dict/american-english-insane")

HEADER_A, HEADER_B, HEADER_BYTES = 0, 4096, 256
PAGE = 4096


def escape(key):
    """A key as a TSV field, more of it escaped than the program does."""
    return "".join(chr(b) if 0x20 < b < 0x7F and b != 0x5C else f"\\x{b:02x}" for b in key).encode()


def unescape(text):
    names = {b"t": b"\t", b"n": b"\n", b"\\": b"\\"}
    return re.sub(rb"\\(x([0-9A-Fa-f]{2})|.)",
                  lambda m: bytes([int(m[2], 16)]) if m[2] else names[m[1]], text)


def tsv(entries):
    return b"".join(escape(key) + b"\t%d\n" % value for key, value in entries.items())


class CliTest(unittest.TestCase):
    def setUp(self):
        shm = "/dev/shm"
        self.dir = pathlib.Path(tempfile.mkdtemp(
            prefix="everleaf-test-", dir=shm if os.access(shm, os.W_OK) else None))
        self.addCleanup(shutil.rmtree, self.dir, ignore_errors=True)
        self.pool = self.dir / "a.pool"
        self.seed = int(os.environ.get("EVERLEAF_SEED", random.randrange(2**32)))
        self.random = random.Random(self.seed)

    def run(self, result=None):
        outcome = super().run(result)
        if outcome and any(test is self for test, _ in outcome.failures + outcome.errors):
            print(f"{self.id()}: EVERLEAF_SEED={self.seed}", flush=True)
        return outcome

    # --- Running ---------------------------------------------------------------------------------

    def everleaf(self, *arguments, **options):
        options = {"capture_output": True, "timeout": 120, "check": False, **options}
        program = options.pop("program", PROGRAM)
        run = subprocess.run([program, *map(os.fspath, map(as_text, arguments))], **options)
        self.assertGreaterEqual(run.returncode, 0, f"died of a signal: {run}")
        self.assertNotIn(b"Sanitizer", run.stderr or b"", arguments)
        return run

    def ok(self, *arguments, **options):
        """Standard output of a command that succeeds and complains of nothing."""
        run = self.everleaf(*arguments, **options)
        self.assertEqual((run.returncode, run.stderr), (0, b""), (arguments, run))
        return run.stdout

    def fails(self, code, pattern, *arguments, **options):
        """A command that ends with `code` and one line on standard error that fits the pattern."""
        run = self.everleaf(*arguments, **options)
        self.assertEqual(run.returncode, code, (arguments, run))
        self.assert_one_line(run.stderr, pattern)
        return run.stdout

    def assert_one_line(self, stderr, pattern):
        text = stderr.decode()
        self.assertRegex(text, r"\Aeverleaf: [^\n]+\n\Z")
        self.assertRegex(text, pattern)

    def start(self, *arguments, **options):
        options = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE,
                   **options}
        process = subprocess.Popen([PROGRAM, *map(os.fspath, map(as_text, arguments))], **options)

        def stop():
            process.kill()
            process.communicate()

        self.addCleanup(stop)
        return process

    # --- Pools -----------------------------------------------------------------------------------

    def load(self, entries, *arguments, pool=None):
        return self.ok("load", pool or self.pool, "-", *arguments, input=tsv(entries))

    def dump(self, *arguments, pool=None):
        """The entries of a pool, by the TSV that dump writes."""
        out = self.ok("dump", pool or self.pool, *arguments)
        lines = out.split(b"\n")
        self.assertEqual(lines.pop(), b"")
        pairs = [line.split(b"\t") for line in lines]
        entries = {unescape(key): int(value) for key, value in pairs}
        self.assertEqual(len(entries), len(pairs), "a key twice")
        return entries

    def assert_holds(self, expected, pool=None):
        """The pool has these entries and no others."""
        found = self.dump(pool=pool)
        if found != expected:
            differing = [key for key in found.keys() | expected.keys()
                         if found.get(key) != expected.get(key)]
            self.fail(f"{len(found)} entries, {len(expected)} expected, {len(differing)} differ: "
                      + ", ".join(f"{key!r}: {found.get(key)} instead of {expected.get(key)}"
                                  for key in sorted(differing)[:5]))

    def assert_sound(self, pool=None):
        self.assertRegex(self.ok("check", pool or self.pool).decode(), r"\Asound: ")

    def wait_for(self, condition, what, seconds=30):
        end = time.monotonic() + seconds
        while not condition():
            self.assertLess(time.monotonic(), end, f"waited in vain for {what}")
            time.sleep(0.001)

    def random_key(self, longest=40):
        kind = self.random.randrange(4)
        size = self.random.randrange(longest)
        if kind == 0:
            return self.random.randbytes(size)
        if kind == 1:
            return bytes(self.random.choices(b"\t\n\r\\\",; x0\0\x7f\xff", k=size))
        if kind == 2:
            return "".join(self.random.choices("aäßé€😀\u0085", k=size)).encode()
        return bytes(self.random.choices(b"abc", k=size))


def as_text(argument):
    return str(argument) if isinstance(argument, int) else argument


def acknowledged(path):
    """What `load --ack` promises; 0: nothing yet."""
    try:
        return int(path.read_text() or 0)
    except FileNotFoundError:
        return 0


if __name__ == "__main__":
    unittest.main()
