"""Owns the mounts of EROFS images, one per image for all its sandboxes.

Called by unit. Invariant: read-only, `nodev`; a second call for the same image is a no-op.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

from kennel.node import linux, loop
from kennel.steps import step


def mounted(image: Path, folder: Path) -> Path:
    """The folder where `image` is mounted, below `folder`."""
    target = folder / image.stem
    if os.path.ismount(target):
        return target
    flags = linux.MS_RDONLY | linux.MS_NODEV
    with step("mount image"):
        target.mkdir(parents=True, exist_ok=True)
        try:
            linux.mount(str(image), str(target), "erofs", flags)
        except OSError as refused:
            if refused.errno != errno.ENOTBLK:
                raise
            # Before Linux 6.12 EROFS wants a block device.
            device, descriptor = loop.attach(str(image))
            try:
                linux.mount(device, str(target), "erofs", flags)
            finally:
                os.close(descriptor)
    return target


def release(folder: Path) -> None:
    """Unmounts every image below `folder`."""
    if not folder.is_dir():
        return
    for target in folder.iterdir():
        while os.path.ismount(target):
            with step("unmount image"):
                linux.umount(str(target), linux.MNT_DETACH)
