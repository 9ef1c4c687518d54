"""Reading a node in ascending and in descending address order."""

import judge
from lab import array_of

ID = "pb:fig1"
PAPER = "linear scans of nodes: ascending up to 14 % faster than descending"
NOTE = "nodes in random order, in an array ten times as large as the last-level cache, but at most 1 GiB, whatever --scale"
NODES = ("512", "1024")  # the paper's


def measure(lab):
    out = lab.micro()
    rounds = out["rounds"]
    ratios = {node: [one["scan"][node]["descending"] / one["scan"][node]["ascending"] for one in rounds]
              for node in NODES}
    return {"array": array_of(out)} | ratios


def judge_claim(seen):
    return [judge.gain(f"nodes of {node} bytes: ascending over descending", 1.14, seen[node])
            for node in NODES]


def show_claim(seen):
    return [("array and last-level cache", seen["array"])]
