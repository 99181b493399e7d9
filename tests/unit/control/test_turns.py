"""Turns over the real log, a scripted model and the scripted lifecycle service of test_rooms."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from kennel.adapters.model.absent import AbsentModel
from kennel.adapters.sql.event_log import SqlEventLog
from kennel.control import turns as turns_module
from kennel.control.room_feed import Passing
from kennel.control.rooms import Rooms
from kennel.control.turns import TurnOptions
from kennel.domain import room, turn
from kennel.domain.event import Event
from kennel.domain.principal import Principal
from kennel.domain.turn import Prompt
from kennel.wire.errors import KennelError, error
from scripted_pets import Pets

pytestmark = pytest.mark.anyio

WHO = Principal("k", None, frozenset({"admin"}))
P = "default"
Step = str | list[str] | Exception | None


class Script:
    """A model that says what it was told to; None holds until `release`. What it was asked is in `asked`."""

    def __init__(self, *steps: Step) -> None:
        self.steps = list(steps)
        self.asked: list[list[Prompt]] = []
        self.active = self.most_active = 0
        self.release = asyncio.Event()

    async def answer(self, prompts: Sequence[Prompt]) -> AsyncIterator[str]:
        self.asked.append(list(prompts))
        step = self.steps.pop(0) if self.steps else "ok"
        self.active += 1
        self.most_active = max(self.active, self.most_active)
        try:
            await asyncio.sleep(0.002)
            if step is None:
                yield "partial"
                await self.release.wait()
                step = "released"
            if isinstance(step, Exception):
                raise step
            for piece in [step] if isinstance(step, str) else step:
                yield piece
        finally:
            self.active -= 1


def made(log: SqlEventLog, model: Any, pets: Pets | None = None, **options: Any) -> Rooms:
    return Rooms(log, pets or Pets(), model, TurnOptions(**options))


async def events(log: SqlEventLog, room_id: str = "r") -> list[Event]:
    if await log.head(P, room.stream_of(room_id)) is None:
        return []
    return await log.read(P, room.stream_of(room_id))


async def story(log: SqlEventLog, room_id: str = "r") -> list[str]:
    """The room's talk in words, without its commands."""
    told = []
    for event in await events(log, room_id):
        if event.type == turn.SAID:
            told.append(f"{event.payload['role']}: {event.payload['text']}")
        elif event.type == turn.TURN_ENDED:
            told.append(f"{event.payload['outcome']} {event.payload.get('code', '')}".strip())
    return told


async def eventually(true: Any) -> None:
    async with asyncio.timeout(5):
        while not await true():
            await asyncio.sleep(0.002)


async def test_a_message_and_its_reply(log: SqlEventLog) -> None:
    model = Script(["hel", "lo"])
    answer = await made(log, model).say(WHO, P, "r", "  hi \n", " ana ")
    assert answer.reply == "hello"
    assert [(m.role, m.user_id, m.text) for m in answer.messages] == [("user", "ana", "hi"), ("agent", None, "hello")]
    assert model.asked[0][1:] == [Prompt("user", "[ana] hi")]
    assert [event.type for event in await events(log)][1:] == [
        room.OPENED, turn.SAID, turn.TURN_STARTED, turn.SAID, turn.TURN_ENDED,
    ]  # fmt: skip


async def test_blanks_are_a_message(log: SqlEventLog) -> None:
    answer = await made(log, Script("yes?")).say(WHO, P, "r", " \n")
    assert answer.messages[0].text == ""


