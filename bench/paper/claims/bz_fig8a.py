"""Longer keys."""

import judge
from lab import STRICT

ID = "bz:fig8a"
PAPER = "keys of 8 to 128 bytes: -39 % read-only, -46 % read-heavy"
NOTE = "one thread"
MIXES = ("bz-read-only", "bz-read-heavy")


def measure(lab):
    common = ["--index", "bztree", "--records", lab.records(1_000_000), "--ops", lab.ops(1_000_000),
              "--workload", "load," + ",".join(MIXES), *STRICT]
    seen = lab.rounds({str(size): [*common, "--keys", f"bytes:{size}"] for size in (8, 128)})
    return {mix: [100 * (1 - long.mops("bztree", mix) / short.mops("bztree", mix))
                  for short, long in zip(seen["8"], seen["128"])] for mix in MIXES}


def judge_claim(seen):
    return [judge.near("throughput lost, read-only", 39, seen["bz-read-only"], " %"),
            judge.near("throughput lost, 75 % finds, 25 % upserts", 46, seen["bz-read-heavy"], " %")]
