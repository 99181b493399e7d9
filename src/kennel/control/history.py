"""Owns reading events of some types from a stream, from its beginning to its end, a page at a time.

Called by snapshots, backups and exposed, whose lists are folds of a sandbox's own stream. Invariant: one page is held;
what lands while it reads is read too.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from kennel.domain.event import Event
from kennel.ports.event_log import EventLog
from kennel.wire.errors import KennelError

PAGE = 500


async def history(log: EventLog, project: str, path: str, types: Sequence[str]) -> AsyncIterator[Event]:
    """Each event of these types, oldest first; STREAM_NOT_FOUND."""
    after = 0
    while True:
        page = await log.read(project, path, after=after, types=types, limit=PAGE)
        for event in page:
            yield event
        if len(page) < PAGE:
            return
        after = page[-1].offset


async def known(log: EventLog, project: str, path: str, types: Sequence[str]) -> list[Event]:
    """All of them at once; none where there is no stream."""
    try:
        return [event async for event in history(log, project, path, types)]
    except KennelError as failure:
        if failure.code != "STREAM_NOT_FOUND":
            raise
        return []
