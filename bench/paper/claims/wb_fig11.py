"""Speed on modelled phase-change memory."""

import judge

ID = "wb:fig11"
PAPER = "PCM model: lookups within 2-4 % of the volatile tree, with bitmap-only leaves up to 16 %; wB+ " \
        "4.2-27.1x over the slowest, 1.5-2.4x over the best earlier tree"
NEEDS = ("undo-redo logged B+-tree", "shadowed B+-tree", "volatile B+-tree")
NOTE = "a model of caches, medium and waiting, not of the processor; loaded by insertions"
COUNTED = True
NODES = (128, 256, 512)


def measure(lab):
    specs = [f"wbtree:structure={structure}:node={node}" for structure in ("slot-bitmap", "bitmap-leaf")
             for node in NODES]
    rows = lab.traffic("pcm", specs, "find,insert,remove", 20_000_000, 100_000)
    return {key: row["cycles_per_op"] for key, row in rows.items()}


def judge_claim(seen):
    worst = max(seen[f"wbtree:structure=bitmap-leaf:node={node} find"] /
                seen[f"wbtree:structure=slot-bitmap:node={node} find"] for node in NODES)
    return [judge.at_most("a lookup, bitmap-only leaves over slot+bitmap, worst of three node sizes",
                          "1.16x, over the volatile tree", [worst], 1.32, "x")]


def show_claim(seen):
    return [(f"cycles, {key}", judge.number(cycles)) for key, cycles in seen.items()]
