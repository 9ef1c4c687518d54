"""A mix by several threads."""

import host
import judge
from lab import STRICT

ID = "pb:fig11"
PAPER = "19 % insertions, 5 % deletions, 76 % searches, 1 to 20 threads: PB+ highest; wrong child " \
        "visits 0.00012 % at 16 threads"
THREADS = host.threads(20)
NEEDS = ("FAST+FAIR", *(("more than 2 threads",) if THREADS[-1] <= 2 else ()))
RIVALS = ("wbtree", "bztree")


def measure(lab):
    lab.needs_cores(2)
    seen = lab.one("--index", ",".join(("pbtree", *RIVALS)), "--records", lab.records(100_000_000),
                   "--ops", lab.ops(2_000_000), "--threads", ",".join(map(str, THREADS)), "--workload", "load,pb-mix", *STRICT)
    best = {str(threads): [run.mops("pbtree", "pb-mix", threads) /
                      max(run.mops(rival, "pb-mix", threads) for rival in RIVALS) for run in seen]
            for threads in THREADS}
    wrong = [100 * run.of("tree", "pbtree", "pb-mix", THREADS[-1])["wrong_child_visits"]["per_op"]
             for run in seen]
    return {"best": best, "wrong": wrong}


def judge_claim(seen):
    return [*(judge.at_least(f"over the better of wB+ and BzTree, {count} thread{'s' * (count != '1')}",
                             "highest", values, 1, "x") for count, values in seen["best"].items()),
            judge.at_most(f"wrong child visits, {max(map(int, seen['best']))} threads", "0.00012 %", seen["wrong"], 0.0012, " %")]
