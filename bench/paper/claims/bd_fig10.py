"""Traces of key-value caches."""

ID = "bd:fig10"
PAPER = "t1 1.1-1.4x, t2 1.5-2.4x, t3 about even"
NOTE = "the workloads t1, t2 and t3 are there, and a real trace: bench/README.md"
NEEDS = ("FAST+FAIR", "LB+-Tree", "Montage-B+tree")
