"""What flushes and fences cost a strict tree."""

import judge
from lab import STRICT

ID = "bd:fig1"
PAPER = "20-140 % lost to persistence instructions; clflushopt on t2: 52x the writes and 43x the reads"
NEEDS = ("FAST+FAIR", "LB+-Tree", "a choice of the flush instruction")
NOTE = "our strict trees in place of the paper's; lost: how much faster it is without flushes and fences"
TREES = ("wbtree", "pbtree", "bztree", "lodgetree")
MIX = "z1-write-heavy"


def measure(lab):
    common = ["--index", ",".join(TREES), "--records", lab.records(5_000_000), "--ops",
              lab.ops(2_000_000), "--workload", "load," + MIX]
    seen = lab.rounds({"with": [*common, *STRICT], "without": [*common, "--domain", "process"]})
    return {tree: [100 * (without.mops(tree, MIX) / run.mops(tree, MIX) - 1)
                   for run, without in zip(seen["with"], seen["without"])] for tree in TREES}


def judge_claim(seen):
    return [judge.between(f"lost by {tree}", "20 to 140 %", values, 20, 140, " %")
            for tree, values in seen.items()]
