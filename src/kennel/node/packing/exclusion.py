"""Owns the paths and names that a pack leaves out, as a tree to walk beside the real one.

Called by build inside the confined process; standard library only. Invariant: paths are compared as bytes, element by
element: nothing is resolved, so nothing a list says can reach outside the tree.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

Branch = dict[bytes, "Branch | None"]
"""Names of a directory that lead to excluded paths; None: this very name is excluded."""


class Exclusion:
    """What one pack leaves out: `paths` from the root, `names` wherever they stand."""

    def __init__(self, paths: Iterable[bytes] = (), names: Iterable[bytes] = ()) -> None:
        self.names = frozenset(names)
        self.root: Branch = {}
        for path in paths:
            _plant(self.root, path.split(b"/"))

    def among(self, branch: Mapping[bytes, Branch | None], names: Mapping[bytes, object]) -> set[bytes]:
        """Those of the `names` of the directory of `branch` that are left out."""
        found = {name for name, rest in branch.items() if rest is None and name in names}
        return found | (self.names & names.keys())

    def here(self, branch: Mapping[bytes, Branch | None], name: bytes) -> bool:
        """Whether `name` in the directory of `branch` is left out."""
        return name in self.names or (name in branch and branch[name] is None)


def _plant(root: Branch, parts: list[bytes]) -> None:
    branch = root
    for part in parts[:-1]:
        below = branch.setdefault(part, {})
        if below is None:
            return  # a directory above it is left out already
        branch = below
    branch[parts[-1]] = None
