"""Owns the layers that are on this machine: images under their SHA-256, and their mounts, one each for all sandboxes.

Called by pack, stack and unit. Invariant: a file under a digest was hashed by a confined process from a descriptor that
nobody else can write, is complete and synced, and never changes; only such a file is ever mounted.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import struct
import threading
from collections.abc import Collection
from pathlib import Path

from kennel.domain.layer import LayerInfo, digest
from kennel.node import erofs, linux
from kennel.node.packer import Packer
from kennel.steps import step
from kennel.wire.errors import error

IMPORT_SECONDS = 1800.0
# The magic number, and the count of blocks 36 bytes into the superblock.
_SUPER_AT, _SUPER = 1024, struct.Struct("<I32xI")
_MAGIC, _BLOCK = 0xE0F5E1E2, 4096


class Layers:
    """The cache under `place`; one per installation and machine."""

    def __init__(self, place: Path, packer: Packer, max_image: int = 1 << 40) -> None:
        self._place, self._packer, self.max_image = place, packer, max_image
        self._mounts, self._coming, self.empty = place / "mounted", place / "coming", place / "empty"
        self._lock = threading.Lock()
        for made in (place, self._mounts, self._coming, self.empty):
            made.mkdir(mode=0o700, parents=True, exist_ok=True)

    def path(self, name: str) -> Path:
        return self._place / f"{digest(name)}.erofs"

    def sweep(self) -> int:
        """Deletes what an earlier process left half-made; how many files. Only at the start, before any verb."""
        left = list(self._coming.iterdir())
        for path in left:
            path.unlink()
        return len(left)

    def list(self) -> dict[str, int]:
        """Size in bytes by digest; without what is removed while this looks."""
        found = {}
        for path in self._place.glob("*.erofs"):
            with contextlib.suppress(FileNotFoundError):
                found[path.stem] = path.stat().st_size
        return found

    def size(self, name: str) -> int:
        """Bytes of the image: not compressed, so what its files take, holes aside. LAYER_MISSING."""
        try:
            return self.path(name).stat().st_size
        except FileNotFoundError:
            raise error("LAYER_MISSING", f"layer {name} is not on this machine", details={"layers": [name]}) from None

    def has(self, name: str) -> bool:
        return self.path(name).exists()

    def open(self, name: str) -> int:
        """A descriptor to read the image from, to hand to whoever uploads it; LAYER_MISSING if it is not here."""
        try:
            return os.open(self.path(name), os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            raise error("LAYER_MISSING", f"layer {name} is not on this machine") from None

    def begin(self) -> tuple[str, int]:
        """A token and a new empty file, to be filled and then kept by `keep` or dropped by `abandon`."""
        token = secrets.token_hex(16)
        with step("begin layer"):
            return token, os.open(self._coming / token, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)

    def abandon(self, token: str) -> None:
        """Drops a file that `begin` made; one that is gone is no error."""
        (self._coming / token).unlink(missing_ok=True)

    def keep(self, token: str, name: str, descriptor: int) -> None:
        """Puts the synced file of `begin` under its digest; one that is there already stays."""
        source, target = self._coming / token, self.path(name)
        os.fchmod(descriptor, 0o400)
        with self._lock, step("keep layer"):
            if target.exists():
                source.unlink()
                return
            os.rename(source, target)
        with step("sync layers"):
            _sync(self._place)

    def begin_import(self) -> int:
        """A descriptor to write the bytes of a fetched layer to (control may hold it).

        The file has no name: it is gone with its last descriptor, however the fetch ends and whoever dies.
        """
        token, descriptor = self.begin()
        self.abandon(token)
        return descriptor

    def commit_import(self, written: int, name: str) -> None:
        """Makes a filled file of `begin_import` a layer, if its bytes hash to `name` and look like one; LAYER_CORRUPT
        else.

        The bytes are copied while they are hashed, because whoever filled the file may still write to it.
        """
        if self.has(name):
            return
        token, copy = self.begin()
        try:
            answer = self._packer.run(
                {"job": "verify"}, [written, copy], seconds=IMPORT_SECONDS, max_image=self.max_image
            )
            if answer["digest"] != digest(name) or not answer["sane"]:
                raise error("LAYER_CORRUPT", f"what was fetched is not layer {name} but {answer['digest']}")
            self.keep(token, name, copy)
        finally:
            os.close(copy)
            self.abandon(token)

    def verify(self, name: str) -> bool:
        """Whether the image's bytes still hash to its name; one that does not is set aside, so it can be fetched."""
        image = self.open(name)
        try:
            answer = self._packer.run({"job": "verify"}, [image], seconds=IMPORT_SECONDS, max_image=self.max_image)
        finally:
            os.close(image)
        good = bool(answer["digest"] == name and answer["sane"])
        if not good:
            self._set_aside(name)
        return good

    def remove(self, name: str) -> None:
        """Deletes the image; running sandboxes that have it mounted keep it until they stop."""
        with self._lock, step("remove layer"):
            self._unmount(name)
            self.path(name).unlink(missing_ok=True)

    def mounted(self, name: str) -> Path:
        """Where the layer is mounted (ids as they are in it: 0 is a sandbox's root); LAYER_MISSING, LAYER_CORRUPT."""
        with self._lock:
            image = self.path(name)
            if os.path.ismount(self._mounts / name):
                return self._mounts / name
            if not image.exists():
                raise error("LAYER_MISSING", f"layer {name} is not on this machine")
            if not _plausible(image):
                self._set_aside(name)
                raise error("LAYER_CORRUPT", f"layer {name} is damaged on this machine; it can be fetched again")
            return erofs.mounted(image, self._mounts)

    def trim(self, wanted: Collection[str] = ()) -> int:
        """Unmounts layers that are not in `wanted`; how many. Sandboxes that run on one are not disturbed."""
        with self._lock:
            gone = [path.name for path in self._mounts.iterdir() if path.name not in wanted]
            for name in gone:
                self._unmount(name)
            return len(gone)

    def _unmount(self, name: str) -> None:
        target = self._mounts / digest(name)
        while os.path.ismount(target):
            linux.umount(str(target), linux.MNT_DETACH)
        if target.is_dir():
            target.rmdir()

    def _set_aside(self, name: str) -> None:
        os.rename(self.path(name), self._coming / f"damaged-{name}-{secrets.token_hex(4)}")


def kept(answer: dict[str, int | str]) -> LayerInfo:
    """What a confined job says it packed."""
    return LayerInfo(
        digest(str(answer["digest"])),
        int(answer["size"]),
        int(answer["bytes"]),
        int(answer["entries"]),
        int(answer["left_out"]),
        int(answer["left_out_bytes"]),
    )


def _plausible(image: Path) -> bool:
    """Whether the file is as long as its superblock says: a cheap look, the whole is `verify`'s."""
    descriptor = os.open(image, os.O_RDONLY | os.O_CLOEXEC)
    try:
        head = os.pread(descriptor, _SUPER.size, _SUPER_AT)
        size = os.fstat(descriptor).st_size
    finally:
        os.close(descriptor)
    if len(head) < _SUPER.size:
        return False
    magic, blocks = _SUPER.unpack(head)
    return bool(magic == _MAGIC and blocks * _BLOCK == size)


def _sync(place: Path) -> None:
    descriptor = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
