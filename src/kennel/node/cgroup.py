"""Owns reading and writing a sandbox's control groups, version 1 and version 2.

Called by unit and census. The runtime makes the groups; this puts the CPU limit on once the guest is ready and reads
usage. Invariant: only paths below this installation's own group are touched. (Version 2 is tested on a fake tree.)
"""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from kennel.steps import step

PERIOD_US = 100_000


@dataclass(frozen=True, slots=True)
class Tree:
    """Where the controllers are mounted: one folder per controller (v1) or one for all (v2, under `unified`).

    `roots` are all hierarchies of the machine, named ones and an empty v2 tree too: a runtime makes groups in each.
    """

    v1: dict[str, Path]
    unified: Path | None
    roots: tuple[Path, ...] = ()

    def folders(self, group: str) -> list[Path]:
        """Every existing folder of `group`."""
        return [root / group for root in self.roots if (root / group).is_dir()]


def find(mounts: str = "/proc/self/mounts") -> Tree:
    """The tree of this machine. A hybrid machine counts as v1: its v2 tree carries no cpu or memory."""
    v1: dict[str, Path] = {}
    unified: Path | None = None
    roots: dict[Path, None] = {}
    for line in Path(mounts).read_text().splitlines():
        _, target, kind, options, *_ = line.split()
        if kind in ("cgroup", "cgroup2"):
            roots[Path(target)] = None
        if kind == "cgroup":
            for option in options.split(","):
                if option in ("cpu", "cpuacct", "memory", "pids", "freezer", "devices", "blkio", "cpuset"):
                    v1[option] = Path(target)
        elif kind == "cgroup2":
            unified = Path(target)
    return Tree(v1, None if "memory" in v1 else unified, tuple(roots))


def limit_cpu(tree: Tree, group: str, milli_cpu: int) -> None:
    """Allows `milli_cpu` thousandths of a CPU per 100 ms period."""
    quota = milli_cpu * PERIOD_US // 1000
    if tree.unified is not None:
        with step("limit cpu"):
            (tree.unified / group / "cpu.max").write_text(f"{quota} {PERIOD_US}")
        return
    folder = tree.v1["cpu"] / group
    with step("limit cpu"):
        (folder / "cpu.cfs_period_us").write_text(str(PERIOD_US))
        (folder / "cpu.cfs_quota_us").write_text(str(quota))


def oom_kills(tree: Tree, group: str) -> int:
    """How many processes of the group the kernel killed for want of memory."""
    if tree.unified is not None:
        return _field(tree.unified / group / "memory.events", "oom_kill")
    return _field(tree.v1["memory"] / group / "memory.oom_control", "oom_kill")


def memory(tree: Tree, group: str) -> int:
    """Bytes charged to the group."""
    if tree.unified is not None:
        return _number(tree.unified / group / "memory.current")
    return _number(tree.v1["memory"] / group / "memory.usage_in_bytes")


def pids(tree: Tree, group: str) -> int:
    """Tasks in the group."""
    return _number((tree.unified or tree.v1["pids"]) / group / "pids.current")


def cpu_seconds(tree: Tree, group: str) -> float:
    """CPU time the group used so far, in seconds."""
    if tree.unified is not None:
        return _field(tree.unified / group / "cpu.stat", "usage_usec") / 1e6
    return _number(tree.v1["cpuacct"] / group / "cpuacct.usage") / 1e9


def remove(tree: Tree, group: str, seconds: float = 5.0) -> None:
    """Removes the folders of a group, kills what still runs in it and waits for that to be gone.

    Nothing does unless a runtime was cut off before it wrote down what it had started.
    """
    deadline = time.monotonic() + seconds
    with step("remove cgroups"):
        for folder in tree.folders(group):
            _remove(folder, deadline)


def _remove(folder: Path, deadline: float) -> None:
    while folder.is_dir():
        for child in sorted((p for p in folder.rglob("*") if p.is_dir()), reverse=True):
            with suppress(OSError):
                child.rmdir()
        try:
            folder.rmdir()
        except OSError:
            if time.monotonic() > deadline:
                raise
            _kill(folder)
            time.sleep(0.005)


def _kill(folder: Path) -> None:
    """SIGKILLs whatever is in this folder of a group or below it."""
    for listing in folder.rglob("cgroup.procs"):
        with suppress(OSError):
            for pid in listing.read_text().split():
                os.kill(int(pid), signal.SIGKILL)


def remove_if_empty(tree: Tree, group: str) -> None:
    """Removes the folders of a group that other installations on this machine may share."""
    for folder in tree.folders(group):
        with step("remove group of installation"), suppress(OSError):
            folder.rmdir()


def _number(path: Path) -> int:
    try:
        return int(path.read_text())
    except FileNotFoundError:
        return 0


def _field(path: Path, name: str) -> int:
    try:
        lines = path.read_text().splitlines()
    except FileNotFoundError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.split()[0] == name), 0)
