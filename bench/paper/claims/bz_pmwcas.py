"""How many multi-word compare-and-swaps fail."""

import host
import judge
from lab import STRICT

ID = "bz:pmwcas"
PAPER = "balanced mix, 8 to 48 threads: 0.02 % to 0.12 % fail, never over 0.2 %"
THREADS = host.threads(48)[-1]
NEEDS = ("8 threads and more",) if THREADS < 8 else ()
NOTE = f"{THREADS} threads"
SIZES = ("pmwcas_1_words", "pmwcas_2_words", "pmwcas_3_words", "pmwcas_more_words")


def measure(lab):
    lab.needs_cores(2)
    seen = lab.one("--index", "bztree", "--records", lab.records(1_000_000), "--ops",
                   lab.ops(1_000_000), "--threads", str(THREADS), "--workload", "load,bz-balanced", *STRICT)
    shares = {}
    for phase in ("load", "bz-balanced"):
        shares[phase] = []
        for run in seen:
            done = sum(run.change(size, "bztree", phase, THREADS) for size in SIZES)
            shares[phase].append(100 * run.change("pmwcas_failed", "bztree", phase, THREADS) / done)
    return shares


def judge_claim(seen):
    return [judge.at_most("failed, balanced mix", "0.2 %", seen["bz-balanced"], 0.2, " %"),
            judge.at_most("failed, insertions", "0.2 %", seen["load"], 0.2, " %")]
