"""Owns node's folder as a mount of its own, so that mounts below it do not spread to other mount namespaces.

Called at node's start and end. Invariant: private propagation: on machines where `/` is shared, every mount of a
sandbox would otherwise be copied into each service's namespace and keep its disk busy there.
"""

from __future__ import annotations

import os
from pathlib import Path

from kennel.node import linux


def hold(folder: Path) -> None:
    """Makes `folder` a private mount point; a second call is a no-op."""
    if os.path.ismount(folder):
        return
    linux.mount(str(folder), str(folder), None, linux.MS_BIND)
    linux.mount("none", str(folder), None, linux.MS_PRIVATE)


def release(folder: Path) -> None:
    """Undoes `hold`."""
    while os.path.ismount(folder):
        linux.umount(str(folder), linux.MNT_DETACH)
