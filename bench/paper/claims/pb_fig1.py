"""Reading a node in ascending and in descending address order."""

import judge

ID = "pb:fig1"
PAPER = "linear scans of nodes: ascending up to 14 % faster than descending"
NOTE = "nodes in random order, in an array ten times as large as the last-level cache, whatever --scale"
NODES = ("512", "1024")  # the paper's


def measure(lab):
    rounds = lab.micro()["rounds"]
    return {node: [one["scan"][node]["descending"] / one["scan"][node]["ascending"] for one in rounds]
            for node in NODES}


def judge_claim(seen):
    return [judge.gain(f"nodes of {node} bytes: ascending over descending", 1.14, seen[node])
            for node in NODES]
