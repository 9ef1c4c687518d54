"""A processor with a huge cache."""

import host

ID = "bd:cache"
PAPER = "one thread, 768 MiB of L3: 1.1-1.6x over LB+-Tree and Montage-B+tree on U2 and t3"
HUGE_MIB = 768
if host.last_cache_mib() < HUGE_MIB:
    CANNOT = f"the last-level cache has {host.last_cache_mib()} MiB, the paper's {HUGE_MIB}; LB+-Tree and " \
             "Montage-B+tree are not built, either"
else:
    NEEDS = ("LB+-Tree", "Montage-B+tree")
