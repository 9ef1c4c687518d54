"""Latency of point queries."""

import judge
from lab import STRICT

ID = "pb:fig9"
PAPER = "cold, after 10 % deletions, warm: PB+ at or below FAST+FAIR, well below wB+ and BzTree; " \
        "shorter tail at 1024"
NEEDS = ("FAST+FAIR", "queries on caches that were cleared")
INDEXES = ("pbtree", "pbtree:node=512", "wbtree", "bztree")
LEAST_SHARE = 0.98


def measure(lab):
    # Two phases of the same length: the second one looks for keys after the removals.
    seen = lab.one("--index", ",".join(INDEXES), "--records", lab.records(10_000_000), "--ops",
                   str(int(lab.records(10_000_000)) // 10), "--latency-every", "1",
                   "--workload", "load,find,remove,bz-read-only", *STRICT)
    ratios = {}
    for name, phase in (("warm", "find"), ("after 10 % deletions", "bz-read-only")):
        for rival in ("wbtree", "bztree"):
            ratios[f"median, {name}, over {rival}"] = [
                run.of("p50_ns", "pbtree", phase) / run.of("p50_ns", rival, phase) for run in seen]
    tail = [run.of("p999_ns", "pbtree", "find") / run.of("p999_ns", "pbtree:node=512", "find")
            for run in seen]
    return {"ratios": ratios, "tail": tail}


def judge_claim(seen):
    # "Well below" is no factor of the table: a tenth at least.
    return [*(judge.at_most(what, "well below", values, 0.9, "x")
              for what, values in seen["ratios"].items()),
            judge.at_most("P99.9, nodes of 1024 over 512 bytes", "shorter", seen["tail"], 1, "x")]