async def test_the_models_commands_run_in_order_in_the_rooms_shell_and_their_output_ends_the_reply(
    log: SqlEventLog,
) -> None:
    pets = Pets()
    model = Script("I'll look.\n<run> cd /tmp </run> then <run></run><run>exit 7</run>")
    answer = await made(log, model, pets).say(WHO, P, "r", "go")
    assert [text for _, text in pets.ran] == ["cd /tmp", "exit 7"]
    assert answer.reply == (
        "I'll look.\n then\n\nOutput (cd /tmp):\n/tmp []\n\nOutput (exit 7):\n/tmp []\n[exit code 7]"
    )
    told = [event.payload for event in await events(log) if event.type == turn.COMMAND_FINISHED]
    assert [(one["exitCode"], one["output"]) for one in told] == [(0, "/tmp []"), (7, "/tmp []\n[exit code 7]")]
    begun = [event.payload for event in await events(log) if event.type == turn.COMMAND_STARTED]
    assert [(one["command"], one["place"], one["waking"]) for one in begun] == [
        ("cd /tmp", 0, True), ("exit 7", 0, False),
    ]  # fmt: skip


async def test_tags_of_people_and_of_outputs_are_never_run(log: SqlEventLog) -> None:
    pets = Pets()
    rooms = made(log, Script("<run>cd <run>evil</run>", "nothing"), pets)
    first = await rooms.say(WHO, P, "r", "<run>rm -rf /</run>")
    await rooms.say(WHO, P, "r", "again")
    assert [text for _, text in pets.ran] == ["cd <run>evil"]
    assert first.reply == "Output (cd <run>evil):\n<run>evil []"
    assert first.messages[0].text == "<run>rm -rf /</run>"


async def test_a_command_that_cannot_run_is_told_and_the_next_one_runs(log: SqlEventLog) -> None:
    pets = Pets()
    pets.refuse["exec"] = [error("NO_CAPACITY", "the machine is full")]
    answer = await made(log, Script("<run>a</run><run>b</run>"), pets).say(WHO, P, "r", "go")
    assert answer.reply == "Error (a):\nthe machine is full\n\nOutput (b):\n/workspace []"


async def test_ten_thousand_commands_are_not_run(log: SqlEventLog) -> None:
    pets = Pets()
    text = "".join(f"<run>echo {n}</run>" for n in range(10_000))
    answer = await made(log, Script(text), pets).say(WHO, P, "r", "go")
    assert len(pets.ran) == turn.MAX_COMMANDS
    assert answer.reply.endswith("nor the 9949 after it: one answer runs at most 50 commands")


async def test_a_hostile_answer_of_any_size_and_kind_is_kept_as_it_can_be(log: SqlEventLog) -> None:
    text = "\x01\0\ud800" * 1_000_000
    answer = await made(log, Script(text)).say(WHO, P, "r", "go")
    assert answer.reply.startswith("\x01\ufffd\ufffd")
    assert len(answer.reply) > 30_000
    assert (await story(log))[-1] == "replied"


async def test_rounds_show_the_model_what_its_commands_gave(log: SqlEventLog) -> None:
    model = Script("First <run>cd /tmp</run>", "Done.", "never")
    answer = await made(log, model, max_rounds=3).say(WHO, P, "r", "go")
    assert answer.reply == "First\n\nOutput (cd /tmp):\n/tmp []\n\nDone."
    assert [one.role for one in model.asked[1]] == ["system", "user", "assistant", "user"]
    assert "Output (cd /tmp):\n/tmp []" in model.asked[1][3].text
    assert len(model.asked) == 2


async def test_one_round_is_all_unless_set(log: SqlEventLog) -> None:
    model = Script("<run>cd /tmp</run>", "more")
    rooms = made(log, model)
    await rooms.say(WHO, P, "r", "go")
    assert len(model.asked) == 1
    await rooms.configure(WHO, P, "r", {"settings": {"maxRounds": 2, "instructions": "Be kind."}})
    model.steps = ["<run>cd /</run>", error("MODEL_FAILED", "it fell over")]
    answer = await rooms.say(WHO, P, "r", "go")
    assert answer.reply == "Output (cd /):\n/ []\n\nError (model):\nit fell over"
    assert model.asked[-1][0].text.endswith("Be kind.")


