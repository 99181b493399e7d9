"""The SDK against the real system: lives, bytes, rooms, keys, and the durable record."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sqlite3
import threading
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from installation import Installation
from kennel import AsyncKennel, Kennel, KennelError, LiveUpdate, Sandbox

EVERY_BYTE = bytes(range(256))


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def unused(kind: str = "sdk") -> str:
    return f"{kind}-{uuid.uuid4().hex[:10]}"


@pytest.fixture
def box(itx: Kennel) -> Iterator[Sandbox]:
    made = itx.sandboxes.get(unused()).create()
    yield made
    made.destroy()


def refusal(call: Any, *words: Any, **more: Any) -> str:
    """The code that a call is refused with."""
    with pytest.raises(KennelError) as caught:
        call(*words, **more)
    return caught.value.code


def test_the_life_of_a_pet_as_the_documentation_tells_it(itx: Kennel) -> None:
    path = f"/sandboxes/{unused()}"
    box = itx.sandboxes.get(path).create(instance_type="basic")
    assert box.exec("echo hi; echo kept > note").stdout == "hi\n"
    assert box.sleep().status == "stopped"
    assert path in [view.path for view in itx.sandboxes.list()]
    assert box.info().running is False
    assert box.start().running is True
    assert box.exec("cat note").stdout == "kept\n"
    assert refusal(itx.sandboxes.get(path).create) == "SANDBOX_EXISTS"
    box.destroy()
    assert path not in [view.path for view in itx.sandboxes.list()]
    assert path in [view.path for view in itx.sandboxes.list(status="destroyed")]
    assert refusal(box.exec, "true") == "SANDBOX_DESTROYED"
    assert refusal(itx.sandboxes.get(path).create) == "SANDBOX_DESTROYED"


def test_the_other_verbs(itx: Kennel, box: Sandbox) -> None:
    box.set_env_vars({"A": "1", "B": "2"})
    box.set_env_vars({"B": None})
    assert box.exec("echo $A ${B-unset}").stdout == "1 unset\n"
    assert box.set_labels({"k": box.name}).labels == {"k": box.name}
    assert [view.name for view in itx.sandboxes.list(label=f"k={box.name}", status="running", limit=1)] == [box.name]
    assert box.set_sleep_after("20m").sleep_after == "20m"
    assert box.set_keep_alive(True).keep_alive is True
    assert box.renew().running
    assert box.restart().running
    assert box.kill().status == "stopped"
    assert {image.name for image in itx.images.list()} >= {"host"}


def test_a_session_keeps_its_place(box: Sandbox) -> None:
    session = box.create_session("work", cwd="/tmp", env={"X": "1"})
    session.exec("mkdir -p deep && cd deep && export Y=2")
    assert session.exec("pwd; echo $X$Y").stdout == "/tmp/deep\n12\n"
    assert box.list_sessions() == ["work"]
    session.delete()
    assert refusal(session.exec, "true") in ("SESSION_NOT_FOUND", "SESSION_DESTROYED", "SESSION_TERMINATED")


def test_a_room(itx: Kennel) -> None:
    room = itx.rooms.get(unused("room"))
    room.exec("cd /tmp && export X=1")
    assert room.exec("pwd; echo $X").stdout == "/tmp\n1\n"
    assert (room.exec("exit 3").exit_code, room.exec("exit 0").success) == (3, True)
    assert itx.streams.get(f"/rooms/{room.id}").read(types="room/sandbox-assigned")[0].payload["roomId"] == room.id
    cleaned = room.cleanup()
    assert (cleaned.cleaned, cleaned.errors) == (True, [])


def test_every_byte_survives_both_ways(box: Sandbox) -> None:
    import base64

    sent = EVERY_BYTE * 1000 + os.urandom(50_000)
    result = box.exec("tee /dev/stderr", stdin=sent, encoding="base64")
    assert base64.b64decode(result.stdout) == base64.b64decode(result.stderr) == sent
    as_text = box.exec("cat", stdin=EVERY_BYTE)
    assert (as_text.lossy, as_text.stdout_bytes) == (True, 256)


def test_exits_timeouts_and_cut_output(box: Sandbox) -> None:
    assert [box.exec(f"exit {code}").exit_code for code in (0, 1, 7, 255)] == [0, 1, 7, 255]
    late = box.exec("sleep 30", timeout=0.3)
    assert (late.exit_code, late.timed_out) == (124, True)
    cut = box.exec("printf 0123456789", max_bytes=4)
    assert (cut.stdout, cut.truncated, cut.stdout_bytes) == ("0123", True, 10)
    assert box.exec(argv=["printf", "%s|", "a b", "$HOME"]).stdout == "a b|$HOME|"
    missing = box.exec(argv=["/no/such/program"])
    assert (missing.exit_code, "not found" in missing.stderr) == (127, True)
    assert refusal(box.exec, "true", cwd="/no/such/place") == "INVALID_PROCESS_CWD"


@pytest.mark.anyio
async def test_the_asynchronous_half(installation: Installation) -> None:
    async with AsyncKennel(url=installation.url, api_key=installation.key) as itx:
        box = await itx.sandboxes.get(unused()).create(env={"A": "1"})
        seen: list[LiveUpdate] = []
        changed = asyncio.Event()

        def note(update: LiveUpdate) -> None:
            seen.append(update)
            changed.set()

        watching = await box.live_state.subscribe(note)
        results = await asyncio.gather(*(box.exec(f"echo {n}") for n in range(5)))
        assert [result.stdout for result in results] == [f"{n}\n" for n in range(5)]
        finished = await box.stream.wait_for_event("sandbox/exec-finished", timeout=10)
        assert finished.payload["exitCode"] == 0
        async with box.events(types="sandbox/exec-finished") as events:
            assert [(await anext(events)).payload["stdoutBytes"] for _ in range(5)] == [2] * 5
        await box.destroy()
        async with asyncio.timeout(10):
            while not seen or seen[-1].state.status != "destroyed":
                changed.clear()
                await changed.wait()
        await watching.stop()
        assert [seen[0].kind, seen[0].state.running] == ["snapshot", False]
        assert {update.kind for update in seen[1:]} == {"diff"}
        assert [b"".join([line async for line in box.stream.export()]).count(b"\n")] == [
            (await box.stream.verify()).events
        ]


def test_what_happened_says_who_and_what_came_of_it(installation: Installation, itx: Kennel, box: Sandbox) -> None:
    made = itx.keys.create(unused("key"), scopes=["exec", "read"], project="default")
    with Kennel(url=installation.url, api_key=made.token) as other:
        other.sandboxes.get(box.path).exec("exit 9")
    done = box.stream.wait_for_event("sandbox/exec-finished", timeout=10)
    begun = box.stream.read(types=["sandbox/exec-started"])[0]
    assert begun.source.key_id == done.source.key_id == made.key.id
    assert (begun.payload["command"], done.payload["exitCode"]) == ("exit 9", 9)
    assert begun.payload["execId"] == done.payload["execId"]
    created = box.stream.read(types="sandbox/created")[0]
    assert created.source.platform
    assert created.source.key_id != made.key.id
    itx.keys.revoke(made.key.id)
    assert itx.keys.list()[-1].revoked_at is not None


def test_your_own_writes_are_read(box: Sandbox) -> None:
    [mine] = box.stream.append({"type": "note", "payload": {"n": 1}})
    snapshot = box.processor.wait_until_processed(mine.offset, timeout=5)
    assert snapshot.offset >= mine.offset
    assert refusal(box.processor.wait_until_processed, mine.offset + 1000, timeout=0.3) == "WAIT_TIMEOUT"
    assert refusal(box.stream.wait_for_event, "never", timeout=0.3) == "WAIT_TIMEOUT"


def test_a_live_view_is_the_fold(box: Sandbox) -> None:
    updates: list[LiveUpdate] = []
    stopped = threading.Event()

    def note(update: LiveUpdate) -> None:
        updates.append(update)
        if update.state.status == "stopped":
            stopped.set()

    watching = box.live_state.subscribe(note)
    box.set_env_vars({"A": "1"})
    box.start()
    box.sleep()
    assert stopped.wait(10)
    watching.stop()
    assert not watching.running
    now = box.processor.snapshot()
    assert updates[-1].state == now.state == box.live_state.get().state
    assert [update.previous for update in updates[1:]] == [update.revision for update in updates[:-1]]
    assert all("created" not in json.dumps(update.operations) for update in updates[1:])


def test_looking_wakes_and_creates_nothing_and_outlives_the_end(itx: Kennel, installation: Installation) -> None:
    box = itx.sandboxes.get(unused()).create()
    with contextlib.closing(box.live_state.updates()) as updates:
        assert next(updates).state.running is False
    typo = itx.sandboxes.get(unused("typo"))
    for look in (typo.processor.snapshot, typo.live_state.get, lambda: next(typo.live_state.updates())):
        assert refusal(look) == "SANDBOX_NOT_FOUND"
    for look in (typo.stream.read, typo.stream.verify, lambda: next(typo.events()), lambda: next(typo.stream.export())):
        assert refusal(look) == "STREAM_NOT_FOUND"
    assert installation.events(typo.path) == []
    assert box.info().running is False
    box.destroy()
    assert box.processor.snapshot().state.status == "destroyed"
    with box.live_state.updates() as updates:
        assert next(updates).state.status == "destroyed"
    assert box.stream.read(types="sandbox/destroyed")[0].source.platform


def test_a_stream_of_ones_own(itx: Kennel) -> None:
    stream = itx.streams.get(f"/notes/{unused()}")
    first = stream.append([{"type": "a", "payload": {"ü": [1, None]}, "idempotency_key": "k"}, {"type": "b"}])
    assert [event.offset for event in first] == [2, 3]
    again = stream.append({"type": "a", "payload": {"ü": [1, None]}, "idempotency_key": "k"})
    assert again == first[:1]
    assert refusal(stream.append, {"type": "a", "idempotency_key": "k"}) == "IDEMPOTENCY_CONFLICT"
    assert refusal(stream.append, {"type": "c", "offset": 9}) == "OFFSET_CONFLICT"
    assert refusal(stream.append, {"type": "sandbox/destroyed"}) == "PLATFORM_TYPE_REFUSED"
    assert refusal(stream.append, {"type": "c", "idempotency_key": "kennel:x"}) == "PLATFORM_KEY_REFUSED"
    assert [event.type for event in stream.read(after=1, before=4, types=["a", "b"])] == ["a", "b"]
    assert itx.streams.list(stream.path) == [stream.path]
    assert {"/", "/notes", stream.path} <= set(itx.streams.list())
    with stream.export() as lines:
        assert [json.loads(line)["offset"] for line in lines] == [1, 2, 3]


def test_a_changed_event_is_found(itx: Kennel, installation: Installation) -> None:
    stream = itx.streams.get(f"/notes/{unused()}")
    stream.append([{"type": "a", "payload": {"n": n}} for n in range(3)])
    assert stream.verify().holds
    with contextlib.closing(sqlite3.connect(installation.data / "control/kennel.db", timeout=10)) as database, database:
        database.execute("update events set payload = '{\"n\":7}' where path = ? and offset = 3", (stream.path,))
    found = stream.verify()
    assert (found.holds, [fault.offset for fault in found.faults]) == (False, [3])


def test_nothing_of_another_project_can_be_read_or_guessed(itx: Kennel, installation: Installation) -> None:
    project = unused("p")
    itx.projects.create(project)
    assert project in [view.name for view in itx.projects.list()]
    made = itx.keys.create("theirs", scopes=["read", "exec", "lifecycle"], project=project)
    with Kennel(url=installation.url, api_key=made.token, project="default") as foreign:
        assert refusal(foreign.streams.list) == "PROJECT_NOT_FOUND"
        assert refusal(foreign.streams.get("/").read) == "PROJECT_NOT_FOUND"
        assert refusal(lambda: next(foreign.streams.get("/").events())) == "PROJECT_NOT_FOUND"
        assert refusal(foreign.sandboxes.get("main").processor.snapshot) == "PROJECT_NOT_FOUND"
    with Kennel(url=installation.url, api_key=made.token, project=project) as theirs:
        assert theirs.sandboxes.list() == []
        assert "/sandboxes/main" not in theirs.streams.list()


@pytest.mark.anyio
async def test_thirty_followers_miss_nothing(installation: Installation) -> None:
    async with AsyncKennel(url=installation.url, api_key=installation.key) as itx:
        stream = itx.streams.get(f"/notes/{unused()}")
        await stream.append({"type": "first"})

        async def follow(after: int) -> list[int]:
            found = []
            async with stream.events(after=after) as events:
                async for event in events:
                    found.append(event.offset)
                    if event.type == "last":
                        return found
            raise AssertionError("the stream ended")

        followers = [asyncio.create_task(follow(n % 3)) for n in range(30)]
        for first in range(0, 200, 10):
            await asyncio.gather(*(stream.append({"type": "note", "payload": {"n": first + n}}) for n in range(10)))
        await stream.append({"type": "last"})
        async with asyncio.timeout(30):
            results = await asyncio.gather(*followers)
        assert results == [list(range(n % 3 + 1, 204)) for n in range(30)]
