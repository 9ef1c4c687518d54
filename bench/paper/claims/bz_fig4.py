"""YCSB mixes beside the Bw-tree."""

ID = "bz:fig4"
PAPER = "uniform: +28 % read-only, 1.7x at 75:25, 2.4x at 50:50 over the Bw-tree"
NEEDS = ("Bw-tree",)
