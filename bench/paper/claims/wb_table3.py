"""Words, flushes and fences of one insertion and one deletion, counted on the observed build."""

import judge

ID = "wb:table3"
PAPER = "N_w, N_clf, N_mf: slot-only insert 3, 2, 2; slot+bitmap insert 0.125m+4.25, m/64+3 1/32, 3; " \
        "bitmap-only delete 1, 1, 1; six other trees (flushes are lower bounds)"
NEEDS = tuple(f"{tree} with {way}" for way in ("undo-redo logging", "shadowing")
              for tree in ("B+-tree", "unsorted leaves", "unsorted leaves with a bitmap"))
NOTE = "exact counts in one leaf; words are stored words, the paper counts bytes of a slot array"
COUNTED = True


def measure(lab):
    counts = lab.json_of("everleaf-crash", "--counts")["counts"]
    return [row for row in counts if row["paper"]]


def judge_row(row):
    what = f"{row['nodes']}, {row['operation']}, m = {row['entries']}"
    paper, ours = row["paper"], row["measured"]
    yield judge.exactly(f"{what}: fences", paper["fences"], ours["fences"])
    yield judge.at_least(f"{what}: flushes", f"at least {paper['flushes']:.2f}", [ours["flushes"]],
                         paper["flushes"] - 0.005)
    yield judge.at_most(f"{what}: words", f"{paper['words']:.2f}", [ours["words"]],
                        paper["words"] + 0.005)


def judge_claim(seen):
    return [check for row in seen for check in judge_row(row)]
