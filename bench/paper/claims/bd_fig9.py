"""NVM traffic."""

ID = "bd:fig9"
PAPER = "2:8, against LB+-Tree: U1 about -90 %; L1, Z1, Z2 writes -30 to -44 %, reads -6 to -24 %; U2 " \
        "writes +12 %, reads +9 %"
NEEDS = ("a model of the caches and the medium", "LB+-Tree", "Montage-B+tree")
