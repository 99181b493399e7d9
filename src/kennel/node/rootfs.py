"""Owns the mounts of a sandbox that do not last: overlays for `/`, and for `/usr` where the image keeps it apart.

Called by uppers and unit. Invariant: lower layers are id-mapped and read-only, uppers lie on the sandbox's disk, and
nothing is ever mounted onto a path that a sandbox wrote (the runtime places `/usr` and `/workspace` with a checked
resolve).
"""

from __future__ import annotations

import errno
import os
import stat
from dataclasses import dataclass
from pathlib import Path

from kennel.node import folder, idmap, linux
from kennel.steps import step

MOUNT_POINTS = ("dev", "proc", "sys", "usr", "workspace", ".kennel")


@dataclass(frozen=True, slots=True)
class Places:
    """Where a sandbox's things lie under its folder."""

    folder: Path

    @property
    def image(self) -> Path:
        return self.folder / "disk.img"

    @property
    def disk(self) -> Path:
        return self.folder / "disk"

    @property
    def root(self) -> Path:
        return self.folder / "root"

    @property
    def usr(self) -> Path:
        return self.folder / "usr"

    @property
    def workspace(self) -> Path:
        return self.folder / "workspace"

    @property
    def netns(self) -> Path:
        return self.folder / "netns"

    @property
    def buckets(self) -> Path:
        return self.folder / "buckets"

    @property
    def bundle(self) -> Path:
        return self.folder / "bundle"

    @property
    def socket(self) -> Path:
        return self.folder / "guest.sock"

    @property
    def held(self) -> Path:
        return self.folder / "layers.json"

    @property
    def record(self) -> Path:
        return self.folder / "record.json"


def assemble(places: Places, root: Path, usr: Path | None, id_base: int) -> None:
    """Mounts the overlays of a sandbox's `/` and `/usr` whose disk is mounted; whatever is already there is left.

    `root` and `usr` are the image's read-only folders; `usr` is None where it lies in `root`.
    """
    with idmap.mapping(id_base) as userns:
        _overlay(places, "root", root, userns)
        if usr is not None:
            _overlay(places, "usr", usr, userns)


def _overlay(places: Places, name: str, source: Path, userns: int) -> None:
    target = places.folder / name
    if os.path.ismount(target):
        return
    shifted = places.folder / f"lower-{name}"
    with step("mkdir", shifted.name):
        shifted.mkdir(exist_ok=True)
    with step("mount", shifted.name):
        linux.clone_mount_idmapped(str(source), str(shifted), userns, read_only=True)
    try:
        _mount_overlay(places, name, shifted, target)
    finally:
        # The overlay holds its own clone of the layer, so the host's mount table need not.
        with step("unmount", shifted.name):
            linux.umount(str(shifted), linux.MNT_DETACH)


def _mount_overlay(places: Places, name: str, lower: Path, target: Path) -> None:
    if os.path.ismount(target):
        return
    with step("mkdir", target.name):
        target.mkdir(exist_ok=True)
    descriptor = os.open(places.folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        # By descriptor, because the sandbox reads these options in its mount table and host paths are not its business.
        here = f"/proc/self/fd/{descriptor}"
        layers = f"lowerdir={here}/{lower.name},upperdir={here}/disk/{name}/upper,workdir={here}/disk/{name}/work"
        # redirect_dir: without it renaming a directory of a lower layer is EXDEV, and npm and cargo break.
        options = f"{layers},redirect_dir=on,index=off,metacopy=off"
        with step("mount", target.name):
            linux.mount("kennel", str(target), "overlay", linux.MS_NODEV, options)
    finally:
        os.close(descriptor)


def require_folders(root: Path) -> None:
    """Raises OSError when a place the runtime mounts on is anything but a folder or absent.

    A link there makes some runtimes create or delete files on the host (CVE-2026-41579); only an image can hold one.
    """
    for name in MOUNT_POINTS:
        try:
            found = os.lstat(root / name)
        except FileNotFoundError:
            continue
        if not stat.S_ISDIR(found.st_mode):
            raise NotADirectoryError(errno.ENOTDIR, "the image's mount point is no folder", f"/{name}")


def take_down(places: Places) -> None:
    """Unmounts everything below a sandbox's folder, the newest first."""
    for target in reversed(folder.mount_points_below(places.folder)):
        with step("unmount", os.path.basename(target)):
            linux.umount(target, linux.MNT_DETACH)
