"""What the system refuses: locks, rights, full disks, domains that the device does not give."""

import fcntl
import os
import pathlib
import shutil
import subprocess
import unittest

from harness import PROGRAM, CliTest, acknowledged, tsv

NOBODY = 65534


class Locked(CliTest):
    def test_by_another_process(self):
        self.load({b"a": 1})
        with open(self.pool, "rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            for command in (["get", self.pool, "a"], ["dump", self.pool], ["info", self.pool],
                            ["check", self.pool], ["put", self.pool, "a", 2],
                            ["del", self.pool, "a"], ["load", self.pool, "-"],
                            ["store", "backup", self.pool, self.dir / "copy"]):
                self.fails(3, "is open in another process: .*that process can make a backup",
                           *command, input=b"")
                # A copy of what is written meanwhile is damaged.
                self.assertNotIn(b"copy the file", self.everleaf(*command, input=b"").stderr)
        self.assert_holds({b"a": 1})

    def test_by_a_load_that_goes_on(self):
        ack = self.dir / "ack"
        loader = self.start("load", self.pool, "-", "--ack", ack)
        loader.stdin.write(b"a\t1\n")
        loader.stdin.flush()
        self.wait_for(lambda: acknowledged(ack) == 1, "the first line")
        self.fails(3, "is open in another process", "put", self.pool, "b", 2)
        self.fails(3, "is open in another process", "get", self.pool, "a")
        self.assertEqual(loader.communicate(timeout=30)[1], b"")
        self.assert_holds({b"a": 1})

    def test_readers_share(self):
        self.load({b"a": 1})
        with open(self.pool, "rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH)
            self.assert_holds({b"a": 1})
            self.fails(3, "is open in another process", "put", self.pool, "a", 2)


class Rights(CliTest):
    def setUp(self):
        super().setUp()
        self.load({b"a": 1})
        self.dir.chmod(0o755)
        # root may do everything: then the program runs as somebody else.
        self.other = {}
        if os.geteuid() == 0:
            self.other = {"user": NOBODY, "group": NOBODY, "extra_groups": []}
            program = self.dir / "everleaf"  # where nobody may read it
            shutil.copy(PROGRAM, program)
            self.other["program"] = program

    def test_directory_not_writable(self):
        self.dir.chmod(0o555)
        new = self.dir / "new.pool"
        for command in (["put", new, "a", 1], ["load", new, "-"]):
            self.fails(3, "cannot create .*new.pool.*Permission denied", *command, input=b"",
                       **self.other)
        self.assertFalse(new.exists())
        self.dir.chmod(0o755)

    def test_missing_directory(self):
        new = self.dir / "none" / "new.pool"
        self.fails(3, "cannot create .*new.pool.*No such file", "put", new, "a", 1)

    def test_pool_not_writable(self):
        self.pool.chmod(0o444)
        self.fails(3, "cannot open .*a.pool.*Permission denied", "put", self.pool, "a", 2,
                   **self.other)
        self.assertEqual(self.ok("get", self.pool, "a", **self.other), b"1\n")

    def test_pool_not_readable(self):
        self.pool.chmod(0o000)
        self.fails(3, "cannot open .*a.pool.*Permission denied", "get", self.pool, "a",
                   **self.other)


class Standard(CliTest):
    """Files 0 to 2 that are closed or full, and FIFOs that nobody writes to."""

    def shell(self, script):
        return subprocess.run(["sh", "-c", script, PROGRAM, self.pool], capture_output=True,
                              timeout=60, check=False)

    def test_closed_or_full(self):
        self.load({b"a": 1})
        for script, code in (('"$0" get "$1" b 2>&-', 1), ('"$0" get "$1" b 2>/dev/full', 1),
                             ('"$0" get "$1" 2>/dev/full', 2), ('"$0" dump "$1.no" 2>&-', 3),
                             ('"$0" dump "$1" >&- 2>&-', 3), ('"$0" put "$1" c 3 2>&- <&- >&-', 0),
                             ('"$0" --help >/dev/full', 3), ('"$0" --version >/dev/full', 3)):
            self.assertEqual(self.shell(script).returncode, code, script)
        run = self.shell('"$0" load "$1" - <&-')
        self.assertEqual(run.returncode, 3)
        self.assert_one_line(run.stderr, "cannot read standard input")
        self.assert_holds({b"a": 1, b"c": 3})
        self.assert_sound()

    def test_limit_on_files(self):
        lines = self.dir / "lines"
        lines.write_bytes(tsv({b"%d" % n * 3: n for n in range(200000)}))
        run = self.shell(f'ulimit -f 2048; "$0" load "$1" {lines}')
        self.assertEqual(run.returncode, 3, run)
        self.assert_one_line(run.stderr, "out of space: .* acknowledged and kept")
        self.assert_sound()

    def test_fifos(self):
        fifo = self.dir / "fifo"
        os.mkfifo(fifo)
        for command in (("get", fifo, "a"), ("check", fifo), ("info", fifo), ("put", fifo, "a", 1),
                        ("store", "backup", fifo, self.dir / "to")):
            self.fails(3, "not a regular file", *command)
        self.fails(3, ": ", "store", "repair", fifo, "-o", self.dir / "to")
        for path in (fifo, "/dev/null", "/dev/zero"):
            self.fails(2, "neither a file nor a directory nor a DAX device", "doctor", path)


class Full(CliTest):
    def mount(self, megabytes):
        place = self.dir / "small"
        place.mkdir()
        try:
            mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "none",
                                      place], capture_output=True, check=False).returncode == 0
        except FileNotFoundError:
            mounted = False
        if not mounted:
            self.skipTest("a small tmpfs cannot be mounted here (that takes root)")
        self.addCleanup(subprocess.run, ["umount", place], check=True)
        return place

    def lines(self, count=200000):
        return {b"%d" % n * 3: n for n in range(1, count + 1)}

    def full(self, pool, *arguments):
        """Loads until the pool is full; what was acknowledged is there, and room can be made."""
        entries, ack = self.lines(), self.dir / "ack"
        self.fails(3, r"line [\d,]+: out of space: .* lines acknowledged and kept", "load", pool, "-",
                   "--ack", ack, *arguments, input=tsv(entries))
        count = acknowledged(ack)
        self.assertGreater(count, 1000)
        self.assert_holds(dict(list(entries.items())[:count]), pool=pool)
        self.assert_sound(pool)
        for key in list(entries)[:50]:
            self.ok("del", pool, key)
        self.assert_sound(pool)
        return count

    def test_disk_full_while_growing(self):
        pool = self.mount(6) / "a.pool"
        count = self.full(pool)
        self.ok("put", pool, b"%d" % count * 3, 7)  # an update needs no room

    def test_no_room_for_a_pool(self):
        place = self.mount(1)
        (place / "rest").write_bytes(b"\0" * 600_000)
        self.fails(3, "No space left", "put", place / "a.pool", "a", 1)
        self.assertEqual([path.name for path in place.iterdir()], ["rest"])

    def test_private_copies_or_none(self):
        for value, private in ((1, "0"), (2, "1M"), (3, "0")):
            self.ok("put", self.pool, "a", value, "--domain", "disk", "--emulate",
                    "--private-bytes", private)
            self.assert_holds({b"a": value}, pool=self.pool)

    def test_cap(self):
        self.full(self.pool, "--max-bytes", "5M")
        self.assertLessEqual(self.pool.stat().st_size, 5 * 2**20)
        self.load({b"more": 1})  # without the cap there is room
        self.fails(2, "bytes", "put", self.dir / "b.pool", "a", 1, "--max-bytes", "1K")


