"""Owns unpacking a tar so that the tree is what it was: owners, modes, times to the nanosecond, attributes, holes.

Used by the backup program, which a restore of a directory and an import of a sandbox start. Invariant: nothing lands
outside of the top, one block is in memory, and a directory gets its mode and time after all that is in it.
"""

from __future__ import annotations

import os
import tarfile

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

IDS = 65536
"""Ids of a sandbox; a file of any other is root's."""
BLOCK = 256 * 1024
_HOLE = 4096
_XATTR = "SCHILY.xattr."


class Exact(tarfile.TarFile):
    """A tar whose files come back with their holes."""

    def makefile(self, tarinfo: tarfile.TarInfo, targetpath: Any) -> None:
        source: Any = self.fileobj
        source.seek(tarinfo.offset_data)
        with open(targetpath, "wb") as target:
            left = tarinfo.size
            while left:
                piece = source.read(min(left, BLOCK))
                if not piece:
                    raise tarfile.ReadError("unexpected end of data")
                left -= len(piece)
                _write(target, piece)
            target.truncate(tarinfo.size)


def _write(target: Any, piece: bytes) -> None:
    """Writes a piece; where it is all zero the file gets a hole."""
    if piece.count(0) == len(piece):
        target.seek(len(piece), os.SEEK_CUR)
        return
    for at in range(0, len(piece), _HOLE):
        part = piece[at : at + _HOLE]
        if part.count(0) == len(part):
            target.seek(len(part), os.SEEK_CUR)
        else:
            target.write(part)


def restore(archive: Any, top: str) -> None:
    """The tree of the tar that `archive` reads, below the directory `top`."""
    folders: list[_Facts] = []
    words: Any = {"mode": "r|", "bufsize": BLOCK, "encoding": "utf-8", "errors": "surrogateescape", "errorlevel": 2}
    with Exact.open(fileobj=archive, **words) as tar:
        while (entry := tar.next()) is not None:
            tar.members.clear()  # type: ignore[attr-defined]  # it would keep all of them
            if entry.isdev() and not entry.isfifo():
                continue
            placed = _placed(entry, top)
            tar.extract(placed, top, set_attrs=False, filter="fully_trusted")
            if placed.isdir():
                folders.append(_Facts(placed, top))
            elif not placed.islnk():
                _Facts(placed, top).settle()
    for folder in reversed(folders):
        folder.settle()


def _placed(entry: tarfile.TarInfo, top: str) -> tarfile.TarInfo:
    """The entry at its place, which is free; refused where that, or what it is a second name of, is outside."""
    name = tarfile.tar_filter(entry, top).name
    if entry.islnk():
        linked = os.path.realpath(os.path.join(top, entry.linkname))
        if os.path.commonpath([linked, os.path.realpath(top)]) != os.path.realpath(top):
            raise tarfile.LinkOutsideDestinationError(entry, linked)
        if not os.path.lexists(linked):
            raise tarfile.ReadError(f"{entry.name!r} is a second name of a file that is not there")
    target = os.path.join(top, name)
    if os.path.lexists(target) and (os.path.islink(target) or not os.path.isdir(target)):
        os.unlink(target)  # an import of before, cut off
    return entry.replace(name=name, deep=False)


class _Facts:
    """What is given to a name once it is there."""

    __slots__ = ("_attributes", "_mode", "_moment", "_owner", "_target")

    def __init__(self, entry: tarfile.TarInfo, top: str) -> None:
        self._target = os.path.join(top, entry.name)
        self._owner = [each if 0 <= each < IDS else 0 for each in (entry.uid, entry.gid)]
        self._mode = None if entry.issym() else entry.mode & 0o7777
        self._moment = _nanoseconds(entry.pax_headers.get("mtime", ""), int(entry.mtime))
        self._attributes = [
            (name[len(_XATTR) :], os.fsencode(value))
            for name, value in entry.pax_headers.items()
            if name.startswith(_XATTR + "user.")
        ]

    def settle(self) -> None:
        """In the order in which none undoes another."""
        os.chown(self._target, *self._owner, follow_symlinks=False)
        if self._mode is not None:
            os.chmod(self._target, self._mode)
        for name, value in self._attributes:
            os.setxattr(self._target, name, value, follow_symlinks=False)
        os.utime(self._target, ns=(self._moment, self._moment), follow_symlinks=False)


def decimal(moment: int) -> str:
    """A time in nanoseconds as a PAX header has it: a decimal count of seconds."""
    seconds, rest = divmod(abs(moment), 1_000_000_000)
    return f"{'-' if moment < 0 else ''}{seconds}.{rest:09d}"


def _nanoseconds(text: str, otherwise: int) -> int:
    """A decimal count of seconds, exactly; a float would lose the last digits."""
    whole, _, fraction = text.partition(".")
    digits = whole.removeprefix("-")
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 10 and (not fraction or fraction.isdigit())):
        return otherwise * 1_000_000_000
    size = int(digits) * 1_000_000_000 + int(fraction[:9].ljust(9, "0") or 0)
    return -size if whole.startswith("-") else size
