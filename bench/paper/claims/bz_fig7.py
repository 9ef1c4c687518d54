"""Short scans beside the Bw-tree."""

ID = "bz:fig7"
PAPER = "scans of at most 10 records: 1.8x read-mostly, 2.7x balanced over the Bw-tree"
NEEDS = ("Bw-tree",)
