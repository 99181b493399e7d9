"""Owns the kernel's inotify: a descriptor, watches on directories, events as tuples.

Called by tree_watch. Invariant: failures keep their errno, and `ctypes` itself is not imported (8 ms, 1.5 MB): the two
classes below are all that is needed of it.
"""

from __future__ import annotations

import _ctypes
import os
from struct import Struct

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

MODIFY, ATTRIB, MOVED_FROM, MOVED_TO, CREATE, DELETE = 0x2, 0x4, 0x40, 0x80, 0x100, 0x200
DELETE_SELF, MOVE_SELF, OVERFLOW, IGNORED, IS_DIR = 0x400, 0x800, 0x4000, 0x8000, 0x40000000
_ONLY_DIR, _DONT_FOLLOW, _EXCL_UNLINK = 0x01000000, 0x02000000, 0x04000000
_WANTED = MODIFY | ATTRIB | MOVED_FROM | MOVED_TO | CREATE | DELETE | DELETE_SELF | MOVE_SELF
_MASK = _WANTED | _ONLY_DIR | _DONT_FOLLOW | _EXCL_UNLINK
_EVENT = Struct("iIII")
_BUFFER = 64 * 1024

Event = tuple[int, int, int, bytes]
"""(watch, mask, cookie, name)"""


class _Int(_ctypes._SimpleCData):  # type: ignore[misc, name-defined, type-arg, unused-ignore]
    _type_ = "i"


class _Call(_ctypes.CFuncPtr):  # type: ignore[misc, name-defined, unused-ignore]
    _flags_ = _ctypes.FUNCFLAG_CDECL | _ctypes.FUNCFLAG_USE_ERRNO  # type: ignore[attr-defined, unused-ignore]
    _restype_ = _Int


_libc = _ctypes.dlopen(None, 2)  # type: ignore[arg-type, unused-ignore]
_init, _add, _remove = (
    _Call(_ctypes.dlsym(_libc, name)) for name in ("inotify_init1", "inotify_add_watch", "inotify_rm_watch")
)


def _checked(value: Any) -> int:
    number = int(getattr(value, "value", value))
    if number < 0:
        code = _ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return number


class Inotify:
    """One inotify instance."""

    def __init__(self) -> None:
        self.fd = _checked(_init(os.O_CLOEXEC | os.O_NONBLOCK))

    def add(self, path: bytes) -> int:
        """Watches a directory; the same number again for the same directory, under whatever name."""
        return _checked(_add(self.fd, path, _MASK))

    def remove(self, watch: int) -> None:
        """Ends a watch; one that has ended already is fine."""
        _remove(self.fd, watch)

    def read(self) -> list[Event]:
        """The events that wait now."""
        try:
            data = os.read(self.fd, _BUFFER)
        except BlockingIOError:
            return []
        found: list[Event] = []
        at = 0
        while at < len(data):
            watch, mask, cookie, length = _EVENT.unpack_from(data, at)
            at += _EVENT.size
            found.append((watch, mask, cookie, data[at : at + length].rstrip(b"\0")))
            at += length
        return found
