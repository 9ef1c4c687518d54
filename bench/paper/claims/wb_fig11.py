"""Speed on modelled phase-change memory."""

ID = "wb:fig11"
PAPER = "PCM model: lookups within 2-4 % of the volatile tree; wB+ 4.2-27.1x over the slowest, 1.5-2.4x " \
        "over the best earlier tree"
NEEDS = ("a model of PCM", "undo-redo logged B+-tree", "shadowed B+-tree", "volatile B+-tree")
