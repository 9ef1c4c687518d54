"""Opening after a crash."""

import statistics

import judge
from lab import STRICT

ID = "bz:recovery"
PAPER = "145 us on average after a crash under write load of 48 threads, whatever the size"
NOTE = "one thread; the time is that of opening the pool, mapping included, and the index"


def measure(lab):
    small, large = lab.records(1_000_000), lab.records(10_000_000)
    opened = {}
    for name, records in (("small", small), ("large", large)):
        row = lab.recovery("--index", "bztree", "--records", records, *STRICT)[0]
        opened[name] = [(one["open_ns"] + one["index_ns"]) / 1000 for one in row["opened"]]
    return {"us": opened["large"],
            "growth": [statistics.median(opened["large"]) / statistics.median(opened["small"])]}


def judge_claim(seen):
    return [judge.between("ten times the keys take so many times as long (medians)", "1x",
                          seen["growth"], 0.67, 1.5, "x"),
            judge.at_most("time", "145 us", seen["us"], 290, " us")]
