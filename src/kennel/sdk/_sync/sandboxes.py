# Generated from sdk/_async by tools/make_sync.py; change it there.
"""Owns a project's collection of sandboxes: addressing one, listing them, making one of an export.

Called by programs through `itx.sandboxes`. Invariant: neither addressing nor listing wakes or creates anything.
"""

from __future__ import annotations

import builtins

from kennel.sdk._sync.files import Content, pieces
from kennel.sdk._sync.sandbox import Sandbox
from kennel.sdk._sync.snapshots import SECONDS
from kennel.sdk._sync.transport import Transport
from kennel.sdk.answers import SandboxPage, UsagePage
from kennel.sdk.names import new_request_id, sandbox_name, segment
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

    def import_(
        self,
        path: str,
        content: Content,
        *,
        instance_type: str | None = None,
        persist: str | None = None,
        request_id: str | None = None,
    ) -> Sandbox:
        """A new sandbox at `path` whose /workspace is the tar.zst that `export_snapshot` gave, here or elsewhere.

        `content` is bytes, an open binary file or an iterable of bytes; only the first is in memory. It is unpacked
        inside the sandbox. One that was cut off can be imported again under the `request_id` of before.
        """
        box = self.get(path)
        asked = {"path": box.path, "instanceType": instance_type, "persist": persist}
        query = {word: value for word, value in asked.items() if value is not None}
        self._transport.send(
            "POST", f"{self._route}/import", content if isinstance(content, bytes) else pieces(content), query=query,
            request_id=request_id or new_request_id(), extra=SECONDS,
        )  # fmt: skip
        return box

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
