"""Five workloads beside other persistent trees."""

ID = "lo:fig11"
PAPER = "50M loaded: insert up to 2.5x, search 4.7x, skewed insert 2.9x, mixed 3.0x over the others"
NEEDS = ("FAST+FAIR", "DPTree", "B-epsilon-tree", "ROART")
