"""Owns turning layers into one layer: the walk of a pack (one upper) and of a compaction (several layers).

Called by jobs inside the confined process; standard library only. Invariant: a directory, a file, a link or a mark of
deletion is in the image exactly where the kernel's overlay would see it in the layers that were packed; a tree over
its caps is refused before its contents are copied.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import islice

from kennel.node.packing.exclusion import Branch, Exclusion
from kennel.node.packing.failure import Refused, of
from kennel.node.packing.image import DIRECTORY, FILE_TYPES, SMALL, Directory, Image
from kennel.node.packing.view import Folder, Leaf, Sources, View, open_file, whiteout, xattrs

_REDIRECT, _OPAQUE = "trusted.overlay.redirect", "trusted.overlay.opaque"
_CHARACTER, _REGULAR = FILE_TYPES[stat.S_IFCHR], FILE_TYPES[stat.S_IFREG]
# By the highest four bits of a mode; 0 for what no layer holds.
_KINDS = tuple(FILE_TYPES.get(bits << 12, 0) for bits in range(16))
_ODD = tuple(kind in (0, _CHARACTER) for kind in _KINDS)
MAX_DEPTH = 8192


@dataclass(frozen=True, slots=True)
class Rules:
    """How to build: whether anything lies below, what to leave out, caps in bytes and names."""

    bottom: bool
    exclusion: Exclusion
    max_bytes: int
    max_entries: int


@dataclass(slots=True)
class Tally:
    """What a pack met: names and apparent bytes in it, names and bytes left out."""

    entries: int = 0
    bytes: int = 0
    left_out: int = 0
    left_out_bytes: int = 0


class Mark:
    """An entry that no packed layer holds: a deletion that an exclusion makes, or a lower directory above one."""


_DELETED, _LOWER = Mark(), Mark()


@dataclass(slots=True)
class Frame:
    """A directory of the walk.

    `lower`: it is one of the layers below, here only to hold deletions. `hidden`: nothing of the layers below shows in
    it; a mark of deletion there would be listed as a name, since the kernel merges nothing into such a directory.
    """

    folder: Folder
    branch: Branch
    name: bytes = b""
    parent: Frame | None = None
    depth: int = 0
    lower: bool = False
    hidden: bool = False
    entries: dict[bytes, Leaf | Mark] = field(default_factory=dict)
    names: list[bytes] = field(default_factory=list)
    made: Directory = field(init=False)
    nids: list[int] = field(default_factory=list)
    types: bytearray = field(default_factory=bytearray)
    folders: int = 0
    whole: Folder | None = None

    def path(self, name: bytes) -> bytes:
        parts, frame = [name], self
        while frame.parent is not None:
            parts.append(frame.name)
            frame = frame.parent
        return b"/".join(reversed(parts))


class Build:
    """One layer out of the first `merged` of `roots` (the topmost first); the others are what lies below it."""

    def __init__(
        self, roots: list[int], merged: int, image: Image, rules: Rules, tick: Callable[[Tally], None]
    ) -> None:
        self._view, self._all = View(roots[:merged]), View(roots)
        self._merged, self._image, self._rules, self._tick = merged, image, rules, tick
        self._links: dict[tuple[int, int], list[int]] = {}
        self._at: tuple[Frame, bytes] | None = None
        self.known: dict[int, tuple[int, int, int]] = {}
        self.tally = Tally()

    def run(self) -> int:
        """Walks and writes everything; the root's nid."""
        try:
            root = frame = Frame(self._view.root(), self._rules.exclusion.root, hidden=self._rules.bottom)
            self._open(frame)
            while True:
                inner = self._advance(frame)
                if inner is not None:
                    frame = inner
                    continue
                self._close(frame)
                if frame.parent is None:
                    break
                frame = frame.parent
            for nid, count in self._links.values():
                if count > 1:
                    self._image.set_links(nid, count)
            return root.made.nid
        except Exception as failure:
            refused = of(failure)
            if refused.path is None and self._at is not None:
                refused.path = self._at[0].path(self._at[1])
            raise refused from failure

    def _open(self, frame: Frame) -> None:
        if frame.depth > MAX_DEPTH:
            raise Refused("PATH_TOO_LONG", f"directories lie deeper than {MAX_DEPTH}")
        folder = frame.folder
        if not frame.lower:
            self._select(frame)
        if frame.branch and not frame.hidden:
            self._mark_lower(frame)
        self.tally.entries += len(frame.entries)
        if self.tally.entries > self._rules.max_entries:
            raise Refused("PACK_TOO_LARGE", f"the tree has more than {self._rules.max_entries} names")
        frame.names = sorted([b".", b"..", *frame.entries])
        found = folder.xattrs()
        if frame.hidden and frame.parent is not None and not frame.parent.hidden:
            found.append((_OPAQUE, b"y"))
        elif not frame.hidden and not frame.lower and folder.redirect is not None:
            found.append((_REDIRECT, folder.redirect))
        make = self._image.directory if frame.parent else self._image.root
        frame.made = make(folder.info(), frame.names, found)
        self._tick(self.tally)

    def _select(self, frame: Frame) -> None:
        """The entries of a directory that go into the image."""
        entries, hidden, listed = frame.entries, frame.hidden, frame.folder.list()
        # Nearly every name is one that stays, so only the others are looked at one by one.
        entries.update(listed)
        for name in [name for name, leaf in listed.items() if _ODD[leaf[0].st_mode >> 12]]:
            info = listed[name].info
            if not whiteout(info):
                self.tally.left_out += 1  # a device node: no sandbox can make one
                del entries[name], listed[name]
            elif hidden:
                del entries[name]
        for name in self._rules.exclusion.among(frame.branch, listed):
            leaf = listed[name]
            if whiteout(leaf.info):
                continue
            del entries[name]
            self._leave_out(frame.folder, name, leaf)
            if not hidden and self._shows_below(frame, name):
                entries[name] = _DELETED

    def _advance(self, frame: Frame) -> Frame | None:
        """Writes entries up to the next directory, which is opened and returned; None at the end."""
        nids, types, entries, known = frame.nids, frame.types, frame.entries, self.known
        for name in islice(frame.names, len(nids), None):
            entry = entries.get(name)
            if known and entry.__class__ is Leaf:
                # A file of the first pass that did not change: nearly all there is while a sandbox is frozen.
                info = entry[0]
                made = known.get(info.st_ino)
                if made and made[0] == info.st_ctime_ns and made[1] == info.st_size and info.st_nlink == 1:
                    self._count(info.st_size)
                    nids.append(made[2])
                    types.append(_REGULAR)
                    continue
            if entry is None:  # `.` or `..`
                above = frame.parent if name == b".." and frame.parent else frame
                nids.append(above.made.nid)
                types.append(DIRECTORY)
                continue
            self._at = (frame, name)
            kind = _KINDS[entry.info.st_mode >> 12] if isinstance(entry, Leaf) else DIRECTORY
            if kind != DIRECTORY and isinstance(entry, Leaf):
                nids.append(self._leaf(entry, name, kind))
                types.append(kind)
            elif entry is _DELETED:
                nids.append(self._image.whiteout())
                types.append(_CHARACTER)
            else:
                inner = self._inner(frame, name, lower=entry is _LOWER)
                nids.append(inner.made.nid)
                types.append(DIRECTORY)
                frame.folders += 1
                return inner
        return None

    def _inner(self, frame: Frame, name: bytes, *, lower: bool) -> Frame:
        folder = self._enter_below(frame, name) if lower else self._view.enter(frame.folder.sources, name)
        if not isinstance(folder, Folder):
            raise Refused("FILESYSTEM_ERROR", "a directory changed while it was packed")
        branch = frame.branch.get(name) or {}
        # Below a hidden directory only an absolute redirect can show something again.
        again = folder.redirect is not None and folder.redirect.startswith(b"/")
        hidden = self._rules.bottom or (not lower and (folder.opaque or (frame.hidden and not again)))
        inner = Frame(folder, branch, name, frame, frame.depth + 1, lower, hidden)
        self._open(inner)
        return inner

    def _close(self, frame: Frame) -> None:
        self._image.finish_directory(frame.made, frame.names, frame.nids, bytes(frame.types), 2 + frame.folders)
        if frame.whole is not None and frame.whole is not frame.folder:
            frame.whole.close()
        frame.folder.close()

    # Files -----------------------------------------------------------------------------------------------------------

    def _leaf(self, leaf: Leaf, name: bytes, kind: int) -> int:
        info = leaf.info
        if kind == _CHARACTER:
            return self._image.whiteout()
        if info.st_nlink > 1:
            linked = self._links.get((leaf.layer, info.st_ino))
            if linked is not None:
                linked[1] += 1
                return linked[0]
        if kind == _REGULAR:
            self._count(info.st_size)
        known = self.known.get(info.st_ino)
        if known is not None and known[0] == info.st_ctime_ns and known[1] == info.st_size:
            nid = known[2]
        else:
            nid = self._write(leaf, name)
        if info.st_nlink > 1:
            self._links[leaf.layer, info.st_ino] = [nid, 1]
        return nid

    def _count(self, size: int) -> None:
        self.tally.bytes += size
        if self.tally.bytes > self._rules.max_bytes:
            raise Refused("PACK_TOO_LARGE", f"the tree is larger than {self._rules.max_bytes} bytes")

    def _write(self, leaf: Leaf, name: bytes) -> int:
        info = leaf.info
        if stat.S_ISLNK(info.st_mode):
            return self._image.content(info, os.readlink(name, dir_fd=leaf.parent))
        if not stat.S_ISREG(info.st_mode):
            return self._image.special(info)
        source = open_file(leaf, name)
        try:
            nid, whole = write_file(self._image, source, info)
            self._tick(self.tally)
        finally:
            os.close(source)
        if not whole:
            raise Refused("FILESYSTEM_ERROR", "a file ended before its size")
        return nid

    # Exclusions ------------------------------------------------------------------------------------------------------

    def _mark_lower(self, frame: Frame) -> None:
        """Deletions for excluded paths that only the layers below hold, and the directories above them."""
        for name, rest in frame.branch.items():
            if name in frame.entries:
                continue
            found = self._enter_below(frame, name)
            if isinstance(found, Folder):
                found.close()
            if found is not None and rest is None:
                frame.entries[name] = _DELETED
            elif isinstance(found, Folder):
                frame.entries[name] = _LOWER

    def _shows_below(self, frame: Frame, name: bytes) -> bool:
        found = self._enter_below(frame, name)
        if isinstance(found, Folder):
            found.close()
        return found is not None

    def _enter_below(self, frame: Frame, name: bytes) -> Folder | Leaf | None:
        """What `name` of this directory would be if the packed layers were not there."""
        sources: Sources = [source for source in self._whole(frame).sources if source[0] >= self._merged]
        return self._all.enter(sources, name)

    def _whole(self, frame: Frame) -> Folder:
        """The directory with its parts in the layers below."""
        if frame.whole is None:
            if frame.lower or self._merged == len(self._all):
                frame.whole = frame.folder
            elif frame.parent is None:
                frame.whole = self._all.root()
            else:
                found = self._all.enter(self._whole(frame.parent).sources, frame.name)
                if not isinstance(found, Folder):
                    raise Refused("FILESYSTEM_ERROR", "a directory changed while it was packed")
                frame.whole = found
        return frame.whole

    def _leave_out(self, folder: Folder, name: bytes, leaf: Leaf) -> None:
        """Counts what an excluded path holds in the packed layers."""
        pending: list[tuple[Folder, list[tuple[bytes, Leaf]]]] = []
        entry: tuple[bytes, Leaf] | None = (name, leaf)
        inside = folder
        while entry is not None:
            word, leaf = entry
            if not (stat.S_ISCHR(leaf.info.st_mode) and leaf.info.st_rdev == 0):
                self.tally.left_out += 1
            if stat.S_ISREG(leaf.info.st_mode):
                self.tally.left_out_bytes += leaf.info.st_size
            if stat.S_ISDIR(leaf.info.st_mode):
                found = self._view.enter(inside.sources, word)
                if isinstance(found, Folder):
                    pending.append((found, list(found.list().items())))
            while pending and not pending[-1][1]:
                pending.pop()[0].close()
            if self.tally.left_out > self._rules.max_entries:
                raise Refused("PACK_TOO_LARGE", f"more than {self._rules.max_entries} names are left out")
            inside, entry = (pending[-1][0], pending[-1][1].pop()) if pending else (folder, None)


def write_file(image: Image, source: int, info: os.stat_result) -> tuple[int, bool]:
    """The open regular file `source` in the image: its nid, and whether it was as long as `info` says."""
    marks = xattrs(source)
    if info.st_size > SMALL:
        return image.copy(source, info, marks)
    data = os.read(source, info.st_size + 1) if info.st_size else b""
    return image.content(info, data[: info.st_size], marks), len(data) == info.st_size
