"""Owns a sandbox's files without a sandbox: a disk, a cache of layers, a packing process, overlays, as node makes them.

Used by the tests of layers. Invariant: when it is closed, no mount, loop device, process or file of it is left.
"""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from kennel.domain.layer import LayerInfo
from kennel.node import disk, folder, linux, loop
from kennel.node.layers import Layers
from kennel.node.pack import LeftOut, Packing, Upper
from kennel.node.packer import Packer
from kennel.node.record import ID_FLOOR
from kennel.node.stack import mount_stack

SIZE = 1 << 30
USER = 1000


class Ground:
    """One sandbox folder whose disk holds any number of uppers, one per wake."""

    def __init__(self, size: int = SIZE) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="kennel-layers-", dir="/var/tmp"))
        self.packer = Packer()
        self.layers = Layers(self.folder / "layers", self.packer)
        self.packing = Packing(self.layers, self.packer)
        self.place = self.folder / "sandbox"
        self.place.mkdir()
        self.image = self.place / "disk.img"
        disk.copy_sparse(disk.golden(self.folder / "golden", size), self.image)
        disk.mount(self.image, self.place / "disk")
        self._wakes = 0

    def lay_out(self, ids: int = 0) -> str:
        """A new empty upper; its name. `ids` counts ranges of user ids."""
        self._wakes += 1
        name, base = f"w{self._wakes}", self.base(ids)
        for part in ("upper", "work"):
            made = self.place / "disk" / name / part
            made.mkdir(parents=True)
            os.chown(made, base, base)
        return name

    @staticmethod
    def base(ids: int) -> int:
        return ID_FLOOR + ids * 65536

    def wake(self, stack: Sequence[str], ids: int = 0) -> tuple[str, Path]:
        """A new upper mounted over `stack`: its name and where the tree is."""
        name = self.lay_out(ids)
        target = self.place / name
        mount_stack(self.layers, self.place, name, target, stack, self.base(ids))
        return name, target

    def rest(self, name: str) -> None:
        """Takes an overlay down."""
        linux.umount(str(self.place / name))

    def upper(self, name: str, below: Sequence[str] = (), ids: int = 0) -> Upper:
        return Upper(self.place / "disk" / name / "upper", self.base(ids), below)

    def pack(self, name: str, below: Sequence[str] = (), ids: int = 0, left_out: LeftOut | None = None) -> LayerInfo:
        return self.packing.pack(self.upper(name, below, ids), left_out or LeftOut())

    def close(self) -> None:
        self.packer.close()
        self.layers.trim()
        for target in reversed(folder.mount_points_below(self.folder)):
            linux.umount(target, linux.MNT_DETACH)
        # A process that makes a mount namespace just now (a container of another test) holds a copy for a while.
        assert loop.wait_released(str(self.image), 60), f"the disk is still held: {self._holders()}"
        shutil.rmtree(self.folder)

    def _holders(self) -> list[str]:
        found = []
        for table in Path("/proc").glob("[0-9]*/mountinfo"):
            try:
                if str(self.folder) in table.read_text(errors="replace"):
                    found.append((table.parent / "cmdline").read_text(errors="replace"))
            except OSError:
                continue  # it ended
        return found


def make_ground() -> Iterator[Ground]:
    """The body of a fixture."""
    if os.geteuid() != 0:
        pytest.skip("needs root: mounts are real here")
    made = Ground()
    try:
        yield made
    finally:
        made.close()


def tree(root: Path, base: int, *, links: bool = True) -> dict[bytes, Any]:
    """Everything a sandbox can see below `root`, by path; ids without their base, hard links as groups of names.

    Directories come without their times: those follow from when the test ran. Without `links` for an overlay: it gives
    each name of a lower layer's hard link a number of its own (index=off).
    """
    found: dict[bytes, Any] = {}
    groups: dict[tuple[int, int], list[bytes]] = {}
    top = os.fsencode(root)
    for where, folders, files in os.walk(top):
        for name in folders + files:
            path = os.path.join(where, name)
            info = os.lstat(path)
            key = os.path.relpath(path, top)
            found[key] = look(path, info, base)
            if links and info.st_nlink > 1 and not stat.S_ISDIR(info.st_mode):
                groups.setdefault((info.st_dev, info.st_ino), []).append(key)
    for names in groups.values():
        for name in names:
            found[name] = (*found[name], tuple(sorted(names)) if len(names) > 1 else ())
    return {key: value if len(value) > 6 else (*value, ()) for key, value in found.items()}


def look(path: bytes, info: os.stat_result, base: int) -> tuple[Any, ...]:
    """One entry: mode, owner, content, time and attributes."""
    kind = stat.S_IFMT(info.st_mode)
    content: Any = None
    marks: tuple[Any, ...] = ()
    if kind == stat.S_IFREG:
        with open(path, "rb") as stream:
            content = stream.read()
    elif kind == stat.S_IFLNK:
        content = os.readlink(path)
    if kind in (stat.S_IFREG, stat.S_IFDIR):
        names = [name for name in os.listxattr(path) if name.startswith("user.")]
        marks = tuple(sorted((name, os.getxattr(path, name)) for name in names))
    time = info.st_mtime_ns if kind != stat.S_IFDIR else 0
    return info.st_mode, info.st_uid - base, info.st_gid - base, content, time, marks
