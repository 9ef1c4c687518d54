"""A remote NUMA node."""

import host

ID = "lo:fig16"
PAPER = "local against remote NUMA node: about 2x"
if host.numa_nodes() == 1:
    CANNOT = "there is one NUMA node"
else:
    NEEDS = ("pools and threads that are bound to NUMA nodes",)
