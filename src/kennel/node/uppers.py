"""Owns the writable files of sandboxes as stacks of layers: mounting them, packing them, dropping them.

Called by unit and layer_verbs. Invariant: an upper is packed with the stack it lies on, never another; a disk is
dropped only while nothing of it is mounted; a sandbox that does not run has its disk mounted only inside one call.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from kennel.domain import disk_room
from kennel.domain.instance_type import InstanceType
from kennel.domain.layer import LayerInfo
from kennel.domain.stack import pushed
from kennel.node import discarded, disk, loop, rootfs, stack
from kennel.node.discarded import Sweeps
from kennel.node.freezer import Freezer
from kennel.node.layers import Layers
from kennel.node.pack import Caps, LeftOut, Manner, Packing, Upper
from kennel.node.packer import Packer
from kennel.node.record import Record
from kennel.steps import step
from kennel.wire.errors import error
from kennel.wire.node import Made, Packed, Part, Pointed

T = TypeVar("T")
SYSTEM = ("root", "usr")
POINT = Caps(bytes=256 << 20, entries=50_000, seconds=10.0)
"""What a point may cost: it is taken before a command, which waits for it."""
SMALL_BYTES, SMALL_NAMES = 4 << 20, 500
"""Uppers that are copied within the freeze, in milliseconds; a pass before it would cost more than it spares."""


Work = Callable[[rootfs.Places, Record, Freezer | None, Callable[[int, int], None]], T]
"""What is done with an opened disk: the last argument is called with names and bytes so far, and may raise."""


@dataclass(frozen=True, slots=True)
class Stacks:
    """What a disk's uppers lie on, or are to; `root` and `usr` are None where what is outside does not last.

    `image` is the digest of the image that `root` and `usr` were made on.
    """

    workspace: Sequence[str] = ()
    root: Sequence[str] | None = None
    usr: Sequence[str] | None = None
    image: str | None = None

    def named(self) -> list[str]:
        return [*self.workspace, *(self.root or ()), *(self.usr or ())]


@dataclass(frozen=True, slots=True)
class Lower:
    """A read-only part of a sandbox's image, and the image's digest."""

    root: Path
    usr: Path | None
    digest: str


class Uppers:
    """Over one cache of layers."""

    def __init__(self, folder: Path) -> None:
        self.packer = Packer()
        self.layers = Layers(folder, self.packer)
        self.layers.sweep()
        self.packing = Packing(self.layers, self.packer)
        self.sweeps = Sweeps(self.packer)

    def require(self, asked: Iterable[str]) -> None:
        """LAYER_MISSING with all of those that are not here, as `details.layers`."""
        missing = sorted({layer for layer in asked if not self.layers.has(layer)})
        if missing:
            raise error("LAYER_MISSING", f"{len(missing)} layers are not on this machine", details={"layers": missing})

    def room(self, stacks: Stacks, size: InstanceType) -> int:
        """Bytes of the quota that these stacks take; DISK_TOO_SMALL when they do not fit this type."""
        held = sum(self.layers.size(layer) for layer in dict.fromkeys(stacks.named()))
        refused = disk_room.refusal(held, size)
        if refused is not None:
            raise refused
        return held

    def plan(self, places: rootfs.Places, image: str, asked: Stacks) -> Stacks:
        """The stacks to mount on a mounted disk whose sandbox has this image now.

        What is outside `/workspace` begins anew where it does not last, and where it was made on another image.
        """
        known = self.recorded(places)
        if asked.root is None and (known is None or known.root is None):
            discarded.discard(places.disk, SYSTEM)
            return Stacks(asked.workspace if known is None else known.workspace)
        found = known or asked
        if found.image == image or (known is None and not found.root and not found.usr):
            return Stacks(found.workspace, found.root or (), found.usr, image)
        # One without a record was never mounted: this start was cut off before, and what there was is aside already.
        discarded.set_aside(places.disk, [name for name in SYSTEM if stack.recorded(places.disk / name) is not None])
        return Stacks(found.workspace, (), (), image)

    def mount(self, places: rootfs.Places, record: Record, lower: Lower, planned: Stacks) -> Stacks:
        """Mounts a sandbox's overlays on its mounted disk; the stacks they really lie on."""
        workspace, root, usr = planned.workspace, planned.root, planned.usr
        if root is None:
            rootfs.assemble(places, lower.root, lower.usr, record.id_base)
            self._mount(places, "workspace", workspace, record)
            return planned
        root = self._mount(places, "root", root, record, stack.Image(lower.root, lower.digest))
        if lower.usr is not None:
            usr = self._mount(places, "usr", usr or (), record, stack.Image(lower.usr, lower.digest))
        self._mount(places, "workspace", workspace, record)
        return Stacks(workspace, root, usr, lower.digest)

    def _mount(
        self, places: rootfs.Places, name: str, asked: Sequence[str], record: Record, image: stack.Image | None = None
    ) -> list[str]:
        with step("mount stack", name):
            return stack.mount_stack(
                self.layers, places.folder, name, places.folder / name, asked, record.id_base, image=image
            )

    @staticmethod
    def recorded(places: rootfs.Places) -> Stacks | None:
        """The stacks that the uppers of a mounted disk lie on; None before their first mount."""
        workspace = stack.recorded(places.disk / "workspace")
        if workspace is None:
            return None
        root, usr = (stack.recorded(places.disk / name) for name in SYSTEM)
        return Stacks(workspace, root, usr, stack.recorded_image(places.disk / "root"))

    @contextmanager
    def opened(self, places: rootfs.Places, *, running: bool) -> Iterator[None]:
        """The disk, mounted for the length of the block unless the sandbox runs on it."""
        if running:
            with disk.told():
                yield
            return
        if not places.image.exists():
            raise error("SNAPSHOT_MISSING", "the sandbox has no disk here", admitted="no")
        disk.mount(places.image, places.disk)
        try:
            with disk.told():
                yield
        finally:
            rootfs.take_down(places)
            loop.wait_released(str(places.image))

    def pack(
        self,
        places: rootfs.Places,
        record: Record,
        left_out: LeftOut,
        freezer: Freezer | None,
        look: Callable[[int, int], None],
    ) -> Packed | None:
        """The uppers of an opened disk as layers; None when nothing ever ran on it."""
        known = self.recorded(places)
        if known is None:
            return None
        parts: dict[str, Part] = {}
        for name in ("workspace", *SYSTEM):
            below = getattr(known, name)
            if below is not None:
                parts[name] = self._pack(
                    Upper(places.disk / name / "upper", record.id_base, below, name in SYSTEM),
                    left_out if name == "workspace" else LeftOut(),
                    freezer,
                    look,
                )
        frozen = freezer.frozen_seconds * 1000 if freezer is not None else 0.0
        return Packed(parts["workspace"], parts.get("root"), parts.get("usr"), round(frozen, 3), known.image)

    def point(
        self, places: rootfs.Places, record: Record, seen: str, freezer: Freezer, look: Callable[[int, int], None]
    ) -> Pointed:
        """As `pack`, of a sandbox that runs and with nothing left out; without layers when it is as at mark `seen`."""
        known = self.recorded(places)
        if known is None:
            return Pointed("")
        names = [name for name in ("workspace", *SYSTEM) if getattr(known, name) is not None]
        folders = [places.disk / name / "upper" for name in names]
        found = self.packing.look(folders, POINT, seen)
        if seen and found.mark == seen:
            return Pointed(seen, found.names)
        manner = Manner(salt=record.sandbox, small=found.bytes <= SMALL_BYTES and found.names <= SMALL_NAMES)
        parts: dict[str, Part] = {}
        for name, folder in zip(names, folders, strict=True):
            upper = Upper(folder.parent / "upper", record.id_base, getattr(known, name), name in SYSTEM)
            with step("pack point"):
                made = self.packing.pack(upper, freezer=freezer, progress=look, caps=POINT, manner=manner)
            parts[name] = self._part(upper, made)
        frozen = round(freezer.frozen_seconds * 1000, 3)
        return Pointed(found.mark, found.names, Packed(parts["workspace"], parts.get("root"), parts.get("usr"), frozen))

    def _pack(self, upper: Upper, left_out: LeftOut, freezer: Freezer | None, look: Callable[[int, int], None]) -> Part:
        with step("pack"):
            made = self.packing.pack(upper, left_out, freezer=freezer, progress=look)
        return self._part(upper, made)

    def _part(self, upper: Upper, made: LayerInfo) -> Part:
        if self._unchanged(upper, made):
            return Part(list(upper.below))
        words = Made(made.digest, made.size, made.unpacked, made.entries, made.left_out, made.left_out_bytes)
        return Part(list(pushed(upper.below, made)), words)

    def _unchanged(self, upper: Upper, made: LayerInfo) -> bool:
        """Whether the upper holds nothing, and its root is what the stack's root is."""
        if made.entries > 0 or made.left_out > 0:
            return False
        if not upper.below:
            return upper.on_image
        here, below = os.stat(upper.folder), os.stat(self.layers.mounted(upper.below[0]))
        shift = upper.id_base
        return (here.st_mode, here.st_uid - shift, here.st_gid - shift, here.st_mtime_ns) == (
            below.st_mode,
            below.st_uid,
            below.st_gid,
            below.st_mtime_ns,
        )

    def close(self) -> None:
        """Lets go of every layer that is mounted."""
        self.packer.close()
        self.layers.trim()
