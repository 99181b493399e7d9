"""Owns rooms as callers see them: commands, cleanup, looking, settings; and what a crash left of turns and cleanups.

Called by the rooms routes and assemble. Invariants: looking at a room makes nothing; a cleanup is on the log before
anything is destroyed, ends every turn that was open then, and is finished by whoever touches the room next if it is cut
off; only a new message, command, setting, member or link opens a cleaned room again.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

import msgspec

from kennel.control.links import Links
from kennel.control.members import Members
from kennel.control.room_book import Room, RoomBook
from kennel.control.room_feed import Passing
from kennel.control.room_shell import RoomSandboxes, RoomShell
from kennel.control.turns import Reply, TurnOptions, Turns
from kennel.domain import membership, room, turn
from kennel.domain.command import Outcome
from kennel.domain.event import Event, Gap, fact
from kennel.domain.membership import Guest
from kennel.domain.principal import SYSTEM, Principal
from kennel.domain.room import Habits
from kennel.domain.turn import Message
from kennel.ports.event_log import EventLog
from kennel.ports.model import Model
from kennel.wire.errors import KennelError, Unauthorized, error

logger = logging.getLogger("kennel.rooms")

PREFIX = "/rooms"
PAGE = 100
"""Streams looked at together."""
CANCEL_SECONDS = 5.0
"""What the turns of a cleaned room get to end."""
STALE_MS = 3_600_000
"""Milliseconds after which a turn that another process began is surely over."""


class RoomView(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """A room as lists show it; `waiting` counts its turns without an end, `cwd` is where its
    shell last was. Times are ISO 8601 in UTC."""

    room_id: str
    title: str | None
    settings: Habits
    opened_at: str
    active_at: str
    sandbox: str | None
    members: int
    said: int
    waiting: int
    cwd: str | None = None


class RoomTalk(RoomView, frozen=True, rename="camel", kw_only=True):
    """A room with its latest messages, oldest first."""

    messages: list[Message]


class Rooms:
    """Rooms of every project, over the log, the sandboxes and a model; a command gets `timeout_ms`, then exit 124."""

    def __init__(
        self,
        log: EventLog,
        sandboxes: RoomSandboxes,
        model: Model,
        options: TurnOptions | None = None,
        *,
        timeout_ms: int = room.TIMEOUT_MS,
    ) -> None:
        self._book = RoomBook(log)
        self._shell = RoomShell(self._book, sandboxes, timeout_ms=timeout_ms)
        self._options = options or TurnOptions()
        self._began = time.time() * 1000
        self._tasks: set[asyncio.Task[Any]] = set()
        self.turns = Turns(self._book, self._shell, model, self._options, self._mend)
        self.members = Members(self._book)
        self.links = Links(self._book)

    async def exec(
        self, who: Principal, project: str, room_id: str, cmd: str, user_id: str | None = None
    ) -> tuple[Outcome, bool]:
        """Runs `cmd` in the room's shell, making the room's sandbox if it has none; the bool is an out-of-memory kill.

        Raises RESOURCE_BUSY when too many calls wait, QUOTA_EXCEEDED, FORBIDDEN for an observer, SANDBOX_DESTROYED when
        the room was cleaned before the command's turn came, and whatever creating or running meets.
        """
        with self._book.use(project, room_id) as here, self._shell.place(here) as wait:
            await self._book.refresh(here)
            self._mend(here)
            membership.require_driver(here.state.members, user_id)
            self.turns.limit_commands(here)
            return await self._shell.run(who, here, cmd, here.state.cleanups, wait)

    async def cleanup(self, who: Principal, project: str, room_id: str) -> Sequence[str]:
        """Empties the room and destroys its sandbox, running turns and commands included; the errors met.

        Idempotent; an unknown room is clean already. What could not be destroyed is tried again by the next call.
        """
        with self._book.use(project, room_id) as here:
            here.mended = True
            async with here.change:
                await self._book.refresh(here)
                if here.state.opened_at is not None:
                    await self._close(who, here)
                doomed = here.state.doomed
            overtaken = [one for one in here.running.values() if one.said and one.id not in here.state.talk.open]
            for one in overtaken:
                one.cancel()
            self._book.nudge(project, room_id)
            found = [await self._shell.destroy(who, here, path) for path in doomed]
            if overtaken:
                await asyncio.wait([asyncio.ensure_future(one.gone()) for one in overtaken], timeout=CANCEL_SECONDS)
            return [complaint for complaint in found if complaint is not None]

    async def _close(self, who: Principal, here: Room) -> None:
        """Ends every open turn and the room as it is, in one batch."""
        cancelled = [
            fact(who, turn.TURN_ENDED, turn.ended(one, "cancelled", code="OPERATION_INTERRUPTED"))
            for one in here.state.talk.open[-PAGE:]
        ]
        await self._book.record(here, *cancelled, fact(who, room.CLEANUP_REQUESTED, {"roomId": here.room_id}))
        here.seen.clear()

    async def say(self, who: Principal, project: str, room_id: str, text: str, user_id: str | None = None) -> Reply:
        """Says something in the room and waits for the model's reply; see `Turns.send`."""
        return await self.turns.send(who, project, room_id, text, user_id)

    async def view(self, project: str, room_id: str) -> RoomTalk:
        """The room and its latest messages; NOT_FOUND when nobody has used it, or not since its cleanup."""
        with self._book.use(project, room_id) as here:
            await self._book.refresh(here)
            view = self._view(here)
            if view is None:
                raise error("NOT_FOUND", "there is no such room", hint="a room is made by its first use")
            history = here.state.habits.history
            kept = here.state.talk.messages(self._options.history if history is None else history)
            return RoomTalk(**{name: getattr(view, name) for name in view.__struct_fields__}, messages=kept)

    async def list(
        self, project: str, *, limit: int = PAGE, cursor: str | None = None
    ) -> tuple[list[RoomView], str | None]:
        """Rooms in use, in the order of their streams, after `cursor`; and the cursor of the next page."""
        found: list[RoomView] = []
        after = cursor or PREFIX
        while len(found) <= limit:
            paths = await self._book.log.paths(project, PREFIX, after=after, limit=PAGE)
            for path in paths:
                with self._book.use_stream(project, path) as here:
                    await self._book.refresh(here)
                    view = self._view(here)
                if view is not None:
                    if len(found) == limit:
                        return found, after
                    found.append(view)
                after = path
            if len(paths) < PAGE:
                break
        return found, None

    @staticmethod
    def _view(here: Room) -> RoomView | None:
        """The room as lists show it; None for one that is not in use, or a stream that is no room's."""
        state = here.state
        if state.opened_at is None or state.room_id is None or room.stream_of(state.room_id) != here.stream:
            return None
        return RoomView(
            room_id=state.room_id,
            title=state.title,
            settings=state.habits,
            opened_at=state.opened_at,
            active_at=state.active_at or state.opened_at,
            sandbox=state.path,
            members=len(state.members),
            said=len(state.talk.said),
            waiting=len(state.talk.open),
            cwd=state.shell.cwd if state.shell is not None else None,
        )

    async def configure(self, who: Principal, project: str, room_id: str, changes: dict[str, Any]) -> RoomView:
        """Changes `title` and `settings`, of which only what is given; null takes one away. Opens the room."""
        with self._book.use(project, room_id) as here:
            await self._book.refresh(here)
            if changes or here.state.opened_at is None:
                await self._book.record_open(here, who, fact(who, room.CONFIGURED, changes))
            view = self._view(here)
            if view is None:
                raise error("RESOURCE_BUSY", "the room was cleaned meanwhile", admitted="yes", retry_after_ms=100)
            return view

    async def follow(
        self, who: Principal, project: str, room_id: str, *, after: int
    ) -> AsyncIterator[Event | Gap | Passing]:
        """The room's events and what passes by between them; ends when a link that it goes by is no good any more."""
        items = self._book.follow(project, room_id, after=after)
        try:
            async for item in items:
                if isinstance(who, Guest):
                    try:
                        await self.links.check(who)
                    except Unauthorized:
                        return
                if not isinstance(item, Passing) or item.kind != "nudge":
                    yield item
        finally:
            close = getattr(items, "aclose", None)
            if close is not None:
                await close()

    async def head(self, project: str, room_id: str) -> int:
        """The offset of the room's last event; STREAM_NOT_FOUND when it has none."""
        found = await self._book.log.head(project, room.stream_of(room_id))
        if found is None:
            raise error("STREAM_NOT_FOUND", "nothing has happened in this room yet")
        return found

    # --- what a crash left

    def _mend(self, here: Room) -> None:
        """Has the leftovers of another process seen to, once for each room that this one takes up."""
        if here.mended:
            return
        here.mended = True
        if here.state.doomed or self._orphans(here):
            self._keep(asyncio.create_task(self._mend_in_background(here), name=f"mend {here.stream}"))

    async def _mend_in_background(self, here: Room) -> None:
        try:
            await self._finish(here)
        except KennelError as failure:
            here.mended = False
            logger.warning("what a crash left of %s is still there: %s", here.stream, failure)

    def _orphans(self, here: Room) -> Sequence[str]:
        """Open turns that no process has in hand: begun before this one was, or too long ago."""
        began = {one.turn: one.message.ts for one in here.state.talk.said}
        before = max(self._began, time.time() * 1000 - STALE_MS)
        return [one for one in here.state.talk.open if one not in here.running and began.get(one, 0) < before]

    async def _finish(self, here: Room) -> None:
        """Ends orphaned turns and destroys what a cleanup had begun to."""
        with self._book.hold(here):
            code, message = "OPERATION_INTERRUPTED", "Kennel was stopped during this turn"
            ends = [turn.ended(one, "interrupted", code=code, message=message) for one in self._orphans(here)]
            if ends:
                await self._book.record(here, *(fact(SYSTEM, turn.TURN_ENDED, end) for end in ends))
            for path in here.state.doomed:
                complaint = await self._shell.destroy(SYSTEM, here, path)
                if complaint is not None:
                    raise error("NODE_UNAVAILABLE", complaint)

    async def finish_cleanups(self, projects: Sequence[str]) -> bool:
        """Finishes the cleanups and ends the turns that a crash cut off; whether all of that worked."""
        whole = True
        for project in projects:
            after = PREFIX
            while paths := await self._book.log.paths(project, PREFIX, after=after, limit=PAGE):
                for path in paths:
                    with self._book.use_stream(project, path) as here:
                        await self._book.refresh(here)
                        if here.state.room_id is not None and not here.mended:
                            here.mended = True
                            await self._mend_in_background(here)
                            whole = whole and here.mended
                after = paths[-1]
        return whole

    def start(self, projects: Callable[[], Awaitable[Sequence[str]]]) -> None:
        """Sees to what a crash left, again and again until all of it is done; node may not be up yet."""

        async def until_done() -> None:
            pause = 0.2
            while True:
                try:
                    if await self.finish_cleanups(await projects()):
                        return
                except KennelError as failure:
                    logger.warning("rooms cannot be looked through yet: %s", failure)
                await asyncio.sleep(pause)
                pause = min(pause * 2, 60.0)

        self._keep(asyncio.create_task(until_done(), name="rooms after a start"))

    def _keep(self, task: asyncio.Task[None]) -> None:
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Ends every turn of this process; the next one records how they ended."""
        await self.turns.close()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
