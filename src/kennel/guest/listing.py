"""Owns listings: entries of a directory or of a tree, in pages by name or as one stream in the directory's own order.

Called by the `file.list` operation, in steps. Invariant: memory follows the size of a page, never that of a directory;
symbolic links are named and not followed; what vanishes during the walk is left out, what cannot be read is counted.
"""

from __future__ import annotations

import os

from . import codec
from .paths import description

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Generator, Iterator
    from typing import Any

    from .chore import Steps

BREATH = 128
"""Names looked at in one step."""
MAX_DEPTH = 512
"""Directories open at once; what lies deeper is counted as unreadable."""
_BATCH = 48 * 1024
"""Bytes of a piece of the listing."""


class Listing:
    """One walk. `after` are the components of the last entry of the page before; without `limit` nothing is sorted."""

    def __init__(self, *, recursive: bool, hidden: bool, limit: int | None, after: list[str]) -> None:
        self._recursive = recursive
        self._hidden = hidden
        self._limit = limit
        self._after = after
        self._count = 0
        self._unreadable = 0
        self._more = False
        self._lines: list[bytes] = []
        self._size = 0

    def steps(self, path: bytes) -> Steps:
        """The listing of the directory `path`, a JSON object a line; then how it went."""
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        yield from self._walk(fd, "", self._after, 0)
        if self._lines:
            yield b"".join(self._lines)
        return {"count": self._count, "more": self._more, "unreadable": self._unreadable}

    def _walk(self, fd: int, below: str, after: list[str], depth: int) -> Generator[bytes | None, None, None]:
        """Entries of an open directory, which it closes."""
        try:
            if self._limit is None:
                for name in _names(fd, self._hidden):
                    if name is None:
                        yield None
                    else:
                        yield from self._entry(fd, below, name, [], depth)
                return
            names = yield from self._page(fd, after[0] if after else "")
            for name in names:
                if self._more:
                    return
                rest = after[1:] if after and name == after[0] else None
                yield from self._entry(fd, below, name, rest, depth)
        except OSError:
            self._unreadable += 1
        finally:
            os.close(fd)

    def _page(self, fd: int, first: str) -> Generator[bytes | None, None, list[str]]:
        """The names from `first` on that this page may need, sorted."""
        most = (self._limit or 0) - self._count + 2
        kept: list[str] = []
        for name in _names(fd, self._hidden):
            if name is None:
                yield None
            elif name >= first:
                kept.append(name)
                if len(kept) >= 2 * most:
                    kept.sort()
                    del kept[most:]
        kept.sort()
        return kept[:most]

    def _entry(
        self, fd: int, below: str, name: str, rest: list[str] | None, depth: int
    ) -> Generator[bytes | None, None, None]:
        """One entry and what is below it; with `rest` (sorted walks) it was listed on an earlier page itself."""
        seen = rest is not None and self._limit is not None
        if not seen and self._limit is not None and self._count >= self._limit:
            self._more = True
            return
        try:
            told = description(os.fsencode(name), dir_fd=fd)
        except OSError:
            return
        path = f"{below}/{name}" if below else name
        if not seen:
            self._count += 1
            self._lines.append(codec.encode({"name": path, **told}) + b"\n")
            self._size += len(self._lines[-1])
        if self._size > _BATCH:
            piece, self._lines, self._size = b"".join(self._lines), [], 0
            yield piece
        elif self._count % BREATH == 0:
            yield None
        if self._recursive and told["type"] == "directory":
            yield from self._below(fd, path, name, rest or [], depth)

    def _below(self, fd: int, path: str, name: str, rest: list[str], depth: int) -> Generator[bytes | None, None, None]:
        if depth >= MAX_DEPTH:
            self._unreadable += 1
            return
        try:
            inner = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=fd)
        except OSError:
            self._unreadable += 1
            return
        yield from self._walk(inner, path, rest, depth + 1)


def _names(fd: int, hidden: bool) -> Iterator[str | None]:
    """The names in a directory, None after each BREATH."""
    with os.scandir(fd) as found:
        for number, entry in enumerate(found, 1):
            if hidden or not entry.name.startswith("."):
                yield entry.name
            if number % BREATH == 0:
                yield None


def after_of(args: dict[str, Any]) -> list[str]:
    """The `after` argument: the relative path of the last entry before this page."""
    value = args.get("after")
    return [part for part in value.split("/") if part] if type(value) is str else []