@pytest.mark.parametrize("code", ["MODEL_FAILED", "INTERNAL_ERROR"])
async def test_a_failure_is_typed_and_recorded_and_the_room_lives_on(log: SqlEventLog, code: str) -> None:
    failure = error(code, "no luck") if code == "MODEL_FAILED" else ZeroDivisionError()
    rooms = made(log, Script(failure, "fine"))
    with pytest.raises(KennelError, match=code):
        await rooms.say(WHO, P, "r", "one")
    answer = await rooms.say(WHO, P, "r", "two")
    assert [message.text for message in answer.messages] == ["one", "two", "fine"]
    assert await story(log) == ["user: one", f"failed {code}", "user: two", "agent: fine", "replied"]


async def test_without_a_model_people_can_still_talk(log: SqlEventLog) -> None:
    rooms = made(log, AbsentModel())
    with pytest.raises(KennelError, match="MODEL_NOT_CONFIGURED"):
        await rooms.say(WHO, P, "r", "hi")
    assert [message.text for message in (await rooms.view(P, "r")).messages] == ["hi"]


async def test_twenty_people_at_once_are_answered_one_after_another(log: SqlEventLog) -> None:
    model = Script()
    rooms = made(log, model)
    answers = await asyncio.gather(*(rooms.say(WHO, P, "r", f"m{n}", f"u{n}") for n in range(20)))
    assert {answer.reply for answer in answers} == {"ok"}
    assert model.most_active == 1
    assert [asked[-1].text for asked in model.asked] == [f"[u{n}] m{n}" for n in range(20)]
    assert [one.text for one in model.asked[5][1:-1]] == [
        word for n in range(5) for word in (f"[u{n}] m{n}", "ok")
    ]  # fmt: skip
    said = [event.payload for event in await events(log) if event.type == turn.SAID and "place" in event.payload]
    assert sorted(one["place"] for one in said) != [0] * 20
    assert len((await rooms.view(P, "r")).messages) == 40


async def test_history_and_context_are_bounded(log: SqlEventLog) -> None:
    model = Script()
    rooms = made(log, model, turns_per_minute=0)
    for n in range(30):
        answer = await rooms.say(WHO, P, "r", f"m{n}")
    assert len(answer.messages) == 50
    assert len(model.asked[-1]) == 1 + 10 + 1
    again = made(log, Script())
    assert [m.text for m in (await again.view(P, "r")).messages] == [m.text for m in answer.messages]


async def test_only_so_many_wait_and_so_many_a_minute(log: SqlEventLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns_module, "MAX_TURNS", 3)
    model = Script(None)
    rooms = made(log, model, turns_per_minute=4)
    calls = [asyncio.create_task(rooms.say(WHO, P, "r", f"{n}")) for n in range(3)]
    await eventually(lambda: _is(len(model.asked) == 1))
    with pytest.raises(KennelError, match="RESOURCE_BUSY"):
        await rooms.say(WHO, P, "r", "too many")
    model.release.set()
    await asyncio.gather(*calls)
    await rooms.say(WHO, P, "r", "fourth")
    with pytest.raises(KennelError, match="QUOTA_EXCEEDED"):
        await rooms.say(WHO, P, "r", "fifth")
    assert "user: fifth" not in await story(log)


async def _is(value: bool) -> bool:
    return value


async def test_who_hangs_up_takes_nothing_from_the_others(log: SqlEventLog) -> None:
    model = Script(None)
    rooms = made(log, model)
    call = asyncio.create_task(rooms.say(WHO, P, "r", "hi"))
    await eventually(lambda: _is(len(model.asked) == 1))
    call.cancel()
    await asyncio.gather(call, return_exceptions=True)
    model.release.set()
    await eventually(lambda: _ended(log))
    assert await story(log) == ["user: hi", "agent: partialreleased", "replied"]


async def _ended(log: SqlEventLog) -> bool:
    return any(event.type == turn.TURN_ENDED for event in await events(log))


