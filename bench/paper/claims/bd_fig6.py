"""The length of an epoch."""

import judge
from lab import STRICT

ID = "bd:fig6"
PAPER = "epochs of 1 us to 10 s on U2, updates only: flat with one thread; 24 threads -10 % up to 1 ms, " \
        "+13 % at 10 s"
NEEDS = ("24 threads",)
NOTE = "one thread beside the clock's; the updates take a few seconds, so that an epoch of 10 s does not end by itself, " \
       "but by the sync() behind them, which is counted"
EPOCHS = ("1us", "10us", "100us", "1ms", "10ms", "50ms", "100ms", "1s", "10s")
MIX = "u2-write-only"


def measure(lab):
    common = ["--index", "bdtree", "--records", lab.records(5_000_000), "--ops", lab.ops(5_000_000),
              "--workload", "load," + MIX, *STRICT]
    seen = lab.rounds({epoch: [*common, "--epoch", epoch] for epoch in EPOCHS})
    return {epoch: [run.mops("bdtree", MIX) / first.mops("bdtree", MIX)
                    for first, run in zip(seen["1us"], seen[epoch])] for epoch in EPOCHS[1:]}


def judge_claim(seen):
    return [judge.between(f"epochs of {epoch} over 1us", "flat", values, 0.9, 1.1, "x")
            for epoch, values in seen.items()]
