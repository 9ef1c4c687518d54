"""Sorted dictionaries in a file, which survive a crash.

    import everleaf

    with everleaf.open("data.everleaf") as store:
        users = store.table("users")
        users[b"ada"] = b"Countess of Lovelace"
        store.sync()                        # durable now; otherwise within 0.1 s
        for key, value in users[b"a":b"b"].items():
            print(key, value)

Keys are bytes (any object with the buffer protocol), or integers from 0 to 2**64 - 1 in tables
that were made so; values are bytes. Threads may share everything but iterators and batches: calls
let go of the interpreter's lock. After fork() the child has to open a store of its own, and after
close() every call raises ClosedError.

What is refused is an `Error`, and has changed nothing. Any call may raise CorruptError (damage was
noticed: see `Store.check()` and `repair()`), ClosedError, ForkedError; writes also SpaceError,
TooLongError, ReadOnlyError, DeviceError. Keys and values of another type are a TypeError, integers
that are no key an OverflowError.
"""

from __future__ import annotations

import operator
import os
from types import TracebackType
from typing import (
    TYPE_CHECKING,
    Any,
    Generic,
    ItemsView,
    Iterable,
    Iterator,
    KeysView,
    Literal,
    Mapping,
    MutableMapping,
    NoReturn,
    Optional,
    Protocol,
    Type,
    TypeVar,
    Union,
    ValuesView,
    cast,
    overload,
)

from . import _everleaf
from ._errors import (
    AccessError,
    ClosedError,
    CorruptError,
    DeviceError,
    Error,
    ExistsError,
    ForkedError,
    LockedError,
    MissingError,
    OptionError,
    ReadOnlyError,
    SpaceError,
    TooLongError,
)
from ._reports import Epochs, RepairedTable, RepairReport, StoreInfo, TableStats

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = [
    "AccessError",
    "Batch",
    "ClosedError",
    "CorruptError",
    "DeviceError",
    "Epochs",
    "Error",
    "ExistsError",
    "ForkedError",
    "LockedError",
    "MissingError",
    "OptionError",
    "Range",
    "ReadOnlyError",
    "RepairReport",
    "RepairedTable",
    "SpaceError",
    "Store",
    "StoreInfo",
    "Table",
    "TableStats",
    "TooLongError",
    "memory",
    "open",
    "repair",
]

K = TypeVar("K", bytes, int)
D = TypeVar("D")
# What names a file: os.fsencode() takes it.
StrPath = Union[str, bytes, "os.PathLike[str]", "os.PathLike[bytes]"]
Mode = Literal["open_or_create", "create", "open", "read_only"]
Durability = Literal["buffered", "strict"]
Domain = Literal["volatile", "process", "cache", "memory", "disk"]

_PAGE = 128  # entries that an iterator copies at a time, at most
_LAST = 2**64 - 1  # the largest integer key
_KEYS: "dict[str, type]" = {"bytes": bytes, "u64": int}  # by the library's names


class _TableCore(Protocol[K]):
    """What the tables of the extension have in common."""

    @property
    def name(self) -> str: ...
    def get(self, key: K) -> Optional[bytes]: ...
    def get_into(self, key: K, into: Buffer) -> Optional[int]: ...
    def contains(self, key: K) -> bool: ...
    def put(self, key: K, value: Buffer) -> None: ...
    def insert(self, key: K, value: Buffer) -> bool: ...
    def update(self, key: K, value: Buffer) -> bool: ...
    def erase(self, key: K) -> bool: ...
    def compare_and_set(
        self, key: K, expected: Optional[Buffer], desired: Optional[Buffer]
    ) -> bool: ...
    def count(self) -> int: ...
    def keys(
        self, start: Optional[K], stop: Optional[K], after: Optional[K], limit: int, reverse: bool
    ) -> "list[K]": ...
    def items(
        self, start: Optional[K], stop: Optional[K], after: Optional[K], limit: int, reverse: bool
    ) -> "list[tuple[K, bytes]]": ...
    def stats(self) -> "dict[str, Any]": ...


