"""Sorted dictionaries in a file, which survive a crash.

    import everleaf

    with everleaf.open("data.everleaf") as store:
        users = store.table("users")
        users[b"ada"] = b"Countess of Lovelace"
        store.sync()                        # durable now; otherwise within 0.1 s
        for key, value in users[b"a":b"b"].items():
            print(key, value)

Keys are bytes (any object with the buffer protocol), or integers from 0 to 2**64 - 1 in tables
that were made so; values are bytes. Threads may share everything: calls let go of the
interpreter's lock. After fork() the child has to open a store of its own.
"""

from __future__ import annotations

import os
from types import TracebackType
from typing import (
    Any,
    Generic,
    ItemsView,
    Iterator,
    KeysView,
    Literal,
    Mapping,
    MutableMapping,
    Optional,
    Type,
    TypeVar,
    Union,
    ValuesView,
    cast,
    overload,
)

from . import _everleaf
from ._errors import (
    ClosedError,
    CorruptError,
    Error,
    ExistsError,
    ForkedError,
    LockedError,
    MissingError,
    ReadOnlyError,
    SpaceError,
    TooLongError,
)

__all__ = [
    "Batch",
    "ClosedError",
    "CorruptError",
    "Error",
    "ExistsError",
    "ForkedError",
    "LockedError",
    "MissingError",
    "Range",
    "ReadOnlyError",
    "SpaceError",
    "Store",
    "Table",
    "TooLongError",
    "memory",
    "open",
]

K = TypeVar("K", bytes, int)
D = TypeVar("D")
# What has the buffer protocol; typing has no name for it before Python 3.12.
Buffer = Union[bytes, bytearray, memoryview]

_PAGE = 128  # entries that an iterator copies at a time, at most


class _Items(ItemsView[K, bytes]):
    def __init__(self, of: "Range[K]") -> None:
        self._mapping = of

    _mapping: "Range[K]"

    def __iter__(self) -> Iterator["tuple[K, bytes]"]:
        return self._mapping._walk(False, True)

    def __reversed__(self) -> Iterator["tuple[K, bytes]"]:
        return self._mapping._walk(True, True)


class _Keys(KeysView[K]):
    def __init__(self, of: "Range[K]") -> None:
        self._mapping = of

    _mapping: "Range[K]"

    def __iter__(self) -> Iterator[K]:
        return iter(self._mapping)

    def __reversed__(self) -> Iterator[K]:
        return reversed(self._mapping)


class _Values(ValuesView[bytes], Generic[K]):
    def __init__(self, of: "Range[K]") -> None:
        self._mapping = of

    _mapping: "Range[K]"

    def __iter__(self) -> Iterator[bytes]:
        return (value for _, value in self._mapping._walk(False, True))

    def __reversed__(self) -> Iterator[bytes]:
        return (value for _, value in self._mapping._walk(True, True))


class Range(Mapping[K, bytes]):
    """The entries of a table with ``start <= key < stop``, in key order; a view, not a copy.

    Iterators stay valid while others write: keys that are there all the time are met once,
    entries that come or go meanwhile perhaps. ``len()`` walks the range.
    """

    def __init__(self, table: "Table[K]", start: Optional[K], stop: Optional[K]) -> None:
        self._table: "Table[K]" = table
        self._start: Optional[K] = start
        self._stop: Optional[K] = stop

    def _walk(self, reverse: bool, values: bool) -> Iterator[Any]:
        after: Optional[K] = None
        wanted = 1  # who asks for the first entry alone gets no more
        while True:
            page = self._table._core.entries(
                self._start, self._stop, after, wanted, reverse, values
            )
            if not page:
                return
            yield from page
            after = page[-1][0] if values else page[-1]
            wanted = min(2 * wanted, _PAGE)

    def _holds(self, key: Any) -> bool:
        return (self._start is None or bytes_or_int(key) >= self._start) and (
            self._stop is None or bytes_or_int(key) < self._stop
        )

    def __iter__(self) -> Iterator[K]:
        return self._walk(False, False)

    def __reversed__(self) -> Iterator[K]:
        return self._walk(True, False)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __bool__(self) -> bool:
        return next(iter(self), None) is not None

    def __contains__(self, key: object) -> bool:
        return self._holds(key) and key in self._table

    def __getitem__(self, key: K) -> bytes:
        value = self._table.get(key) if self._holds(key) else None
        if value is None:
            raise KeyError(key)
        return value

    def keys(self) -> KeysView[K]:
        """Keys in order; ``reversed()`` of it works, too."""
        return _Keys(self)

    def values(self) -> ValuesView[bytes]:
        """Values in the order of their keys; ``reversed()`` of it works, too."""
        return _Values(self)

    def items(self) -> ItemsView[K, bytes]:
        """Pairs in key order; ``reversed()`` of it works, too."""
        return _Items(self)

    def first(self) -> "Optional[tuple[K, bytes]]":
        """The pair with the smallest key, or None."""
        return next(iter(self.items()), None)

    def last(self) -> "Optional[tuple[K, bytes]]":
        """The pair with the largest key, or None."""
        return next(self._walk(True, True), None)

    def __repr__(self) -> str:
        return f"<everleaf.Range of {self._table.name!r} from {self._start!r} to {self._stop!r}>"


