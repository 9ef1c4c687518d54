"""scripts/bootstrap installs what is missing, only that, and says what to do when it may not."""

import pathlib
import subprocess
import tempfile
import unittest

BOOTSTRAP = pathlib.Path(__file__).resolve().parents[2] / "scripts" / "bootstrap"


class BootstrapTest(unittest.TestCase):
    def bootstrap(self, *sets, installed="", uid=0, sudo=True):
        """Runs it with stand-ins for the system's programs; returns the run and the calls."""
        with tempfile.TemporaryDirectory() as place:
            calls = pathlib.Path(place) / "calls"
            calls.touch()
            programs = {
                "dpkg-query": f'[[ " {installed} " == *" ${{@: -1}} "* ]] || exit 1\n'
                              'echo -n "install ok installed"\n',
                "apt-get": f'echo "apt-get $*" >>{calls}\n',
                "id": f"echo {uid}\n",
            }
            if sudo:
                programs["sudo"] = f'echo "sudo" >>{calls}; exec "$@"\n'
            for name, text in programs.items():
                path = pathlib.Path(place) / name
                path.write_text("#!/bin/bash\n" + text)
                path.chmod(0o755)
            for name in ("bash", "env", "sort"):
                (pathlib.Path(place) / name).symlink_to(f"/usr/bin/{name}")
            run = subprocess.run(["/bin/bash", BOOTSTRAP, *sets], env={"PATH": place},
                                 capture_output=True, text=True, check=False)
            return run, calls.read_text()

    def test_nothing_missing_touches_nothing(self):
        run, calls = self.bootstrap("lint", installed="clang-format-14 python3")
        self.assertEqual((run.returncode, run.stdout, calls), (0, "", ""))

    def test_installs_only_what_is_missing(self):
        run, calls = self.bootstrap("lint", "lint", installed="python3")
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertIn("installing clang-format-14\n", run.stdout)
        update, install = calls.splitlines()
        self.assertIn("update", update)
        self.assertTrue(install.endswith(" clang-format-14"), install)

    def test_through_sudo(self):
        run, calls = self.bootstrap("lint", uid=1000)
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertEqual(calls.splitlines()[0::2], ["sudo", "sudo"])

    def test_without_rights(self):
        run, calls = self.bootstrap("lint", uid=1000, sudo=False)
        self.assertEqual((run.returncode, calls), (1, ""))
        self.assertIn("as root, run: apt-get install clang-format-14 python3", run.stderr)

    def test_usage(self):
        for sets in ((), ("nonsense",), ("lint", "nonsense")):
            run, calls = self.bootstrap(*sets)
            self.assertEqual((run.returncode, calls), (2, ""))
            self.assertIn("build", run.stderr)


if __name__ == "__main__":
    unittest.main()
