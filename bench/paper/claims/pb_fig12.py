"""TPC-C."""

ID = "pb:fig12"
PAPER = "TPC-C, four mixes, 16 threads: 3.7-11.5x FAST+FAIR with lock crabbing"
NEEDS = ("TPC-C", "FAST+FAIR", "16 threads")
