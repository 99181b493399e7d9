"""Owns which sandbox names are taken in each project: claims on the `/sandboxes` stream, folded in memory.

Called by the lifecycle service before anything else touches a name. Invariant: one name, one claim, decided by one
append; a look-up of a known name does no I/O, and no look-up reads or creates the sandbox's own stream.
"""

from __future__ import annotations

import asyncio
import uuid

from kennel.control.projection import Projections
from kennel.control.stream_fold import StreamFold
from kennel.domain import claim as claims
from kennel.domain.claim import Claim, Claims
from kennel.domain.create_options import CreateOptions
from kennel.domain.event import fact
from kennel.domain.principal import Principal
from kennel.domain.sandbox import Projection
from kennel.ports.event_log import EventLog
from kennel.wire.errors import KennelError, error

WAIT = 10.0
"""Seconds to wait for the own fold after an append; the log delivers before it answers, so this never runs out."""
MAX_TRIES = 64
"""Appends of one claim that may lose the catalogue's next offset to another process before the caller is told."""


class _Project:
    """One project's catalogue: its fold, and the turn of those who claim."""

    def __init__(self, log: EventLog, project: str) -> None:
        self.fold: StreamFold[Claims] = StreamFold(log, project, claims.STREAM, Claims(), claims.evolve)
        self.turn = asyncio.Lock()


class Catalogue:
    """`Catalogue(log, projections)`: the claims of every project."""

    def __init__(self, log: EventLog, projections: Projections) -> None:
        self._log, self._projections = log, projections
        self._projects: dict[str, _Project] = {}

    async def _project(self, project: str) -> _Project:
        found = self._projects.get(project)
        if found is None:
            found = self._projects.setdefault(project, _Project(self._log, project))
        if not found.fold.live:
            await found.fold.ready()
        return found

    async def claim(
        self,
        who: Principal,
        project: str,
        path: str,
        options: CreateOptions,
        request_id: str | None,
        sandbox_id: str,
        *,
        image_digest: str,
    ) -> Claim:
        """Takes the name for `sandbox_id`; the answer's `fresh` is True when this call did it.

        The same `request_id` gets the old claim, whose options and sandbox id then count, not those given here. Any
        other gets SANDBOX_EXISTS, or SANDBOX_DESTROYED when the name is retired. The path was already validated.
        """
        request_id = request_id or uuid.uuid4().hex
        payload = claims.payload_of(path, options, image_digest, request_id, sandbox_id)
        catalogue = await self._project(project)
        for _ in range(MAX_TRIES):
            async with catalogue.turn:
                held = catalogue.fold.state.taken.get(path)
                if held is None:
                    made = await self._try(who, catalogue.fold, payload)
                    if made is None:
                        continue
                    return made
            if held.request_id == request_id:
                return held
            raise await self._taken(project, path)
        raise error("RESOURCE_BUSY", "too many creates at once; try again", admitted="no", retry_after_ms=200)

    async def _try(self, who: Principal, fold: StreamFold[Claims], payload: dict[str, object]) -> Claim | None:
        """One append of the claim; None when another process wrote to the catalogue first and it must be read again."""
        offset = max(fold.offset, 1) + 1  # a new catalogue's offset 1 is the stream's own first event
        try:
            [event] = await self._log.append(
                fold.project, fold.path, [claims.request(who, fold.state, payload, offset)]
            )
        except KennelError as e:
            if e.code not in ("OFFSET_CONFLICT", "IDEMPOTENCY_CONFLICT"):
                raise
            await fold.refresh()
            return None
        await fold.wait_until(event.offset, WAIT)
        return claims.claim_of(event, fresh=True)

    async def _taken(self, project: str, path: str) -> KennelError:
        state = await self._projections.get(project, path)
        if state.status == "destroyed":
            return error("SANDBOX_DESTROYED", f"'{path}' was destroyed; its name is retired")
        return error("SANDBOX_EXISTS", f"'{path}' already exists")

    async def find(self, project: str, path: str) -> Claim:
        """The claim on a name; SANDBOX_NOT_FOUND when there is none. No I/O for a name that is known here."""
        catalogue = await self._project(project)
        held = catalogue.fold.state.taken.get(path)
        if held is None:
            await catalogue.fold.refresh()
            held = catalogue.fold.state.taken.get(path)
            if held is None:
                raise error("SANDBOX_NOT_FOUND", f"there is no sandbox '{path}'")
        return held

    async def abandon(self, who: Principal, claim: Claim, code: str, reason: str) -> None:
        """Gives up a name whose sandbox can never be made; does nothing when this claim holds it no more."""
        payload = {"path": claim.path, "requestId": claim.request_id, "code": code, "reason": reason[:500]}
        catalogue = await self._project(claim.project)
        async with catalogue.turn:
            held = catalogue.fold.state.taken.get(claim.path)
            if held is None or held.offset != claim.offset:
                return
            event = fact(who, claims.ABANDONED, payload, key=f"abandoned:{claim.offset}")
            try:
                [landed] = await self._log.append(claim.project, claims.STREAM, [event])
            except KennelError as e:
                if e.code != "IDEMPOTENCY_CONFLICT":
                    raise
                await catalogue.fold.refresh()
                return
            await catalogue.fold.wait_until(landed.offset, WAIT)

    async def in_force(self, claim: Claim) -> bool:
        """Whether this very claim still holds its name."""
        held = (await self._project(claim.project)).fold.state.taken.get(claim.path)
        return held is not None and held.offset == claim.offset

    async def refresh(self, project: str) -> None:
        """Reads what other processes claimed a moment ago."""
        await (await self._project(project)).fold.refresh()

    async def claims(self, project: str) -> list[Claim]:
        """Every claim in force, by path; no I/O after the first call."""
        catalogue = await self._project(project)
        return sorted(catalogue.fold.state.taken.values(), key=lambda c: c.path)

    async def list(self, project: str) -> list[tuple[Claim, Projection]]:
        """Every claim in force with its sandbox's projection, by path; an empty projection is one never finished."""
        held = await self.claims(project)
        await self._projections.load(project, [c.path for c in held])
        return [(c, await self._projections.get(project, c.path)) for c in held]
