"""What flushes and fences cost a strict tree."""

import judge
from lab import STRICT

ID = "bd:fig1"
PAPER = "20-140 % lost to persistence instructions; clflushopt on t2: 52x the writes and 43x the reads"
NEEDS = ("FAST+FAIR", "LB+-Tree", "a choice of the flush instruction")
NOTE = "our strict trees in place of the paper's; lost: how much faster it is without flushes and fences"
TREES = ("wbtree", "pbtree", "bztree", "lodgetree")
TRACES = {"t1": 11_000_000, "t2": 5_000_000}


def measure(lab):
    setups = {}
    for trace, records in TRACES.items():
        common = ["--index", ",".join(TREES), "--records", lab.records(records), "--ops",
                  lab.ops(1_000_000), "--workload", "load," + trace]
        setups[f"{trace} with"] = [*common, *STRICT]
        setups[f"{trace} without"] = [*common, "--domain", "process"]
    seen = lab.rounds(setups)
    return {f"{tree} on {trace}": [100 * (without.mops(tree, trace) / run.mops(tree, trace) - 1)
                                   for run, without in zip(seen[f"{trace} with"],
                                                           seen[f"{trace} without"])]
            for trace in TRACES for tree in TREES}


def judge_claim(seen):
    return [judge.between(f"lost by {what}", "20 to 140 %", values, 20, 140, " %")
            for what, values in seen.items()]
