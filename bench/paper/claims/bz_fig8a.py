"""Longer keys."""

import judge
from lab import STRICT

ID = "bz:fig8a"
PAPER = "keys of 8 to 128 bytes: -39 % read-only, -46 % read-heavy"
NOTE = "one thread"
MIXES = ("bz-read-only", "bz-read-heavy")
SIZES = (8, 16, 32, 64, 128)


def measure(lab):
    common = ["--index", "bztree", "--records", lab.records(1_000_000), "--ops", lab.ops(1_000_000),
              "--workload", "load," + ",".join(MIXES), *STRICT]
    seen = lab.rounds({str(size): [*common, "--keys", f"bytes:{size}"] for size in SIZES})
    return {mix: {str(size): [100 * (1 - long.mops("bztree", mix) / short.mops("bztree", mix))
                              for short, long in zip(seen["8"], seen[str(size)])] for size in SIZES[1:]}
            for mix in MIXES}


def judge_claim(seen):
    return [judge.near("throughput lost by keys of 128 bytes, read-only", 39, seen["bz-read-only"]["128"], " %"),
            judge.near("throughput lost by keys of 128 bytes, 75 % finds, 25 % upserts", 46,
                       seen["bz-read-heavy"]["128"], " %")]


def show_claim(seen):
    return [(f"throughput lost by keys of {size} bytes, {mix}", judge.show(values, " %"))
            for mix, sizes in seen.items() for size, values in sizes.items() if size != "128"]
