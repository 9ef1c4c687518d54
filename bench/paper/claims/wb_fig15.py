"""The index of a memcached server."""

ID = "wb:fig15"
PAPER = "wB+ 1.04-3.8x the insertions of logging and shadowing in memcached"
NEEDS = ("a memcached server on the trees", "undo-redo logged B+-tree", "shadowed B+-tree")
