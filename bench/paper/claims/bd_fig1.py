"""What flushes and fences cost a strict tree."""

import judge
from lab import STRICT

ID = "bd:fig1"
PAPER = "20-140 % lost to persistence instructions; clflushopt on t2: 52x the writes and 43x the reads"
NEEDS = ("FAST+FAIR", "LB+-Tree")
NOTE = "our strict trees in place of the paper's; lost: how much faster it is without flushes and fences; " \
       "traffic is modelled, as in bd:fig9"
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
    flushes = {by: lab.traffic("optane", TREES, "t2", TRACES["t2"], 1_000_000, "--flush", by)
               for by in ("none", "clflushopt")}
    lost = {f"{tree} on {trace}": [100 * (without.mops(tree, trace) / run.mops(tree, trace) - 1)
                                   for run, without in zip(seen[f"{trace} with"],
                                                           seen[f"{trace} without"])]
            for trace in TRACES for tree in TREES}
    # Without flushes the caches may hold all to the end, which is not counted: a MiB at least.
    more = {what: {tree: flushes["clflushopt"][f"{tree} t2"][field] /
                   max(flushes["none"][f"{tree} t2"][field], 1) for tree in TREES}
            for what, field in (("writes", "written_mib"), ("reads", "read_mib"))}
    return {"lost": lost, "more": more}


def judge_claim(seen):
    return [*(judge.between(f"lost by {what}", "20 to 140 %", values, 20, 140, " %")
              for what, values in seen["lost"].items()),
            *(judge.counted(judge.gain(f"{what} with clflushopt over none, t2, {tree}", ratio, [value]))
              for what, ratio in (("writes", 52), ("reads", 43))
              for tree, value in seen["more"][what].items())]
