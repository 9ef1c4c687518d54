"""The same mixes, Zipfian and monotonic."""

ID = "bz:fig5"
PAPER = "Zipfian +33 % read-only, 4.3x balanced; monotonic 34M against 21M ops/s of the Bw-tree"
NEEDS = ("Bw-tree",)
