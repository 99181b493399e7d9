"""Owns stopping every task of a sandbox for a moment, and letting them go on.

Called by pack. Invariant: whatever happens inside the `with`, the tasks run again afterwards (on cgroup version 1 a
frozen task ignores even SIGKILL until it is thawed).
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kennel.node.cgroup import Tree
from kennel.wire.errors import error


class Freezer:
    """The freezer of one group; `freeze` and `thaw` may be called in any order and number."""

    def __init__(self, tree: Tree, group: str) -> None:
        if tree.unified is not None:
            self._switch, self._on, self._off = tree.unified / group / "cgroup.freeze", "1", "0"
            self._state, self._frozen = tree.unified / group / "cgroup.events", "frozen 1"
        else:
            self._switch, self._on, self._off = tree.v1["freezer"] / group / "freezer.state", "FROZEN", "THAWED"
            self._state, self._frozen = self._switch, "FROZEN"
        self.frozen_seconds = 0.0
        self._since: float | None = None

    def freeze(self, seconds: float = 2.0) -> None:
        """Stops every task; RESOURCE_BUSY if one cannot be stopped in time (it waits in the kernel)."""
        deadline = time.monotonic() + seconds
        self._since = time.monotonic()
        self._switch.write_text(self._on)
        while self._frozen not in self._state.read_text().splitlines():
            if time.monotonic() > deadline:
                self.thaw()
                raise error("RESOURCE_BUSY", f"the sandbox's tasks could not be stopped within {seconds:g} seconds")
            time.sleep(0.0005)

    def thaw(self) -> None:
        """Lets every task run; a group that is gone has none."""
        if self._since is None:
            return
        write_if_there(self._switch, self._off)
        self.frozen_seconds += time.monotonic() - self._since
        self._since = None


@contextmanager
def thawed_after(freezer: Freezer) -> Iterator[Freezer]:
    """Thaws on every way out."""
    try:
        yield freezer
    finally:
        freezer.thaw()


def write_if_there(path: Path, word: str) -> None:
    """Writes to a control file, unless its group is gone."""
    try:
        path.write_text(word)
    except OSError:
        if path.exists():
            raise


def thaw(tree: Tree, group: str) -> None:
    """Lets a group run that an earlier process may have left frozen."""
    for root in [tree.unified] if tree.unified is not None else [tree.v1.get("freezer")]:
        if root is not None and (root / group).is_dir():
            unified = tree.unified is not None
            write_if_there(
                root / group / ("cgroup.freeze" if unified else "freezer.state"), "0" if unified else "THAWED"
            )
