"""Owns how long the audit is kept: events of `/egress/log` that are older than the setting go, a segment at a time.

Made by assemble. Invariant: before a segment is deleted an event on the stream holds its last offset and the hash it
ended with, so the chain of what is left is still whole and says what is gone; nothing but the audit is ever trimmed.
"""

from __future__ import annotations

import asyncio
import datetime
import logging
from collections.abc import Awaitable, Callable, Sequence

from kennel.domain.chain import TRIMMED
from kennel.domain.egress_state import LOG
from kennel.domain.event import Event, fact
from kennel.domain.principal import SYSTEM
from kennel.domain.stream_path import INSTALLATION
from kennel.ports.event_log import EventLog
from kennel.wire.errors import KennelError

SEGMENT = 10_000
"""Events in one deletion: 0.1 s of the database's write lock."""
EVERY_SECONDS = 3600.0

log = logging.getLogger("kennel.retention")


class Retention:
    """`Retention(log, projects, seconds)`; 0 seconds keep everything."""

    def __init__(self, events: EventLog, projects: Callable[[], Awaitable[Sequence[str]]], seconds: float) -> None:
        self._log, self._projects, self._seconds = events, projects, seconds
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        if self._seconds:
            self._task = asyncio.get_running_loop().create_task(self._run(), name="retention")

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            try:
                await self.trim(datetime.datetime.now(datetime.UTC))
            except KennelError as failure:
                log.warning("the audit was not trimmed: %s", failure)
            except Exception:  # kept for too long is better than never looked at again
                log.exception("the audit was not trimmed")
            await asyncio.sleep(EVERY_SECONDS)

    async def trim(self, now: datetime.datetime) -> int:
        """Deletes what is too old in every project; how many events that were."""
        oldest = (now - datetime.timedelta(seconds=self._seconds)).isoformat(timespec="milliseconds")
        oldest = oldest.replace("+00:00", "Z")
        return sum([await self._trim(project, oldest) for project in [*await self._projects(), INSTALLATION]])

    async def _trim(self, project: str, oldest: str) -> int:
        head = await self._log.head(project, LOG)
        gone = 0
        while head is not None and (last := await self._last_before(project, oldest, head)) is not None:
            payload = {"through": last.offset, "digest": last.hash}
            await self._log.append(project, LOG, [fact(SYSTEM, TRIMMED, payload, key=f"trim:{last.offset}")])
            gone += await self._log.trim(project, LOG, last.offset)
        if gone:
            log.info("%d audit events of %s are older than %s and gone", gone, project, oldest)
        return gone

    async def _last_before(self, project: str, oldest: str, head: int) -> Event | None:
        """The last event of the first segment that is older, never the stream's own last one."""
        [first] = await self._log.read(project, LOG, limit=1)
        if first.created_at >= oldest or first.offset >= head:
            return None
        # Times do not fall along a stream by more than a clock that is set back: a search by halves finds the end.
        low, high = first.offset, min(head - 1, first.offset + SEGMENT - 1)
        found = first
        while low < high:
            middle = (low + high + 1) // 2
            [event] = await self._log.read(project, LOG, after=middle - 1, limit=1)
            if event.created_at < oldest:
                low, found = middle, event
            else:
                high = middle - 1
        return found
