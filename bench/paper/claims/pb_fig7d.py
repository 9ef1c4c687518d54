"""Where an insertion's time goes."""

import judge
from lab import STRICT

ID = "pb:fig7(d)"
PAPER = "ascending and descending keys cost PB+ the same; flushes of wB+ take about twice as long; " \
        "random keys cost most, in traversal above all"
NEEDS = ("FAST+FAIR",)
NOTE = "with stopwatches in the program, which make it slower; above all: what the traversal costs " \
       "more with random keys than with ascending ones is more than what any other part does"
ORDERS = ("ascending", "descending", "uniform")


PARTS = ("traversal", "leaf", "words", "flush", "update")


def traversal_ahead(random, up):
    """ns by which the traversal grew more from `up` to `random`, ns by part, than the part next to it."""
    growth = {part: random[part] - up[part] for part in PARTS}
    return growth.pop("traversal") - max(growth.values())


def measure(lab):
    common = ["--split", "--index", "pbtree,wbtree", "--records", lab.records(10_000_000),
              "--workload", "load", *STRICT]
    seen = lab.rounds({order: [*common, "--distribution", order] for order in ORDERS})

    def ns(run, index="pbtree", part=None):
        return 1000 / run.mops(index, "load") * (run.of("share_" + part, index, "load") if part else 1)

    def parts(run):
        return {part: ns(run, part=part) for part in PARTS}

    rounds = list(zip(*(seen[order] for order in ORDERS)))
    return {
        "same": [ns(down) / ns(up) for up, down, _ in rounds],
        "flush": {order: [ns(run, "wbtree", "flush") / ns(run, "pbtree", "flush") for run in seen[order]]
                  for order in ORDERS},
        "random": [ns(random) / max(ns(up), ns(down)) for up, down, random in rounds],
        "traversal": [traversal_ahead(parts(random), parts(up)) for up, _, random in rounds],
    }


def judge_claim(seen):
    checks = [judge.between("time of an insertion, descending over ascending", "the same", seen["same"],
                            0.9, 1.1, "x")]
    checks += [judge.near(f"time in flushes, wB+ over PB+, {order}", 2, values, "x")
               for order, values in seen["flush"].items()]
    return checks + [judge.at_least("time of an insertion, random over the dearer order", "most",
                                    seen["random"], 1, "x"),
                     judge.at_least("from ascending to random keys, the traversal grows more than any other part by",
                                    "above all", seen["traversal"], 0, " ns")]
