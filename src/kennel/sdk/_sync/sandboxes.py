# Generated from sdk/_async by tools/make_sync.py; change it there.
"""Owns a project's collection of sandboxes: addressing one, listing them.

Called by programs through `itx.sandboxes`. Invariant: neither addressing nor listing wakes or creates anything.
"""

from __future__ import annotations

import builtins

from kennel.sdk._sync.sandbox import Sandbox
from kennel.sdk._sync.transport import Transport
from kennel.sdk.answers import SandboxPage, UsagePage
from kennel.sdk.names import sandbox_name, segment
from kennel.wire.results import SandboxView, UsageView


class Sandboxes:
    """The sandboxes of one project."""

    def __init__(self, transport: Transport, project: str) -> None:
        self._transport = transport
        self._route = f"/v1/projects/{segment(project)}/sandboxes"
        self._usage = f"/v1/projects/{segment(project)}/usage"

    def get(self, path: str) -> Sandbox:
        """A handle on `/sandboxes/NAME` (or `NAME`), whether it exists or not; no I/O. INVALID_PATH for other paths."""
        name = sandbox_name(path)
        return Sandbox(self._transport, f"{self._route}/{segment(name)}", name)

    def list(
        self,
        *,
        status: str | None = None,
        label: str | None = None,
        include_destroyed: bool = False,
        limit: int | None = None,
    ) -> list[SandboxView]:
        """Every sandbox, or the first `limit`, those with a `status` or a `label` (`key=value`) only.

        Pages are fetched as needed; destroyed sandboxes are left out unless asked for.
        """
        query = {"status": status, "label": label, "includeDestroyed": "true" if include_destroyed else None}
        asked = {key: value for key, value in query.items() if value is not None}
        found: list[SandboxView] = []
        seen: set[str] = set()
        while limit is None or len(found) < limit:
            if limit is not None:
                asked["limit"] = str(min(limit - len(found), 100))
            page = self._transport.call("GET", self._route, SandboxPage, query=asked, repeat=True)
            found += page.sandboxes
            if page.cursor is None or page.cursor in seen:
                break
            seen.add(page.cursor)
            asked["cursor"] = page.cursor
        return found

    def usage(self) -> builtins.list[UsageView]:
        """What each running sandbox uses: CPU seconds, bytes of memory and disk, processes; beside its limits."""
        found: builtins.list[UsageView] = []
        asked: dict[str, str] = {}
        seen: set[str] = set()
        while True:
            page = self._transport.call("GET", self._usage, UsagePage, query=asked, repeat=True)
            found += page.usage
            if page.cursor is None or page.cursor in seen:
                return found
            seen.add(page.cursor)
            asked["cursor"] = page.cursor
