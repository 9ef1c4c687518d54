"""NVM traffic."""

ID = "bd:fig9"
PAPER = "2:8, against LB+-Tree: U1 about -90 %; L1, Z1, Z2 writes -30 to -44 %, reads -6 to -24 %; U2 " \
        "writes +12 %, reads +9 %"
NEEDS = ("LB+-Tree", "Montage-B+tree")
NOTE = "modelled: one thread, 42 MiB of cache scaled as the records, epochs of 50,000 operations; strict " \
       "trees of ours beside it, which no rule is for"
COUNTED = True
TREES = ("bdtree", "wbtree", "lodgetree")
SPACES = {"u1": 500_000, "u2": 5_000_000, "l1": 5_000_000, "z1": 5_000_000, "z2": 5_000_000}


def measure(lab):
    seen = {}
    for space, records in SPACES.items():
        seen |= lab.traffic("optane", TREES, f"{space}-write-heavy", records, 1_000_000)
    return seen


def show_claim(seen):
    return [(f"MiB per million operations, {key}",
             f"{row['read_mib'] / row['ops'] * 1e6:.1f} read, {row['written_mib'] / row['ops'] * 1e6:.1f} "
             f"written; media {row['media_read_mib'] / row['ops'] * 1e6:.1f} and "
             f"{row['media_written_mib'] / row['ops'] * 1e6:.1f}") for key, row in seen.items()]
