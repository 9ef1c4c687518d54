"""Range queries."""

import judge
from lab import STRICT

ID = "pb:fig10"
PAPER = "range throughput, normalised to wB+: 1024 about 1.5x 512; slightly behind FAST+FAIR before " \
        "10 % deletions, ahead after"
NEEDS = ("FAST+FAIR",)
NOTE = "the paper's selection ratios are points of a figure; here 100 and 1000 entries, whatever the number of records"
LENGTHS = (100, 1000)
INDEXES = ("pbtree", "pbtree:node=512", "wbtree")


def measure(lab):
    records = lab.records(10_000_000)
    seen = lab.rounds({str(length): [
        "--index", ",".join(INDEXES), "--records", records, "--ops", str(int(records) // 10),
        "--scan-length", str(length), "--workload", "load,scan,remove,mix:scan=100", *STRICT]
        for length in LENGTHS})

    def ratios(index, other):
        return {f"{length} entries, {when}": [
            run.mops(index, phase) / run.mops(other, phase) for run in seen[str(length)]]
            for length in LENGTHS
            for when, phase in (("before", "scan"), ("after 10 % deletions", "mix:scan=100"))}

    return {"nodes": ratios("pbtree", "pbtree:node=512"), "wbtree": ratios("pbtree", "wbtree")}


def judge_claim(seen):
    return [judge.gain(f"{what}: nodes of 1024 over 512 bytes", 1.5, values)
            for what, values in seen["nodes"].items()]


def show_claim(seen):
    return [(f"{what}: PB+ over wB+", judge.show(values, "x")) for what, values in seen["wbtree"].items()]