class _OfThisProcess:
    """Objects that stand on an open file: no pickle, no copy."""

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"a {type(self).__name__} is of this process and this open store: it cannot be pickled "
            "or copied; dict() copies entries"
        )


class _Items(ItemsView[K, bytes]):
    def __init__(self, of: "Range[K]") -> None:
        self._mapping = of

    _mapping: "Range[K]"

    def __iter__(self) -> Iterator["tuple[K, bytes]"]:
        return self._mapping._pairs(False)

    def __reversed__(self) -> Iterator["tuple[K, bytes]"]:
        return self._mapping._pairs(True)


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

    def __contains__(self, value: object) -> bool:
        return any(one == value for one in self)  # not by key: one may go meanwhile

    def __iter__(self) -> Iterator[bytes]:
        return (value for _, value in self._mapping._pairs(False))

    def __reversed__(self) -> Iterator[bytes]:
        return (value for _, value in self._mapping._pairs(True))


class Range(_OfThisProcess, Mapping[K, bytes]):
    """The entries of a table with ``start <= key < stop``, in key order; a view, not a copy.

    Iterators stay valid while others write: keys that are there all the time are met once,
    entries that come or go meanwhile perhaps. They copy up to 128 entries at a time, and after
    close() raise ClosedError behind those that they have. One thread at a time may use one.
    ``len()`` and comparisons walk the range.
    """

    def __init__(self, table: "Table[K]", start: Optional[K], stop: Optional[K]) -> None:
        self._table: "Table[K]" = table
        low: Any = None if start is None else table._plain(start)
        high: Any = None if stop is None else table._plain(stop)
        if table.key_type is int:  # bounds may be integers that no key can be
            if (high is not None and high <= 0) or (low is not None and low > _LAST):
                low = high = 0
            elif low is not None and low < 0:
                low = None
            if high is not None and high > _LAST:
                high = None
        self._start: Optional[K] = low
        self._stop: Optional[K] = high

    def _keys(self, reverse: bool) -> Iterator[K]:
        after: Optional[K] = None
        for limit in _limits():
            page = self._table._core.keys(self._start, self._stop, after, limit, reverse)
            if not page:
                return
            yield from page
            after = page[-1]

    def _pairs(self, reverse: bool) -> "Iterator[tuple[K, bytes]]":
        after: Optional[K] = None
        for limit in _limits():
            page = self._table._core.items(self._start, self._stop, after, limit, reverse)
            if not page:
                return
            yield from page
            after = page[-1][0]

    def _holds(self, key: Any) -> bool:
        plain = self._table._plain(key)
        return (self._start is None or plain >= self._start) and (
            self._stop is None or plain < self._stop
        )

    def __iter__(self) -> Iterator[K]:
        return self._keys(False)

    def __reversed__(self) -> Iterator[K]:
        return self._keys(True)

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
        """Keys in order; ``reversed()`` of them works, too."""
        return _Keys(self)

    def values(self) -> ValuesView[bytes]:
        """Values in the order of their keys; ``reversed()`` of them works, too."""
        return _Values(self)

    def items(self) -> ItemsView[K, bytes]:
        """Pairs in key order; ``reversed()`` of them works, too."""
        return _Items(self)

    def first(self) -> "Optional[tuple[K, bytes]]":
        """The pair with the smallest key, or None. O(log n)."""
        return next(iter(self.items()), None)

    def last(self) -> "Optional[tuple[K, bytes]]":
        """The pair with the largest key, or None. O(log n)."""
        return next(self._pairs(True), None)

    def __repr__(self) -> str:
        return f"<everleaf.Range of {self._table.name!r} from {self._start!r} to {self._stop!r}>"


def _limits() -> Iterator[int]:
    """How much an iterator copies at a time: who asks for the first entry alone gets no more."""
    limit = 1
    while True:
        yield limit
        limit = min(2 * limit, _PAGE)


