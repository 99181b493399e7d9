"""Owns looking whether anything of an upper changed: a walk that reads no content and writes nothing.

Called by jobs inside the confined process; standard library only. Invariant: two walks with the same mark met the same
names with the same contents, if the first one synced. The kernel moves a file's ctime with every change and lets nobody
set it; where one is so young that a later change could leave it as it is, the walk is `young`: its mark proves nothing.
"""

from __future__ import annotations

import ctypes
import errno
import hashlib
import os
import stat
import time
from collections.abc import Sequence
from dataclasses import dataclass

from kennel.node.packing.failure import Refused

_GONE = {errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ESTALE}
_CLOCK_SLACK_NS = 50_000_000
_syncfs = ctypes.CDLL(None, use_errno=True).syncfs
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


Row = tuple[str, int, int, int, int]
"""A name; inode, ctime in nanoseconds, size and mode of what it is."""


@dataclass(slots=True)
class Seen:
    """What a walk met: its mark, names, bytes of regular files, and whether something is too young to be sure of."""

    mark: str = ""
    names: int = 0
    bytes: int = 0
    young: bool = False


def run(roots: Sequence[int], max_entries: int, max_bytes: int, known: str = "") -> Seen:
    """Walks the uppers, which lie on one disk; once more, synced, unless the mark is `known`. PACK_TOO_LARGE when they
    hold more than a point may."""
    if known:
        found = walk(roots, max_entries, max_bytes, sync=False)
        if found.mark == known and not found.young:
            return found
    return walk(roots, max_entries, max_bytes, sync=True)


def walk(roots: Sequence[int], max_entries: int, max_bytes: int, *, sync: bool) -> Seen:
    """One walk. With `sync` a later change through a mapping shows too: syncing took the pages' write permission."""
    if sync and _syncfs(roots[0]) != 0:
        raise OSError(ctypes.get_errno(), "syncfs")
    look = _Look(max_entries, max_bytes)
    for root in roots:
        look.walk(root)
    look.seen.mark = look.sum.hexdigest()
    return look.seen


class _Look:
    def __init__(self, max_entries: int, max_bytes: int) -> None:
        self.seen, self.sum = Seen(), hashlib.sha256()
        self._max_entries, self._max_bytes = max_entries, max_bytes
        self._young = time.time_ns() - _CLOCK_SLACK_NS

    def walk(self, root: int) -> None:
        """Everything below an open directory; directories come and go meanwhile."""
        self._note([_facts(".", os.fstat(root))])
        pending = [(os.dup(root), self._list(root))]
        try:
            while pending:
                folder, names = pending[-1]
                if not names:
                    os.close(pending.pop()[0])
                    continue
                inner = _opened(names.pop(), folder)
                if inner is not None:
                    pending.append((inner, self._list(inner)))
        finally:
            for folder, _ in pending:
                os.close(folder)

    def _list(self, folder: int) -> list[str]:
        """Notes the entries of a directory, in order; the names of those that are directories."""
        rows: list[Row] = []
        with os.scandir(folder) as entries:
            for entry in entries:
                try:
                    rows.append(_facts(entry.name, entry.stat(follow_symlinks=False)))
                except OSError as failure:
                    if failure.errno not in _GONE:
                        raise
                if len(rows) > self._max_entries:
                    break
        rows.sort()
        self._note(rows)
        return [row[0] for row in reversed(rows) if stat.S_ISDIR(row[4])]

    def _note(self, rows: list[Row]) -> None:
        seen = self.seen
        seen.names += len(rows)
        seen.bytes += sum(row[3] for row in rows if stat.S_ISREG(row[4]))
        if seen.names > self._max_entries or seen.bytes > self._max_bytes:
            raise Refused("PACK_TOO_LARGE", "more changed since the sandbox woke than a point may hold")
        seen.young = seen.young or any(row[2] >= self._young for row in rows)
        # One text a directory: a call for each name took as long as its stat. Escapes make it one text only.
        self.sum.update(repr(rows).encode())


def _facts(name: str, info: os.stat_result) -> Row:
    return name, info.st_ino, info.st_ctime_ns, info.st_size, info.st_mode


def _opened(name: str, folder: int) -> int | None:
    try:
        return os.open(name, _DIRECTORY, dir_fd=folder)
    except OSError as failure:
        if failure.errno not in _GONE:
            raise
        return None
