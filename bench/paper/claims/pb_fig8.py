"""Deletion in order."""

import judge
from lab import STRICT

ID = "pb:fig8"
PAPER = "deletion: 3x FAST+FAIR when ascending; no shifts in either order"
NEEDS = ("FAST+FAIR",)
ORDERS = ("ascending", "descending")


def measure(lab):
    records = lab.records(10_000_000)
    common = ["--index", "pbtree", "--records", records, "--workload", "load,remove", *STRICT]
    seen = lab.rounds({order: [*common, "--distribution", order] for order in (*ORDERS, "uniform")})
    return {
        "rate": [down.mops("pbtree", "remove") / up.mops("pbtree", "remove")
                 for up, down in zip(seen["ascending"], seen["descending"])],
        # A shift flushes the lines that it leaves: random removals have some.
        "words": {order: [run.of("words_per_op", "pbtree", "remove") /
                          random.of("words_per_op", "pbtree", "remove")
                          for run, random in zip(seen[order], seen["uniform"])] for order in ORDERS},
    }


def judge_claim(seen):
    return [judge.between("descending over ascending", "the same", seen["rate"], 0.9, 1.1, "x"),
            *(judge.at_most(f"words written, {order} over random", "no shifts", values, 0.6, "x")
              for order, values in seen["words"].items())]
