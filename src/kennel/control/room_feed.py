"""Owns what is shown to a room's watchers: its stream's events, and between them what is worth a look and not kept.

Called by the room book. Invariants: events come in order and none is missing (or a Gap says so); what passes by is
dropped for a watcher that is slow; one watcher holds at most MAX_HELD items; somebody who comes in the middle of an
answer sees what there is of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec

from kennel.domain.event import Event, Gap
from kennel.ports.event_log import EventLog

MAX_HELD = 256
DELTA = "delta"


class Passing(msgspec.Struct, frozen=True):
    """Something seen in a room that no stream keeps: `delta`, `queue`, `command`, `presence`."""

    kind: str
    payload: dict[str, Any]


Address = tuple[str, str]
Item = Event | Gap | Passing
_Queue = asyncio.Queue[Item | BaseException | None]


class RoomFeed:
    """Watchers by stream."""

    def __init__(self, log: EventLog) -> None:
        self._log = log
        self._watchers: dict[Address, set[_Queue]] = {}
        self._partial: dict[Address, dict[str, Passing]] = {}

    def publish(self, address: Address, passing: Passing) -> None:
        """Hands it to every watcher that has room for it."""
        if passing.kind == DELTA:
            self._remember(address, passing.payload)
        for queue in self._watchers.get(address, ()):
            if queue.qsize() < MAX_HELD // 2:
                queue.put_nowait(passing)

    def _remember(self, address: Address, delta: dict[str, Any]) -> None:
        """Keeps the text of an answer that is being given, until the piece that ends it."""
        turn = delta["turnId"]
        partial = self._partial.setdefault(address, {})
        if delta.get("end"):
            partial.pop(turn, None)
            if not partial:
                del self._partial[address]
            return
        before = partial.get(turn)
        text = delta["text"] if before is None or not delta["at"] else before.payload["text"] + delta["text"]
        partial[turn] = Passing(DELTA, {**delta, "at": 0, "text": text})

    async def follow(self, project: str, stream: str, *, after: int) -> AsyncIterator[Item]:
        """Events after offset `after` and live, with what passes by."""
        address = (project, stream)
        queue: _Queue = asyncio.Queue(MAX_HELD)
        for partial in self._partial.get(address, {}).values():
            queue.put_nowait(partial)
        self._watchers.setdefault(address, set()).add(queue)
        pump = asyncio.create_task(self._pump(project, stream, after, queue), name=f"watch {stream}")
        try:
            while (item := await queue.get()) is not None:
                if isinstance(item, BaseException):
                    raise item
                yield item
        finally:
            self._watchers[address].discard(queue)
            if not self._watchers[address]:
                del self._watchers[address]
            pump.cancel()
            await asyncio.wait({pump})

    async def _pump(self, project: str, stream: str, after: int, queue: _Queue) -> None:
        """Moves events into the watcher's queue; its failure is the watcher's."""
        last: BaseException | None = None
        events = self._log.follow(project, stream, after=after)
        try:
            async for event in events:
                await queue.put(event)
        except Exception as failure:  # noqa: BLE001  whatever it is, it is raised where the watcher is served
            last = failure
        finally:
            close = getattr(events, "aclose", None)
            if close is not None:
                await close()
        await queue.put(last)
