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
from kennel.domain.admission import admit, possible_key, possible_type
from kennel.domain.chain import Fault
from kennel.domain.event import Event, Gap, NewEvent
from kennel.domain.stream_path import check_path, check_project
from kennel.ports.event_log import Checkpoint, Listener
from kennel.steps import step
from kennel.wire.errors import KennelError, error

MAX_QUEUED = 64 * 1024 * 1024
"""Bytes of JSON that may wait for the writer; further appends wait for room."""
OVERHEAD = 512
"""Bytes one queued event is reckoned to hold beside its JSON."""

MAX_OFFSET = 2**53
"""No stream gets so long; larger numbers are read as this one."""
MAX_TYPES = 100
"""Types that one read may ask for."""

P = ParamSpec("P")
T = TypeVar("T")


def _check(project: str, path: str) -> None:
    """PROJECT_NOT_FOUND or INVALID_PATH for what can be no stream's address."""
    check_project(project)
    check_path(path)


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
        _check(project, path)
        drafts = admit(events)
        size = sum(len(d.payload_json) + len(d.metadata_json) + OVERHEAD for d in drafts)
        await self._room.take(size)
        if self._closed:
            self._room.give(size)
            raise error("LOG_UNAVAILABLE", "the event log is closed", admitted="no")
        future: asyncio.Future[list[Event]] = self._loop.create_future()
        with step(_name, path, events):
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
        _check(project, path)
        after = min(max(after, 0), MAX_OFFSET)
        before = None if before is None else min(max(before, 0), MAX_OFFSET)
        # what cannot be an event's type need not be asked for, nor could every database take it
        wanted = None if types is None else sorted({t for t in types if possible_type(t)})
        if wanted is not None and len(wanted) > MAX_TYPES:
            raise error("VALIDATION_FAILED", "too many types", details={"types": [f"at most {MAX_TYPES}"]})
        return await self._reading(self._reader.read, project, path, after, before, wanted, limit)

    async def by_key(self, project: str, path: str, key: str) -> Event | None:
        """See the port."""
        _check(project, path)
        return await self._reading(self._reader.by_key, project, path, key) if possible_key(key) else None

    async def head(self, project: str, path: str) -> int | None:
        """See the port."""
        _check(project, path)
        found = await self._reading(self._reader.head, project, path)
        return None if found is None else found[0]

    async def paths(self, project: str, prefix: str = "/", *, after: str = "", limit: int = MAX_LIMIT) -> list[str]:
        """See the port."""
        _check(project, prefix)
        return await self._reading(self._reader.paths, project, prefix, after and check_path(after), limit)

    def follow(self, project: str, path: str, *, after: int = 0) -> AsyncIterator[Event | Gap]:
        """See the port."""

        async def page(at: int) -> list[Event]:
            return await self.read(project, path, after=at)

        _check(project, path)
        return self._feed.follow(project, path, min(max(after, 0), MAX_OFFSET), page)

    def listen(self, project: str, path: str, listener: Listener) -> Callable[[], None]:
        """See the port."""
        _check(project, path)
        return self._feed.listen(project, path, listener)

    async def checkpoints(self, project: str, processor: str, paths: Sequence[str] | None = None) -> list[Checkpoint]:
        """See the port."""
        return await self._reading(self._reader.checkpoints, project, processor, paths)

    async def save_checkpoints(self, project: str, processor: str, states: Sequence[Checkpoint]) -> None:
        """See the port."""
        if states:
            await self._reading(self._reader.save_checkpoints, project, processor, states)

    async def verify(self, project: str, path: str) -> list[Fault]:
        """See the port."""
        _check(project, path)
        return await self._reading(self._reader.verify, project, path)

    async def trim(self, project: str, path: str, through: int) -> int:
        """See the port."""
        _check(project, path)
        with step("trim", path):
            return await self._reading(self._reader.trim, project, path, min(max(through, 0), MAX_OFFSET))

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


def _name(path: str, events: Sequence[NewEvent]) -> str:
    """What the step of this append is called: the kind of stream, each type once."""
    kind = path if path.count("/") == 1 else path[: path.index("/", 1)] + "/*"
    return f"append {kind} {'+'.join(dict.fromkeys(event.type for event in events))}"


async def open_log(url: str) -> SqlEventLog:
    """The log kept at `sqlite:////absolute/file.db` or `postgresql://user@host/name`, its schema brought up to date."""

    def prepare() -> Engine:
        engine = make_engine(url)
        migrate(engine)
        return engine

    return SqlEventLog(await asyncio.get_running_loop().run_in_executor(None, prepare))
