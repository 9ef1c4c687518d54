"""Threads that write at a time."""

import host

ID = "lo:fig13"
PAPER = "threads writing to NVM at a time: held near four"
if host.cores() <= 4:
    CANNOT = f"more threads than four have to run at once; cores that can be used: {host.cores()}"
else:
    NEEDS = ("a figure of how many threads write at a time",)
