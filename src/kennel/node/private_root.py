"""Owns the root folder that a process gets for itself: system libraries, what its caller binds into it, nothing else.

Called by the confinement of services and by that of s3fs, each in the process that is to be confined, as root.
Invariant: it lies in a mount namespace of its own, on a file system in memory, and is read-only once it is entered;
nothing in it can raise a privilege by its set-id bits.
"""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

from kennel.node import linux

READ_ONLY = linux.MS_RDONLY | linux.MS_NODEV
_libc = ctypes.CDLL(None, use_errno=True)


def begin(root: Path) -> None:
    """Makes the namespace and, at `root`, the folder with the system's libraries; nothing of it shows outside."""
    linux.unshare(linux.CLONE_NEWNS)
    linux.mount("none", "/", None, linux.MS_REC | linux.MS_PRIVATE)
    linux.mount("kennel", str(root), "tmpfs", linux.MS_NOSUID | linux.MS_NODEV, "mode=755,size=1m")
    for name in ("usr", "bin", "sbin", "lib", "lib64", "lib32"):
        source = Path("/") / name
        if source.is_symlink():
            (root / name).symlink_to(os.readlink(source))
        elif source.is_dir():
            bind(source, root / name, READ_ONLY)


def bind(source: Path, target: Path, flags: int) -> None:
    """Shows `source` at `target`, which is made; without set-id bits whatever the mount's `flags` are."""
    if source.is_dir():
        target.mkdir(parents=True)
    else:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.touch()
    linux.mount(str(source), str(target), None, linux.MS_BIND)
    linux.mount("none", str(target), None, linux.MS_REMOUNT | linux.MS_BIND | linux.MS_NOSUID | flags)


def enter(root: Path) -> None:
    """Makes `root` the process's own, for good."""
    os.chdir(root)
    if _libc.pivot_root(b".", b".") != 0:
        raise OSError(ctypes.get_errno(), "pivot_root", str(root))
    linux.umount(".", linux.MNT_DETACH)
    os.chdir("/")
    linux.mount("none", "/", None, linux.MS_REMOUNT | linux.MS_BIND | linux.MS_NOSUID | READ_ONLY)
