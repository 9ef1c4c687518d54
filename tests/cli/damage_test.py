"""Files that are no pools, or no longer, or not for us: one clear sentence each, never a crash, a
hang or silent loss."""

import os
import shutil
import struct
import subprocess
import unittest

from harness import FORGE, HEADER_A, HEADER_B, HEADER_BYTES, PAGE, SANITIZED, CliTest

READERS = (["dump"], ["check"], ["info"], ["scan"], ["get", "a"])
WRITERS = (["put", "a", "1"], ["del", "a"], ["load", "-"])

# Offsets inside a header copy (docs/pool-format.md).
MAGIC, VERSION, ENDIAN, COMPATIBLE, READ_ONLY_COMPATIBLE, INCOMPATIBLE = 0, 8, 12, 16, 24, 32
FILE_BYTES, STATE_AT, DIRECTORY_AT = 72, 8192, 12288


class DamageTest(CliTest):
    def setUp(self):
        super().setUp()
        self.entries = {self.random_key(): n for n in range(2000)} | {b"a": 5}
        self.load(self.entries)
        self.good = self.pool.read_bytes()

    def write(self, data):
        self.pool.write_bytes(data)

    def patch(self, changes, forge=True):
        """Both header copies with these bytes at these offsets, checksums made right again."""
        data = bytearray(self.good)
        for offset, value in changes.items():
            for copy in (HEADER_A, HEADER_B):
                data[copy + offset:copy + offset + len(value)] = value
        self.write(data)
        if forge:
            subprocess.run([FORGE, self.pool], check=True)

    def refused(self, code, pattern, commands=READERS + WRITERS):
        """Every command says so and changes nothing."""
        before = self.pool.read_bytes()
        for command in commands:
            self.fails(code, pattern, command[0], self.pool, *command[1:], input=b"")
        self.assertEqual(self.pool.read_bytes(), before)


