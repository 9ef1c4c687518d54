"""What clflush and mfence cost."""

ID = "wb:fig4"
PAPER = "cost of clflush and mfence on sequential and random writes, a fence every 1 to 16 records"
NEEDS = ("a microbenchmark of the instructions",)
