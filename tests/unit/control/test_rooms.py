"""Rooms over the real log (SQLite) and a scripted lifecycle service."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from kennel.adapters.model.absent import AbsentModel
from kennel.adapters.sql.event_log import open_log
from kennel.control import room_book, room_shell
from kennel.control.rooms import Rooms
from kennel.domain import room
from kennel.domain.command import DEFAULT_CWD
from kennel.domain.create_options import CreateOptions
from kennel.domain.event import fact
from kennel.domain.principal import Principal
from kennel.ports.event_log import EventLog
from kennel.wire.errors import KennelError, error
from scripted_pets import Pets

pytestmark = pytest.mark.anyio

WHO = Principal("k", None, frozenset({"admin"}))
P = "default"


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
async def log(tmp_path: Path) -> AsyncIterator[EventLog]:
    opened = await open_log(f"sqlite:///{tmp_path}/log.db")
    yield opened
    await opened.close()


def made(log: EventLog, pets: Pets) -> Rooms:
    """Rooms as one process has them, without a model."""
    return Rooms(log, pets, AbsentModel())


async def told(rooms: Rooms, room_id: str, cmd: str) -> str:
    outcome, _ = await rooms.exec(WHO, P, room_id, cmd)
    return outcome.stdout.decode()


async def types(log: EventLog, room_id: str) -> list[str]:
    return [event.type for event in await log.read(P, room.stream_of(room_id))][1:]


async def test_fifty_first_commands_make_one_sandbox_and_all_succeed(log: EventLog) -> None:
    pets = Pets()
    pets.create_delay = 0.02
    rooms = made(log, pets)
    await asyncio.gather(*(rooms.exec(WHO, P, "r", f"echo {n}") for n in range(50)))
    assert pets.creates == ["/sandboxes/sandbox-r"]
    assert [text for _, text in pets.ran] == [f"echo {n}" for n in range(50)]
    assert pets.most_active == 1
    assert pets.options["/sandboxes/sandbox-r"].persist == "disk"
    assert (await types(log, "r")).count(room.ASSIGNED) == 1


async def test_several_processes_agree_on_one_sandbox(log: EventLog) -> None:
    pets = Pets()
    pets.create_delay = 0.01
    processes = [made(log, pets) for _ in range(4)]
    await asyncio.gather(*(rooms.exec(WHO, P, "r", f"echo {n}") for n in range(5) for rooms in processes))
    assert set(pets.creates) == {"/sandboxes/sandbox-r"}
    assert {path for path, _ in pets.ran} == {"/sandboxes/sandbox-r"}
    assert (await types(log, "r")).count(room.ASSIGNED) == 1


async def test_rooms_run_beside_each_other(log: EventLog) -> None:
    pets = Pets()
    rooms = made(log, pets)
    await asyncio.gather(*(rooms.exec(WHO, P, f"r{n}", "echo") for n in range(10)))
    assert len(pets.alive) == 10
    assert pets.most_active > 1


async def test_projects_do_not_share_rooms(log: EventLog) -> None:
    rooms = made(log, Pets())
    await rooms.exec(WHO, "default", "r", "echo")
    await rooms.exec(WHO, "other", "r", "echo")
    for project in ("default", "other"):
        assert await log.head(project, "/rooms/r") is not None


async def test_directory_and_variables_last_over_a_sleep_and_a_restart(log: EventLog) -> None:
    pets = Pets()
    rooms = made(log, pets)
    assert (await told(rooms, "r", "echo")) == f"{DEFAULT_CWD} []"
    await told(rooms, "r", "cd /tmp")
    await told(rooms, "r", "export A=1")
    pets.sleep()
    assert await told(rooms, "r", "echo") == "/tmp [('A', '1')]"
    pets.sleep()
    assert await told(made(log, pets), "r", "echo") == "/tmp [('A', '1')]"
    assert (await types(log, "r")).count(room.SHELL_SAVED) == 3


async def test_a_directory_that_is_gone_after_a_sleep_is_replaced_by_workspace(log: EventLog) -> None:
    pets = Pets()
    rooms = made(log, pets)
    await told(rooms, "r", "cd /tmp/x")
    pets.sleep()
    pets.missing_directories.add("/tmp/x")
    assert await told(rooms, "r", "echo") == f"{DEFAULT_CWD} []"


async def test_exit_is_a_result(log: EventLog) -> None:
    outcome, _ = await made(log, Pets()).exec(WHO, P, "r", "exit 7")
    assert outcome.exit_code == 7


async def test_a_shell_that_cannot_be_saved_does_not_fail_its_command(log: EventLog) -> None:
    pets = Pets()
    pets.refuse["state"] = [error("SANDBOX_LOST", "gone")]
    outcome, _ = await made(log, pets).exec(WHO, P, "r", "echo")
    assert outcome.exit_code == 0


async def test_cleanup_destroys_and_the_room_works_again_with_the_next_generation(log: EventLog) -> None:
    pets = Pets()
    rooms = made(log, pets)
    for generation in ("", ".2", ".3"):
        await told(rooms, "r", "cd /tmp")
        assert pets.ran[-1][0] == f"/sandboxes/sandbox-r{generation}"
        assert await rooms.cleanup(WHO, P, "r") == []
        assert await rooms.cleanup(WHO, P, "r") == []
    assert await told(rooms, "r", "echo") == f"{DEFAULT_CWD} []"
    assert (await types(log, "r")).count(room.CLEANED) == 3


async def test_cleaning_an_unknown_room_leaves_no_trace(log: EventLog) -> None:
    assert await made(log, Pets()).cleanup(WHO, P, "never") == []
    assert await log.head(P, "/rooms/never") is None


async def test_a_cleanup_that_fails_says_so_and_the_next_one_finishes_it(log: EventLog) -> None:
    pets = Pets()
    rooms = made(log, pets)
    await told(rooms, "r", "echo")
    pets.refuse["destroy"] = [error("NODE_UNAVAILABLE", "node is away")]
    assert await rooms.cleanup(WHO, P, "r") == ["sandbox: node is away"]
    await told(rooms, "r", "echo")
    assert pets.ran[-1][0] == "/sandboxes/sandbox-r.2"
    assert await made(log, pets).cleanup(WHO, P, "r") == []
    assert pets.destroyed == {"/sandboxes/sandbox-r", "/sandboxes/sandbox-r.2"}


async def test_a_cleanup_ends_what_runs_and_what_waits(log: EventLog) -> None:
    pets = Pets()
    rooms = made(log, pets)
    await told(rooms, "r", "echo")
    calls = [asyncio.create_task(rooms.exec(WHO, P, "r", cmd)) for cmd in ("hang", "echo 1", "echo 2")]
    while pets.active == 0:
        await asyncio.sleep(0.001)
    assert await asyncio.wait_for(rooms.cleanup(WHO, P, "r"), 5) == []
    ends = await asyncio.gather(*calls, return_exceptions=True)
    assert [end.code for end in ends if isinstance(end, KennelError)] == ["SANDBOX_DESTROYED"] * 3
    assert [end.admitted for end in ends if isinstance(end, KennelError)] == ["yes", "no", "no"]
    assert [text for _, text in pets.ran] == ["echo", "hang"]
    assert set(pets.alive) == {"/sandboxes/sandbox-r"}


async def test_a_cleanup_during_the_first_creation_leaves_no_sandbox(log: EventLog) -> None:
    pets = Pets()
    pets.create_delay = 0.05
    rooms = made(log, pets)
    call = asyncio.create_task(rooms.exec(WHO, P, "r", "hang"))
    while not pets.creates:
        await asyncio.sleep(0.001)
    assert await rooms.cleanup(WHO, P, "r") == []
    with pytest.raises(KennelError, match="SANDBOX_DESTROYED"):
        await asyncio.wait_for(call, 5)
    assert set(pets.alive) == pets.destroyed


async def test_a_sandbox_that_others_destroyed_is_replaced(log: EventLog) -> None:
    pets = Pets()
    rooms = made(log, pets)
    await told(rooms, "r", "cd /tmp")
    await pets.destroy(WHO, P, "/sandboxes/sandbox-r")
    assert await told(rooms, "r", "echo") == f"{DEFAULT_CWD} []"
    assert pets.ran[-1][0] == "/sandboxes/sandbox-r.2"


async def test_a_pet_of_that_name_is_never_taken_over_nor_destroyed(log: EventLog) -> None:
    pets = Pets()
    await pets.create(WHO, P, "/sandboxes/sandbox-r", CreateOptions(), "somebody's key")
    rooms = made(log, pets)
    await told(rooms, "r", "echo")
    assert pets.ran[-1][0] == "/sandboxes/sandbox-r.2"
    await rooms.cleanup(WHO, P, "r")
    assert pets.destroyed == {"/sandboxes/sandbox-r.2"}


async def test_a_crash_between_creation_and_assignment_is_mended(
    log: EventLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    pets = Pets()

    crashing = made(log, pets)

    async def cut(*_: Any) -> None:
        raise RuntimeError("power cut")

    monkeypatch.setattr(crashing._book, "record", cut)
    with pytest.raises(RuntimeError):
        await crashing.exec(WHO, P, "r", "echo")
    await told(made(log, pets), "r", "echo")
    assert set(pets.alive) == {"/sandboxes/sandbox-r"}


async def test_a_creation_elsewhere_is_waited_for_but_not_for_ever(
    log: EventLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    pets = Pets()
    pets.refuse["create"] = [error("SANDBOX_CREATING", "not yet")] * 3
    await told(made(log, pets), "r", "echo")
    assert len(pets.creates) == 4
    monkeypatch.setattr(room_shell, "MAX_ATTEMPTS", 2)
    pets.refuse["create"] = [error("SANDBOX_CREATING", "not yet")] * 100
    with pytest.raises(KennelError, match="RESOURCE_BUSY"):
        await made(log, pets).exec(WHO, P, "other", "echo")


@pytest.mark.parametrize("code", ["NO_CAPACITY", "NODE_UNAVAILABLE", "SANDBOX_START_FAILED"])
async def test_a_refused_creation_leaves_the_room_unassigned(log: EventLog, code: str) -> None:
    pets = Pets()
    pets.refuse["create"] = [error(code, "no")]
    rooms = made(log, pets)
    with pytest.raises(KennelError, match=code):
        await rooms.exec(WHO, P, "r", "echo")
    assert await log.head(P, "/rooms/r") is None
    await told(rooms, "r", "echo")


async def test_admitted_work_is_never_repeated(log: EventLog) -> None:
    pets = Pets()
    rooms = made(log, pets)
    await told(rooms, "r", "echo")
    pets.refuse["exec"] = [error("SANDBOX_DESTROYED", "gone", admitted="unknown")]
    with pytest.raises(KennelError, match="SANDBOX_DESTROYED"):
        await rooms.exec(WHO, P, "r", "echo")
    assert len(pets.ran) == 1


async def test_only_so_many_may_wait(log: EventLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room_book, "MAX_USERS", 3)
    pets = Pets()
    rooms = made(log, pets)
    calls = [asyncio.create_task(rooms.exec(WHO, P, "r", "hang")) for _ in range(3)]
    while pets.active == 0:
        await asyncio.sleep(0.001)
    with pytest.raises(KennelError, match="RESOURCE_BUSY"):
        await rooms.exec(WHO, P, "r", "echo")
    await rooms.exec(WHO, P, "quiet", "echo")
    for call in calls:
        call.cancel()
    await asyncio.gather(*calls, return_exceptions=True)
    await told(rooms, "r", "echo")


async def test_strangers_events_on_the_rooms_stream_change_nothing(log: EventLog) -> None:
    from kennel.control.streams import OutsideEvent, Streams

    pets = Pets()
    await Streams(log).append(WHO, P, "/rooms/r", [OutsideEvent(type="note")])
    rooms = made(log, pets)
    await told(rooms, "r", "echo")
    await Streams(log).append(WHO, P, "/rooms/r", [OutsideEvent(type="note")])
    await told(rooms, "r", "echo")
    await rooms.cleanup(WHO, P, "r")
    assert set(pets.creates) == {"/sandboxes/sandbox-r"}


async def test_idle_rooms_are_forgotten_and_read_again(log: EventLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room_book, "MAX_ROOMS", 3)
    pets = Pets()
    rooms = made(log, pets)
    for n in range(8):
        await told(rooms, f"r{n}", "cd /tmp")
    assert len(rooms._book._rooms) <= 3
    assert await told(rooms, "r0", "echo") == "/tmp []"
    assert len(pets.creates) == 8


async def test_many_heavy_rooms_do_not_stay_in_memory(log: EventLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room_book, "MAX_WEIGHT", 20_000)
    rooms = made(log, Pets())
    for n in range(8):
        await told(rooms, f"r{n}", f"export A={'x' * 6000}")
    assert len(rooms._book._rooms) <= 3
    assert rooms._book._weight == sum(here.weight for here in rooms._book._rooms.values())
    assert "xxx" in await told(rooms, "r0", "echo")


async def test_what_was_configured_since_the_shell_began_goes_before_its_variables(log: EventLog) -> None:
    pets = Pets()
    rooms = made(log, pets)
    await told(rooms, "r", "export A=room")
    await told(rooms, "r", "export B=room")
    change = fact(WHO, "sandbox/configured", {"env": {"A": "patched"}})
    await log.append(P, "/sandboxes/sandbox-r", [change])
    pets.sleep()
    assert await told(rooms, "r", "echo") == f"{DEFAULT_CWD} [('B', 'room')]"
    await told(rooms, "r", "export A=later")
    pets.sleep()
    assert await told(made(log, pets), "r", "echo") == f"{DEFAULT_CWD} [('A', 'later'), ('B', 'room')]"


async def test_a_cleanup_cut_off_is_finished_by_the_next_touch(log: EventLog) -> None:
    pets = Pets()
    rooms = made(log, pets)
    await told(rooms, "r", "echo")
    await log.append(P, "/rooms/r", [fact(WHO, room.CLEANUP_REQUESTED, {"roomId": "r"})])
    assert not pets.destroyed
    later = made(log, pets)
    await told(later, "r", "echo")
    await asyncio.gather(*later._tasks)
    assert pets.destroyed == {"/sandboxes/sandbox-r"}
    assert (await types(log, "r")).count(room.CLEANED) == 1


async def test_a_cleanup_cut_off_is_finished_after_the_start_once_node_is_there(log: EventLog) -> None:
    pets = Pets()
    for name in ("a b", "r"):
        await told(made(log, pets), name, "echo")
        await log.append(P, room.stream_of(name), [fact(WHO, room.CLEANUP_REQUESTED, {"roomId": name})])
    pets.refuse["destroy"] = [error("NODE_UNAVAILABLE", "not yet")]
    later = made(log, pets)

    async def projects() -> list[str]:
        return [P]

    assert not await later.finish_cleanups([P])
    later.start(projects)
    await asyncio.gather(*later._tasks)
    assert pets.destroyed == set(pets.alive)
    await later.close()


async def test_rooms_are_listed_while_they_are_in_use(log: EventLog) -> None:
    from kennel.control.streams import OutsideEvent, Streams

    rooms = made(log, Pets())
    for name in ("b", "a", "c c", "gone"):
        await told(rooms, name, "echo")
    await Streams(log).append(WHO, P, "/rooms/no-room", [OutsideEvent(type="note")])
    await rooms.configure(WHO, P, "b", {"title": "Bee"})
    await rooms.cleanup(WHO, P, "gone")
    found, more = await made(log, Pets()).list(P)
    assert (sorted(view.room_id for view in found), more) == (["a", "b", "c c"], None)
    assert next(view for view in found if view.room_id == "b").title == "Bee"
    pages, cursor = [], None
    for _ in range(3):
        page, cursor = await rooms.list(P, limit=1, cursor=cursor)
        pages += [view.room_id for view in page]
    assert (sorted(pages), cursor) == (["a", "b", "c c"], None)


async def test_looking_at_a_room_makes_none(log: EventLog) -> None:
    rooms = made(log, Pets())
    with pytest.raises(KennelError, match="NOT_FOUND"):
        await rooms.view(P, "r")
    with pytest.raises(KennelError, match="STREAM_NOT_FOUND"):
        await rooms.head(P, "r")
    assert await rooms.members.list(P, "r") == []
    assert await rooms.links.list(P, "r") == []
    assert await log.head(P, "/rooms/r") is None


async def test_an_observer_runs_nothing(log: EventLog) -> None:
    pets = Pets()
    rooms = made(log, pets)
    await rooms.members.join(WHO, P, "r", "ana", role="observer", newcomer="driver", may_change=True, seconds=None)
    with pytest.raises(KennelError, match="FORBIDDEN"):
        await rooms.exec(WHO, P, "r", "echo", "ana")
    assert pets.ran == []
    await rooms.exec(WHO, P, "r", "echo", "bob")


async def test_commands_have_a_quota(log: EventLog) -> None:
    rooms = made(log, Pets())
    await rooms.configure(WHO, P, "r", {"settings": {"commandsPerMinute": 2}})
    for _ in range(2):
        await told(rooms, "r", "echo")
    with pytest.raises(KennelError) as caught:
        await told(rooms, "r", "echo")
    assert caught.value.code == "QUOTA_EXCEEDED"
    assert 0 < (caught.value.retry_after_ms or 0) <= 60_000
    await told(rooms, "other", "echo")
