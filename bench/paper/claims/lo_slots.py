"""Empty slots of the last inner level."""

import judge
from lab import STRICT

ID = "lo:slots"
PAPER = "25-58 % of the last-level internal slots of a B+-tree stand empty"
NOTE = "LodgeTree without its buffer, random keys"
TREE = "lodgetree:buffer=1"
COUNTED = True


def measure(lab):
    seen = lab.one("--index", TREE, "--records", lab.records(10_000_000), "--workload", "load", *STRICT)
    return [run.of("tree", TREE, "load")["empty_slots_permille"]["now"] / 10 for run in seen]


def judge_claim(seen):
    return [judge.between("empty slots", "25 to 58 %", seen, 25, 58, " %")]
