"""Opening after a crash."""

import judge
from lab import STRICT, Openings

ID = "bz:recovery"
PAPER = "145 us on average after a crash under write load of 48 threads, whatever the size"
NOTE = "one thread; the time, by the clock, is that of opening the pool, mapping included, and the index. " \
       "The killed writer adds keys, so sizes are those that were found"


def measure(lab):
    small, large = (Openings(lab.recovery("--index", "bztree", "--records", lab.records(paper), *STRICT))
                    for paper in (1_000_000, 10_000_000))
    return {"us": [ns / 1000 for ns in large.ns], "keys": large.keys_over(small),
            "growth": large.time_over(small)}


def judge_claim(seen):
    # Whatever the size: a figure, 1x, where there are at least half of ten times the keys.
    growth = judge.near(f"{judge.show(seen['keys'])} times the keys take so many times as long", 1,
                        seen["growth"], "x")
    # A figure, too, but to be quicker does not speak against it: the upper limit alone.
    return [judge.only_if(min(seen["keys"]) >= 5, growth),
            judge.at_most("time", "145 us", seen["us"], 1.5 * 145, " us")]
