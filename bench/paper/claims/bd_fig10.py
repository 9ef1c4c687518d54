"""Traces of key-value caches."""

ID = "bd:fig10"
PAPER = "t1 1.1-1.4x, t2 1.5-2.4x, t3 about even"
NEEDS = ("traces t1, t2, t3", "FAST+FAIR", "LB+-Tree", "Montage-B+tree")
