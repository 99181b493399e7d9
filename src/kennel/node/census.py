"""Owns the count of everything on this machine that carries a sandbox's name.

Called by server, and by the tests that look for residue. Invariant: it only looks, and it looks at the machine, not at
what node remembers: a resource whose record is gone still shows.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

from kennel.node.cgroup import Tree
from kennel.node.folder import mount_points_below
from kennel.node.unit import Units
from kennel.wire.node import Unit


def take(units: Units) -> list[Unit]:
    """One row per sandbox that has a folder, record, container, mount, loop device, cgroup or namespace here."""
    folder = units.grounds.sandboxes
    found: defaultdict[str, Unit] = defaultdict(lambda: Unit(""))
    for path in folder.iterdir():
        found[path.name].netns = (path / "netns").exists()
    for record in units.records.all():
        row = found[record.sandbox]
        row.record, row.instance_type, row.image_digest = True, record.instance_type, record.image_digest
    for container in units.runtime.list():
        found[container].container = True
        found[container].running = units.runtime.pid(container) is not None
    for sandbox, count in _mounts(folder).items():
        found[sandbox].mounts = count
    for sandbox in _loops(folder):
        found[sandbox].loop = True
    for sandbox in _groups(units.tree, units.grounds.group):
        found[sandbox].cgroup = True
    for sandbox, row in found.items():
        row.sandbox = sandbox
    return sorted(found.values(), key=lambda row: row.sandbox)


def _mounts(folder: Path) -> dict[str, int]:
    counts: defaultdict[str, int] = defaultdict(int)
    prefix = f"{folder}/"
    for target in mount_points_below(folder):
        counts[target[len(prefix) :].split("/")[0]] += 1
    return dict(counts)


def _loops(folder: Path) -> set[str]:
    prefix, found = f"{folder}/", set()
    for entry in Path("/sys/block").glob("loop*/loop/backing_file"):
        try:
            backing = entry.read_text().rstrip("\n")
        except OSError:
            continue  # released while we looked
        if backing.startswith(prefix):
            found.add(backing[len(prefix) :].split("/")[0])
    return found


def _groups(tree: Tree, group: str) -> set[str]:
    return {path.name for root in tree.folders(group) for path in root.iterdir() if path.is_dir()}
