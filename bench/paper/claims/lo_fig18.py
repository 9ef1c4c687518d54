"""Recovery by size."""

import statistics

import judge
from lab import STRICT

ID = "lo:fig18"
PAPER = "recovery 0.87-5.55 s with 1 thread, 0.17-2.10 s with 32; DRAM -81.4 % against DPTree, -65.5 % " \
        "against B-epsilon-tree"
NEEDS = ("DPTree", "B-epsilon-tree", "a choice of recovery's threads")


def measure(lab):
    opened = {}
    for name, paper in (("small", 10_000_000), ("large", 50_000_000)):
        row = lab.recovery("--index", "lodgetree", "--records", lab.records(paper), *STRICT)[0]
        opened[name] = [(one["open_ns"] + one["index_ns"]) / 1e6 for one in row["opened"]]
    return {"ms": opened["large"],
            "growth": [statistics.median(opened["large"]) / statistics.median(opened["small"])]}


def judge_claim(seen):
    return [judge.at_most("five times the keys take so many times as long (medians)", "6.4x",
                          seen["growth"], 6.4, "x")]