def bytes_or_int(key: Any) -> Any:
    """The key in the form in which keys compare."""
    return key if isinstance(key, int) else bytes(key)


class Table(MutableMapping[K, bytes]):
    """A sorted dictionary of the store; ``table[a:b]`` is the Range of ``a <= key < b``.

    Single calls are atomic, and durable as the store's are. Thread-safe.
    """

    def __init__(self, store: "Store", core: Any) -> None:
        self._store = store
        self._core = core

    @property
    def name(self) -> str:
        """Its name in the store."""
        return cast(str, self._core.name)

    @property
    def store(self) -> "Store":
        """The store that it is in."""
        return self._store

    @overload
    def __getitem__(self, key: K) -> bytes: ...
    @overload
    def __getitem__(self, key: slice) -> Range[K]: ...

    def __getitem__(self, key: Union[K, slice]) -> Union[bytes, Range[K]]:
        if isinstance(key, slice):
            return self._range(key)
        value = self._core.get(key)
        if value is None:
            raise KeyError(key)
        return cast(bytes, value)

    def __setitem__(self, key: K, value: Buffer) -> None:
        self._core.put(key, value)

    def __delitem__(self, key: Union[K, slice]) -> None:
        if isinstance(key, slice):
            self._erase_all(self._range(key))
        elif not self._core.erase(key):
            raise KeyError(key)

    def __contains__(self, key: object) -> bool:
        return cast(bool, self._core.contains(key))

    def __iter__(self) -> Iterator[K]:
        return iter(self._all())

    def __reversed__(self) -> Iterator[K]:
        return reversed(self._all())

    def __len__(self) -> int:
        """Number of keys: walks the leaves."""
        return cast(int, self._core.count())

    def __bool__(self) -> bool:
        return bool(self._all())

    @overload
    def get(self, key: K) -> Optional[bytes]: ...
    @overload
    def get(self, key: K, default: D) -> Union[bytes, D]: ...

    def get(self, key: K, default: Any = None) -> Any:
        """The value of the key, or `default`."""
        value = self._core.get(key)
        return default if value is None else value

    def get_into(self, key: K, buffer: Union[bytearray, memoryview]) -> Optional[int]:
        """Copies as much of the value as fits into `buffer`, without an object of its own.

        Returns the length of the whole value, or None if the key is not there.
        """
        return cast(Optional[int], self._core.get_into(key, buffer))

    def insert(self, key: K, value: Buffer) -> bool:
        """Puts the value if the key is not there; whether it did."""
        return cast(bool, self._core.insert(key, value))

    def replace(self, key: K, value: Buffer) -> bool:
        """Puts the value if the key is there; whether it did."""
        return cast(bool, self._core.update(key, value))

    def discard(self, key: K) -> bool:
        """Removes the key; whether it was there."""
        return cast(bool, self._core.erase(key))

    def compare_and_set(
        self, key: K, expected: Optional[Buffer], desired: Optional[Buffer]
    ) -> bool:
        """Puts `desired` (None: removes the key) if the value is `expected` (None: is not there).

        Whether it was so. Atomic: no other write comes between.
        """
        return cast(bool, self._core.compare_and_set(key, expected, desired))

    def setdefault(self, key: K, default: Buffer = b"") -> bytes:
        """The value of the key; if it is not there, `default`, which is put. Atomic."""
        while True:
            value = self._core.get(key)
            if value is not None:
                return cast(bytes, value)
            if self._core.insert(key, default):
                return bytes(default)

    def pop(self, key: K, *default: Any) -> Any:
        """Removes the key and returns its value; without it `default`, or KeyError. Atomic."""
        if len(default) > 1:
            raise TypeError("pop() takes a key and one default")
        while True:
            value = self._core.get(key)
            if value is None:
                if default:
                    return default[0]
                raise KeyError(key)
            if self._core.compare_and_set(key, value, None):
                return value

    def popitem(self, last: bool = True) -> "tuple[K, bytes]":
        """Removes and returns the pair with the largest key, or the smallest. Atomic."""
        everything = self._all()
        while True:
            pair = everything.last() if last else everything.first()
            if pair is None:
                raise KeyError("the table is empty")
            if self._core.compare_and_set(pair[0], pair[1], None):
                return pair

    def clear(self) -> None:
        """Removes all keys, one after the other."""
        self._erase_all(self._all())

    def keys(self, start: Optional[K] = None, stop: Optional[K] = None) -> KeysView[K]:
        """Keys from `start` to below `stop`, in order."""
        return Range(self, start, stop).keys()

    def values(self, start: Optional[K] = None, stop: Optional[K] = None) -> ValuesView[bytes]:
        """Values of those keys, in the keys' order."""
        return Range(self, start, stop).values()

    @overload
    def items(
        self, start: Optional[K] = None, stop: Optional[K] = None, reverse: Literal[False] = False
    ) -> ItemsView[K, bytes]: ...
    @overload
    def items(
        self, start: Optional[K] = None, stop: Optional[K] = None, *, reverse: Literal[True]
    ) -> Iterator["tuple[K, bytes]"]: ...

    def items(
        self, start: Optional[K] = None, stop: Optional[K] = None, reverse: bool = False
    ) -> Any:
        """Pairs with ``start <= key < stop``; `reverse`: an iterator from the largest key down."""
        items = Range(self, start, stop).items()
        return reversed(cast(Any, items)) if reverse else items

    def prefix(self: "Table[bytes]", prefix: Buffer) -> Range[bytes]:
        """The entries whose keys begin with these bytes."""
        first = bytes(prefix)
        stem = first.rstrip(b"\xff")
        stop = stem[:-1] + bytes([stem[-1] + 1]) if stem else None
        return Range(self, first, stop)

    def stats(self) -> "dict[str, Any]":
        """Keys, height, nodes and bytes; walks the table."""
        return cast("dict[str, Any]", self._core.stats())

    def _all(self) -> Range[K]:
        return Range(self, None, None)

    def _range(self, of: slice) -> Range[K]:
        if of.step is not None:
            raise ValueError("a slice of a table has no step")
        return Range(self, of.start, of.stop)

    def _erase_all(self, entries: Range[K]) -> None:
        for key in entries:
            self._core.erase(key)

    def __repr__(self) -> str:
        return f"<everleaf.Table {self.name!r}>"


