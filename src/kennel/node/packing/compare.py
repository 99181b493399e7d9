"""Owns the difference of two trees of layers: which paths were added, changed, removed.

Called by jobs inside the confined process; standard library only. Invariant: a directory that both trees make out of
the same directories of the same layers is not walked, so the cost follows what differs.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from typing import Any

from kennel.node.packing.failure import Refused
from kennel.node.packing.view import Folder, Leaf, View, open_file, whiteout, xattrs

_PIECE = 1 << 20


class Compare:
    """Writes one row per differing path, each `A`, `C` or `R`, the path, a NUL; parents before what lies in them."""

    def __init__(self, out: int, old: Sequence[int], new: Sequence[int], same: int, max_entries: int) -> None:
        self._old, self._new = View(old), View(new)
        # The last `same` layers are the same in both stacks: their directories are equal when their inodes are.
        self._shared = (len(old) - same, len(new) - same)
        self._out, self._most = out, max_entries
        self._rows: list[bytes] = []
        self.counts = {"A": 0, "C": 0, "R": 0}

    def run(self) -> None:
        pending: list[tuple[bytes, Folder | None, Folder | None]] = [(b"", self._old.root(), self._new.root())]
        while pending:
            path, old, new = pending.pop()
            try:
                pending += reversed(self._folders(path, old, new))
            finally:
                for folder in (old, new):
                    if folder is not None:
                        folder.close()
        self._flush()

    def _folders(
        self, path: bytes, old: Folder | None, new: Folder | None
    ) -> list[tuple[bytes, Folder | None, Folder | None]]:
        inner: list[tuple[bytes, Folder | None, Folder | None]] = []
        if old is not None and new is not None and self._same(old, new):
            return inner
        before, after = _shown(old), _shown(new)
        for name in sorted(before.keys() | after.keys()):
            was, now = before.get(name), after.get(name)
            here = path + b"/" + name if path else name
            left = self._old.enter(old.sources, name) if old and was and _directory(was) else None
            right = self._new.enter(new.sources, name) if new and now and _directory(now) else None
            left, right = _folder(left), _folder(right)
            if was is None or now is None:
                self._row("A" if was is None else "R", here)
            elif left is not None and right is not None:
                if _marks(left.info()) != _marks(right.info()) or sorted(left.xattrs()) != sorted(right.xattrs()):
                    self._row("C", here)
            elif left is not None or right is not None or not _equal(was, now, name):
                self._row("C", here)
            if left is not None or right is not None:
                inner.append((here, left, right))
        return inner

    def _same(self, old: Folder, new: Folder) -> bool:
        return self._identity(old, 0) == self._identity(new, 1)

    def _identity(self, folder: Folder, side: int) -> list[tuple[int, int]]:
        shared = self._shared[side]
        # A layer that only one stack has gets a number that the other cannot have.
        return [
            (layer - shared if layer >= shared else -1 - 2 * layer - side, os.fstat(descriptor).st_ino)
            for layer, descriptor in folder.sources
        ]

    def _row(self, kind: str, path: bytes) -> None:
        self.counts[kind] += 1
        if sum(self.counts.values()) > self._most:
            raise Refused("PACK_TOO_LARGE", f"the trees differ in more than {self._most} paths")
        self._rows.append(kind.encode() + path + b"\0")
        if len(self._rows) >= 1000:
            self._flush()

    def _flush(self) -> None:
        view = memoryview(b"".join(self._rows))
        while view:
            view = view[os.write(self._out, view) :]
        self._rows.clear()


def run(out: int, old: Sequence[int], new: Sequence[int], same: int, max_entries: int) -> dict[str, Any]:
    """Compares two stacks whose last `same` layers are equal."""
    work = Compare(out, old, new, same, max_entries)
    work.run()
    return {"added": work.counts["A"], "changed": work.counts["C"], "removed": work.counts["R"]}


def _shown(folder: Folder | None) -> dict[bytes, Leaf]:
    if folder is None:
        return {}
    return {name: leaf for name, leaf in folder.list().items() if not whiteout(leaf.info)}


def _directory(leaf: Leaf) -> bool:
    return stat.S_ISDIR(leaf.info.st_mode)


def _folder(found: Folder | Leaf | None) -> Folder | None:
    return found if isinstance(found, Folder) else None


def _marks(info: os.stat_result) -> tuple[int, int, int]:
    """What of a directory counts: a changed time alone says only that something in it changed."""
    return info.st_mode, info.st_uid, info.st_gid


def _equal(was: Leaf, now: Leaf, name: bytes) -> bool:
    old, new = was.info, now.info
    if (old.st_mode, old.st_uid, old.st_gid, old.st_size, old.st_mtime_ns) != (
        new.st_mode, new.st_uid, new.st_gid, new.st_size, new.st_mtime_ns,
    ):  # fmt: skip
        return False
    if stat.S_ISLNK(old.st_mode):
        return os.readlink(name, dir_fd=was.parent) == os.readlink(name, dir_fd=now.parent)
    if not stat.S_ISREG(old.st_mode):
        return True
    left, right = open_file(was, name), open_file(now, name)
    try:
        return sorted(xattrs(left)) == sorted(xattrs(right)) and _same_bytes(left, right, old.st_size)
    finally:
        os.close(left)
        os.close(right)


def _same_bytes(left: int, right: int, size: int) -> bool:
    one, other = os.fstat(left), os.fstat(right)
    if (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino):
        return True
    at = 0
    while at < size:
        piece = os.pread(left, _PIECE, at)
        if not piece or piece != os.pread(right, len(piece), at):
            return False
        at += len(piece)
    return True
