"""Bits, energy, flushes and fences on phase-change memory."""

import judge

ID = "wb:fig12"
PAPER = "bits modified, energy (2 pJ a bit read, 16 pJ a bit written); fences as Table 3, flushes above it"
NEEDS = ("undo-redo logged B+-tree", "shadowed B+-tree")
NOTE = "loaded in bulk, nodes 70 % full; the figure has insertions alone, Table 3 deletions, too; m = 21 in the " \
       "formulas; splits, which the formulas leave out, may add a tenth"
COUNTED = True
# Flushes and fences of Table 3, insertion and deletion.
FORMULAS = {"slot-bitmap": {"insert": (21 / 64 + 3 + 1 / 32, 3), "remove": (21 / 64 + 2, 3)},
            "bitmap-leaf": {"insert": (2, 2), "remove": (1, 1)}}


def measure(lab):
    specs = [f"wbtree:structure={structure}:node=512" for structure in FORMULAS]
    rows = [lab.traffic("pcm", specs, f"bulk-load:70,{phase}", 20_000_000, 100_000)
            for phase in ("find", "insert", "remove")]
    return {key: row for seen in rows for key, row in seen.items()}


def judge_claim(seen):
    checks = []
    for structure, operations in FORMULAS.items():
        for operation, (flushes, fences) in operations.items():
            row = seen[f"wbtree:structure={structure}:node=512 {operation}"]
            what = f"{structure}, {operation}"
            checks.append(judge.between(f"{what}: fences", f"{fences}", [row["fences_per_op"]],
                                        fences, 1.1 * fences))
            checks.append(judge.at_least(f"{what}: flushes", f"{flushes:.2f}",
                                         [row["flushes_per_op"]], flushes))
    return checks


def show_claim(seen):
    return [(f"bits modified and energy, {key}",
             f"{judge.number(row['bits_changed_per_op'])} bits, {row['picojoules_per_op']:.0f} pJ")
            for key, row in seen.items()]