async def test_a_cleanup_ends_turns_that_run_and_wait_and_nothing_revives_the_room(log: SqlEventLog) -> None:
    model, pets = Script(None), Pets()
    rooms = made(log, model, pets)
    await rooms.exec(WHO, P, "r", "cd /tmp")
    calls = [asyncio.create_task(rooms.say(WHO, P, "r", f"m{n}")) for n in range(3)]
    await eventually(lambda: _is(len(model.asked) == 1))
    await eventually(lambda: _said(log, 3))
    assert await rooms.cleanup(WHO, P, "r") == []
    ends = await asyncio.gather(*calls, return_exceptions=True)
    assert [end.code for end in ends if isinstance(end, KennelError)] == ["OPERATION_INTERRUPTED"] * 3
    assert [end.admitted for end in ends if isinstance(end, KennelError)] == ["yes", "no", "no"]
    model.release.set()
    await asyncio.sleep(0.02)
    assert model.active == 0
    with pytest.raises(KennelError, match="NOT_FOUND"):
        await rooms.view(P, "r")
    assert (await story(log)).count("cancelled OPERATION_INTERRUPTED") == 3
    assert pets.destroyed == set(pets.alive)
    answer = await rooms.say(WHO, P, "r", "afresh")
    assert [message.text for message in answer.messages] == ["afresh", "ok"]


async def _said(log: SqlEventLog, count: int) -> bool:
    return sum(event.type == turn.SAID for event in await events(log)) == count


async def test_a_cleanup_during_a_turns_command(log: SqlEventLog) -> None:
    pets = Pets()
    rooms = made(log, Script("<run>hang</run><run>after</run>"), pets)
    call = asyncio.create_task(rooms.say(WHO, P, "r", "go"))
    await eventually(lambda: _is(pets.active == 1))
    assert await asyncio.wait_for(rooms.cleanup(WHO, P, "r"), 5) == []
    with pytest.raises(KennelError, match="OPERATION_INTERRUPTED"):
        await call
    assert [text for _, text in pets.ran] == ["hang"]
    assert set(pets.alive) == pets.destroyed


async def test_a_cleanup_by_another_process_makes_a_late_reply_count_for_nothing(log: SqlEventLog) -> None:
    model = Script(None)
    rooms, other = made(log, model), made(log, Script())
    call = asyncio.create_task(rooms.say(WHO, P, "r", "hi"))
    await eventually(lambda: _is(len(model.asked) == 1))
    await other.cleanup(WHO, P, "r")
    model.release.set()
    with pytest.raises(KennelError, match="OPERATION_INTERRUPTED"):
        await call
    with pytest.raises(KennelError, match="NOT_FOUND"):
        await other.view(P, "r")
    assert [m.text for m in (await other.say(WHO, P, "r", "new")).messages] == ["new", "ok"]


async def test_a_turn_that_a_stop_cut_off_gets_its_end_from_the_next_process(log: SqlEventLog) -> None:
    model = Script(None)
    rooms = made(log, model)
    call = asyncio.create_task(rooms.say(WHO, P, "r", "hi", "ana"))
    await eventually(lambda: _is(len(model.asked) == 1))
    await rooms.close()
    with pytest.raises(KennelError, match="OPERATION_INTERRUPTED"):
        await call
    await asyncio.sleep(0.002)
    later = made(log, Script("fine"))
    assert await later.finish_cleanups([P])
    assert await story(log) == ["user: hi", "interrupted OPERATION_INTERRUPTED"]
    answer = await later.say(WHO, P, "r", "again")
    assert [message.text for message in answer.messages] == ["hi", "again", "fine"]


async def test_a_process_that_starts_later_leaves_a_running_turn_of_its_own_time_alone(log: SqlEventLog) -> None:
    rooms, other = made(log, Script(None, "b")), made(log, Script())
    call = asyncio.create_task(rooms.say(WHO, P, "r", "hi"))
    await eventually(lambda: _said(log, 1))
    await other.exec(WHO, P, "r", "echo")
    await asyncio.sleep(0.01)
    assert await story(log) == ["user: hi"]
    call.cancel()
    await asyncio.gather(call, return_exceptions=True)
    await rooms.close()


