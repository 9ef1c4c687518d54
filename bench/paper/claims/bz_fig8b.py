"""Free space of a fresh leaf."""

import judge
from lab import STRICT

ID = "bz:fig8b"
PAPER = "free space of a 1 KB page from 512 down to 32 bytes: +45 % read-only; read-heavy is best at 128"
NOTE = "one thread"
FREE = (32, 64, 128, 256, 512)


def measure(lab):
    specs = {free: f"bztree:free={free}" for free in FREE}
    seen = lab.one("--index", ",".join(specs.values()), "--records", lab.records(1_000_000), "--ops",
                   lab.ops(1_000_000), "--workload", "load,bz-read-only,bz-read-heavy", *STRICT)
    return {
        "read-only": [run.mops(specs[32], "bz-read-only") / run.mops(specs[512], "bz-read-only")
                      for run in seen],
        "best": [run.mops(specs[128], "bz-read-heavy") /
                 max(run.mops(specs[free], "bz-read-heavy") for free in FREE if free != 128)
                 for run in seen],
    }


def judge_claim(seen):
    return [judge.gain("read-only, 32 over 512 bytes", 1.45, seen["read-only"]),
            judge.at_least("75 % finds, 25 % upserts: 128 bytes over the best other", "the peak",
                           seen["best"], 1, "x")]
