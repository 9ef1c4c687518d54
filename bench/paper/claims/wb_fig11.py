"""Speed on modelled phase-change memory."""

import judge

ID = "wb:fig11"
PAPER = "PCM model: lookups within 2-4 % of the volatile tree, with bitmap-only leaves up to 16 %, whose insertions and " \
        "deletions are slightly better; wB+ 4.2-27.1x over the slowest, 1.5-2.4x over the best earlier tree"
NEEDS = ("undo-redo logged B+-tree", "shadowed B+-tree", "volatile B+-tree")
NOTE = "a model of caches, medium and waiting, not of the processor; nodes of 2 lines are slot-only, as in the paper; " \
       "the limit of the lookup is twice what the paper's lose to the volatile tree, while ours stand over slot+bitmap"
COUNTED = True
# What the paper's four panels do to a tree that was loaded in bulk.
PANELS = {"lookup at 70 %": ("bulk-load:70", "find"), "insertion at 70 %": ("bulk-load:70", "insert"),
          "insertion at 100 %": ("bulk-load:100", "insert"), "deletion at 70 %": ("bulk-load:70", "remove")}
SMALL = "wbtree:structure=slot-only:node=128"
SLOTS = {node: f"wbtree:structure=slot-bitmap:node={node}" for node in (256, 512)}
LEAVES = {node: f"wbtree:structure=bitmap-leaf:node={node}" for node in (256, 512)}


def measure(lab):
    seen = {}
    for panel, (load, phase) in PANELS.items():
        rows = lab.traffic("pcm", [SMALL, *SLOTS.values(), *LEAVES.values()], f"{load},{phase}", 20_000_000, 100_000)
        seen |= {f"{panel}, {row['index']}": row["cycles_per_op"] for row in rows.values()}
    return seen


def judge_claim(seen):
    def worst(panel):
        return max(seen[f"{panel}, {LEAVES[node]}"] / seen[f"{panel}, {SLOTS[node]}"] for node in SLOTS)

    return [judge.at_most("a lookup, bitmap-only leaves over slot+bitmap, worse of two node sizes",
                          "1.16x, over the volatile tree", [worst("lookup at 70 %")], 1.32, "x"),
            *(judge.at_most(f"{panel}, bitmap-only leaves over slot+bitmap, worse of two node sizes",
                            "slightly better", [worst(panel)], 1, "x") for panel in PANELS if "lookup" not in panel)]


def show_claim(seen):
    return [(f"cycles, {key}", judge.number(cycles)) for key, cycles in seen.items()]
