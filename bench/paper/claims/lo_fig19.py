"""Scans."""

ID = "lo:fig19"
PAPER = "scan-heavy mix: below FAST+FAIR and DPTree"
NEEDS = ("FAST+FAIR", "DPTree")
