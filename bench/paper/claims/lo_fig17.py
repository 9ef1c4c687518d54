"""Skew."""

import judge
from lab import STRICT

ID = "lo:fig17"
PAPER = "Zipf skew: 1.65x uniform"
NOTE = "one thread; the paper does not say which operations, so searches and updates"


def measure(lab):
    common = ["--index", "lodgetree", "--records", lab.records(50_000_000), "--ops",
              lab.ops(2_000_000), "--workload", "load,find,update", *STRICT]
    seen = lab.rounds({"uniform": common, "zipf": [*common, "--distribution", "zipf:0.99"]})
    return {phase: [zipf.mops("lodgetree", phase) / uniform.mops("lodgetree", phase)
                    for uniform, zipf in zip(seen["uniform"], seen["zipf"])]
            for phase in ("find", "update")}


def judge_claim(seen):
    return [judge.gain(f"{phase}, Zipf 0.99 over uniform", 1.65, values)
            for phase, values in seen.items()]
