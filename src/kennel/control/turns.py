"""Owns a room's conversation: a person's message in, the model asked, its commands run, the reply out.

Called by rooms and the message route. Invariants: the person's message is on the log before the model is asked; turns
of a room run one after another in the order they came; every turn gets a typed end, also when this process dies (then
from the next one); a reply that a cleanup overtook is nowhere; who hangs up does not take the reply from the others.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec

from kennel.control.room_book import Room, RoomBook, busy
from kennel.control.room_feed import DELTA
from kennel.control.room_shell import RoomShell
from kennel.domain import membership, run_tags, turn
from kennel.domain.event import fact
from kennel.domain.principal import Principal
from kennel.domain.turn import Message, Prompt
from kennel.ports.model import Model
from kennel.wire.errors import KennelError, error

logger = logging.getLogger("kennel.turns")

T = TypeVar("T")

MAX_TURNS = 64
"""Turns of one room that run or wait; each holds a caller."""
SHOW_SECONDS = 0.05
"""Between two pieces of an answer that watchers are shown."""


class Reply(msgspec.Struct, frozen=True, rename="camel"):
    """What came of a message: the model's reply and the room's latest messages, oldest first."""

    reply: str
    messages: list[Message]


@dataclass(frozen=True, slots=True)
class TurnOptions:
    """The installation's own settings of turns; see `domain.room.Habits`. `seconds` is what a turn's commands get."""

    history: int = 50
    context: int = 10
    max_rounds: int = 1
    turns_per_minute: int = 60
    commands_per_minute: int = 0
    seconds: float = 600.0


@dataclass(slots=True)
class Turn:
    """One turn in this process; `answer` is what its sender waits for."""

    id: str
    who: Principal
    place: asyncio.Future[None]
    arrival: asyncio.Future[None]
    answer: asyncio.Future[Reply]
    task: asyncio.Task[None] | None = None
    said: bool = False
    started: bool = False
    cleanups: int = 0
    deadline: float = 0.0

    def cancel(self) -> None:
        """Ends it now; its sender hears that the room was cleaned."""
        self.end(_overtaken(self.started))
        if self.task is not None:
            self.task.cancel()

    def end(self, outcome: Reply | KennelError) -> None:
        """Answers the sender, unless that was done."""
        if self.answer.done():
            return
        if isinstance(outcome, KennelError):
            self.answer.set_exception(outcome)
        else:
            self.answer.set_result(outcome)

    async def gone(self) -> None:
        """Returns when nothing of it runs any more."""
        if self.task is not None:
            await asyncio.wait({self.task})


class Turns:
    """The turns of every room."""

    def __init__(
        self, book: RoomBook, shell: RoomShell, model: Model, options: TurnOptions, mend: Callable[[Room], None]
    ) -> None:
        self._book = book
        self._mend = mend
        self._shell = shell
        self._model = model
        self._options = options
        self._all: set[asyncio.Task[None]] = set()

    async def send(self, who: Principal, project: str, room_id: str, text: str, user_id: str | None = None) -> Reply:
        """Says `text` in the room and waits for the model's reply.

        Raises QUOTA_EXCEEDED, RESOURCE_BUSY, FORBIDDEN for an observer; MODEL_NOT_CONFIGURED and MODEL_FAILED, after
        which the message stays; OPERATION_INTERRUPTED when the room was cleaned meanwhile.
        """
        text, user_id = run_tags.trim(text), run_tags.trim(user_id or "") or None
        with self._book.use(project, room_id) as here:
            if len(here.turns) >= MAX_TURNS:
                raise busy("too many messages wait for this room's model")
            place, arrival = here.turns.take(), here.arrivals.take()
            try:
                await self._book.refresh(here)
                self._mend(here)
                membership.require_driver(here.state.members, user_id)
                here.turn_quota.take(self._limit(here, "turns_per_minute"), "messages")
            except BaseException:
                here.turns.leave(place)
                here.arrivals.leave(arrival)
                raise
            loop = asyncio.get_running_loop()
            one = Turn(secrets.token_hex(8), who, place, arrival, loop.create_future())
            self._begin(here, one, text, user_id)
        return await asyncio.shield(one.answer)

    def _begin(self, here: Room, one: Turn, text: str, user_id: str | None) -> None:
        """Lets a turn run by itself."""
        one.answer.add_done_callback(_heard)
        here.running[one.id] = one
        holding = ExitStack()
        holding.enter_context(self._book.hold(here))
        one.task = asyncio.create_task(self._live(here, one, text, user_id), name=f"turn {one.id}")
        # Not in the task itself: one that is cancelled before its first step runs nothing of it.
        one.task.add_done_callback(lambda _: self._left(here, one, holding))
        self._all.add(one.task)
        one.task.add_done_callback(self._all.discard)

    async def _live(self, here: Room, one: Turn, text: str, user_id: str | None) -> None:
        """The whole of a turn; its end reaches the log and the sender, whatever it is."""
        try:
            await self._say(here, one, text, user_id)
            await one.place
            one.end(await self._answer(here, one))
        except KennelError as failure:
            one.end(failure)
        except Exception:
            logger.exception("a turn of %s failed", here.stream)
            one.end(error("INTERNAL_ERROR", "the turn failed"))

    def _left(self, here: Room, one: Turn, holding: ExitStack) -> None:
        """After its task: the next turn may begin."""
        one.end(error("OPERATION_INTERRUPTED", "Kennel stops", admitted="unknown"))
        here.turns.leave(one.place)
        if not one.said:
            here.arrivals.leave(one.arrival)
        here.running.pop(one.id, None)
        if one.started:
            self._book.show(here, DELTA, {"turnId": one.id, "end": True})
        self._book.show_waiting(here)
        holding.close()

    async def _say(self, here: Room, one: Turn, text: str, user_id: str | None) -> None:
        """Puts the person's message on the log, in the order of arrival, with how many turns are before it."""
        await one.arrival
        payload = {"turnId": one.id, "role": "user", "text": text, "place": here.turns.ahead(one.place)}
        payload |= {} if user_id is None else {"userId": user_id}
        await self._book.record_open(here, one.who, fact(one.who, turn.SAID, payload))
        one.said = True
        here.arrivals.leave(one.arrival)
        self._book.show_waiting(here)

    async def _answer(self, here: Room, one: Turn) -> Reply:
        """The turn's reply, on the log; a failure is on the log too before it is raised."""
        await self._book.refresh(here)
        if one.id not in here.state.talk.open:
            raise _overtaken(False)
        one.cleanups = here.state.cleanups
        one.started, one.deadline = True, time.monotonic() + self._options.seconds
        await self._book.record(here, fact(one.who, turn.TURN_STARTED, {"turnId": one.id}))
        try:
            text = await self._converse(here, one)
        except Exception as fault:
            failure = fault if isinstance(fault, KennelError) else error("INTERNAL_ERROR", "the turn failed")
            payload = turn.ended(one.id, "failed", code=failure.code, message=failure.message)
            await self._book.record(here, fact(one.who, turn.TURN_ENDED, payload))
            raise
        said = {"turnId": one.id, "role": "agent", "text": text}
        await self._book.record(
            here,
            fact(one.who, turn.SAID, said),
            fact(one.who, turn.TURN_ENDED, turn.ended(one.id, "replied")),
        )
        if here.state.cleanups != one.cleanups:
            raise _overtaken(True)
        return Reply(text, here.state.talk.messages(self._habit(here, "history")))

    async def _converse(self, here: Room, one: Turn) -> str:
        """The rounds of a turn: the model's words without tags and what its commands gave, all together."""
        habits = here.state.habits
        context = self._habit(here, "context")
        asked = turn.prompts(here.state.talk, one.id, context=context, instructions=habits.instructions)
        parts: list[str] = []
        for number in range(1, self._habit(here, "max_rounds") + 1):
            try:
                words = await self._ask(here, one, asked, number)
            except KennelError as failure:
                if not parts:
                    raise
                # Commands have run: what they gave is not to be lost.
                parts.append(turn.failure("model", failure.message).strip())
                break
            tagged = run_tags.parse(words)
            told = await self._run_all(here, one, tagged.commands)
            parts.append(turn.reply(tagged.text, told))
            if not told:
                break
            asked = [*asked, Prompt("assistant", words), turn.outputs_for_model(told)]
        return turn.cut("\n\n".join(part for part in parts if part), turn.MAX_REPLY_JSON)

    async def _ask(self, here: Room, one: Turn, prompts: Sequence[Prompt], number: int) -> str:
        """The model's answer, shown to watchers as it grows."""
        pieces: list[str] = []
        at = shown = 0
        last = 0.0
        stream = self._model.answer(prompts)
        try:
            async for piece in stream:
                pieces.append(turn.plain(piece))
                at += len(pieces[-1])
                now = time.monotonic()
                if now - last >= SHOW_SECONDS:
                    shown, last = self._show(here, one, number, pieces, shown, at), now
        finally:
            close = getattr(stream, "aclose", None)
            if close is not None:
                await close()
        self._show(here, one, number, pieces, shown, at)
        return "".join(pieces)

    def _show(self, here: Room, one: Turn, number: int, pieces: list[str], shown: int, at: int) -> int:
        """Shows what came since `shown`; all pieces become one."""
        text = "".join(pieces)
        pieces[:] = [text]
        if at > shown:
            payload = {"turnId": one.id, "round": number, "at": shown, "text": text[shown:]}
            self._book.show(here, DELTA, payload)
        return at

    async def _run_all(self, here: Room, one: Turn, commands: Sequence[str]) -> list[str]:
        """Runs a round's commands in order; what the reply says of each."""
        told = []
        for index, command in enumerate(commands):
            if index == turn.MAX_COMMANDS:
                left = len(commands) - index
                why = f"not run, nor the {left - 1} after it: one answer runs at most {turn.MAX_COMMANDS} commands"
                told.append(turn.failure(command, why))
                break
            told.append(await self._run(here, one, command))
        return told

    async def _run(self, here: Room, one: Turn, command: str) -> str:
        """One command of the model's; nothing it does ends the turn."""
        finished: dict[str, Any] = {"turnId": one.id, "commandId": ""}
        try:
            here.command_quota.take(self._limit(here, "commands_per_minute"), "commands")
            with self._shell.place(here) as wait:
                finished["commandId"] = wait.id
                begins = {**finished, "command": command[: turn.SUMMARY], "place": wait.ahead}
                begins["waking"] = await self._shell.sleeps(here)
                await self._book.record(here, fact(one.who, turn.COMMAND_STARTED, begins))
                outcome, _ = await self._in_time(one, self._shell.run(one.who, here, command, one.cleanups, wait))
            summary = turn.summary(outcome.stdout, outcome.stderr, outcome.exit_code)
            finished |= {"exitCode": outcome.exit_code, "output": summary}
            told = turn.output(command, summary)
        except KennelError as failure:
            finished |= {"code": failure.code, "error": failure.message[:1000]}
            told = turn.failure(command, failure.message)
        await self._book.record(here, fact(one.who, turn.COMMAND_FINISHED, finished))
        return told

    async def _in_time(self, one: Turn, work: Coroutine[Any, Any, T]) -> T:
        """What `work` comes to before the turn's time is over; WAIT_TIMEOUT."""
        try:
            async with asyncio.timeout(max(0.0, one.deadline - time.monotonic())):
                return await work
        except TimeoutError as late:
            if isinstance(late, KennelError):
                raise
            message = f"stopped: the {self._options.seconds:g} seconds of this turn are over"
            raise error("WAIT_TIMEOUT", message) from None

    def _habit(self, here: Room, name: str) -> int:
        """A number of the room's own, or else the installation's."""
        own = getattr(here.state.habits, name)
        return int(getattr(self._options, name) if own is None else own)

    def _limit(self, here: Room, name: str) -> int:
        """A quota: the room's own may only be lower than the installation's; 0 is none."""
        most, own = getattr(self._options, name), getattr(here.state.habits, name)
        return int(min((limit for limit in (most, own) if limit), default=0))

    def limit_commands(self, here: Room) -> None:
        """Counts a direct command; QUOTA_EXCEEDED."""
        here.command_quota.take(self._limit(here, "commands_per_minute"), "commands")

    async def close(self) -> None:
        """Ends every turn of this process; the next one records how they ended."""
        for task in tuple(self._all):
            task.cancel()
        await asyncio.gather(*self._all, return_exceptions=True)


def _overtaken(started: bool) -> KennelError:
    message = "the room was cleaned " + ("during this turn" if started else "while this message waited")
    return error("OPERATION_INTERRUPTED", message, admitted="yes" if started else "no")


def _heard(answer: asyncio.Future[Reply]) -> None:
    """An answer that nobody waits for any more is no fault."""
    if not answer.cancelled():
        answer.exception()
