"""everleaf demo: the story, its exit code, and nothing left behind."""

import signal
import subprocess
import time
import unittest

from harness import PROGRAM, SANITIZED, WORDS, CliTest


class Demo(CliTest):
    def left_behind(self):
        return [path.name for path in self.dir.iterdir() if path.name.startswith("everleaf-demo")]

    def test_word_list(self):
        if not WORDS.is_file():
            self.skipTest("the word list (package wamerican-insane) is not installed")
        out = self.ok("demo", "--dir", self.dir, timeout=600).decode()
        self.assertRegex(out, r"663,473 words of ")
        self.assertRegex(out, r"killed \(SIGKILL\) after")
        self.assertRegex(out, r"All [23]\d\d,\d\d\d acknowledged words are there with their values")
        self.assertRegex(out, r"All 663,473 acknowledged words are there")
        self.assertEqual(out.count("check: sound"), 2)
        self.assertRegex(out, r"Scan of 'everl': [1-9]\d* words")
        self.assertIn("Nothing was lost.", out)
        self.assertEqual(self.left_behind(), [])

    def test_a_list_with_words_that_come_twice(self):
        words = self.dir / "words"
        words.write_text("".join(f"w{self.random.randrange(50000)}\n" for _ in range(200000)))
        out = self.ok("demo", "--dir", self.dir, "--words", words, timeout=600).decode()
        self.assertIn("Nothing was lost.", out)
        self.assertEqual(self.left_behind(), [])

    def test_wrong_arguments(self):
        self.fails(3, "cannot read .*none: No such file", "demo", "--dir", self.dir, "--words",
                   self.dir / "none")
        self.fails(3, "cannot make a directory in .*: No such file", "demo", "--dir",
                   self.dir / "none")
        few = self.dir / "few"
        few.write_text("one\n")
        self.fails(2, "too few words", "demo", "--dir", self.dir, "--words", few)
        self.assertEqual(self.left_behind(), [])

    # A loader that ends by itself: nobody else is killed for it. In a namespace of its own, since
    # who gets that wrong kills everybody that he may; with a /proc of its own, which sanitizers read.
    def test_a_loader_that_fails(self):
        own = ["--pid", "--fork", "--mount-proc"]
        alone = next((words for words in (["unshare", *own],
                                          ["unshare", "--user", "--map-root-user", *own])
                      if subprocess.run([*words, "true"], capture_output=True, check=False)
                      .returncode == 0), None)
        if alone is None:
            self.skipTest("no namespace of processes can be had here")
        words = self.dir / "words"
        words.write_text("".join(f"w{n}\n" for n in range(100000)))
        script = 'sleep 300 & (ulimit -f 1500; "$0" demo --dir "$1" --words "$2"); code=$?; ' \
                 'kill $! || exit 99; exit $code'
        run = subprocess.run([*alone, "sh", "-c", script, PROGRAM, self.dir, words],
                             capture_output=True, timeout=120, check=False)
        self.assertEqual(run.returncode, 3, run)
        self.assertIn(b"everleaf: the loading process failed by itself\n", run.stderr)
        self.assertEqual(self.left_behind(), [])

    def test_interrupted(self):
        if not WORDS.is_file():
            self.skipTest("the word list (package wamerican-insane) is not installed")
        demo = self.start("demo", "--dir", self.dir)
        self.wait_for(self.left_behind, "the demo's directory")
        time.sleep(self.random.random() * (2 if SANITIZED else 0.5))
        demo.send_signal(signal.SIGINT)
        _, stderr = demo.communicate(timeout=60)
        self.assertEqual(demo.returncode, 130)
        self.assert_one_line(stderr, "the demo was stopped")
        self.assertEqual(self.left_behind(), [])


if __name__ == "__main__":
    unittest.main()
