"""Reading a node in ascending and in descending address order."""

ID = "pb:fig1"
PAPER = "linear scans of nodes: ascending up to 14 % faster than descending"
NEEDS = ("a microbenchmark of scans in both directions",)
