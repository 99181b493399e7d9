"""Owns how a stack of layers looks as one tree: lookup, listing, opaque directories, redirects and whiteouts.

Called by build, compare and export inside the confined process; standard library only. Invariant: it answers as the
kernel's overlay does for the same layers (redirect_dir=on, metacopy=off, index=off), works by descriptors below the
layers' roots alone, and never follows a symlink or a `..`.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from typing import Final, NamedTuple

from kennel.node.packing.failure import Refused

Sources = Sequence[tuple[int, int]]
"""Open directories that make one directory together: (number of the layer, descriptor), the topmost first."""

_OPAQUE: Final = "trusted.overlay.opaque"
_REDIRECT: Final = "trusted.overlay.redirect"
_KEPT: Final = ("system.posix_acl_access", "system.posix_acl_default")
_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


class Leaf(NamedTuple):
    """Something that is not a directory: what it is, in which layer, and the open directory that holds it."""

    info: os.stat_result
    layer: int
    parent: int


class Folder:
    """A directory of the view; close it when done."""

    __slots__ = ("_owned", "opaque", "redirect", "sources")

    def __init__(self, sources: Sources, opaque: bool = False, redirect: bytes | None = None, owned: bool = True):
        self.sources, self.opaque, self.redirect = sources, opaque, redirect
        self._owned = owned

    def info(self) -> os.stat_result:
        return os.fstat(self.sources[0][1])

    def xattrs(self) -> list[tuple[str, bytes]]:
        return xattrs(self.sources[0][1])

    def list(self) -> dict[bytes, Leaf]:
        """Every name of the layers, whiteouts too, as the topmost layer has it."""
        found: dict[bytes, Leaf] = {}
        # The topmost last, so that it has the last word. (`Leaf(…)` would take twice as long, 150,000 times while a
        # sandbox is frozen.)
        for layer, descriptor in reversed(self.sources):
            with os.scandir(descriptor) as entries:
                for entry in entries:
                    found[entry.name.encode("utf-8", "surrogateescape")] = tuple.__new__(
                        Leaf, (entry.stat(follow_symlinks=False), layer, descriptor)
                    )
        return found

    def close(self) -> None:
        if self._owned:
            for _, descriptor in self.sources:
                os.close(descriptor)
        self.sources = ()


class View:
    """The layers `roots` (descriptors of their root directories, the topmost first) as one tree."""

    def __init__(self, roots: Sequence[int]) -> None:
        self._roots: Sources = tuple(enumerate(roots))

    def __len__(self) -> int:
        return len(self._roots)

    def root(self) -> Folder:
        return Folder(self._roots, owned=False)

    def enter(self, sources: Sources, name: bytes) -> Folder | Leaf | None:
        """What `name` is in the directory that `sources` make; None where nothing shows."""
        search = _Search(name)
        position = 0
        try:
            while not search.stop and position < len(sources):
                layer, base = sources[position]
                position += 1
                if not search.look(layer, base):
                    continue
                if search.leaf is not None:
                    return search.leaf
                if search.want.startswith(b"/") and sources is not self._roots:
                    # An absolute redirect: the search goes on from the roots of the layers below this one.
                    sources, position = self._roots, layer + 1
        except BaseException:
            search.close()
            raise
        if not search.found:
            return None
        return Folder(search.found, search.stop, search.want if search.want != name else None)


class _Search:
    """One lookup through the layers, downwards."""

    def __init__(self, name: bytes) -> None:
        self.want = name
        self.found: list[tuple[int, int]] = []
        self.leaf: Leaf | None = None
        self.stop = False

    def look(self, layer: int, base: int) -> bool:
        """Looks into one layer; whether it had the name."""
        if not self.want.startswith(b"/"):
            reached = self._step(layer, base, self.want, b"")
            if reached is not None:
                self.found.append((layer, reached))
            return reached is not None or self.leaf is not None
        parts, at = self.want[1:].split(b"/"), base
        for number, part in enumerate(parts):
            rest = b"".join(b"/" + later for later in parts[number + 1 :])
            reached = self._step(layer, at, part, rest)
            if at != base:
                os.close(at)
            if reached is None:
                return False
            at = reached
        self.found.append((layer, at))
        return True

    def _step(self, layer: int, base: int, part: bytes, rest: bytes) -> int | None:
        """One element of the way, `rest` still to come: the directory it is, open."""
        try:
            info = os.stat(part, dir_fd=base, follow_symlinks=False)
        except (FileNotFoundError, NotADirectoryError):
            return None
        if not stat.S_ISDIR(info.st_mode):
            self.stop = True
            if not whiteout(info) and not rest and not self.found:
                self.leaf = Leaf(info, layer, base)
            return None
        descriptor = os.open(part, _DIRECTORY, dir_fd=base)
        marks = os.listxattr(descriptor)
        if _OPAQUE in marks and os.getxattr(descriptor, _OPAQUE) == b"y":
            self.stop = True
        elif _REDIRECT in marks:
            self._redirect(_checked(os.getxattr(descriptor, _REDIRECT)), part, rest)
        return descriptor

    def _redirect(self, target: bytes, part: bytes, rest: bytes) -> None:
        if target.startswith(b"/"):
            self.stop = False
            self.want = target + rest
        else:
            self.want = self.want[: len(self.want) - len(rest) - len(part)] + target + rest

    def close(self) -> None:
        for _, descriptor in self.found:
            os.close(descriptor)


def _checked(target: bytes) -> bytes:
    absolute = target.startswith(b"/")
    parts = target[1:].split(b"/") if absolute else [target]
    if any(part in (b"", b".", b"..") or (not absolute and b"/" in part) for part in parts):
        raise Refused("FILESYSTEM_ERROR", "a directory's redirect is not one the kernel writes")
    return target


def whiteout(info: os.stat_result) -> bool:
    """Whether this marks a name as deleted."""
    return stat.S_ISCHR(info.st_mode) and info.st_rdev == 0


def open_file(leaf: Leaf, name: bytes) -> int:
    """The regular file `name` of a directory's list, open."""
    return os.open(name, _FILE, dir_fd=leaf.parent)


def xattrs(descriptor: int) -> list[tuple[str, bytes]]:
    """The attributes that belong to the sandbox: `user.*` and ACLs; those of the overlay speak of one mount only."""
    return [
        (name, os.getxattr(descriptor, name))
        for name in os.listxattr(descriptor)
        if name.startswith("user.") or name in _KEPT
    ]
