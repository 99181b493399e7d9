"""Owns the rooms that this process has in hand: each one's fold, its order of work, and who watches it.

Called by the rooms' services. Invariants: a room in use is never let go, idle ones are let go before memory runs out;
looking at a room writes nothing and, once it is in hand, reads nothing; whoever watches slowly loses what passes by,
never the room's events.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

from kennel.control.line import Line
from kennel.control.quota import Quota
from kennel.control.room_feed import Passing, RoomFeed
from kennel.domain import room
from kennel.domain.event import Event, Gap, NewEvent, fact
from kennel.domain.principal import Principal
from kennel.domain.room import RoomState
from kennel.ports.event_log import EventLog
from kennel.wire.errors import KennelError, error

MAX_USERS = 256
"""Calls of one room that run or wait at once in this process."""
MAX_ROOMS = 4096
"""Rooms whose fold is kept in memory with nothing running; the longest unused go first and cost a re-read."""
MAX_WEIGHT = 64_000_000
"""Characters that all folds together may hold before idle rooms go."""


class Running(Protocol):
    """A turn in this process."""

    id: str
    said: bool

    def cancel(self) -> None: ...
    async def gone(self) -> None: ...


@dataclass(slots=True)
class Room:
    """One room in this process: its fold, the order of its commands and turns, who was seen in it."""

    project: str
    stream: str
    known_id: str | None
    state: RoomState = field(default_factory=RoomState)
    commands: Line = field(default_factory=Line)
    turns: Line = field(default_factory=Line)
    arrivals: Line = field(default_factory=Line)
    running: dict[str, Running] = field(default_factory=dict)
    change: asyncio.Lock = field(default_factory=asyncio.Lock)
    shells: dict[str, int] = field(default_factory=dict)
    seen: dict[str, float] = field(default_factory=dict)
    turn_quota: Quota = field(default_factory=Quota)
    command_quota: Quota = field(default_factory=Quota)
    mended: bool = False
    live: bool = False
    heard: int = 0
    stop: Callable[[], None] | None = None
    users: int = 0
    weight: int = 0

    @property
    def room_id(self) -> str:
        """The room's id, from its caller or else from its own events."""
        found = self.known_id or self.state.room_id
        if found is None:
            raise error("INTERNAL_ERROR", f"nothing says whose stream {self.stream} is")
        return found


class RoomBook:
    """`RoomBook(log)`; services share one, so that a room has one entry in a process."""

    def __init__(self, log: EventLog) -> None:
        self.log = log
        self._feed = RoomFeed(log)
        self._rooms: dict[tuple[str, str], Room] = {}
        self._weight = 0

    @contextmanager
    def use(self, project: str, room_id: str) -> Iterator[Room]:
        """The room's entry, its fold as it was left; RESOURCE_BUSY when too many calls are in it."""
        with self.use_stream(project, room.stream_of(room_id), room_id) as here:
            yield here

    @contextmanager
    def use_stream(self, project: str, stream: str, room_id: str | None = None) -> Iterator[Room]:
        """As `use`, for a room whose id may not be known yet."""
        key = (project, stream)
        here = self._rooms.pop(key, None) or Room(project, stream, room_id)
        here.known_id = here.known_id or room_id
        self._rooms[key] = here
        if here.users >= MAX_USERS:
            raise busy("too many calls wait for this room")
        with self.hold(here):
            yield here

    @contextmanager
    def hold(self, here: Room) -> Iterator[None]:
        """Keeps an entry that is in use, so that it is not forgotten."""
        here.users += 1
        try:
            yield
        finally:
            here.users -= 1
            self._weight += here.state.weight - here.weight
            here.weight = here.state.weight
            self._forget()

    def _forget(self) -> None:
        """Drops idle rooms, the longest unused first, until the rest fits; entries are in the order of their use."""
        if len(self._rooms) <= MAX_ROOMS and self._weight <= MAX_WEIGHT:
            return
        for key, here in tuple(self._rooms.items()):
            if here.users == 0:
                del self._rooms[key]
                self._let_go(here)
                self._weight -= here.weight
                if len(self._rooms) <= MAX_ROOMS and self._weight <= MAX_WEIGHT:
                    return

    @staticmethod
    def _let_go(here: Room) -> None:
        here.live = False
        if here.stop is not None:
            here.stop()
            here.stop = None

    async def refresh(self, here: Room) -> None:
        """Folds what the room's stream says; reads it the first time, later the log tells of each event by itself.

        A stream that does not exist says nothing.
        """
        if here.live:
            return
        if here.stop is None:
            here.stop = self.log.listen(here.project, here.stream, partial(self._hear, here))
        while True:
            try:
                events = await self.log.read(here.project, here.stream, after=here.state.offset)
            except KennelError as failure:
                if failure.code != "STREAM_NOT_FOUND":
                    raise
                events = []
            if not events and here.state.offset >= here.heard:
                here.live = True
                return
            self._fold(here, events)

    def _hear(self, here: Room, event: Event) -> None:
        here.heard = max(here.heard, event.offset)
        if event.offset > here.state.offset + 1:
            here.live = False  # it is still being read, or something was missed: the next look reads on
        else:
            self._fold(here, [event])

    @staticmethod
    def _fold(here: Room, events: list[Event]) -> None:
        for event in events:
            if event.offset == here.state.offset + 1:  # another task may have folded it meanwhile
                here.state = room.evolve(here.state, event)

    async def record(self, here: Room, *events: NewEvent) -> list[Event]:
        """Appends to the room's stream as one batch, and folds."""
        appended = await self.log.append(here.project, here.stream, events)
        self._fold(here, appended)
        if here.state.offset < appended[-1].offset:
            await self.refresh(here)
        return appended

    async def record_open(self, here: Room, who: Principal, *events: NewEvent) -> list[Event]:
        """As `record`, in a room that this opens when it is not open yet."""
        if here.state.opened_at is None:
            events = (fact(who, room.OPENED, {"roomId": here.room_id}), *events)
        return await self.record(here, *events)

    def show(self, here: Room, kind: str, payload: Mapping[str, Any]) -> None:
        """Lets those who watch the room see something that is not kept."""
        self._feed.publish((here.project, here.stream), Passing(kind, dict(payload)))

    def show_waiting(self, here: Room) -> None:
        """Tells how many turns and commands run or wait."""
        self.show(here, "queue", {"turns": list(here.running), "commands": len(here.commands)})

    def nudge(self, project: str, room_id: str) -> None:
        """Makes everybody who watches the room prove again that they may."""
        self._feed.publish((project, room.stream_of(room_id)), Passing("nudge", {}))

    def follow(self, project: str, room_id: str, *, after: int) -> AsyncIterator[Event | Gap | Passing]:
        """The room's events after `after`, then live, with what passes by; STREAM_NOT_FOUND when it has none."""
        return self._feed.follow(project, room.stream_of(room_id), after=after)


def busy(message: str) -> KennelError:
    """The refusal of a call that would wait too long."""
    return error("RESOURCE_BUSY", message, admitted="no", retry_after_ms=1000)
