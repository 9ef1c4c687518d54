"""Versions that an epoch keeps."""

import re

import judge

ID = "bd:model"
PAPER = "key instances kept = N(3/2 - ((N-1)/N)^M) for M operations an epoch"
NOTE = "20,000 keys whatever --scale, by the test that steps the clock itself; leaves of 512 bytes, as the paper's, and nothing else"
COUNTED = True


def measure(lab):
    out = lab.run("everleaf-bdtree_model-test", "--gtest_color=no")
    return [{"ops": int(ops), "model": float(model), "ours": float(ours)} for ops, model, ours in
            re.findall(r"M = +(\d+): model (\d+), in leaves (\d+)", out)]


def judge_claim(seen):
    # A formula, not a count, but nothing of it is timed: 5 % either way.
    return [judge.between(f"instances over the model, M = {one['ops']}", "1",
                          [one["ours"] / one["model"]], 0.95, 1.05) for one in seen]
