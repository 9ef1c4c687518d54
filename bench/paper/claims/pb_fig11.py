"""A mix by several threads."""

import judge
from lab import STRICT

ID = "pb:fig11"
PAPER = "19 % insertions, 5 % deletions, 76 % searches, 1 to 20 threads: PB+ highest; wrong child " \
        "visits 0.00012 % at 16 threads"
NEEDS = ("FAST+FAIR", "more than 2 threads")
RIVALS = ("wbtree", "bztree")


def measure(lab):
    lab.needs_cores(2)
    seen = lab.one("--index", ",".join(("pbtree", *RIVALS)), "--records", lab.records(100_000_000),
                   "--ops", lab.ops(2_000_000), "--threads", "1,2", "--workload", "load,pb-mix", *STRICT)
    best = {threads: [run.mops("pbtree", "pb-mix", threads) /
                      max(run.mops(rival, "pb-mix", threads) for rival in RIVALS) for run in seen]
            for threads in (1, 2)}
    wrong = [100 * run.of("tree", "pbtree", "pb-mix", 2)["wrong_child_visits"]["per_op"]
             for run in seen]
    return {"one": best[1], "two": best[2], "wrong": wrong}


def judge_claim(seen):
    return [judge.at_least("over the better of wB+ and BzTree, 1 thread", "highest", seen["one"], 1, "x"),
            judge.at_least("the same, 2 threads", "highest", seen["two"], 1, "x"),
            judge.at_most("wrong child visits, 2 threads", "0.00012 %", seen["wrong"], 0.0012, " %")]
