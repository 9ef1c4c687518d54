"""More threads."""

import judge
from lab import STRICT

ID = "bd:fig7"
PAPER = "8:2 reads to writes: scales within a socket, all trees drop across sockets"
NEEDS = ("more than 2 cores", "a second socket")
MIX = "u2-read-heavy"


def measure(lab):
    lab.needs_cores(2)
    seen = lab.one("--index", "bdtree", "--records", lab.records(5_000_000), "--ops",
                   lab.ops(2_000_000), "--threads", "1,2", "--workload", "load," + MIX, *STRICT)
    return [run.mops("bdtree", MIX, 2) / run.mops("bdtree", MIX, 1) for run in seen]


def judge_claim(seen):
    return [judge.at_least("two threads over one", "scales", seen, 1.7, "x")]
