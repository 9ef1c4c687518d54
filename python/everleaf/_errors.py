"""What goes wrong, as exceptions: each has the library's `code`, and its sentence as message."""

from __future__ import annotations

from typing import Any, NoReturn


class Error(Exception):
    """Base of all: the store refused, and nothing was changed."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code

    def __reduce__(self) -> "tuple[Any, ...]":
        # From a process of a pool to the one that waits for it.
        return type(self), (self.code, str(self))


class CorruptError(Error):
    """The file, a table or a value is damaged."""


class SpaceError(Error):
    """The disk, the cap or memory is full."""


class TooLongError(Error, ValueError):
    """A key, a value or a batch is longer than a store takes."""


class LockedError(Error):
    """Another process, or this one, has the store open already."""


class ReadOnlyError(Error):
    """A write to what was opened read-only."""


class MissingError(Error, FileNotFoundError):
    """There is no such file, or no such table."""


class ExistsError(Error, FileExistsError):
    """A file that was to be made is there."""


class OptionError(Error, ValueError):
    """A name, a spec or an option that is none, or that does not fit what is there."""


class AccessError(Error, PermissionError):
    """The system refuses access to the file."""


class DeviceError(Error, OSError):
    """The system or the device failed; after a write-back that failed a store takes no more writes."""


class ClosedError(Error, ValueError):
    """The store was closed, or the table dropped."""


class ForkedError(Error, RuntimeError):
    """The store was opened before fork(): open it again in the child."""


_CLASSES: dict[str, type[Error]] = {
    "corrupt": CorruptError,
    "truncated": CorruptError,
    "not a pool": CorruptError,
    "empty file": CorruptError,
    "out of space": SpaceError,
    "key too long": TooLongError,
    "value too long": TooLongError,
    "batch too large": TooLongError,
    "locked": LockedError,
    "locked by this process": LockedError,
    "read-only": ReadOnlyError,
    "not found": MissingError,
    "exists": ExistsError,
    "wrong tree": OptionError,
    "wrong key type": OptionError,
    "unknown tree": OptionError,
    "unknown option": OptionError,
    "bad option": OptionError,
    "bad argument": OptionError,
    "domain too strong": OptionError,
    "permission": AccessError,
    "I/O error": DeviceError,
    "closed": ClosedError,
    "dropped": ClosedError,
    "forked": ForkedError,
}


def raise_error(code: str, message: str) -> NoReturn:
    """Raises the exception for a code of the library."""
    raise _CLASSES.get(code, Error)(code, message)
