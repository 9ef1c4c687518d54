"""What durability costs."""

import judge
from lab import STRICT

ID = "bz:fig6"
PAPER = "durable mode below volatile mode: 5 % read-mostly, 12 % balanced, 8 % on average"
NOTE = "one thread (paper 48); volatile mode is the same file without flushes and fences, so that " \
       "both have the same pages; the average is that of the three mixes that write, which the paper's sentence on " \
       "realistic workloads does not name"
MIXES = ("bz-read-mostly", "bz-read-heavy", "bz-balanced")


def measure(lab):
    common = ["--index", "bztree", "--records", lab.records(1_000_000), "--ops", lab.ops(1_000_000),
              "--workload", "load," + ",".join(MIXES)]
    seen = lab.rounds({"durable": [*common, *STRICT], "volatile": [*common, "--domain", "process"]})
    return {mix: [100 * (1 - durable.mops("bztree", mix) / volatile.mops("bztree", mix))
                  for durable, volatile in zip(seen["durable"], seen["volatile"])] for mix in MIXES}


def judge_claim(seen):
    return [judge.loss("90 % finds, 10 % upserts", 5, seen["bz-read-mostly"]),
            judge.loss("50 % finds, 50 % upserts", 12, seen["bz-balanced"]),
            judge.loss("mean of these and of 75 % finds, 25 % upserts", 8,
                       [sum(losses) / len(MIXES) for losses in zip(*(seen[mix] for mix in MIXES))])]
