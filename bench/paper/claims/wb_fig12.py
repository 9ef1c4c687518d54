"""Bits, energy, flushes and fences on phase-change memory."""

ID = "wb:fig12"
PAPER = "bits modified, energy (2 pJ a bit read, 16 pJ a bit written); fences as Table 3, flushes above it"
NEEDS = ("a model of PCM", "undo-redo logged B+-tree", "shadowed B+-tree")
