"""Owns who hears of new events in this process: listeners of folds, and followers with a bounded queue each.

Called on the event loop, by the writer's deliveries and by `SqlEventLog.follow`. Invariant: nobody who listens can
slow the writer: a listener's fault is logged, a follower whose queue is full is dropped and told so.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

from kennel.domain.event import Event, Gap
from kennel.ports.event_log import Listener

log = logging.getLogger(__name__)

MAX_WAITING = 512
"""Events a follower may lag behind before it is dropped."""

MAX_PAGE = 500
"""Events in a full page of history."""

ReadPage = Callable[[int], Awaitable[list[Event]]]
"""(after) → the next page of the stream."""


class Feed:
    """Listeners by stream."""

    def __init__(self) -> None:
        self._listeners: dict[tuple[str, str], list[Listener]] = {}
        self._followers: set[Follower] = set()

    def listen(self, project: str, path: str, listener: Listener) -> Callable[[], None]:
        """Adds a listener; returns the way to take it off."""
        address = (project, path)
        self._listeners.setdefault(address, []).append(listener)

        def stop() -> None:
            left = [one for one in self._listeners.get(address, []) if one is not listener]
            if left:
                self._listeners[address] = left
            else:
                self._listeners.pop(address, None)

        return stop

    def publish(self, events: Sequence[Event]) -> None:
        """Hands committed events to those who listen, in order."""
        for event in events:
            for listener in tuple(self._listeners.get((event.project, event.path), ())):
                try:
                    listener(event)
                except Exception:
                    log.exception("a listener of %s failed at offset %d", event.path, event.offset)

    async def follow(self, project: str, path: str, after: int, read: ReadPage) -> AsyncIterator[Event | Gap]:
        """The stream after offset `after`: history by pages of `read`, then live."""
        follower = Follower(after, read)
        stop = self.listen(project, path, follower.hear)
        self._followers.add(follower)
        try:
            async for event in follower.events():
                yield event
        finally:
            stop()
            self._followers.discard(follower)

    def close(self) -> None:
        """Ends every follower."""
        for follower in tuple(self._followers):
            follower.end("closed")


class Follower:
    """One reader of one stream; at most MAX_WAITING events are held for it."""

    def __init__(self, after: int, read: ReadPage) -> None:
        self._after, self._read = after, read
        self._waiting: deque[Event] = deque()
        self._bell = asyncio.Event()
        self._live = False
        self._missed = False
        self._ended: str | None = None

    def hear(self, event: Event) -> None:
        """Takes an event in; a full queue ends a live follower, and sends one that still reads history back to it."""
        if self._ended is not None:
            return
        if len(self._waiting) < MAX_WAITING:
            self._waiting.append(event)
            self._bell.set()
        elif self._live:
            self.end("slow")
        else:
            self._missed = True

    def end(self, reason: str) -> None:
        """Stops; what is still waiting is let go, so that the gap begins right after what was delivered."""
        self._ended = reason
        self._waiting.clear()
        self._bell.set()

    async def events(self) -> AsyncIterator[Event | Gap]:
        """The stream, ended by a Gap when this reader was too slow or the log closed."""
        while not self._live and self._ended is None:
            self._waiting.clear()
            self._missed = False
            page = await self._read(self._after)
            for event in page:
                self._after = event.offset
                yield event
            # A short page was the whole history when it was read, and what came since is waiting, unless it did not
            # fit; no suspension lies between this test and the first live wait, so nothing is missed.
            self._live = len(page) < MAX_PAGE and not self._missed
        while self._ended is None:
            if not self._waiting:
                self._bell.clear()
                await self._bell.wait()
                continue
            event = self._waiting.popleft()
            if event.offset > self._after:
                self._after = event.offset
                yield event
        yield Gap(self._after, self._ended)