class Batch:
    """Writes that happen together when the ``with`` block ends: all of them, whatever crashes.

    An exception in the block, or a refusal at its end, drops them. The last write of a key counts.
    Not for two threads.
    """

    def __init__(self, core: Any) -> None:
        self._core = core

    def put(self, table: "Table[K]", key: K, value: Buffer) -> None:
        """`table[key] = value`, with the others."""
        self._core.put(table._core, key, value)

    def erase(self, table: "Table[K]", key: K) -> None:
        """Removes the key, if it is there, with the others."""
        self._core.erase(table._core, key)

    def __len__(self) -> int:
        return len(self._core)

    def __enter__(self) -> "Batch":
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        try:
            if kind is None:
                self._core.apply()
        finally:
            self._core.clear()


class Store:
    """A file of tables; made by `open()` and `memory()`. Close it, or use it in a ``with`` block."""

    def __init__(self, core: Any) -> None:
        self._core = core

    @overload
    def table(self, name: str, *, spec: str = "") -> Table[bytes]: ...
    @overload
    def table(self, name: str, keys: Type[bytes], *, spec: str = "") -> Table[bytes]: ...
    @overload
    def table(self, name: str, keys: Type[int], *, spec: str = "") -> Table[int]: ...

    def table(self, name: str, keys: Any = bytes, *, spec: str = "") -> Any:
        """Opens a table, or makes it: with keys of `bytes` or `int`, in the tree of `spec`."""
        if keys is bytes:
            return Table(self, self._core.bytes_table(name, spec))
        if keys is int:
            return Table(self, self._core.u64_table(name, spec))
        raise TypeError("keys is bytes or int")

    def tables(self) -> "dict[str, type]":
        """The type of the keys of each table, by name."""
        types = {"bytes": bytes, "u64": int}
        return {name: types[kind] for name, _, kind in self._core.tables()}

    def drop_table(self, name: str) -> None:
        """The table with its entries goes; a crash leaves it whole or gone."""
        self._core.drop_table(name)

    def batch(self) -> Batch:
        """``with store.batch() as batch: batch.put(table, key, value)``: see Batch."""
        return Batch(self._core.batch())

    def sync(self) -> None:
        """Everything that returned before is durable afterwards."""
        self._core.sync()

    def backup(self, path: "Union[str, os.PathLike[str]]") -> None:
        """Copies everything, as it is at one instant of the call, to a new file; others may write."""
        self._core.backup(os.fspath(path))

    def check(self) -> "list[str]":
        """What is damaged, in sentences; nobody may write meanwhile. Reads all of the file."""
        return cast("list[str]", self._core.check())

    def info(self) -> "dict[str, Any]":
        """Path, durability, domain and why, sizes."""
        return cast("dict[str, Any]", self._core.info())

    @property
    def closed(self) -> bool:
        """Whether close() was called."""
        return cast(bool, self._core.closed)

    def close(self) -> None:
        """Makes everything durable and lets go of the file. Waits for calls of other threads."""
        self._core.close()

    def __enter__(self) -> "Store":
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return "<everleaf.Store, closed>" if self.closed else f"<everleaf.Store {self.info()['path']!r}>"