class Domains(CliTest):
    def setUp(self):
        super().setUp()
        if self.dir.parent != pathlib.Path("/dev/shm"):
            self.skipTest("/dev/shm is not writable here")

    def test_stronger_than_the_device_gives(self):
        for domain in ("cache", "memory", "disk"):
            self.fails(2, f"asked for {domain}; the device gives process .*emulate", "put",
                       self.pool, "a", 1, "--domain", domain)
            self.assertFalse(self.pool.exists())
        self.load({b"a": 1})
        self.fails(2, "asked for disk", "del", self.pool, "a", "--domain", "disk")
        self.assert_holds({b"a": 1})

    def test_emulated(self):
        for domain in ("cache", "memory", "disk"):
            pool = self.dir / f"{domain}.pool"
            entries = {b"%d" % n: n for n in range(200)}
            self.load(entries, "--domain", domain, "--emulate", pool=pool)
            self.assert_holds(entries, pool=pool)
            self.assert_sound(pool)

    def test_volatile_is_not_for_files(self):
        self.fails(2, "volatile domain is for anonymous pools", "put", self.pool, "a", 1,
                   "--domain", "volatile")

    def test_process_everywhere(self):
        self.load({b"a": 1}, "--domain", "process")
        self.assert_holds({b"a": 1})


if __name__ == "__main__":
    unittest.main()