class Refused(DamageTest):
    def test_no_file(self):
        self.pool.unlink()
        for command in READERS + (["del", "a"],):
            self.fails(3, "No such file", command[0], self.pool, *command[1:])
        self.assertFalse(self.pool.exists())

    def test_not_a_pool(self):
        for data in (b"x", b"#!/bin/sh\n" * 100, self.random.randbytes(50000), b"\0" * 2**20):
            self.write(data)
            self.refused(3, "not an Everleaf pool")

    def test_empty_file(self):
        self.write(b"")
        self.refused(3, "is empty")

    def test_a_directory_and_a_device(self):
        self.fails(3, "not a regular file|Is a directory", "info", self.dir)
        self.fails(3, "not a regular file|Is a directory", "put", self.dir, "a", 1)
        self.fails(3, "not a regular file", "info", "/dev/null")

    def test_truncated_at_every_page(self):
        self.assertEqual(len(self.good) % PAGE, 0)
        pages = range(1, len(self.good) // PAGE)
        for page in self.random.sample(pages, 60) if SANITIZED else pages:
            self.write(self.good[:page * PAGE])
            self.refused(3, "cut off", [["dump"], ["put", "a", "1"]])
        self.write(self.good[:HEADER_B + HEADER_BYTES - 1])
        self.refused(3, "cut off", [["dump"], ["put", "a", "1"]])

    def test_longer_than_it_was(self):
        # A crash between the growth of the file and the note of it looks like this.
        self.write(self.good + b"\0" * 2**20)
        self.assert_holds(self.entries)
        self.assert_sound()

    def test_newer_version(self):
        self.patch({VERSION: struct.pack("<I", 2)})
        self.refused(3, "format version 2, this program reads 1: use a newer release")

    def test_features_of_newer_releases(self):
        for bit in (2, 17, 63):
            mask = struct.pack("<Q", 1 << bit)
            self.patch({INCOMPATIBLE: mask})
            self.refused(3, "features of a newer release")
            self.patch({READ_ONLY_COMPATIBLE: mask})
            self.refused(3, "can only open it read-only", WRITERS)
            self.assert_holds(self.entries)
            self.patch({COMPATIBLE: mask})
            self.ok("put", self.pool, "a", 5)
            self.assert_holds(self.entries)

    def test_other_byte_order(self):
        self.patch({MAGIC: self.good[:8][::-1]}, forge=False)
        self.refused(3, "other byte order")
        self.patch({ENDIAN: struct.pack(">I", 0x01020304)})
        self.refused(3, "byte order")

    def test_both_headers_damaged(self):
        data = bytearray(self.good)
        for at in (HEADER_A, HEADER_B):  # their checksums differ: one byte for both may be right
            data[at + HEADER_BYTES - 1] ^= 1
        self.write(data)
        self.refused(3, "both header copies are damaged")

    def test_one_header_damaged(self):
        for at, name in ((HEADER_A, "A"), (HEADER_B, "B")):
            data = bytearray(self.good)
            data[at + HEADER_BYTES - 1] ^= 1
            self.write(data)
            run = self.everleaf("check", self.pool)
            self.assertEqual(run.returncode, 1)
            self.assertIn(f"problem: header copy {name} at offset {at} was damaged\n".encode(),
                          run.stdout)

    def test_shorter_than_its_header_says(self):
        self.patch({FILE_BYTES: struct.pack("<Q", len(self.good) + 1)})
        self.refused(3, "cut off")

    def test_impossible_frontier(self):
        for frontier in (0, 1, 65536, len(self.good) - 1, 2**63, 2**64 - 1):
            self.write(self.good[:STATE_AT] + struct.pack("<Q", frontier) +
                       self.good[STATE_AT + 8:])
            self.refused(3, "frontier|cut off")


    def test_damaged_directory_entry(self):
        for at in (8, 16, 80, 255):
            byte = DIRECTORY_AT + at
            self.write(self.good[:byte] + bytes([self.good[byte] ^ 1]) + self.good[byte + 1:])
            for command in ("dump", "scan"):
                self.refused(3, "directory entry 0 is damaged", [[command]])
            self.refused(1, "directory entry 0 is damaged", [["info"]])
            self.fails(3, "directory entry 0 is damaged", "put", self.pool, "a", 1)
            self.fails(1, "is damaged: 1 problem found", "check", self.pool)


class Flipped(DamageTest):
    def flips(self, start, end, step=1):
        """The pool with one bit of each of these bytes changed, one after the other."""
        with open(self.pool, "r+b", buffering=0) as file:
            for at in range(start, end, step):
                bit = 1 << self.random.randrange(8)
                os.pwrite(file.fileno(), bytes([self.good[at] ^ bit]), at)
                yield at
                os.pwrite(file.fileno(), self.good[at:at + 1], at)

    def test_every_byte_of_the_header_copies(self):
        # The copy that is left has the same data: the pool was closed properly.
        whole = self.ok("dump", self.pool)
        for copy in (HEADER_A, HEADER_B):
            for at in self.flips(copy, copy + HEADER_BYTES, 5 if SANITIZED else 1):
                self.assertEqual(self.ok("dump", self.pool), whole, f"byte {at}")

    def test_a_damaged_copy_is_reported_and_mended(self):
        for copy in (HEADER_A, HEADER_B):
            for at in self.flips(copy, copy + HEADER_BYTES, 41):
                self.assertIn(b"copies is damaged", self.ok("info", self.pool))
                self.fails(1, "is damaged", "check", self.pool)
                mended = self.dir / "mended.pool"
                shutil.copy(self.pool, mended)
                self.ok("put", mended, "a", 5)
                self.assert_sound(mended)
                self.assertNotIn(b"damaged", self.ok("info", mended))
                self.assert_holds(self.entries, pool=mended)

    def test_bytes_between_the_header_copies(self):
        # Not in use: nothing depends on them.
        whole = self.ok("dump", self.pool)
        for copy in (HEADER_A, HEADER_B):
            for _ in self.flips(copy + HEADER_BYTES, copy + PAGE, 307):
                self.assertEqual(self.ok("dump", self.pool), whole)

    def test_anywhere(self):
        """A flipped bit of the rest: an answer or one clear sentence, and no death by a signal. A
        value is only a number, so not every flip can be noticed."""
        end = struct.unpack_from("<Q", self.good, STATE_AT)[0]
        places = [*range(STATE_AT, STATE_AT + 64), *range(DIRECTORY_AT, DIRECTORY_AT + 512)]
        places += self.random.sample(range(196608, end), 100 if SANITIZED else 400)
        for place in self.random.sample(places, 100) if SANITIZED else places:
            for _ in self.flips(place, place + 1):
                for command in ("check", "dump"):
                    run = self.everleaf(command, self.pool, timeout=60)
                    self.assertIn(run.returncode, (0, 1, 2, 3), f"{command}, byte {place}")
                    if run.returncode:
                        self.assert_one_line(run.stderr, "everleaf")


if __name__ == "__main__":
    unittest.main()
