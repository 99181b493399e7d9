"""Owns one stream's fold in memory: history once, then every event as it is committed.

Used by keys, projects, the catalogue and the sandboxes' projections. Invariant: `state` is exactly the fold of events
1 to `offset`; a look at it does no I/O, never creates the stream, and after an append has returned it has that append.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import itertools
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from kennel.domain.event import Event
from kennel.ports.event_log import EventLog
from kennel.wire.errors import KennelError, error

S = TypeVar("S")
Evolve = Callable[[S, Event], S]
PAGE = 500
"""Events per page of history; the log gives no more at once."""


class StreamFold(Generic[S]):
    """A fold of (project, path) by `evolve`, from `initial` at `offset` on; call `ready()` before looking at it."""

    def __init__(
        self, log: EventLog, project: str, path: str, initial: S, evolve: Evolve[S], *, offset: int = 0
    ) -> None:
        self.project, self.path = project, path
        self.state, self.offset = initial, offset
        self._log, self._evolve = log, evolve
        self._live = False
        self._heard = 0
        self._pins = 0
        self._loading = asyncio.Lock()
        self._stop: Callable[[], None] | None = None
        self._waiters: list[tuple[int, int, asyncio.Future[None]]] = []
        self._order = itertools.count()
        self._watchers: list[Callable[[Event], None]] = []

    @property
    def live(self) -> bool:
        """Whether history was read and new events arrive by themselves."""
        return self._live

    async def ready(self) -> None:
        """Reads history the first time; no I/O afterwards."""
        if not self._live:
            await self.refresh()

    async def refresh(self) -> None:
        """Reads from the own position on: what another process wrote a moment ago is then here."""
        async with self._loading:
            if self._stop is None:
                self._stop = self._log.listen(self.project, self.path, self._hear)
            while True:
                page = await self._page()
                for event in page:
                    self._apply(event)
                if len(page) < PAGE and self.offset >= self._heard:
                    self._live = True
                    return

    async def _page(self) -> list[Event]:
        try:
            return await self._log.read(self.project, self.path, after=self.offset, limit=PAGE)
        except KennelError as e:
            if e.code != "STREAM_NOT_FOUND":
                raise
            return []

    def _hear(self, event: Event) -> None:
        self._heard = max(self._heard, event.offset)
        if event.offset == self.offset + 1:
            self._apply(event)
        elif event.offset > self.offset + 1:
            self._live = False  # history is still being read, or the feed was at fault: the next look reads on

    def _apply(self, event: Event) -> None:
        if event.offset <= self.offset:
            return
        self.state = self._evolve(self.state, event)
        self.offset = event.offset
        while self._waiters and self._waiters[0][0] <= self.offset:
            waiter = heapq.heappop(self._waiters)[2]
            if not waiter.done():
                waiter.set_result(None)
        for watcher in tuple(self._watchers):
            watcher(event)

    async def wait_until(self, offset: int, timeout: float) -> None:
        """Returns once the fold has processed `offset`; WAIT_TIMEOUT after `timeout` seconds."""
        await self.ready()
        if self.offset >= offset:
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        entry = (offset, next(self._order), waiter)
        heapq.heappush(self._waiters, entry)
        try:
            async with asyncio.timeout(timeout):
                await waiter
        except TimeoutError:
            raise error(
                "WAIT_TIMEOUT",
                f"offset {offset} was not reached in {timeout:g} s; the stream is at {self.offset}",
                details={"offset": self.offset},
            ) from None
        finally:
            if entry in self._waiters:
                self._waiters.remove(entry)
                heapq.heapify(self._waiters)

    def watch(self, watcher: Callable[[Event], None]) -> Callable[[], None]:
        """Calls `watcher` after each event is folded in; returns the way to stop. It must be quick and not raise."""
        self._watchers.append(watcher)

        def stop() -> None:
            if watcher in self._watchers:
                self._watchers.remove(watcher)

        return stop

    @contextlib.contextmanager
    def pinned(self) -> Iterator[None]:
        """Marks the fold as in use, so that nobody lets it go meanwhile."""
        self._pins += 1
        try:
            yield
        finally:
            self._pins -= 1

    @property
    def in_use(self) -> bool:
        """Whether somebody works with, waits for or watches this fold."""
        return bool(self._watchers or self._waiters or self._pins)

    def close(self) -> None:
        """Stops listening; a later `ready()` resumes from the own position."""
        self._live = False
        if self._stop is not None:
            self._stop()
            self._stop = None
