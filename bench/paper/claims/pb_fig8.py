"""Deletion in order."""

import judge
from lab import STRICT

ID = "pb:fig8"
PAPER = "deletion, ascending, descending and random: 3x FAST+FAIR when ascending; no shifts in either order"
NEEDS = ("FAST+FAIR",)
NOTE = "shifts by the words that a removal writes: 1 without, 2 more for each entry that moves; counted over " \
       "short phases of 100,000 records in which no leaves were merged, behind the first leaf, whose pivot is 0"
ORDERS = ("ascending", "descending")
RANDOM = "uniform"
# A merge writes whole leaves, and whoever removes in order empties them: the phases are so short that
# it falls into some of them only. Of 100 operations so many are removals, the oldest first; 100 removals
# before them take the first leaf away.
REMOVALS = range(1, 16)
PHASES = [f"mix:find={100 - count}:remove={count}" for count in REMOVALS]


def words_of_a_removal(rows):
    """`rows`: of PHASES, in their order. None if leaves were merged in all of them."""
    quiet = [(row, count) for row, count in zip(rows, REMOVALS)
             if not any(row["tree"][what]["change"] for what in ("merges", "borrows"))]
    removals = sum(count for _, count in quiet)
    return round(sum(row["words_per_op"] * row["ops"] for row, _ in quiet) / removals, 3) if removals else None


def measure(lab):
    common = ["--index", "pbtree", *STRICT]
    seen = lab.rounds({order: [*common, "--records", lab.records(10_000_000), "--workload", "load,remove",
                               "--distribution", order] for order in (*ORDERS, RANDOM)})
    words = {}
    for order in ORDERS:
        # Not by rounds(): counts are the same in each, and phases so short have no share of a processor.
        rows = lab.bench(*common, "--records", "100000", "--ops", "100", "--workload",
                         ",".join(["load", "remove", *PHASES]), "--distribution", order)["rows"]
        by_phase = {row["phase"]: row for row in rows}
        words[order] = words_of_a_removal([by_phase[phase] for phase in PHASES])
    return {
        "rate": [down.mops("pbtree", "remove") / up.mops("pbtree", "remove")
                 for up, down in zip(seen["ascending"], seen["descending"])],
        "random": [random.mops("pbtree", "remove") / up.mops("pbtree", "remove")
                   for up, random in zip(seen["ascending"], seen[RANDOM])],
        "words": words,
    }


def judge_claim(seen):
    return [judge.between("descending over ascending", "the same", seen["rate"], 0.9, 1.1, "x"),
            *(judge.counted(judge.at_most(f"words written by a removal, {order}", "no shifts: 1", [words], 1))
              for order, words in seen["words"].items() if words is not None)]


def show_claim(seen):
    return [("random over ascending", judge.show(seen["random"], "x"))]
