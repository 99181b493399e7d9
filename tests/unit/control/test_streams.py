"""Streams as the outside uses them."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from kennel.control.streams import OutsideEvent, Streams
from kennel.domain.event import Event, fact
from kennel.domain.event_types import EVENT_TYPES
from kennel.domain.principal import SYSTEM, Principal
from kennel.wire.errors import KennelError

pytestmark = pytest.mark.anyio
P = "default"
ANA = Principal("key_ana", "default", frozenset({"admin"}))


@pytest.fixture
def streams(log):
    return Streams(log)


async def refused(code, call):
    with pytest.raises(KennelError) as caught:
        await call
    assert caught.value.code == code


async def test_an_outside_event_names_its_writer_and_is_not_stamped(streams):
    [event] = await streams.append(
        ANA, P, "/notes", [OutsideEvent(type="note/made", payload={"a": 1}, metadata={"b": 2})]
    )
    assert (event.source.platform, event.source.key_id) == (False, "key_ana")
    assert await streams.read(P, "/notes", after=1) == [event]


@pytest.mark.parametrize("type_", sorted(EVENT_TYPES))
async def test_no_type_of_the_catalogue_can_be_forged(streams, log, type_):
    await refused("PLATFORM_TYPE_REFUSED", streams.append(ANA, P, "/sandboxes/a", [OutsideEvent(type=type_)]))
    assert await log.paths(P) == []


async def test_the_wire_shape_has_no_way_to_a_stamp():
    for forged in ({"source": {"platform": True}}, {"position": 1}, {"createdAt": "x"}, {"hash": "x"}, {"path": "/b"}):
        with pytest.raises(msgspec.ValidationError):
            msgspec.convert({"type": "a/b", **forged}, OutsideEvent)


async def test_a_platform_key_obtains_nothing(streams, log):
    await log.append(P, "/a", [fact(SYSTEM, "sandbox/started", key="x")])
    for type_ in ("sandbox/started", "note/made"):
        with pytest.raises(KennelError) as caught:
            await streams.append(ANA, P, "/a", [OutsideEvent(type=type_, idempotency_key="kennel:x")])
        assert caught.value.status == 403


async def test_waiting_finds_history_first(streams):
    await streams.append(ANA, P, "/a", [OutsideEvent(type="note/one"), OutsideEvent(type="note/two")])
    found = await streams.wait_for_event(P, "/a", types=["note/two"], timeout=1)
    assert found.offset == 3
    waiting = asyncio.create_task(streams.wait_for_event(P, "/a", after=3, types=["note/two", "note/three"], timeout=5))
    await asyncio.sleep(0.02)
    await streams.append(ANA, P, "/a", [OutsideEvent(type="note/one")])
    await streams.append(ANA, P, "/a", [OutsideEvent(type="note/three")])
    assert (await waiting).type == "note/three"
    await refused("WAIT_TIMEOUT", streams.wait_for_event(P, "/a", types=["note/never"], timeout=0.05))
    await refused("STREAM_NOT_FOUND", streams.wait_for_event(P, "/none", timeout=1))


async def test_following_by_type(streams):
    await streams.append(ANA, P, "/a", [OutsideEvent(type=f"note/{n % 3}") for n in range(9)])
    got = []
    async for event in streams.follow(P, "/a", types=["note/1"]):
        assert isinstance(event, Event)
        got.append(event.offset)
        if len(got) == 3:
            break
    assert got == [3, 6, 9]
    assert [e.offset for e in await streams.read(P, "/a", types=["*", "x"], limit=2)] == [1, 2]


async def test_by_key(streams):
    [event] = await streams.append(ANA, P, "/a", [OutsideEvent(type="note/made", idempotency_key="k")])
    assert await streams.by_key(P, "/a", "k") == event
    await refused("NOT_FOUND", streams.by_key(P, "/a", "none"))
    await refused("STREAM_NOT_FOUND", streams.by_key(P, "/none", "k"))


async def test_export_is_json_lines_of_the_whole_stream(streams):
    for _ in range(3):
        await streams.append(ANA, P, "/a", [OutsideEvent(type="note/made", payload={"n": "é\n"})] * 400)
    text = b"".join([chunk async for chunk in streams.export(P, "/a")])
    lines = text.splitlines()
    assert len(lines) == 1201
    events = [msgspec.json.decode(line, type=Event) for line in lines]
    assert [e.offset for e in events] == list(range(1, 1202))
    assert events[5].payload == {"n": "é\n"}
    with pytest.raises(KennelError):
        await anext(streams.export(P, "/none"))


async def test_verify_tells_where(streams, log):
    await streams.append(ANA, P, "/a", [OutsideEvent(type="note/made")] * 3)
    whole = await streams.verify(P, "/a")
    assert (whole.holds, whole.events, whole.faults) == (True, 4, [])
    with log.engine.begin() as connection:
        connection.exec_driver_sql("UPDATE events SET payload = '{\"x\":1}' WHERE path = '/a' AND \"offset\" = 3")
    broken = await streams.verify(P, "/a")
    assert not broken.holds
    assert [f.offset for f in broken.faults] == [3]
    assert msgspec.to_builtins(broken)["faults"][0]["reason"]
