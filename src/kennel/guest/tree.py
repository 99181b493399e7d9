"""Owns finding and signalling every process below some others, by /proc/<pid>/task/<tid>/children.

Called by felling and by operations that signal. Invariant: no step is longer than it is told, whatever a fork bomb
makes of the tree; a process that leaves its group, session or parent stays below its subreaper and is found again.
"""

from __future__ import annotations

import os
from time import monotonic

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Container

_MOST = 50_000
"""Processes one walk looks at; more than any limit of a sandbox lets exist."""
_ONE_THREAD = 3
"""Links of /proc/<pid>/task when there is one thread."""
_LISTED = os.path.exists(f"/proc/self/task/{os.getpid()}/children")
_FRESH = 0.002
_families: tuple[float, dict[int, list[int]]] = (0.0, {})


def children(pid: int) -> list[int]:
    """The direct children of every thread of `pid`; empty when it is gone."""
    if not _LISTED:
        return _parents().get(pid, [])
    folder = f"/proc/{pid}/task"
    try:
        threads = [str(pid)] if os.stat(folder).st_nlink == _ONE_THREAD else os.listdir(folder)
    except OSError:
        return []
    found: list[int] = []
    for thread in threads:
        found.extend(map(int, _read(f"{folder}/{thread}/children").split()))
    return found


def _parents() -> dict[int, list[int]]:
    """Who is whose child by /proc/*/stat, for kernels built without lists of children; looked up anew after _FRESH."""
    global _families
    if monotonic() - _families[0] < _FRESH:
        return _families[1]
    found: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            fields = _read(f"/proc/{name}/stat").rpartition(b")")[2].split()
            if len(fields) > 1:
                found.setdefault(int(fields[1]), []).append(int(name))
    _families = (monotonic(), found)
    return found


def _read(path: str) -> bytes:
    """A file of /proc, whole; empty when its process is gone."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    pieces: list[bytes] = []
    try:
        while len(pieces) < 256 and (piece := os.read(fd, 65536)):
            pieces.append(piece)
    except OSError:
        pieces.clear()
    finally:
        os.close(fd)
    return b"".join(pieces)


def top(roots: tuple[int, ...], spare: Container[int]) -> list[int]:
    """The direct children of `roots` that are not spared; empty means that nothing is left below."""
    return [pid for root in roots for pid in children(root) if pid not in spare]


class Walk:
    """Signals every process below `roots` but `spare` and what is below those, nearest first, a few at a time.

    With `groups` whole process groups are signalled at their first member: under the kernel's lock against fork, so
    that a bomb inside one group ends in one stroke. The group `struck` has had its signal already.
    """

    __slots__ = ("_groups", "_next", "_numbers", "_seen", "_spare", "found")

    def __init__(
        self,
        roots: tuple[int, ...],
        numbers: tuple[int, ...],
        spare: Container[int] = (),
        groups: bool = True,
        struck: int = 0,
    ) -> None:
        self._numbers = numbers
        self._spare = spare
        self._groups: set[int] | None = {struck} if groups else None
        self._next = 0
        self.found = top(roots, spare)
        self._seen = set(self.found)

    def step(self, count: int) -> bool:
        """Signals `count` more; true when there are no more."""
        for _ in range(count):
            if self._next >= len(self.found) or self._next >= _MOST:
                return True
            pid = self.found[self._next]
            self._next += 1
            below = children(pid)
            self._signal(pid)
            for child in below:
                if child not in self._seen and child not in self._spare:
                    self._seen.add(child)
                    self.found.append(child)
        return self._next >= len(self.found)

    def _signal(self, pid: int) -> None:
        try:
            group = os.getpgid(pid)
        except OSError:
            return  # gone since it was listed
        if self._groups is None or group in (0, 1, os.getpgrp()):
            signal_one(pid, *self._numbers)
        elif group not in self._groups:
            self._groups.add(group)
            signal_group(group, *self._numbers)


def signal_below(roots: tuple[int, ...], number: int, spare: Container[int] = (), groups: bool = True) -> None:
    """One signal to everything below `roots`, in one go; for trees of a usual size."""
    Walk(roots, (number,), spare, groups).step(2000)


def signal_one(pid: int, *numbers: int) -> None:
    """Signals to one process, gone or not."""
    try:
        for number in numbers:
            os.kill(pid, number)
    except OSError:
        return


def signal_group(group: int, *numbers: int) -> None:
    """Signals to a group, gone or not."""
    try:
        for number in numbers:
            os.killpg(group, number)
    except OSError:
        return
