"""Owns the way of a file's bytes out of the sandbox: facts first, then a range in pieces.

Called by the `file.read` operation, in steps. Invariant: only regular files are read, and opening one never waits;
exactly as many bytes are sent as were announced, or the call fails.
"""

from __future__ import annotations

import os
from stat import S_ISDIR, S_ISREG

from .paths import Rights, facts, refusal, shown
from .refusal import Refusal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .channel import Channel
    from .chore import Steps

PIECE = 128 * 1024
"""Bytes of one read: three of them fit the window that a channel begins with."""


class Reading:
    """One file, open. Refusal when it is not there, no file, or out of reach."""

    def __init__(self, path: bytes, start: int, count: int | None, rights: Rights) -> None:
        self._path = path
        with rights:
            self._fd = _open(path)
        try:
            self._plan(start, count)
        except BaseException:
            os.close(self._fd)
            raise

    def _plan(self, start: int, count: int | None) -> None:
        found = os.fstat(self._fd)
        self.facts = facts(found)
        self._first = b""
        size: int | None = found.st_size
        if size == 0:
            # Files of /proc have a size of 0 and contents; how much is only known at their end.
            self._first = self._read(0)
            size = None if self._first else 0
        if start < 0:
            start = max(0, (size or 0) + start)
        self._start = start
        left = None if size is None else max(0, size - start)
        self._count = count if left is None else left if count is None else min(count, left)
        self.facts |= {"size": size, "start": start, "count": self._count}

    def _read(self, at: int, most: int = PIECE) -> bytes:
        try:
            return os.pread(self._fd, most, at)
        except OSError as problem:
            raise refusal(problem, self._path) from None

    def steps(self, channel: Channel) -> Steps:
        """Announces, then reads."""
        sent, at = 0, self._start
        try:
            channel.head(self.facts)
            while self._count is None or sent < self._count:
                most = PIECE if self._count is None else min(PIECE, self._count - sent)
                piece = self._read(at, most)
                if not piece:
                    break
                at, sent = at + len(piece), sent + len(piece)
                yield piece
        finally:
            os.close(self._fd)
        if self._count is not None and sent < self._count:
            raise Refusal("FILESYSTEM_ERROR", f"{shown(self._path)} became shorter while it was read", errno="EIO")
        return {"count": sent}


def _open(path: bytes) -> int:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError as problem:
        raise refusal(problem, path) from None
    kind = os.fstat(fd).st_mode
    if S_ISREG(kind):
        return fd
    os.close(fd)
    if S_ISDIR(kind):
        raise Refusal("IS_DIRECTORY", f"{shown(path)} is a directory", path=shown(path), errno="EISDIR")
    raise Refusal("FILESYSTEM_ERROR", f"{shown(path)} is not a regular file", path=shown(path), errno="ENOTSUP")


def range_of(args: dict[str, Any]) -> tuple[int, int | None]:
    """The `start` (negative: from the end) and `count` arguments."""
    start, count = args.get("start", 0), args.get("count")
    if type(start) is not int or abs(start) >= 1 << 62 or (count is not None and (type(count) is not int or count < 0)):
        raise Refusal("VALIDATION_FAILED", "start and count must be whole numbers")
    return start, count
