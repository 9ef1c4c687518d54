"""Memory."""

import judge
from lab import STRICT

ID = "bz:memory"
PAPER = "10M keys, balanced mix: 228 MB at the peak, 1.6x below the Bw-tree"
NEEDS = ("Bw-tree",)
NOTE = "blocks and DRAM of the index after the mix, not its peak"
COUNTED = True


def measure(lab):
    seen = lab.one("--index", "bztree", "--records", lab.records(10_000_000), "--ops",
                   lab.ops(1_000_000), "--workload", "load,bz-balanced", *STRICT)
    return [run.of("pool_bytes_per_key", "bztree", "bz-balanced") +
            run.of("dram_bytes_per_key", "bztree", "bz-balanced") for run in seen]


def judge_claim(seen):
    # Sizes are less a matter of the machine than times: a quarter more, where the table allows half as
    # much again. Less memory does not speak against the claim.
    return [judge.at_most("bytes a key", "22.8", seen, 22.8 * 1.25)]