class Table(_OfThisProcess, MutableMapping[K, bytes]):
    """A sorted dictionary of the store; ``table[a:b]`` is the Range of ``a <= key < b``.

    Single calls are atomic, O(log n), and durable as the store's are; `update()`, ``|=``, `clear()`
    and ``del table[a:b]`` are many calls: a `Batch` makes one of them. Thread-safe. After
    `Store.drop_table()` every call raises ClosedError.
    """

    def __init__(self, store: "Store", core: "_TableCore[K]", key_type: "Type[K]") -> None:
        self._store = store
        self._core: "_TableCore[K]" = core
        self._key_type: "Type[K]" = key_type

    @property
    def name(self) -> str:
        """Its name in the store."""
        return self._core.name

    @property
    def key_type(self) -> "Type[K]":
        """`bytes` or `int`."""
        return self._key_type

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
        return value

    def __setitem__(self, key: K, value: Buffer) -> None:
        self._core.put(key, value)

    def __delitem__(self, key: Union[K, slice]) -> None:
        if isinstance(key, slice):
            self._erase_all(self._range(key))
        elif not self._core.erase(key):
            raise KeyError(key)

    def __contains__(self, key: object) -> bool:
        return self._core.contains(cast(K, key))

    def __iter__(self) -> Iterator[K]:
        return iter(self._all())

    def __reversed__(self) -> Iterator[K]:
        return reversed(self._all())

    def __len__(self) -> int:
        """Number of keys: walks the leaves."""
        return self._core.count()

    def __bool__(self) -> bool:
        return bool(self._all())

    def __ior__(self, other: "Union[Mapping[K, bytes], Iterable[tuple[K, bytes]]]") -> "Table[K]":
        self.update(other)
        return self

    @overload
    def get(self, key: K) -> Optional[bytes]: ...
    @overload
    def get(self, key: K, default: D) -> Union[bytes, D]: ...

    def get(self, key: K, default: Any = None) -> Any:
        """The value of the key, or `default`."""
        value = self._core.get(key)
        return default if value is None else value

    def get_into(self, key: K, buffer: Buffer) -> Optional[int]:
        """Copies as much of the value as fits into `buffer`, without an object of its own.

        Returns the length of the whole value, or None if the key is not there. BufferError: the
        buffer cannot be written to.
        """
        return self._core.get_into(key, buffer)

    def insert(self, key: K, value: Buffer) -> bool:
        """Puts the value if the key is not there; whether it did."""
        return self._core.insert(key, value)

    def replace(self, key: K, value: Buffer) -> bool:
        """Puts the value if the key is there; whether it did."""
        return self._core.update(key, value)

    def discard(self, key: K) -> bool:
        """Removes the key; whether it was there."""
        return self._core.erase(key)

    def compare_and_set(
        self, key: K, expected: Optional[Buffer], desired: Optional[Buffer]
    ) -> bool:
        """Puts `desired` (None: removes the key) if the value is `expected` (None: is not there).

        Whether it was so. Atomic: no other write comes between.
        """
        return self._core.compare_and_set(key, expected, desired)

    def setdefault(self, key: K, default: Buffer = b"") -> bytes:
        """The value of the key; if it is not there, `default`, which is put. Atomic."""
        while True:
            value = self._core.get(key)
            if value is not None:
                return value
            if self._core.insert(key, default):
                return bytes(memoryview(default))

    @overload
    def pop(self, key: K) -> bytes: ...
    @overload
    def pop(self, key: K, default: D) -> Union[bytes, D]: ...

    def pop(self, key: K, *default: Any, **named: Any) -> Any:
        """Removes the key and returns its value; without it `default`, or KeyError. Atomic."""
        default += tuple(named.pop(name) for name in ("default",) if name in named)
        if named or len(default) > 1:
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
        """Removes and returns the pair with the largest key, or the smallest. Atomic.

        KeyError: the table is empty.
        """
        everything = self._all()
        while True:
            pair = everything.last() if last else everything.first()
            if pair is None:
                raise KeyError("the table is empty")
            if self._core.compare_and_set(pair[0], pair[1], None):
                return pair

    def clear(self) -> None:
        """Removes all keys, one after the other; `Store.drop_table()` is one step."""
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
        if self._key_type is int:
            raise TypeError("prefixes are of bytes: the keys of this table are integers")
        first: bytes = self._plain(prefix)
        stem = first.rstrip(b"\xff")
        stop = stem[:-1] + bytes([stem[-1] + 1]) if stem else None
        return Range(self, first, stop)

    def stats(self) -> TableStats:
        """Keys, height, nodes and bytes; walks the table."""
        return TableStats(**self._core.stats())

    def _plain(self, key: Any) -> Any:
        """The key in the form in which keys compare, and do not change."""
        return operator.index(key) if self._key_type is int else bytes(memoryview(key))

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
        return f"<everleaf.Table {self.name!r}, keys: {self._key_type.__name__}>"


