"""A remote NUMA node."""

ID = "lo:fig16"
PAPER = "local against remote NUMA node: about 2x"
CANNOT = "one NUMA node"
