"""Owns one fold a project of the same stream, made when it is first asked for.

Called by control's egress services. Invariant: what `of` returns has every event that was committed before the call in
this process.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from kennel.control.stream_fold import Evolve, StreamFold
from kennel.domain.event import Event, NewEvent
from kennel.ports.event_log import EventLog

S = TypeVar("S")
WAIT = 10.0


class ProjectFold(Generic[S]):
    """`ProjectFold(log, path, initial, evolve)`."""

    def __init__(self, log: EventLog, path: str, initial: Callable[[], S], evolve: Evolve[S]) -> None:
        self.log, self.path = log, path
        self._initial, self._evolve = initial, evolve
        self._folds: dict[str, StreamFold[S]] = {}

    async def of(self, project: str) -> S:
        """The project's state now."""
        fold = self._folds.get(project)
        if fold is None:
            fold = self._folds[project] = StreamFold(self.log, project, self.path, self._initial(), self._evolve)
        await fold.ready()
        return fold.state

    async def append(self, project: str, *events: NewEvent) -> Event:
        """The last of the events, committed and folded."""
        written = await self.log.append(project, self.path, events)
        await self.of(project)
        await self._folds[project].wait_until(written[-1].offset, WAIT)
        return written[-1]

    @property
    def projects(self) -> list[str]:
        """Those that were asked for."""
        return list(self._folds)