Mode = Literal["open_or_create", "create", "open", "read_only"]
Durability = Literal["buffered", "strict"]
Domain = Literal["volatile", "process", "cache", "memory", "disk"]


def open(
    path: "Union[str, os.PathLike[str]]",
    mode: Mode = "open_or_create",
    *,
    durability: Optional[Durability] = None,
    domain: Optional[Domain] = None,
    emulate: bool = False,
    epoch_seconds: float = 0.05,
    max_bytes: int = 0,
    private_bytes: Optional[int] = None,
) -> Store:
    """Opens a store, or makes one.

    durability: of a new store. "buffered" (default): calls return at memory speed, a crash loses at
    most the last two epochs, never a part of a batch; "strict": durable when a call returns.
    domain: what survives; found out from the file if None. emulate: allow a domain that the device
    does not give. epoch_seconds: 0 to 10; 0: nothing is durable before sync(). max_bytes: cap on the
    file's size, 0 for none. private_bytes: on a disk, how much of the file from its start may be a
    private copy of its pages, written by system calls; 0 for none, None for a quarter of the memory.
    """
    return Store(
        _everleaf.Store(
            os.fspath(path),
            mode,
            durability,
            domain,
            emulate,
            epoch_seconds,
            max_bytes,
            private_bytes,
        )
    )


def memory(
    *, durability: Optional[Durability] = None, epoch_seconds: float = 0.05, max_bytes: int = 0
) -> Store:
    """A store in memory, gone when it is closed."""
    return Store(
        _everleaf.Store(
            None, "open_or_create", durability, None, False, epoch_seconds, max_bytes, None
        )
    )
