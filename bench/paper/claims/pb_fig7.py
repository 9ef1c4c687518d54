"""Insertion in three orders of keys."""

import judge
from lab import STRICT

ID = "pb:fig7"
PAPER = "descending costs PB+ what ascending does; FAST+FAIR falls below wB+ there; at 10M random keys " \
        "1024-byte nodes beat 512 for PB+"
NEEDS = ("FAST+FAIR",)
ORDERS = ("ascending", "descending", "uniform")


def measure(lab):
    common = ["--index", "pbtree,pbtree:node=512,wbtree,bztree", "--records", lab.records(10_000_000),
              "--workload", "load", *STRICT]
    seen = lab.rounds({order: [*common, "--distribution", order] for order in ORDERS})
    return {
        "falling": [down.mops("pbtree", "load") / up.mops("pbtree", "load")
                    for up, down in zip(seen["ascending"], seen["descending"])],
        "large": [run.mops("pbtree", "load") / run.mops("pbtree:node=512", "load")
                  for run in seen["uniform"]],
        "rivals": {f"{order} keys, PB+ over {name}": [run.mops("pbtree", "load") / run.mops(rival, "load")
                                                      for run in seen[order]]
                   for order in ORDERS for name, rival in (("wB+", "wbtree"), ("BzTree", "bztree"))},
    }


def judge_claim(seen):
    # To cost less than ascending keys does not speak against the claim: no upper limit.
    return [judge.at_least("descending over ascending", "the same", seen["falling"], 0.9, "x"),
            judge.at_least("random keys, nodes of 1024 over 512 bytes", "faster", seen["large"], 1, "x")]


def show_claim(seen):
    return [(what, judge.show(values, "x")) for what, values in seen["rivals"].items()]
