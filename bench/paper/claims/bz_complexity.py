"""How complicated a split is."""

import csv
import os
import re
import shutil
import subprocess

import judge
from lab import CannotTest

ID = "bz:complexity"
PAPER = "node split: about 200 lines, cyclomatic complexity 7 (Bw-tree 750 and 12, Masstree 19)"
NOTE = "functions that a split needs, counted by lizard, lines without comments; the paper does not say what its 7 counts"
FUNCTIONS = ("gather", "each_visible", "put_in_order", "put_fingerprints", "make_leaf", "make_inner",
             "own_separator", "freeze", "look_above", "split_leaf", "split_inner", "install_pair", "install")
SOURCES = ("split.cpp", "gather.cpp", "node.hpp")
COUNTED = True


def measure(lab):
    here = os.path.join(lab.sources(), "build", "venv", "bin")
    lizard = shutil.which("lizard", path=os.pathsep.join([os.environ.get("PATH", os.defpath), here]))
    if lizard is None:
        raise CannotTest("lizard is not there (PyPI: lizard; `make python` installs it)")
    sources = [os.path.join("src", "trees", "bztree", name) for name in SOURCES]
    lab.commands.append(" ".join(["lizard -l cpp --csv", *sources]))
    done = subprocess.run([lizard, "-l", "cpp", "--csv", *(os.path.join(lab.sources(), one) for one in sources)],
                          capture_output=True, text=True, check=False)
    found = {}
    for row in csv.reader(done.stdout.splitlines()):
        name = re.split(r"::", row[7])[-1]
        if name in FUNCTIONS:
            # Of two by one name the first: the other `gather` is for scans.
            found.setdefault(name, {"lines": int(row[0]), "complexity": int(row[1])})
    return found


def judge_claim(seen):
    lines = sum(one["lines"] for one in seen.values())
    mean = sum(one["complexity"] for one in seen.values()) / max(1, len(seen))
    # The mean: what the paper says. One function of several: at most twice that, as costs.
    return [judge.exactly("functions found", len(FUNCTIONS), len(seen)),
            judge.near("lines", 200, [lines]),
            judge.at_most("cyclomatic complexity, mean of the functions", "7", [mean], 7),
            judge.at_most("cyclomatic complexity, the most complicated function", "7",
                          [max((one["complexity"] for one in seen.values()), default=0)], 14)]
