"""A processor with a huge cache."""

ID = "bd:cache"
PAPER = "one thread, 768 MiB of L3: 1.1-1.6x over LB+-Tree and Montage-B+tree on U2 and t3"
CANNOT = "no processor with a cache of 768 MiB; LB+-Tree and Montage-B+tree are not built, either"
