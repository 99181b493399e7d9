"""Owns what is followed while it runs: numbered events, replay after a lost connection, one reader, its end.

Base of exec_stream and code_stream. Invariants: nothing is taken from the guest before somebody reads it, so a slow
reader presses back and fills no memory here; what nobody reads is given up, at once or after the linger its caller
asked for; at most RING bytes of what was read are kept for a return, and what is no longer kept is told.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import deque
from collections.abc import AsyncIterator, Coroutine
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from kennel.wire.errors import KennelError, error

log = logging.getLogger("kennel.followed")

RING = 1024 * 1024
"""Bytes kept of what was read: more than lies between a server and a client whose connection broke."""
MAX_LINGER = 300.0
MAX_LINGERING = 256
"""How many of one sort in one process may outlive their connection: RING bytes each."""
FIRST_READ = 5.0
"""Seconds from the start to the first read."""


@dataclass(frozen=True, slots=True)
class StreamEvent:
    """One event: bytes for output of a command, a body for everything else; `sequence` rises by one from 1."""

    sequence: int
    kind: str
    data: bytes = b""
    body: dict[str, Any] = field(default_factory=dict)


class Followed:
    """One thing in progress; `LAST` are the kinds of event that end it."""

    LAST: tuple[str, ...] = ()

    def __init__(self, *, linger: float) -> None:
        self.id = secrets.token_hex(8)
        self.done = False
        self.linger = min(linger, MAX_LINGER)
        self.task: asyncio.Task[None] | None = None
        self._held: deque[tuple[StreamEvent, int]] = deque()
        self._held_bytes = 0
        self._sequence = self._taken = 0
        self._reader: object | None = None
        self._pulling: asyncio.Task[None] | None = None
        self._patience: asyncio.TimerHandle | None = None
        self._last: asyncio.Future[StreamEvent] = asyncio.get_running_loop().create_future()

    # --- what happens to it

    def ended(self, kind: str, body: dict[str, Any]) -> None:
        """Its last event; what was not read yet comes before it."""
        if not self._last.done():
            self._last.set_result(StreamEvent(0, kind, body=body))

    def tell(self, kind: str, data: bytes = b"", body: dict[str, Any] | None = None, size: int = 0) -> None:
        """Adds an event of `size` bytes, and forgets the oldest of those that were read."""
        self._sequence += 1
        size = size or len(data)
        self._held.append((StreamEvent(self._sequence, kind, data, body or {}), size))
        self._held_bytes += size
        while self._held[0][0].sequence <= self._taken and (not self.linger or self._held_bytes > RING):
            self._held_bytes -= self._held.popleft()[1]
        self.done = self.done or kind in self.LAST

    # --- reading

    async def read(self, after: int = 0) -> AsyncIterator[StreamEvent]:
        """The events after number `after`, then what comes; a second reader takes over from the first."""
        token = self._reader = object()
        if self._patience is not None:
            self._patience.cancel()
        try:
            while True:
                event = self._next(after)
                if event is None:
                    await self._pull()
                    if self._reader is not token:
                        why = "this stream is read over another connection"
                        raise error("OPERATION_INTERRUPTED", why, admitted="yes")
                    continue
                if event.sequence > after + 1:
                    told = {"from": after + 1, "to": event.sequence - 1}
                    yield StreamEvent(event.sequence - 1, "truncated", body=told)
                after = event.sequence
                self._taken = max(self._taken, after)
                yield event
                if event.kind in self.LAST:
                    return
        finally:
            if self._reader is token:
                self._left()

    def _next(self, after: int) -> StreamEvent | None:
        if not self._held or self._held[-1][0].sequence <= after:
            return None
        if self._held[-1][0].sequence == after + 1:
            return self._held[-1][0]
        return next(event for event, _ in self._held if event.sequence > after)

    async def _pull(self) -> None:
        """One more event, or several; shared by whoever waits for it."""
        if self._pulling is None:
            if self.at_hand():
                return
            self._pulling = asyncio.get_running_loop().create_task(self._pull_once(), name=f"output of {self.id}")
        pulling = self._pulling
        await asyncio.wait({pulling})
        if self._pulling is pulling:
            self._pulling = None
        pulling.result()

    async def _pull_once(self) -> None:
        if not await self.more():
            last = await asyncio.shield(self._last)
            self.before_last()
            self.tell(last.kind, body=last.body)

    def at_hand(self) -> bool:
        """Tells what lies here already; whether anything did."""
        return False

    async def more(self) -> bool:
        """Waits for more and tells it; false when nothing but the last event can come."""
        raise NotImplementedError

    def before_last(self) -> None:
        """Tells what is left over when nothing more can come."""

    # --- nobody reads

    def expect_reader(self) -> None:
        """Gives up unless somebody begins to read: a caller can be gone before its first event."""
        if self._reader is None:
            self._patience = asyncio.get_running_loop().call_later(max(self.linger, FIRST_READ), self.give_up)

    def _left(self) -> None:
        self._reader = None
        if self.done or not self.linger:
            self.give_up()
        else:
            self._patience = asyncio.get_running_loop().call_later(self.linger, self.give_up)

    def give_up(self) -> None:
        """Kills what runs; harmless when it has ended."""
        self._reader = None
        if self._patience is not None:
            self._patience.cancel()
        if self.task is not None and not self.task.done():
            self.task.cancel()


F = TypeVar("F", bound=Followed)


class Shelf(Generic[F]):
    """Every one of a sort that this process follows, by sandbox and id; `last` is the kind that tells of a failure."""

    def __init__(self, sort: str, last: str) -> None:
        self._sort, self._last = sort, last
        self._all: dict[tuple[str, str, str], F] = {}
        self._lingering = 0

    def make_room(self, linger: float) -> None:
        """RESOURCE_BUSY when no more may outlive their connection."""
        if linger and self._lingering >= MAX_LINGERING:
            told = f"{MAX_LINGERING} {self._sort}s may outlive their connection"
            raise error("RESOURCE_BUSY", told, admitted="no")

    async def carry(
        self, key: tuple[str, str, str], one: F, work: Coroutine[Any, Any, None], begun: asyncio.Future[None]
    ) -> F:
        """Has `work` bring it to its end; comes back when `begun` says so, raising what that holds."""
        carried = self._carried(one, work, begun)
        one.task = asyncio.get_running_loop().create_task(carried, name=f"{self._sort} {one.id}")
        self._all[key] = one
        self._lingering += bool(one.linger)
        one.task.add_done_callback(lambda _: self._over(key, one))
        try:
            await asyncio.shield(begun)
        except BaseException:
            one.give_up()
            raise
        one.expect_reader()
        return one

    async def _carried(self, one: F, work: Coroutine[Any, Any, None], begun: asyncio.Future[None]) -> None:
        """Does the work; what it fails with is the last event, and what `begun` raises when it had not begun."""
        why = error("OPERATION_INTERRUPTED", f"the {self._sort} was given up", admitted="unknown")
        try:
            await work
        except KennelError as failure:
            one.ended(self._last, failure.to_wire())
            why = failure
        finally:
            if not begun.done():
                begun.set_exception(why)
                begun.exception()  # whoever asked may have left

    def _over(self, key: tuple[str, str, str], one: F) -> None:
        """It has ended; its last events stay for a while when somebody may come back for them."""
        task = one.task
        if task is not None and not task.cancelled() and (fault := task.exception()) is not None:
            log.error("following %s failed", one.id, exc_info=fault)
        given_up = error("OPERATION_INTERRUPTED", f"the {self._sort} was given up", admitted="yes")
        one.ended(self._last, given_up.to_wire())

        def forget() -> None:
            self._lingering -= bool(one.linger)
            self._all.pop(key, None)

        if one.linger:
            asyncio.get_running_loop().call_later(one.linger, forget)
        else:
            forget()

    def find(self, project: str, path: str, name: str) -> F:
        """One that was opened here; COMMAND_NOT_FOUND also when it ended a while ago."""
        one = self._all.get((project, path, name))
        if one is None:
            told = f"no such {self._sort} is followed here, or it ended a while ago"
            raise error("COMMAND_NOT_FOUND", told, admitted="no")
        return one

    async def close(self) -> None:
        """Gives up all."""
        tasks = [one.task for one in self._all.values() if one.task is not None]
        for one in list(self._all.values()):
            one.give_up()
        await asyncio.gather(*tasks, return_exceptions=True)
