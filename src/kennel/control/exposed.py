"""Owns which ports of a sandbox have a preview, and connections to its ports.

Called by the API. Invariants: a preview's token has 80 random bits and is valid until it is revoked, through sleeps and
restarts; revoking counts from the moment it is answered; exposing and listing wake nothing.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from kennel.control.sandboxes import Sandboxes
from kennel.domain.event import fact
from kennel.domain.principal import Principal
from kennel.ports.event_log import EventLog
from kennel.ports.processes import Wire
from kennel.wire.errors import error

_EXPOSED, _REVOKED = "sandbox/port-exposed", "sandbox/port-revoked"
_ALPHABET = "abcdefghijklmnopqrstuvwxyz234567"
_LETTERS = 16
"""Of 32 kinds: 80 bits."""
MOST_PORTS = 64
_PAGE = 500


@dataclass(frozen=True, slots=True)
class Preview:
    """One exposed port; `token` is what its host name holds beside the port."""

    port: int
    token: str
    name: str | None
    wake: bool


class Exposed:
    """The service; `path` is the sandbox's."""

    def __init__(self, sandboxes: Sandboxes, log: EventLog) -> None:
        self._sandboxes = sandboxes
        self._log = log

    async def list(self, project: str, path: str) -> list[Preview]:
        """The exposed ports, by number."""
        await self._sandboxes.alive(project, path)
        found: dict[int, Preview] = {}
        after = 0
        while True:
            events = await self._log.read(project, path, after=after, types=[_EXPOSED, _REVOKED], limit=_PAGE)
            for event in events:
                told, port = event.payload, event.payload["port"]
                if event.type == _REVOKED:
                    found.pop(port, None)
                else:
                    found[port] = Preview(port, told["token"], told.get("name"), told.get("wake", False))
            if len(events) < _PAGE:
                return sorted(found.values(), key=lambda preview: preview.port)
            after = events[-1].offset

    async def get(self, project: str, path: str, port: int) -> Preview:
        """One; PORT_NOT_EXPOSED."""
        for preview in await self.list(project, path):
            if preview.port == port:
                return preview
        raise error("PORT_NOT_EXPOSED", f"port {port} is not exposed", details={"port": port})

    async def expose(
        self, who: Principal, project: str, path: str, port: int, *, name: str | None, wake: bool
    ) -> Preview:
        """Gives a port a preview, or answers with the one it has."""
        known = await self.list(project, path)
        for preview in known:
            if preview.port == port and (preview.name, preview.wake) == (name, wake):
                return preview
        if len(known) >= MOST_PORTS:
            raise error("RESOURCE_BUSY", f"{MOST_PORTS} ports of this sandbox are exposed", admitted="no")
        before = [preview.token for preview in known if preview.port == port]
        token = before[0] if before else "".join(secrets.choice(_ALPHABET) for _ in range(_LETTERS))
        payload = {"port": port, "token": token} | ({"name": name} if name else {}) | ({"wake": True} if wake else {})
        await self._log.append(project, path, [fact(who, _EXPOSED, payload)])
        return Preview(port, token, name, wake)

    async def revoke(self, who: Principal, project: str, path: str, port: int) -> None:
        """Takes the preview away for good; nothing happens without one."""
        if any(preview.port == port for preview in await self.list(project, path)):
            await self._log.append(project, path, [fact(who, _REVOKED, {"port": port})])

    @asynccontextmanager
    async def connect(self, who: Principal, project: str, path: str, port: int) -> AsyncIterator[Wire]:
        """A connection to a port for the length of the block, waking the sandbox; SERVICE_NOT_RESPONDING."""
        async with self._sandboxes.attended(who, project, path) as guest:
            wire = await guest.connect(port)
            try:
                yield wire
            finally:
                await wire.close()
