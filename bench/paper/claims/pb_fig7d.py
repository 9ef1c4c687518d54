"""Where an insertion's time goes."""

import judge
from lab import STRICT

ID = "pb:fig7(d)"
PAPER = "ascending and descending keys cost PB+ the same; flushes of wB+ take about twice as long; " \
        "random keys cost most, in traversal above all"
NEEDS = ("FAST+FAIR",)
NOTE = "with stopwatches in the program, which make it slower"
ORDERS = ("ascending", "descending", "uniform")


def measure(lab):
    common = ["--split", "--index", "pbtree,wbtree", "--records", lab.records(10_000_000),
              "--workload", "load", *STRICT]
    seen = lab.rounds({order: [*common, "--distribution", order] for order in ORDERS})

    def flush_ns(run, index):
        return 1000 * run.of("share_flush", index, "load") / run.mops(index, "load")

    def traversal(run):
        return 100 * run.of("share_traversal", "pbtree", "load")

    return {
        "same": [100 * abs(up.of("share_flush", "pbtree", "load") -
                           down.of("share_flush", "pbtree", "load"))
                 for up, down in zip(seen["ascending"], seen["descending"])],
        "flush": {order: [flush_ns(run, "wbtree") / flush_ns(run, "pbtree") for run in seen[order]]
                  for order in ORDERS},
        "random": [traversal(random) / traversal(up)
                   for up, random in zip(seen["ascending"], seen["uniform"])],
    }


def judge_claim(seen):
    checks = [judge.at_most("share of flushes, ascending against descending", "the same",
                            seen["same"], 5, " points")]
    checks += [judge.at_least(f"time in flushes, wB+ over PB+, {order}", "about 2x", values, 1.5, "x")
               for order, values in seen["flush"].items()]
    return checks + [judge.at_least("share of the traversal, random over ascending", "greater",
                                    seen["random"], 1, "x")]
