"""Threads that write at a time."""

ID = "lo:fig13"
PAPER = "threads writing to NVM at a time: held near four"
CANNOT = "more threads than four have to run at once; there are 2 cores"
