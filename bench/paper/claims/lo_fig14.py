"""Splits into more nodes where it is hot."""

import judge
from lab import STRICT

ID = "lo:fig14"
PAPER = "hotness-aware against plain split: 1.1-1.4x throughput under skew"
NOTE = "one thread"
HOT, PLAIN = "lodgetree", "lodgetree:split=2"
MIX = "lodge-skewed-insert"
KINDS = ("adding", "normal", "reducing")


def measure(lab):
    seen = lab.one("--index", f"{HOT},{PLAIN}", "--records", lab.records(25_000_000), "--ops",
                   lab.ops(5_000_000), "--workload", "load," + MIX, *STRICT)
    return {"gain": [run.mops(HOT, MIX) / run.mops(PLAIN, MIX) for run in seen],
            "splits": {kind: [run.change(f"{kind}_splits", HOT, MIX) for run in seen] for kind in KINDS}}


def judge_claim(seen):
    return [judge.gain("hotness-aware over plain splits, skewed insertions", 1.1, seen["gain"])]


def show_claim(seen):
    # Whether the technique acted at all.
    return [(f"{kind} splits of last-level nodes meanwhile", judge.show(counts))
            for kind, counts in seen["splits"].items()]
