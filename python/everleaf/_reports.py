"""Figures and reports: what the store tells about itself. ``dataclasses.asdict`` makes dicts of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Optional


class Epochs(NamedTuple):
    """The clock of a buffered store; it stands at 0 in strict ones, and before there is a table."""

    now: int
    """Calls that begin now belong to it, and those that returned to it or to one before."""
    durable: int
    """A crash loses nothing of it and of those before."""


@dataclass(frozen=True)
class StoreInfo:
    """Figures of a store."""

    path: Optional[str]
    """None: in memory."""
    durability: str
    domain: str
    """What survives: docs/media-model.md."""
    domain_reason: str
    """Why it is that one, in a sentence."""
    emulated: bool
    """The domain is stronger than the device gives, by request."""
    read_only: bool
    clean: bool
    """The store had been closed properly before it was opened."""
    from_image: bool
    """What is in use was known at opening; otherwise all keys were walked."""
    file_bytes: int
    heap_bytes: int
    """Of the file, handed out so far."""
    block_bytes: int
    """Of the heap, in use; memory for values included."""
    lost_blocks: int
    """Freed while memory was out, and not used again until the store is opened again."""
    record_bytes: int
    """Memory for values, all of it; what is not in use is free for values of any table."""
    record_bytes_used: int
    """Values with their checksums, rounded up to their blocks, those that wait to be free included;
    read-only: what the tables name."""
    records: int
    """Likewise."""
    records_waiting: int
    """Of them: given up, and free when the epoch is durable and nobody reads them any more."""
    open_ns: int
    """What opening took."""
    problems: "list[str]"
    """What is damaged: tables that could not be opened, or could not be walked."""


@dataclass(frozen=True)
class TableStats:
    """Figures of a table."""

    name: str
    spec: str
    """Its tree, with every option."""
    keys: int
    height: int
    inner_nodes: int
    leaf_nodes: int
    tree_bytes: int
    """Blocks of the tree in the file, those of its keys included."""
    dram_bytes: int
    value_bytes: int
    """Sum of the values' lengths."""


@dataclass(frozen=True)
class RepairedTable:
    """What repair() read of a table."""

    name: str
    spec: str
    keys: type
    """bytes or int."""
    read: int
    """Entries that its tree has, as good as before the damage."""
    damaged_values: int
    """Keys of the tree whose value is lost."""
    found: int
    """Entries found without the tree, which is damaged: each was put once, but may be older than the
    last value of its key, or of a key that was removed since."""
    unclear: int
    """Of these: with several values, of which one was taken."""
    problems: "list[str]"


@dataclass(frozen=True)
class RepairReport:
    """What repair() found and read."""

    sound: bool
    """Everything was read, and there was no damage."""
    tables: "list[RepairedTable]"
    problems: "list[str]"
    """Of the whole store."""
