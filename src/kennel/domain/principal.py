"""Owns who is calling: which key, which project it belongs to, what it may do.

Invariant: an admin key sees every project; any other key sees exactly one.
"""

from __future__ import annotations

from dataclasses import dataclass

SCOPES = ("read", "exec", "files", "lifecycle", "secrets", "policy", "admin")
DEFAULT_PROJECT = "default"


@dataclass(frozen=True, slots=True)
class Principal:
    """The holder of a key. `project` is None for a key of the installation; `admin` in scopes implies all."""

    key_id: str
    project: str | None
    scopes: frozenset[str]

    @property
    def admin(self) -> bool:
        return "admin" in self.scopes and self.project is None

    def may(self, scope: str, project: str) -> bool:
        """Whether this key may use `scope` in `project`."""
        if self.project is not None and self.project != project:
            return False
        return scope in self.scopes or "admin" in self.scopes


SYSTEM = Principal("system", None, frozenset(SCOPES))
"""Kennel itself: the reconciler, the idle timer, the first start."""
