"""Owns a tree of layers as one tar stream (PAX): what a snapshot's export carries.

Called by jobs inside the confined process; standard library only. Invariant: names and attributes are bytes and come
out as they are; nanoseconds, hard links and attributes are kept; holes are written as zeros, which compression takes.
"""

from __future__ import annotations

import os
import stat
import tarfile
from collections.abc import Callable, Sequence
from typing import Any

from kennel.node.packing.build import Tally
from kennel.node.packing.failure import Refused
from kennel.node.packing.view import Folder, Leaf, View, open_file, whiteout, xattrs

_PIECE = 1 << 20
_KINDS = {
    stat.S_IFREG: tarfile.REGTYPE,
    stat.S_IFDIR: tarfile.DIRTYPE,
    stat.S_IFLNK: tarfile.SYMTYPE,
    stat.S_IFIFO: tarfile.FIFOTYPE,
}
"""Sockets and devices have no place in a tar of a workspace."""


class Export:
    """Writes the tree to the open file or pipe `out`."""

    def __init__(self, out: int, roots: Sequence[int], max_entries: int, tick: Callable[[Tally], None]) -> None:
        self._out, self._view, self._most, self._tick = out, View(roots), max_entries, tick
        self._links: dict[tuple[int, int], str] = {}
        self.tally = Tally()

    def run(self) -> None:
        root = self._view.root()
        self._put(".", root.info(), tarfile.DIRTYPE, root.xattrs())
        stack: list[tuple[str, Folder, list[tuple[bytes, Leaf]]]] = [("", root, _shown(root))]
        while stack:
            path, folder, entries = stack[-1]
            if not entries:
                stack.pop()
                folder.close()
                continue
            name, leaf = entries.pop()
            here = path + os.fsdecode(name)
            if not stat.S_ISDIR(leaf.info.st_mode):
                self._leaf(here, name, leaf)
                continue
            inner = self._view.enter(folder.sources, name)
            if not isinstance(inner, Folder):
                raise Refused("FILESYSTEM_ERROR", "a directory changed while it was read")
            self._put(here, inner.info(), tarfile.DIRTYPE, inner.xattrs())
            stack.append((f"{here}/", inner, _shown(inner)))
        _write_all(self._out, bytes(2 * tarfile.BLOCKSIZE))

    def _leaf(self, path: str, name: bytes, leaf: Leaf) -> None:
        info = leaf.info
        kind = _KINDS.get(stat.S_IFMT(info.st_mode))
        if kind is None:
            self.tally.left_out += 1
            return
        key = (leaf.layer, info.st_ino)
        if info.st_nlink > 1:
            first = self._links.setdefault(key, path)
            if first != path:
                self._put(path, info, tarfile.LNKTYPE, [], first)
                return
        if kind == tarfile.SYMTYPE:
            self._put(path, info, kind, [], os.fsdecode(os.readlink(name, dir_fd=leaf.parent)))
        elif kind == tarfile.FIFOTYPE:
            self._put(path, info, kind, [])
        else:
            self._file(path, name, leaf)

    def _file(self, path: str, name: bytes, leaf: Leaf) -> None:
        source = open_file(leaf, name)
        try:
            self._put(path, leaf.info, tarfile.REGTYPE, xattrs(source), size=leaf.info.st_size)
            left = leaf.info.st_size
            while left:
                piece = os.read(source, min(left, _PIECE))
                if not piece:
                    raise Refused("FILESYSTEM_ERROR", "a file ended before its size")
                _write_all(self._out, piece)
                left -= len(piece)
            _write_all(self._out, bytes(-leaf.info.st_size % tarfile.BLOCKSIZE))
        finally:
            os.close(source)
        self.tally.bytes += leaf.info.st_size
        self._tick(self.tally)

    def _put(
        self,
        path: str,
        info: os.stat_result,
        kind: bytes,
        marks: list[tuple[str, bytes]],
        link: str = "",
        size: int = 0,
    ) -> None:
        self.tally.entries += 1
        if self.tally.entries > self._most:
            raise Refused("PACK_TOO_LARGE", f"the tree has more than {self._most} names")
        row = tarfile.TarInfo(path)
        row.type, row.linkname, row.size = kind, link, size
        row.mode, row.uid, row.gid = stat.S_IMODE(info.st_mode), info.st_uid, info.st_gid
        seconds, nanoseconds = divmod(info.st_mtime_ns, 1_000_000_000)
        row.mtime = max(seconds, 0)
        row.pax_headers = {"mtime": _decimal(seconds, nanoseconds)}
        for name, value in marks:
            row.pax_headers[f"SCHILY.xattr.{name}"] = os.fsdecode(value)
        _write_all(self._out, row.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape"))


def run(out: int, roots: Sequence[int], max_entries: int, tick: Callable[[Tally], None]) -> dict[str, Any]:
    """Writes the whole tree; counts of names and bytes, and how many names a tar cannot hold."""
    work = Export(out, roots, max_entries, tick)
    work.run()
    return {"entries": work.tally.entries, "bytes": work.tally.bytes, "left_out": work.tally.left_out}


def _decimal(seconds: int, nanoseconds: int) -> str:
    if seconds >= 0 or nanoseconds == 0:
        return f"{seconds}.{nanoseconds:09}"
    return f"-{-(seconds + 1)}.{1_000_000_000 - nanoseconds:09}"


def _shown(folder: Folder) -> list[tuple[bytes, Leaf]]:
    entries = [(name, leaf) for name, leaf in folder.list().items() if not whiteout(leaf.info)]
    return sorted(entries, reverse=True)


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
