"""Rebuilding from the list of leaves."""

ID = "bd:recovery"
PAPER = "10M pairs: 200 us for BD+ and LB+ as printed, 1.4 ms Montage (the unit looks wrong)"
NEEDS = ("a timed pass over the leaves' headers to compare with", "LB+-Tree", "Montage-B+tree")
NOTE = "times of our recovery: everleaf bench --recovery, docs/performance.md"
