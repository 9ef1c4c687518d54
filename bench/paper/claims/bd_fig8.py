"""Range queries by size."""

ID = "bd:fig8"
PAPER = "better for long ranges, FAST+FAIR better for short ones"
NEEDS = ("FAST+FAIR", "LB+-Tree", "Montage-B+tree")
