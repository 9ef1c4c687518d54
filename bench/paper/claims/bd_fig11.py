"""NVM traffic on the traces."""

from claims.bd_fig9 import TREES, show_claim  # noqa: F401

ID = "bd:fig11"
PAPER = "against LB+-Tree: t2 -99 %, t3 writes +10 %"
NEEDS = ("LB+-Tree", "Montage-B+tree")
NOTE = "as bd:fig9; the traces are generated"
COUNTED = True
TRACES = {"t1": 11_000_000, "t2": 5_000_000, "t3": 12_500_000}


def measure(lab):
    seen = {}
    for trace, records in TRACES.items():
        seen |= lab.traffic("optane", TREES, trace, records, 1_000_000)
    return seen
