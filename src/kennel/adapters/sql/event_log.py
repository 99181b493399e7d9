"""Owns the event log as services see it: `ports.event_log.EventLog` over SQLite or PostgreSQL.

Made by `assemble` with `open_log(url)` inside the running event loop, which it then belongs to. Invariant: whatever
the caller gives is admitted or refused before it is queued, and what is queued is bounded in bytes.
"""

from __future__ import annotations

import asyncio
import functools
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError

from kennel.adapters.sql.doorbell import Doorbell
from kennel.adapters.sql.engine import READERS, make_engine, migrate
from kennel.adapters.sql.feed import Feed
from kennel.adapters.sql.reader import MAX_LIMIT, Reader
from kennel.adapters.sql.writer import Request, Writer
from kennel.domain.admission import admit
from kennel.domain.chain import Fault
from kennel.domain.event import Event, Gap, NewEvent
from kennel.domain.stream_path import check_path
from kennel.ports.event_log import Checkpoint, Listener
from kennel.wire.errors import KennelError, error

MAX_QUEUED = 64 * 1024 * 1024
"""Bytes of JSON that may wait for the writer; further appends wait for room."""
OVERHEAD = 512
"""Bytes one queued event is reckoned to hold beside its JSON."""

P = ParamSpec("P")
T = TypeVar("T")


class _Room:
    """Bytes still free in the writer's queue; first come, first served."""

    def __init__(self) -> None:
        self._used = 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def take(self, size: int) -> None:
        """Waits until `size` bytes fit; one append always fits into an empty queue."""
        while self._used and self._used + size > MAX_QUEUED:
            turn = asyncio.get_running_loop().create_future()
            self._waiting.append(turn)
            try:
                await turn
            finally:
                if turn in self._waiting:
                    self._waiting.remove(turn)
        self._used += size

    def give(self, size: int) -> None:
        """Frees bytes and wakes those who wait."""
        self._used -= size
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)


class SqlEventLog:
    """The log. Use `open_log`; `close` it before the loop ends."""

    def __init__(self, engine: Engine) -> None:
        self._loop = asyncio.get_running_loop()
        self.engine = engine
        self._feed = Feed()
        self._room = _Room()
        self._closed = False
        self._reader = Reader(engine)
        self._pool = ThreadPoolExecutor(READERS, thread_name_prefix="kennel-log-reader")
        self._writer = Writer(engine, self._committed)
        notifies = engine.dialect.name == "postgresql"
        self._doorbell = Doorbell(engine.url if notifies else None, self._rung)

    def _rung(self, position: int | None) -> None:
        if position is None or position > self._writer.position:
            self._writer.catch_up()

    def _committed(self, events: list[Event], requests: list[Request]) -> None:
        """On the writer's thread: hands the turn to the loop."""
        if (events or requests) and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._deliver, events, requests)

    def _deliver(self, events: list[Event], requests: list[Request]) -> None:
        self._feed.publish(events)
        for request in requests:
            self._room.give(request.size)
            if request.future.done():
                continue
            if isinstance(request.answer, KennelError):
                request.future.set_exception(request.answer)
            else:
                request.future.set_result(request.answer)

    async def _reading(self, ask: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        if self._closed:
            raise error("LOG_UNAVAILABLE", "the event log is closed", admitted="no")
        try:
            return await self._loop.run_in_executor(self._pool, functools.partial(ask, *args, **kwargs))
        except SQLAlchemyError as fault:
            raise error("LOG_UNAVAILABLE", "the event log cannot be read now", retry_after_ms=1000) from fault

    async def append(self, project: str, path: str, events: Sequence[NewEvent]) -> list[Event]:
        """See the port. Cancelled while it waits for the disk, the append may still land."""
        check_path(path)
        drafts = admit(events)
        size = sum(len(d.payload_json) + len(d.metadata_json) + OVERHEAD for d in drafts)
        await self._room.take(size)
        if self._closed:
            self._room.give(size)
            raise error("LOG_UNAVAILABLE", "the event log is closed", admitted="no")
        future: asyncio.Future[list[Event]] = self._loop.create_future()
        self._writer.submit(Request((project, path), drafts, size, future))
        return await future

    async def read(
        self,
        project: str,
        path: str,
        *,
        after: int = 0,
        before: int | None = None,
        types: Sequence[str] | None = None,
        limit: int = MAX_LIMIT,
    ) -> list[Event]:
        """See the port."""
        return await self._reading(self._reader.read, project, check_path(path), after, before, types, limit)

    async def by_key(self, project: str, path: str, key: str) -> Event | None:
        """See the port."""
        return await self._reading(self._reader.by_key, project, check_path(path), key)

    async def head(self, project: str, path: str) -> int | None:
        """See the port."""
        found = await self._reading(self._reader.head, project, check_path(path))
        return None if found is None else found[0]

    async def paths(self, project: str, prefix: str = "/", *, after: str = "", limit: int = MAX_LIMIT) -> list[str]:
        """See the port."""
        return await self._reading(self._reader.paths, project, check_path(prefix), after, limit)

    def follow(self, project: str, path: str, *, after: int = 0) -> AsyncIterator[Event | Gap]:
        """See the port."""

        async def page(at: int) -> list[Event]:
            return await self.read(project, path, after=at)

        return self._feed.follow(project, check_path(path), after, page)

    def listen(self, project: str, path: str, listener: Listener) -> Callable[[], None]:
        """See the port."""
        return self._feed.listen(project, check_path(path), listener)

    async def checkpoints(self, project: str, processor: str, paths: Sequence[str] | None = None) -> list[Checkpoint]:
        """See the port."""
        return await self._reading(self._reader.checkpoints, project, processor, paths)

    async def save_checkpoints(self, project: str, processor: str, states: Sequence[Checkpoint]) -> None:
        """See the port."""
        if states:
            await self._reading(self._reader.save_checkpoints, project, processor, states)

    async def verify(self, project: str, path: str) -> list[Fault]:
        """See the port."""
        return await self._reading(self._reader.verify, project, check_path(path))

    async def close(self) -> None:
        """Commits what is queued, ends every follower with a gap, and lets the database go."""
        if self._closed:
            return
        self._closed = True
        await self._loop.run_in_executor(None, self._stop)
        self._feed.close()

    def _stop(self) -> None:
        self._doorbell.close()
        self._writer.close()
        self._pool.shutdown(wait=True)
        self.engine.dispose()


async def open_log(url: str) -> SqlEventLog:
    """The log kept at `sqlite:////absolute/file.db` or `postgresql://user@host/name`, its schema brought up to date."""

    def prepare() -> Engine:
        engine = make_engine(url)
        migrate(engine)
        return engine

    return SqlEventLog(await asyncio.get_running_loop().run_in_executor(None, prepare))
