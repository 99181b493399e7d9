"""Owns streams as callers outside use them: appending their own events, reading, following, waiting, auditing.

Called by the stream routes and `kennel logs`. Invariant: what comes in here is never stamped as Kennel's own, so a
platform type or a platform key from outside is refused before anything is looked up.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import msgspec

from kennel.domain.chain import Fault
from kennel.domain.event import Event, Gap, NewEvent, Source
from kennel.domain.principal import Principal
from kennel.ports.event_log import EventLog
from kennel.wire.errors import KennelError, error

PAGE = 500
"""Events per read of an export."""


class OutsideEvent(msgspec.Struct, frozen=True, rename="camel", kw_only=True, forbid_unknown_fields=True):
    """An event as a caller writes it; `offset` is a precondition (see `NewEvent`)."""

    type: str
    payload: dict[str, Any] = {}
    metadata: dict[str, Any] = {}
    idempotency_key: str | None = None
    offset: int | None = None


class Verification(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """What checking a stream's hash chain came to; `events` is its last offset, `holds` that no fault was found."""

    path: str
    events: int
    holds: bool
    faults: list[Fault]


class Streams:
    """`Streams(log)`."""

    def __init__(self, log: EventLog) -> None:
        self._log = log

    async def append(self, who: Principal, project: str, path: str, events: Sequence[OutsideEvent]) -> list[Event]:
        """The committed events, in order; refuses like `EventLog.append`."""
        source = Source(platform=False, key_id=who.key_id)
        return await self._log.append(
            project,
            path,
            [
                NewEvent(
                    type=event.type,
                    payload=event.payload,
                    metadata=event.metadata,
                    idempotency_key=event.idempotency_key,
                    source=source,
                    offset=event.offset,
                )
                for event in events
            ],
        )

    async def read(
        self,
        project: str,
        path: str,
        *,
        after: int = 0,
        before: int | None = None,
        types: Sequence[str] | None = None,
        limit: int = PAGE,
    ) -> list[Event]:
        """One page, oldest first; STREAM_NOT_FOUND for an unknown stream. `types` with "*" in it means all."""
        if types is not None and "*" in types:
            types = None
        return await self._log.read(project, path, after=after, before=before, types=types, limit=limit)

    async def head(self, project: str, path: str) -> int | None:
        """The stream's last offset; None when it does not exist."""
        return await self._log.head(project, path)

    async def by_key(self, project: str, path: str, key: str) -> Event:
        """The event under an idempotency key; NOT_FOUND, or STREAM_NOT_FOUND when there is no such stream."""
        event = await self._log.by_key(project, path, key)
        if event is None:
            if await self._log.head(project, path) is None:
                raise error("STREAM_NOT_FOUND", f"there is no stream '{path}'")
            raise error("NOT_FOUND", "no event of the stream has this key")
        return event

    async def follow(
        self, project: str, path: str, *, after: int = 0, types: Sequence[str] | None = None
    ) -> AsyncIterator[Event | Gap]:
        """History after `after`, then live; a reader too slow gets a Gap and the end. STREAM_NOT_FOUND at first."""
        wanted = None if types is None or "*" in types else frozenset(types)
        async for event in self._log.follow(project, path, after=after):
            if isinstance(event, Gap) or wanted is None or event.type in wanted:
                yield event

    async def wait_for_event(
        self, project: str, path: str, *, after: int = 0, types: Sequence[str] | None = None, timeout: float
    ) -> Event:
        """The first event after `after` of one of `types`, from history or yet to come.

        WAIT_TIMEOUT after `timeout` seconds.
        """

        async def first() -> Event:
            async for event in self.follow(project, path, after=after, types=types):
                if isinstance(event, Event):
                    return event
            raise error("LOG_UNAVAILABLE", "the stream was closed during the wait")

        try:
            async with asyncio.timeout(timeout):
                return await first()
        except TimeoutError as e:
            if isinstance(e, KennelError):
                raise
            raise error("WAIT_TIMEOUT", f"no such event came in {timeout:g} s") from None

    async def paths(self, project: str, prefix: str = "/", *, after: str = "", limit: int = PAGE) -> list[str]:
        """Existing streams at or below `prefix`, in byte order."""
        return await self._log.paths(project, prefix, after=after, limit=limit)

    async def verify(self, project: str, path: str) -> Verification:
        """Checks the stream against its hash chain; STREAM_NOT_FOUND for an unknown one."""
        faults = await self._log.verify(project, path)
        head = await self._log.head(project, path)
        return Verification(path=path, events=head or 0, holds=not faults, faults=faults)

    async def export(self, project: str, path: str) -> AsyncIterator[bytes]:
        """The stream as JSON lines, a page of events at a time, up to where it ended when the export began."""
        head = await self._log.head(project, path)
        if head is None:
            raise error("STREAM_NOT_FOUND", f"there is no stream '{path}'")
        after = 0
        while after < head:
            page = await self._log.read(project, path, after=after, before=head + 1, limit=PAGE)
            if not page:
                return
            after = page[-1].offset
            yield b"".join(msgspec.json.encode(event) + b"\n" for event in page)
