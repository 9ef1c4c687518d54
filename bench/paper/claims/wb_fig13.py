"""Speed on a real machine beside logged and shadowed B+-trees."""

ID = "wb:fig13"
PAPER = "50M entries, 500K operations: wB+ 2.1-8.8x over the slowest, 1.2-1.6x over the best earlier tree"
NEEDS = ("undo-redo logged B+-tree", "shadowed B+-tree", "B+-tree in a buffer pool")
