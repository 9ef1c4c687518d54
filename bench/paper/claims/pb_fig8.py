"""Deletion in order."""

import judge
from lab import STRICT

ID = "pb:fig8"
PAPER = "deletion: 3x FAST+FAIR when ascending; no shifts in either order"
NEEDS = ("FAST+FAIR",)
NOTE = "a shift fences each line that it leaves; shifts themselves are not counted"
ORDERS = ("ascending", "descending")


def measure(lab):
    records = lab.records(10_000_000)
    common = ["--index", "pbtree", "--records", records, "--workload", "load,remove", *STRICT]
    seen = lab.rounds({order: [*common, "--distribution", order] for order in (*ORDERS, "uniform")})
    return {
        "rate": [down.mops("pbtree", "remove") / up.mops("pbtree", "remove")
                 for up, down in zip(seen["ascending"], seen["descending"])],
        "fences": {order: [run.of("fences_per_op", "pbtree", "remove") /
                           random.of("fences_per_op", "pbtree", "remove")
                          for run, random in zip(seen[order], seen["uniform"])] for order in ORDERS},
    }


def judge_claim(seen):
    return [judge.between("descending over ascending", "the same", seen["rate"], 0.9, 1.1, "x"),
            *(judge.counted(judge.at_most(f"fences, {order} over random", "no shifts", values, 0.9, "x"))
              for order, values in seen["fences"].items())]
