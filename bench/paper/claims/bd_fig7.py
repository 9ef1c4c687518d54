"""More threads."""

import host
import judge
from lab import STRICT

ID = "bd:fig7"
PAPER = "8:2 reads to writes: scales within a socket, all trees drop across sockets"
# The paper's socket has 28 cores; it does not say by how much "scales" is.
THREADS = host.threads(28)
NEEDS = (*(("more than 2 cores",) if host.cores() <= 2 else ()),
         "a second socket" if host.sockets() == 1 else "threads that are bound to sockets")
MIX = "u2-read-heavy"


def measure(lab):
    lab.needs_cores(2)
    seen = lab.one("--index", "bdtree", "--records", lab.records(5_000_000), "--ops",
                   lab.ops(2_000_000), "--threads", ",".join(map(str, THREADS)), "--workload", "load," + MIX, *STRICT)
    return {str(count): [run.mops("bdtree", MIX, count) / run.mops("bdtree", MIX, 1) for run in seen]
            for count in THREADS[1:]}


def judge_claim(seen):
    # "Scales" is no factor of the table: 85 % of what as many single threads would have.
    return [judge.at_least(f"{count} threads over one", "scales", values, 0.85 * int(count), "x")
            for count, values in seen.items()]
