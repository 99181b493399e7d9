"""Owns node's folder as a mount of its own, so that mounts below it do not spread to other mount namespaces.

Called at node's start and end. Invariant: private propagation: on machines where `/` is shared, every mount of a
sandbox would otherwise be copied into each service's namespace and keep its disk busy there.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from kennel.node import linux

_OCTAL = re.compile(rb"\\([0-7]{3})")


def hold(folder: Path) -> None:
    """Makes `folder` a private mount point; a second call is a no-op."""
    if held(folder):
        return
    linux.mount(str(folder), str(folder), None, linux.MS_BIND)
    linux.mount("none", str(folder), None, linux.MS_PRIVATE)


def release(folder: Path) -> None:
    """Undoes `hold`."""
    while held(folder):
        linux.umount(str(folder), linux.MNT_DETACH)


def held(folder: Path) -> bool:
    """Whether `folder` is a mount point, by the mount table: os.path.ismount does not see binds within one disk."""
    return str(folder) in mount_points()


def mount_points() -> list[str]:
    """Every mount point of this namespace, oldest first."""
    rows = Path("/proc/self/mountinfo").read_bytes().split(b"\n")
    return [os.fsdecode(_OCTAL.sub(_unescape, row.split(b" ", 5)[4])) for row in rows if row]


def mount_points_below(folder: Path) -> list[str]:
    """Mount points inside `folder`, oldest first."""
    prefix = f"{folder}/"
    return [target for target in mount_points() if target.startswith(prefix)]


def _unescape(match: re.Match[bytes]) -> bytes:
    return bytes([int(match[1], 8)])
