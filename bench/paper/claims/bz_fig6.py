"""What durability costs."""

import judge
from lab import STRICT

ID = "bz:fig6"
PAPER = "durable mode below volatile mode: 5 % read-mostly, 12 % balanced"
NOTE = "one thread (paper 48); volatile mode is the same file without flushes and fences, so that " \
       "both have the same pages"
MIXES = ("bz-read-mostly", "bz-balanced")


def measure(lab):
    common = ["--index", "bztree", "--records", lab.records(1_000_000), "--ops", lab.ops(1_000_000),
              "--workload", "load," + ",".join(MIXES)]
    seen = lab.rounds({"durable": [*common, *STRICT], "volatile": [*common, "--domain", "process"]})
    return {mix: [100 * (1 - durable.mops("bztree", mix) / volatile.mops("bztree", mix))
                  for durable, volatile in zip(seen["durable"], seen["volatile"])] for mix in MIXES}


def judge_claim(seen):
    return [judge.loss("90 % finds, 10 % upserts", 5, seen["bz-read-mostly"]),
            judge.loss("50 % finds, 50 % upserts", 12, seen["bz-balanced"])]
