"""scripts/fetch-traces without the network: what is there is not fetched, what differs is refused."""

import contextlib
import hashlib
import importlib.machinery
import importlib.util
import io
import pathlib
import subprocess
import sys
import tarfile
import tempfile
import unittest
import unittest.mock

sys.dont_write_bytecode = True
SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "scripts" / "fetch-traces"
LOADER = importlib.machinery.SourceFileLoader("fetch_traces", str(SCRIPT))
fetch = importlib.util.module_from_spec(importlib.util.spec_from_loader("fetch_traces", LOADER))
LOADER.exec_module(fetch)


class FetchTest(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.place = pathlib.Path(holder.name)

    def archive(self, content):
        path = self.place / "archive.tar.gz"
        with tarfile.open(path, "w:gz") as tar:
            for name in fetch.MEMBERS:
                entry = tarfile.TarInfo(fetch.DATA + name)
                entry.size = len(content)
                tar.addfile(entry, io.BytesIO(content))
        return path

    def test_what_is_there_stays(self):
        names = ["twitter_cluster52_10m.csv", "twitter_cluster52.csv"]
        for name in names:
            (self.place / name).write_text("mine")
        done = subprocess.run([SCRIPT, self.place], capture_output=True, text=True, check=True)
        self.assertEqual(done.stdout.splitlines(), [str(self.place / name) for name in names])
        self.assertEqual((self.place / names[0]).read_text(), "mine")

    def test_checksums(self):
        archive = self.archive(b"1,2,3\n")
        with contextlib.redirect_stderr(io.StringIO()) as said, self.assertRaises(SystemExit):
            fetch.unpack(archive, "twitter_cluster52.csv", self.place)
        self.assertIn("not what it was", said.getvalue())
        self.assertFalse((self.place / "twitter_cluster52.csv").exists())
        right = {"twitter_cluster52.csv": hashlib.sha256(b"1,2,3\n").hexdigest()}
        with unittest.mock.patch.dict(fetch.MEMBERS, right):
            fetch.unpack(archive, "twitter_cluster52.csv", self.place)
        self.assertEqual((self.place / "twitter_cluster52.csv").read_text(), "1,2,3\n")


if __name__ == "__main__":
    unittest.main()
