"""What clflush and mfence cost."""

import judge
from lab import array_of

ID = "wb:fig4"
PAPER = "cost of clflush and mfence on sequential and random writes, a fence every 1 to 16 records"
NOTE = ("an array ten times as large as the last-level cache, but at most 1 GiB, whatever --scale; the paper gives curves without "
        "figures: negligible is within 10 %, significant or reduced a fifth")


def measure(lab):
    out = lab.micro()
    rounds = out["rounds"]
    seen = {"array": array_of(out)}
    for order in ("sequential", "random"):
        curves = [one[order] for one in rounds]
        seen[order] = {
            "flush": [one["flush"] / one["write"] for one in curves],
            "fence": [one["fence"]["1"] / one["flush"] for one in curves],
            "fewer": [one["fence"]["16"] / one["fence"]["1"] for one in curves]}
    return seen


def judge_claim(seen):
    in_order, random = seen["sequential"], seen["random"]
    checks = [judge.at_least("sequential writes, clflush over none", "significant", in_order["flush"], 1.2, "x"),
              judge.between("random writes, clflush over none", "negligible", random["flush"], 0.9, 1.1, "x")]
    for name, one in (("sequential", in_order), ("random", random)):
        checks.append(judge.at_least(f"{name} writes, mfence after each clflush over none", "significant",
                                     one["fence"], 1.2, "x"))
        checks.append(judge.at_most(f"{name} writes, mfence after 16 over after each", "reduced",
                                    one["fewer"], 1 / 1.2, "x"))
    return checks


def show_claim(seen):
    return [("array and last-level cache", seen["array"])]
