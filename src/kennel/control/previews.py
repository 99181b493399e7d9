"""Owns what the gateway is told of previews, and what it asks: waking a sandbox for a visitor, counting visits as use.

Called by Exposed (a change), Sandboxes (an end) and Egress (the gateway came, or said something). Invariant: of two
changes of one sandbox the gateway hears the later one last; a revocation is answered after the gateway has cut what it
ends; a gateway that came back is told everything, and until then answers nobody that a preview is unknown.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence

from kennel.control.catalogue import Catalogue
from kennel.control.exposed import Exposed
from kennel.control.fleet import Fleet
from kennel.control.sandboxes import Sandboxes
from kennel.domain.principal import SYSTEM
from kennel.ports.gateway import GatewayLink
from kennel.wire import gateway as wire
from kennel.wire.errors import KennelError, error

_AT_ONCE = 16
_RESTS = 2.0
"""Seconds after a failed wake in which visitors get its reason again."""
_COMING = 3.0
"""Seconds that a revocation waits for a gateway that is between two connections."""

log = logging.getLogger("kennel.previews")


class Previews:
    """`Previews(exposed, sandboxes, catalogue, fleet, gateway, projects)`."""

    def __init__(
        self,
        exposed: Exposed,
        sandboxes: Sandboxes,
        catalogue: Catalogue,
        fleet: Fleet,
        gateway: GatewayLink,
        projects: Callable[[], Awaitable[Sequence[str]]],
    ) -> None:
        self._exposed, self._sandboxes, self._catalogue, self._fleet = exposed, sandboxes, catalogue, fleet
        self._gateway, self._projects = gateway, projects
        self._where: dict[str, tuple[str, str]] = {}
        self._turns: dict[str, asyncio.Lock] = {}
        self._failed: dict[str, tuple[float, KennelError]] = {}
        self._telling: asyncio.Task[None] | None = None
        self._waking: dict[str, asyncio.Task[None]] = {}
        exposed.on_change = self.changed
        sandboxes.on_destroyed = self.destroyed

    async def close(self) -> None:
        tasks = [*self._waking.values(), *([self._telling] if self._telling is not None else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # What changes here.

    async def changed(self, project: str, path: str, *, certain: bool) -> None:
        """Tells the gateway a sandbox's previews. `certain`: raises GATEWAY_UNAVAILABLE unless it has them now."""
        deadline = time.monotonic() + _COMING
        while certain and not self._gateway.here:
            if time.monotonic() > deadline:
                why = "the preview is revoked, but the gateway is away and could not be told; ask again"
                raise error("GATEWAY_UNAVAILABLE", why, admitted="yes", retry_after_ms=1000)
            await asyncio.sleep(0.05)
        try:
            await self._tell(project, path, ended=False)
        except KennelError as failure:
            if certain:
                raise
            log.warning("the gateway hears of %s%s later: %s", project, path, failure)

    async def destroyed(self, project: str, path: str) -> None:
        """A sandbox is gone for good: all its previews are void."""
        try:
            await self._tell(project, path, ended=True)
        except KennelError as failure:
            log.warning("the gateway hears of the end of %s%s later: %s", project, path, failure)

    async def _tell(self, project: str, path: str, *, ended: bool) -> None:
        claim = await self._catalogue.find(project, path)
        turn = self._turns.setdefault(claim.sandbox_id, asyncio.Lock())
        async with turn:
            known, revoked = await self._exposed.rows(project, path)
            if ended:
                known, revoked = (), (*revoked, *known)
                self._where.pop(claim.sandbox_id, None)
            else:
                self._where[claim.sandbox_id] = project, path
            if known or revoked:
                rows = [wire.PreviewRow(one.port, one.token, one.wake) for one in known]
                stale = [wire.PreviewRow(one.port, one.token) for one in revoked]
                await self._gateway.call(wire.SetPreviews(claim.sandbox_id, rows, stale))
        if not known:
            self._turns.pop(claim.sandbox_id, None)

    # What the gateway says.

    def arrived(self, instance: str) -> None:
        """A gateway is here: it is told everything, beside whatever else it hears."""
        if self._telling is not None:
            self._telling.cancel()
        self._telling = asyncio.get_running_loop().create_task(self._tell_all(instance), name="telling previews")

    async def _tell_all(self, instance: str) -> None:
        try:
            for project in await self._projects():
                found = await self._catalogue.list(project)
                paths = [c.path for c, state in found if state.birth_certificate and state.status != "destroyed"]
                for start in range(0, len(paths), _AT_ONCE):
                    turn = paths[start : start + _AT_ONCE]
                    await asyncio.gather(*(self._tell(project, path, ended=False) for path in turn))
            await self._gateway.call(wire.PreviewsTold(instance))
        except KennelError as failure:
            # A gateway that went away comes back and is told everything again.
            log.warning("the gateway does not know every preview: %s", failure)

    def hear(self, notice: wire.Knock | wire.Traffic) -> None:
        """A visitor at a sandbox that sleeps, or bytes of visitors."""
        if isinstance(notice, wire.Knock):
            if notice.sandbox not in self._waking:
                task = asyncio.get_running_loop().create_task(self._wake(notice.sandbox), name="waking for a visitor")
                self._waking[notice.sandbox] = task
                task.add_done_callback(lambda _: self._waking.pop(notice.sandbox, None))
            return
        for sandbox in notice.sandboxes:
            pet = self._fleet.find(sandbox)
            if pet is not None:
                pet.door.touch()

    async def _wake(self, sandbox: str) -> None:
        answer = wire.Woken(sandbox)
        try:
            await self._rouse(sandbox)
        except KennelError as failure:
            log.info("%s was not woken for a visitor: %s", sandbox, failure)
            self._failed[sandbox] = time.monotonic(), failure
            answer = wire.Woken(sandbox, failure.code, failure.message[:1000])
        except Exception:  # the visitor waits for a word
            log.exception("waking %s for a visitor failed", sandbox)
            answer = wire.Woken(sandbox, "SANDBOX_START_FAILED", "the sandbox could not be woken")
        self._gateway.tell(answer)

    async def _rouse(self, sandbox: str) -> None:
        before = self._failed.pop(sandbox, None)
        if before is not None and time.monotonic() - before[0] < _RESTS:
            self._failed[sandbox] = before
            raise before[1]
        where = self._where.get(sandbox)
        known = await self._exposed.list(*where) if where is not None else []
        if where is None or not any(preview.wake for preview in known):
            raise error("STALE_PREVIEW_URL", "the sandbox is asleep")
        if await self._sandboxes.awake_guest(*where) is None:
            await self._sandboxes.start(SYSTEM, *where)
