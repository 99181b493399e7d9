"""Owns killing: every process below a subreaper, found by /proc/<pid>/task/<tid>/children and signalled.

Called by exec, session and reaper. Invariant: one pass is bounded, and passes repeat until the subreaper reports that
it has no children; a process that leaves its group, session or parent stays below the subreaper and is found again.
"""

from __future__ import annotations

import os

from .native import SIGKILL

_MOST = 50_000
"""Processes one pass looks at; more than any limit of a sandbox lets exist."""


def children(pid: int) -> list[int]:
    """The direct children of every thread of `pid`; empty when it is gone."""
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return []
    found: list[int] = []
    for thread in threads:
        found.extend(map(int, read_proc(f"/proc/{pid}/task/{thread}/children").split()))
    return found


def read_proc(path: str) -> bytes:
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


def descendants(roots: tuple[int, ...], spare: frozenset[int] = frozenset()) -> list[int]:
    """Every process below `roots`, nearest first, without `spare` and what is below those (unless a root itself)."""
    found = [pid for root in roots for pid in children(root) if pid not in spare]
    seen = set(found)
    at = 0
    while at < len(found) and len(found) < _MOST:
        for pid in children(found[at]):
            if pid not in seen and pid not in spare:
                seen.add(pid)
                found.append(pid)
        at += 1
    return found


def signal_below(roots: tuple[int, ...], number: int, spare: frozenset[int] = frozenset()) -> int:
    """Signals every process below `roots`, whole groups at once where nothing is spared; says how many there were.

    A group is signalled under the kernel's lock against fork, so that a bomb inside one group ends in one stroke.
    """
    found = descendants(roots, spare)
    groups: set[int] = set()
    if not spare:
        own = {*map(_group, roots), 0, 1, os.getpgrp()}
        for pid in found:
            group = _group(pid)
            if group not in groups and group not in own:
                groups.add(group)
                _signal_group(group, number)
    if spare or number == SIGKILL:
        for pid in found:
            signal_one(pid, number)
    return len(found)


def _group(pid: int) -> int:
    try:
        return os.getpgid(pid)
    except OSError:
        return 0


def signal_one(pid: int, number: int) -> None:
    """One signal to one process, gone or not."""
    try:
        os.kill(pid, number)
    except OSError:
        return  # gone since it was listed


def _signal_group(group: int, number: int) -> None:
    try:
        os.killpg(group, number)
    except OSError:
        return