class Batch(_OfThisProcess):
    """Writes that happen together when the ``with`` block ends: all of them, whatever crashes.

    An exception in the block, or a refusal at its end, drops them: TooLongError (a key or a value,
    more than 65536 writes or 64 MiB), SpaceError, ... The last write of a key counts. Readers may
    see a part of a batch. It copies what it is given, and may be used again. Not for two threads.
    """

    def __init__(self, core: _everleaf.Batch) -> None:
        self._core = core

    def put(self, table: "Table[K]", key: K, value: Buffer) -> None:
        """`table[key] = value`, with the others. ValueError: the table is of another store."""
        self._core.put(self._table(table), key, value)

    def erase(self, table: "Table[K]", key: K) -> None:
        """Removes the key, if it is there, with the others."""
        self._core.erase(self._table(table), key)

    @staticmethod
    def _table(table: "Table[K]") -> Any:
        if not isinstance(table, Table):
            raise TypeError("a batch writes to tables of its store")
        return table._core

    def __len__(self) -> int:
        """Number of writes so far."""
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

    def __repr__(self) -> str:
        return "<everleaf.Batch>"


class Store(_OfThisProcess):
    """A file of tables; made by `open()` and `memory()`. Close it, or use it in a ``with`` block.

    Thread-safe.
    """

    def __init__(self, core: _everleaf.Store) -> None:
        if not isinstance(core, _everleaf.Store):
            raise TypeError("everleaf.open() and everleaf.memory() make stores")
        self._core = core

    @property
    def path(self) -> Optional[str]:
        """The file as it was named to open(), in the form of os.fsdecode(); None: in memory."""
        path = self._core.path
        return None if path is None else os.fsdecode(path)

    @overload
    def table(self, name: str, *, spec: str = "") -> Table[bytes]: ...
    @overload
    def table(self, name: str, keys: Type[bytes], *, spec: str = "") -> Table[bytes]: ...
    @overload
    def table(self, name: str, keys: Type[int], *, spec: str = "") -> Table[int]: ...

    def table(
        self, name: str, keys: Any = bytes, *, spec: str = ""
    ) -> "Union[Table[bytes], Table[int]]":
        """Opens a table, or makes it: with keys of `bytes` or `int`, in the tree of `spec`.

        OptionError: the table has the other keys or another tree, or the name is longer than 63
        bytes. SpaceError: there are 63 tables. MissingError: read-only, and it is not there.
        """
        if keys is bytes:
            return Table(self, self._core.bytes_table(name, spec), bytes)
        if keys is int:
            return Table(self, self._core.u64_table(name, spec), int)
        raise TypeError("keys is bytes or int")

    def tables(self) -> "dict[str, type]":
        """The type of the keys of each table, by name."""
        return {name: _KEYS[kind] for name, _, kind in self._core.tables()}

    def drop_table(self, name: str) -> None:
        """The table with its entries goes; a crash leaves it whole or gone.

        Everything that returned before is durable then. O(n); waits for all other calls, and they
        for it. MissingError: there is none.
        """
        self._core.drop_table(name)

    def batch(self) -> Batch:
        """``with store.batch() as batch: batch.put(table, key, value)``: see Batch."""
        return Batch(self._core.batch())

    def sync(self) -> None:
        """Everything that returned before is durable afterwards. O(changes of two epochs)."""
        self._core.sync()

    def epochs(self) -> Epochs:
        """The epoch that runs, and the last one that is durable.

        What returned before belongs to ``epochs().now`` or to an earlier epoch: who waits for that
        one, with `wait_durable()`, acknowledges many calls at once, and makes nobody hurry.
        """
        return Epochs(*self._core.epochs())

    def wait_durable(self, epoch: int) -> None:
        """Waits until a crash loses nothing of this epoch: two epochs at most (`epoch_seconds`).

        Other threads go on meanwhile. Steps the clock itself if nobody else does
        (``epoch_seconds=0``). ValueError: the epoch has not begun.
        """
        self._core.wait_durable(epoch)

    def backup(self, path: StrPath) -> None:
        """Copies everything, as it is at one instant of the call, to a new file; others may write.

        None appears before it is whole. ExistsError: there is a file. O(store).
        """
        self._core.backup(os.fsencode(path))

    def check(self) -> "list[str]":
        """What is damaged, in sentences; nobody may write meanwhile. Reads all of the file."""
        return self._core.check()

    def info(self) -> StoreInfo:
        """Durability, domain and why, sizes. Walks the heap, and read-only all keys."""
        return StoreInfo(path=self.path, **self._core.info())

    @property
    def closed(self) -> bool:
        """Whether close() was called; in a child of fork(): True."""
        return self._core.closed

    def close(self) -> None:
        """Makes everything durable and lets go of the file. Waits for calls of other threads.

        Again: nothing happens. DeviceError: a write-back failed; it is closed all the same.
        """
        self._core.close()

    def __enter__(self) -> "Store":
        self._core.require_open()
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        where = "in memory" if self.path is None else repr(self.path)
        return f"<everleaf.Store {where}{', closed' if self.closed else ''}>"


