"""Owns what is done with a sandbox's files on this machine: pack an upper, merge layers, compare, export.

Called by unit. Invariant: node opens no file of a sandbox itself: it makes detached, read-only mounts and hands their
descriptors to a confined process; a layer appears under its digest only when it is complete.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from kennel.domain.layer import LayerInfo
from kennel.node import idmap, linux
from kennel.node.freezer import Freezer, thawed_after
from kennel.node.layers import Layers, kept
from kennel.node.packer import Packer, Progress
from kennel.wire.errors import error


@dataclass(frozen=True, slots=True)
class Caps:
    """What one job may cost: apparent bytes, names, seconds."""

    bytes: int = 64 << 30
    entries: int = 4_000_000
    seconds: float = 600.0


@dataclass(frozen=True, slots=True)
class LeftOut:
    """What a pack leaves out: `paths` from the workspace's root (kennel.domain.exclusion checks them), and `names`."""

    paths: Sequence[bytes] = ()
    names: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Upper:
    """An upper to pack: its folder on the mounted disk, the sandbox's range of ids, the stack it lies on.

    `on_image`: below that stack lies an image, so marks of deletion are kept also when the stack is empty.
    """

    folder: Path
    id_base: int
    below: Sequence[str] = ()
    on_image: bool = False


@dataclass(frozen=True, slots=True)
class Manner:
    """How an image is made: `salt` makes it nobody else's, `small` spares the pass before the freeze."""

    salt: str = ""
    small: bool = False


@dataclass(frozen=True, slots=True)
class Look:
    """What uppers hold: names, bytes, and a mark to know them by; an empty one where that cannot be."""

    mark: str
    names: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Difference:
    """How many paths differ, and an open file with them: `A`, `C` or `R`, the path, a NUL, for each."""

    added: int
    changed: int
    removed: int
    listing: int = field(repr=False)


