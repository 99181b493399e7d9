"""Owns deleting a tree that a sandbox wrote and nobody wants any more, inside the confined process.

Called by jobs; standard library only. Invariant: it works by descriptors below the folder it was given, follows no
link, and needs the same memory and descriptors however wide or deep the tree is.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from typing import Final

from kennel.node.packing.build import Tally

DEEPEST: Final = 64
"""Levels that are entered; what lies deeper is moved to the top first, so no path and no recursion grows."""

_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Sweep:
    """Empties the directory `root` (an open descriptor)."""

    def __init__(self, root: int, tick: Callable[[Tally], None]) -> None:
        self._root, self._tick = root, tick
        self._moved = 0
        self.tally = Tally()

    def run(self) -> None:
        self._empty(self._root, 1)

    def _empty(self, folder: int, level: int) -> None:
        found = True
        while found:
            found = False
            with os.scandir(folder) as entries:
                for entry in entries:
                    found = True
                    if entry.is_dir(follow_symlinks=False):
                        self._remove(folder, entry.name, level)
                    else:
                        os.unlink(entry.name, dir_fd=folder)
                        self._count()

    def _remove(self, folder: int, name: str, level: int) -> None:
        if level >= DEEPEST:
            self._lift(folder, name)
            return
        inner = os.open(name, _DIRECTORY, dir_fd=folder)
        try:
            self._empty(inner, level + 1)
        finally:
            os.close(inner)
        os.rmdir(name, dir_fd=folder)
        self._count()

    def _lift(self, folder: int, name: str) -> None:
        """Moves a directory to the top, under a name that an earlier sweep, cut off, did not use."""
        while True:
            self._moved += 1
            try:
                os.rename(name, f"deep{self._moved}", src_dir_fd=folder, dst_dir_fd=self._root)
                return
            except OSError as failure:
                if failure.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
                    raise

    def _count(self) -> None:
        self.tally.entries += 1
        self._tick(self.tally)