async def test_the_time_of_a_turns_commands_is_bounded(log: SqlEventLog) -> None:
    pets = Pets()
    rooms = made(log, Script("<run>hang</run><run>after</run>"), pets, seconds=0.05)
    answer = await rooms.say(WHO, P, "r", "go")
    assert answer.reply.startswith("Error (hang):\nstopped: the 0.05 seconds of this turn are over")
    assert [text for _, text in pets.ran] == ["hang"]


async def test_the_models_commands_count_for_the_quota(log: SqlEventLog) -> None:
    answer = await made(log, Script("<run>a</run><run>b</run>"), commands_per_minute=1).say(WHO, P, "r", "go")
    assert answer.reply.endswith("Error (b):\nthis room has had its 1 commands of this minute")


async def test_an_observer_says_nothing(log: SqlEventLog) -> None:
    rooms = made(log, Script())
    await rooms.members.join(WHO, P, "r", "ana", role="observer", newcomer="driver", may_change=True, seconds=None)
    with pytest.raises(KennelError, match="FORBIDDEN"):
        await rooms.say(WHO, P, "r", "hi", "ana")
    assert await story(log) == []


async def watch(rooms: Rooms, seen: list[Any], who: Principal = WHO) -> None:
    async for item in rooms.follow(who, P, "r", after=0):
        seen.append(item)


async def test_watchers_see_events_pieces_queue_and_commands(log: SqlEventLog) -> None:
    rooms = made(log, Script("first", ["<run>cd /tmp", "</run> do", "ne"]))
    await rooms.say(WHO, P, "r", "one")
    seen: list[Any] = []
    task = asyncio.create_task(watch(rooms, seen))
    await eventually(lambda: _is(len(seen) == 6))
    await rooms.say(WHO, P, "r", "two")
    await eventually(lambda: _is(seen[-1].__class__ is Event and seen[-1].type == turn.TURN_ENDED))
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert [one.offset for one in seen if isinstance(one, Event)] == list(range(1, len(await events(log)) + 1))
    pieces = [one.payload for one in seen if isinstance(one, Passing) and one.kind == "delta"]
    assert "".join(piece.get("text", "") for piece in pieces) == "<run>cd /tmp</run> done"
    phases = [one.payload["phase"] for one in seen if isinstance(one, Passing) and one.kind == "command"]
    assert phases == ["running", "finished"]
    queues = [one.payload for one in seen if isinstance(one, Passing) and one.kind == "queue"]
    assert max(len(one["turns"]) for one in queues) == 1


async def test_who_comes_in_the_middle_of_an_answer_sees_what_there_is(log: SqlEventLog) -> None:
    model = Script(None)
    rooms = made(log, model)
    call = asyncio.create_task(rooms.say(WHO, P, "r", "hi"))
    await eventually(lambda: _is(bool(rooms._book._feed._partial)))
    seen: list[Any] = []
    task = asyncio.create_task(watch(rooms, seen))
    await eventually(lambda: _is(any(isinstance(one, Passing) for one in seen)))
    assert next(one for one in seen if isinstance(one, Passing)).payload["text"] == "partial"
    model.release.set()
    await call
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert rooms._book._feed._partial == {}
    assert rooms._book._feed._watchers == {}


async def test_direct_commands_show_their_place_while_they_wait(log: SqlEventLog) -> None:
    pets = Pets()
    rooms = made(log, Script(), pets)
    await rooms.exec(WHO, P, "r", "echo")
    seen: list[Any] = []
    task = asyncio.create_task(watch(rooms, seen))
    calls = [asyncio.create_task(rooms.exec(WHO, P, "r", cmd)) for cmd in ("hang", "echo 1", "echo 2")]
    await eventually(lambda: _is(sum(_waiting(one) for one in seen) == 2))
    assert sorted(one.payload["place"] for one in seen if _waiting(one)) == [1, 2]
    for call in calls:
        call.cancel()
    await asyncio.gather(*calls, return_exceptions=True)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def _waiting(one: Any) -> bool:
    return isinstance(one, Passing) and one.kind == "command" and one.payload["phase"] == "waiting"