class Packing:
    """The verbs, over one cache and one packer."""

    def __init__(self, layers: Layers, packer: Packer, caps: Caps = Caps()) -> None:
        self._layers, self._packer, self._caps = layers, packer, caps

    def pack(
        self,
        upper: Upper,
        left_out: LeftOut = LeftOut(),
        *,
        freezer: Freezer | None = None,
        progress: Progress | None = None,
        caps: Caps | None = None,
        manner: Manner = Manner(),
    ) -> LayerInfo:
        """The upper as a new layer of the cache. With a freezer the sandbox may run: it is frozen for one pass.

        Refuses with PACK_TOO_LARGE, PATH_TOO_LONG, NO_SPACE, FILESYSTEM_ERROR (a damaged disk), PACK_TIMEOUT,
        RESOURCE_BUSY (cannot be frozen), PACK_FAILED; nothing is changed then.
        """
        with ExitStack() as held:
            if freezer is not None:
                held.enter_context(thawed_after(freezer))
            roots = [held.enter_context(_upper(upper))]
            if left_out.paths or left_out.names:
                roots += [held.enter_context(self._layer(name)) for name in upper.below]
            bottom = not (upper.below or upper.on_image)
            return self._build(roots, 1, bottom, left_out, caps, freezer, progress, manner)

    def look(self, folders: Sequence[Path], caps: Caps, known: str) -> Look:
        """What the uppers `folders` of one disk hold now, without reading any content; synced, unless that is `known`
        (see packing/look)."""
        with ExitStack() as held:
            roots = [held.enter_context(_tree(str(folder))) for folder in folders]
            words = {"job": "look", "max_entries": caps.entries, "max_bytes": caps.bytes, "known": known}
            found = self._packer.run(words, roots, seconds=caps.seconds, max_image=0)
            return Look("" if found["young"] else found["mark"], found["names"], found["bytes"])

    def compact(
        self,
        layers: Sequence[str],
        *,
        bottom: bool,
        progress: Progress | None = None,
        caps: Caps | None = None,
    ) -> LayerInfo:
        """Neighbouring layers (the topmost first) as one; `bottom`: nothing lies below them."""
        with ExitStack() as held:
            roots = [held.enter_context(self._layer(name)) for name in layers]
            return self._build(roots, len(roots), bottom, LeftOut(), caps, None, progress)

    def compare(
        self, old: Sequence[str], new: Sequence[str], *, old_upper: Upper | None = None, new_upper: Upper | None = None
    ) -> Difference:
        """What `new` has, has otherwise, or lacks beside `old`; either may have an upper on top."""
        same = 0
        while same < min(len(old), len(new)) and old[-1 - same] == new[-1 - same]:
            same += 1
        with ExitStack() as held:
            sides = [self._tree(held, old, old_upper), self._tree(held, new, new_upper)]
            listing = os.memfd_create("difference", os.MFD_CLOEXEC)
            try:
                words = {"job": "compare", "old": len(sides[0]), "same": same, "max_entries": self._caps.entries}
                answer = self._packer.run(
                    words, [listing, *sides[0], *sides[1]], seconds=self._caps.seconds, max_image=1 << 30
                )
                os.lseek(listing, 0, os.SEEK_SET)
                return Difference(answer["added"], answer["changed"], answer["removed"], listing)
            except BaseException:
                os.close(listing)
                raise

    def export(
        self,
        out: int,
        layers: Sequence[str],
        *,
        upper: Upper | None = None,
        progress: Progress | None = None,
        caps: Caps | None = None,
    ) -> dict[str, int]:
        """Writes the whole tree as a tar (PAX, not compressed) to the file or pipe `out`; counts."""
        asked = caps or self._caps
        with ExitStack() as held:
            roots = self._tree(held, layers, upper)
            words = {"job": "export", "max_entries": asked.entries}
            return self._packer.run(
                words, [out, *roots], seconds=asked.seconds, max_image=self._layers.max_image, progress=progress
            )

    def _build(
        self,
        roots: list[int],
        merged: int,
        bottom: bool,
        left_out: LeftOut,
        caps: Caps | None,
        freezer: Freezer | None,
        progress: Progress | None,
        manner: Manner = Manner(),
    ) -> LayerInfo:
        asked = caps or self._caps
        words = {
            "job": "pack", "merged": merged, "bottom": bottom, "live": freezer is not None,
            "names": list(left_out.names), "max_bytes": asked.bytes, "max_entries": asked.entries,
            "salt": manner.salt, "small": manner.small,
        }  # fmt: skip
        with _listing(left_out.paths) as listed:
            token, image = self._layers.begin()
            try:
                answer = self._packer.run(
                    words,
                    [image, listed, *roots],
                    seconds=asked.seconds,
                    max_image=self._layers.max_image,
                    progress=progress,
                    ready=freezer.freeze if freezer else None,
                    scanned=freezer.thaw if freezer else None,
                )
                made = kept(answer)
                self._layers.keep(token, made.digest, image)
                return made
            finally:
                os.close(image)
                self._layers.abandon(token)

    def _tree(self, held: ExitStack, layers: Sequence[str], upper: Upper | None) -> list[int]:
        roots = [held.enter_context(_upper(upper))] if upper is not None else []
        roots += [held.enter_context(self._layer(name)) for name in layers]
        if not roots:
            empty = held.enter_context(_empty(self._layers))
            return [empty]
        return roots

    @contextmanager
    def _layer(self, name: str) -> Iterator[int]:
        tree = linux.detached(str(self._layers.mounted(name)))
        try:
            yield tree
        finally:
            os.close(tree)


@contextmanager
def _upper(upper: Upper) -> Iterator[int]:
    """The upper with the sandbox's own ids, as a read-only mount at no path."""
    with idmap.mapping(upper.id_base, reverse=True) as userns, _tree(str(upper.folder), userns) as tree:
        yield tree


@contextmanager
def _tree(folder: str, userns: int | None = None) -> Iterator[int]:
    try:
        tree = linux.detached(folder, userns)
    except OSError as failure:
        raise error("FILESYSTEM_ERROR", f"the sandbox's disk cannot be read: {failure.strerror}") from failure
    try:
        yield tree
    finally:
        os.close(tree)


@contextmanager
def _empty(layers: Layers) -> Iterator[int]:
    tree = linux.detached(str(layers.empty))
    try:
        yield tree
    finally:
        os.close(tree)


@contextmanager
def _listing(paths: Sequence[bytes]) -> Iterator[int]:
    listed = os.memfd_create("left-out", os.MFD_CLOEXEC)
    try:
        with open(listed, "wb", closefd=False) as stream:
            stream.writelines(path + b"\0" for path in paths)
        yield listed
    finally:
        os.close(listed)
