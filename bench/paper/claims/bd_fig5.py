"""Throughput beside other persistent trees."""

ID = "bd:fig5"
PAPER = "write-heavy and read-heavy, five workloads: up to 2.4x; U2 about even"
NEEDS = ("FAST+FAIR", "LB+-Tree", "Montage-B+tree")
