"""Rooms of both halves of the SDK against a scripted server."""

from __future__ import annotations

import inspect
import json
from typing import Any

import pytest

from kennel import AsyncKennel, Kennel, KennelError

pytestmark = pytest.mark.anyio

AT = "2026-01-01T00:00:00.000Z"
VIEW = {
    "roomId": "r", "title": "T", "settings": {"maxRounds": 2}, "openedAt": AT, "activeAt": AT, "sandbox": None,
    "members": 1, "said": 2, "waiting": 0, "later": "ignored",
}  # fmt: skip
MEMBER = {"userId": "ana", "role": "driver", "joinedAt": AT, "present": True}
LINK = {"id": "link_1", "role": "observer", "createdAt": AT}


async def done(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(params=[Kennel, AsyncKennel], ids=["sync", "async"])
async def itx(request: pytest.FixtureRequest, standin: Any) -> Any:
    client = request.param(url=standin.url, api_key="kl_link", timeout=5)
    yield client
    await done(client.close())


def asked(standin: Any) -> list[tuple[str, str, Any]]:
    return [(one.method, one.path, json.loads(one.body) if one.body else None) for one in standin.seen]


async def test_looking_and_settings(itx: Any, standin: Any, shapes: Any) -> None:
    talk = {**VIEW, "messages": [{"role": "agent", "text": "hi", "ts": 1}]}
    standin.will(shapes.Answer(200, talk), shapes.Answer(200, talk), shapes.Answer(200, VIEW))
    room = itx.rooms.get("r")
    assert (await done(room.info())).settings.max_rounds == 2
    assert [message.text for message in await done(room.messages())] == ["hi"]
    assert (await done(room.set_title(None))).title == "T"
    await done(room.set(max_rounds=3, instructions=None))
    with pytest.raises(TypeError, match="rounds"):
        await done(room.set(rounds=3))
    assert asked(standin) == [
        ("GET", "/api/rooms/r", None), ("GET", "/api/rooms/r", None), ("PUT", "/api/rooms/r", {"title": None}),
        ("PUT", "/api/rooms/r", {"settings": {"maxRounds": 3, "instructions": None}}),
    ]  # fmt: skip
    assert standin.seen[0].headers["authorization"] == "Bearer kl_link"


async def test_all_pages_of_rooms(itx: Any, standin: Any, shapes: Any) -> None:
    pages = [{"rooms": [VIEW], "cursor": cursor} for cursor in ("/rooms/r", None)]
    standin.will(*(shapes.Answer(200, page) for page in pages))
    assert [room.room_id for room in await done(itx.rooms.list())] == ["r", "r"]
    assert [one.path for one in standin.seen] == ["/api/rooms?limit=100", "/api/rooms?limit=100&cursor=%2Frooms%2Fr"]


async def test_members(itx: Any, standin: Any, shapes: Any) -> None:
    standin.will(shapes.Answer(200, MEMBER), shapes.Answer(200, {"members": [MEMBER]}), shapes.Answer(204))
    room = itx.rooms.get("r")
    assert (await done(room.join("ana", role="driver", ttl=30))).present
    assert [one.user_id for one in await done(room.members())] == ["ana"]
    await done(room.leave("a&b"))
    assert asked(standin) == [
        ("POST", "/api/rooms/r/members", {"userId": "ana", "role": "driver", "ttlSeconds": 30}),
        ("GET", "/api/rooms/r/members", None),
        ("DELETE", "/api/rooms/r/members?userId=a%26b", None),
    ]


async def test_links(itx: Any, standin: Any, shapes: Any) -> None:
    standin.will(
        shapes.Answer(201, {"token": "kl_new", "link": LINK}), shapes.Answer(200, {"links": [LINK]}),
        shapes.Answer(200, {"revoked": ["link_1"]}),
    )  # fmt: skip
    room = itx.rooms.get("r")
    assert (await done(room.create_link(role="observer", expires_in=60))).token == "kl_new"
    assert [one.id for one in await done(room.links())] == ["link_1"]
    assert await done(room.revoke_links("link_1")) == ["link_1"]
    assert await done(room.revoke_links()) == ["link_1"]
    assert asked(standin) == [
        ("POST", "/api/rooms/r/links", {"role": "observer", "name": "", "expiresInSeconds": 60}),
        ("GET", "/api/rooms/r/links", None),
        ("DELETE", "/api/rooms/r/links?id=link_1", None),
        ("DELETE", "/api/rooms/r/links", None),
    ]


def event(offset: int) -> bytes:
    told = {
        "position": offset, "project": "default", "path": "/rooms/r", "offset": offset, "type": "room/turn-started",
        "payload": {"turnId": "t"}, "metadata": {}, "idempotencyKey": None, "source": {"platform": True},
        "createdAt": AT, "hash": "00",
    }  # fmt: skip
    return f"id: {offset}\ndata: {json.dumps(told)}\n\n".encode()


async def test_moments_go_on_after_a_lost_connection_and_gaps_are_passed_over(
    itx: Any, standin: Any, shapes: Any
) -> None:
    delta = b'event: delta\ndata: {"turnId":"t","at":0,"text":"hel"}\n\n'
    gap = b'event: gap\ndata: {"after":2}\n\n'
    standin.will(
        shapes.Answer(200, raw=event(1) + delta + event(2) + gap), shapes.Answer(200, raw=b": alive\n\n" + event(3))
    )
    moments = itx.rooms.get("r").events(after=0)
    seen = []
    while len(seen) < 4:
        seen.append(await done(moments.__anext__() if hasattr(moments, "__anext__") else next(moments)))
    await done(moments.close())
    assert [(one.kind, one.event.offset if one.event else None) for one in seen] == [
        ("room/turn-started", 1), ("delta", None), ("room/turn-started", 2), ("room/turn-started", 3),
    ]  # fmt: skip
    assert seen[1].payload["text"] == "hel"
    assert standin.seen[1].headers["last-event-id"] == "2"


async def test_a_command_waits_without_a_limit_and_says_who_runs_it(itx: Any, standin: Any, shapes: Any) -> None:
    standin.will(shapes.Answer(200, {"result": shapes.result(), "sandboxName": "sandbox-r"}))
    await done(itx.rooms.get("r").exec("ls", user_id="ana"))
    assert standin.seen[0].json == {"cmd": "ls", "userId": "ana"}


async def test_a_model_that_is_missing_says_what_to_set(itx: Any, standin: Any, shapes: Any) -> None:
    body = {"error": "no model", "code": "MODEL_NOT_CONFIGURED", "hint": "set KENNEL_AI_BASE_URL"}
    standin.will(shapes.Answer(503, body))
    with pytest.raises(KennelError) as caught:
        await done(itx.rooms.get("r").send("hi"))
    assert (caught.value.code, caught.value.hint) == ("MODEL_NOT_CONFIGURED", "set KENNEL_AI_BASE_URL")
