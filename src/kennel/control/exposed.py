"""Owns which ports of a sandbox have a preview, and connections to its ports.

Called by the API and by Previews. Invariants: a preview's token has 80 random bits and is valid until it is revoked,
through sleeps and restarts; revoking counts from the moment it is answered; exposing and listing wake nothing.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Protocol

from kennel.control.history import history
from kennel.control.sandboxes import Sandboxes
from kennel.domain.event import fact
from kennel.domain.preview import new_token
from kennel.domain.principal import Principal
from kennel.ports.event_log import EventLog
from kennel.ports.processes import Wire
from kennel.wire.errors import error

_EXPOSED, _REVOKED = "sandbox/port-exposed", "sandbox/port-revoked"
MOST_PORTS = 64
_REVOKED_KEPT = 64
"""Of a sandbox's revoked previews, so many are told apart from addresses that never were."""


@dataclass(frozen=True, slots=True)
class Preview:
    """One exposed port; `token` is what its host name holds beside the port."""

    port: int
    token: str
    name: str | None
    wake: bool
    created_at: str


class Change(Protocol):
    """Told of a sandbox whose previews changed; with `certain` it raises unless that is in force now."""

    async def __call__(self, project: str, path: str, *, certain: bool) -> None: ...


async def _untold(project: str, path: str, *, certain: bool) -> None:
    return None


class Exposed:
    """The service; `path` is the sandbox's."""

    def __init__(self, sandboxes: Sandboxes, log: EventLog) -> None:
        self._sandboxes = sandboxes
        self._log = log
        self._turn = asyncio.Lock()
        self.on_change: Change = _untold
        """Where previews are served, whoever serves them."""

    async def list(self, project: str, path: str) -> Sequence[Preview]:
        """The exposed ports, by number."""
        await self._sandboxes.alive(project, path)
        return (await self.rows(project, path))[0]

    async def rows(self, project: str, path: str) -> tuple[Sequence[Preview], Sequence[Preview]]:
        """The exposed ports, by number, and the last previews that were revoked; of any sandbox that was created."""
        found: dict[int, Preview] = {}
        gone: deque[Preview] = deque(maxlen=_REVOKED_KEPT)
        async for event in history(self._log, project, path, [_EXPOSED, _REVOKED]):
            told, port = event.payload, event.payload["port"]
            if event.type == _REVOKED:
                if port in found:
                    gone.append(found.pop(port))
            else:
                name, wake = told.get("name"), told.get("wake", False)
                found[port] = Preview(port, told["token"], name, wake, event.created_at)
        return sorted(found.values(), key=lambda preview: preview.port), tuple(gone)

    async def get(self, project: str, path: str, port: int) -> Preview:
        """One; PORT_NOT_EXPOSED."""
        for preview in await self.list(project, path):
            if preview.port == port:
                return preview
        raise error("PORT_NOT_EXPOSED", f"port {port} is not exposed", details={"port": port}, admitted="no")

    async def expose(
        self, who: Principal, project: str, path: str, port: int, *, name: str | None, wake: bool
    ) -> Preview:
        """Gives a port a preview, or answers with the one it has."""
        async with self._turn:
            known = await self.list(project, path)
            before = next((preview for preview in known if preview.port == port), None)
            if before is None and len(known) >= MOST_PORTS:
                raise error("RESOURCE_BUSY", f"{MOST_PORTS} ports of this sandbox are exposed", admitted="no")
            preview = before
            if preview is None or (preview.name, preview.wake) != (name, wake):
                token = preview.token if preview is not None else new_token()
                payload: dict[str, object] = {"port": port, "token": token}
                payload |= ({"name": name} if name else {}) | ({"wake": True} if wake else {})
                [event] = await self._log.append(project, path, [fact(who, _EXPOSED, payload)])
                preview = Preview(port, token, name, wake, event.created_at)
        await self.on_change(project, path, certain=False)
        return preview

    async def revoke(self, who: Principal, project: str, path: str, port: int) -> None:
        """Takes the preview away for good; nothing happens without one."""
        async with self._turn:
            if any(preview.port == port for preview in await self.list(project, path)):
                await self._log.append(project, path, [fact(who, _REVOKED, {"port": port})])
        await self.on_change(project, path, certain=True)

    @asynccontextmanager
    async def connect(self, who: Principal, project: str, path: str, port: int) -> AsyncIterator[Wire]:
        """A connection to a port for the length of the block, waking the sandbox; SERVICE_NOT_RESPONDING."""
        async with self._sandboxes.attended(who, project, path) as guest:
            wire = await guest.connect(port)
            try:
                yield wire
            finally:
                await wire.close()