def open(
    path: StrPath,
    mode: Mode = "open_or_create",
    *,
    durability: Optional[Durability] = None,
    domain: Optional[Domain] = None,
    emulate: bool = False,
    epoch_seconds: float = 0.05,
    max_bytes: int = 0,
    private_bytes: Optional[int] = None,
) -> Store:
    """Opens a store, or makes one. O(1) after close(), otherwise all keys are walked.

    mode: "create" must not find a file, "open" and "read_only" must; "read_only" never changes it,
    and any number of processes may do so at once.
    durability: of a new store. "buffered" (default): calls return at memory speed, a crash loses at
    most the last two epochs, never a part of a batch; "strict": durable when a call returns.
    domain: what survives; found out from the file if None. emulate: allow a domain that the device
    does not give. epoch_seconds: 0 to 10; 0: nothing is durable before sync(). max_bytes: cap on the
    file's size, 0 for none. private_bytes: on a disk, how much of the file from its start may be a
    private copy of its pages, written by system calls; 0 for none, None for a quarter of the memory.

    Errors: MissingError, ExistsError, LockedError (one process at a time has it open for writing),
    CorruptError (also what is no store at all), OptionError (another durability, ...), AccessError,
    SpaceError, DeviceError; ValueError for an option that is none.
    """
    return Store(
        _everleaf.Store(
            os.fsencode(path),
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


def repair(
    source: StrPath, target: StrPath, *, tables: "Optional[Mapping[str, type]]" = None
) -> RepairReport:
    """Copies what can be read of a damaged store into a new one; the source is not written to.

    No value is wrong: each fits the checksum over its table and key; what is uncertain about
    entries is in the report. `tables`: the type of the keys (`bytes` or `int`) of tables by name,
    for those whose directory entry is gone. O(file).

    Errors: MissingError (no such file, or no table and no value of one in it), ExistsError
    (`target`), LockedError (the source is open for writing), CorruptError (too short for a store),
    SpaceError.
    """
    names = {keys: name for name, keys in _KEYS.items()}
    for name, keys in (tables or {}).items():
        if not isinstance(name, str) or keys not in names:
            raise TypeError("tables: names, and the types of their keys, bytes or int")
    report = _everleaf.repair(
        os.fsencode(source),
        os.fsencode(target),
        [(name, names[keys]) for name, keys in (tables or {}).items()],
    )
    report["tables"] = [
        RepairedTable(**{**table, "keys": _KEYS[table["keys"]]}) for table in report["tables"]
    ]
    return RepairReport(**report)
