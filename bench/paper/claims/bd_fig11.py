"""NVM traffic on the traces."""

ID = "bd:fig11"
PAPER = "against LB+-Tree: t2 -99 %, t3 writes +10 %"
NEEDS = ("traces t1, t2, t3", "a model of the caches and the medium", "LB+-Tree", "Montage-B+tree")
