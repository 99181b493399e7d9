"""Whoever comes by a join link: one room, as far as the link's role goes, and not a second longer than it is good."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest
from starlette.routing import WebSocketRoute

from console_world import BORN, World, event, view
from fake_files import FakeFiles
from kennel.api.console import leash
from kennel.api.console.app import _NOUNS
from kennel.api.console.leash import Leash
from kennel.control.rooms import RoomTalk
from kennel.domain.membership import GUEST_SCOPES, Guest
from kennel.domain.room import Habits
from running_fakes import FakeRunning

pytestmark = pytest.mark.anyio

P = "/console/p/default"
ROOM = f"{P}/rooms/red"
BOX = f"{P}/sandboxes/sandbox-red"


def talk(room_id: str) -> RoomTalk:
    return RoomTalk(
        room_id=room_id, title=None, settings=Habits(), opened_at=BORN, active_at=BORN, messages=[], members=0, said=0,
        sandbox=f"/sandboxes/sandbox-{room_id}", waiting=0,
    )  # fmt: skip


@pytest.fixture
def world() -> World:
    made = World(running=FakeRunning(), files=FakeFiles())
    made.sandboxes.views = [view("main"), view("sandbox-red"), view("sandbox-blue")]
    for room_id in ("red", "blue"):
        made.rooms.views[room_id] = talk(room_id)
        made.streams.streams[f"/rooms/{room_id}"] = [event(1, "room/opened", {"roomId": room_id})]
    for role in ("driver", "observer"):
        made.rooms.links.guests[f"link_{role}"] = Guest(
            f"link_{role}", "default", GUEST_SCOPES, room_id="red", role=role
        )
    return made


async def entered(world: Any, role: str) -> Any:
    browser = world.browser()
    answer = await browser.http.post("/console/login", data={"key": f"kl_link_{role}", "next": f"{P}/sandboxes"})
    assert answer.headers["location"] == f"{ROOM}?id=red"
    return browser


OPEN = {"driver": [ROOM, f"{ROOM}/people", f"{ROOM}/place", f"{ROOM}/screen?id=red", f"{ROOM}/files",
                   f"{BOX}/terminals", f"{BOX}/files", f"{BOX}/watched"],
        "observer": [ROOM, f"{ROOM}/people", f"{ROOM}/place", f"{ROOM}/screen?id=red", f"{BOX}/watched"]}  # fmt: skip


@pytest.mark.parametrize("role", ["driver", "observer"])
async def test_every_page_but_the_rooms_is_closed(world: Any, role: str) -> None:
    browser = await entered(world, role)
    paths = {
        (route.path, method)
        for noun in _NOUNS
        for route in noun.routes
        for method in getattr(route, "methods", None) or ()
    }
    assert len(paths) > 80
    names = {"project": "default", "name": "main", "segment": "blue"}
    for path, method in sorted(paths):
        if method not in ("GET", "POST", "PUT"):
            continue
        there = "/console" + re.sub(r"\{(\w+)[^}]*\}", lambda word: names.get(word[1], "x"), path)
        form = {"data": {"token": await _token(browser), "roomId": "blue", "id": "blue"}} if method == "POST" else {}
        answer = await browser.http.request(method, there, **form)
        assert answer.status_code in (403, 404), (method, path, answer.status_code)
    sockets = [route.path for noun in _NOUNS for route in noun.routes if isinstance(route, WebSocketRoute)]
    assert len(sockets) == 2
    for path in sockets:
        there = "/console" + re.sub(r"\{(\w+)[^}]*\}", lambda word: {**names, "terminal": "t1"}[word[1]], path)
        assert (await _socket(world, browser, there))[0].get("status") == 403, path
    assert set(world.sandboxes.called("get")) == {("default", "/sandboxes/sandbox-red")}
    assert not world.rooms.calls


async def _token(browser: Any) -> str:
    page = await browser.get(ROOM)
    return str(page.text.partition('name="token" value="')[2].partition('"')[0])


@pytest.mark.parametrize("role", ["driver", "observer"])
async def test_the_room_is_open_as_far_as_the_role_goes(world: Any, role: str) -> None:
    browser = await entered(world, role)
    for path in OPEN["driver"]:
        answer = await browser.get(path)
        assert (answer.status_code == 200) is (path in OPEN[role]), (path, answer.text)
    page = (await browser.get(ROOM)).text
    assert f'action="{ROOM}/say"' in page or role == "observer"
    for closed in ("/cleanup", "/links", "/leave", f'href="{BOX}"', f'href="{P}/sandboxes"', "/waiting"):
        assert closed not in page, closed
    assert (f"{BOX}/files" in page) is (role == "driver")
    assert ("data-shelf" in page) is (role == "driver")
    assert bool(world.files.calls) is (role == "driver")
    token = await _token(browser)
    said = await browser.http.post(f"{ROOM}/say", data={"token": token, "text": "hi", "userId": "ana"})
    assert said.status_code == (303 if role == "driver" else 403)
    woken = await browser.http.post(f"{ROOM}/files/wake", data={"token": token})
    assert woken.status_code == (303 if role == "driver" else 403)
    assert len(world.sandboxes.called("start")) == (1 if role == "driver" else 0)
    joined = await browser.http.post(f"{ROOM}/join", data={"token": token, "userId": "ana", "role": "driver"})
    assert joined.status_code == 303
    assert world.rooms.members.asked == [("join", "red", "ana", None)]


async def _socket(world: Any, browser: Any, path: str, *said: dict[str, Any]) -> list[dict[str, Any]]:
    """What a socket of the room's page is told, which says all of `said` once something is shown, and leaves."""
    told: list[dict[str, Any]] = []
    coming: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
    coming.put_nowait({"type": "websocket.connect"})

    async def send(message: dict[str, Any]) -> None:
        told.append(message)
        if message["type"] == "websocket.send" and message.get("bytes"):
            for one in (*said, {"type": "websocket.disconnect"}):
                coming.put_nowait(one)

    cookie = "; ".join(f"{name}={value}" for name, value in browser.http.cookies.items())
    head = {"host": "localhost:8787", "origin": "http://localhost:8787", "cookie": cookie}
    path, _, query = path.partition("?")
    scope = {"type": "websocket", "path": path, "raw_path": path.encode(), "query_string": query.encode(),
             "headers": [(name.encode(), value.encode()) for name, value in head.items()], "root_path": "",
             "scheme": "ws", "server": ("localhost", 8787), "extensions": {"websocket.http.response": {}},
             "subprotocols": ["kennel.v1", f"kennel.form.{await _token(browser)}"]}  # fmt: skip
    await world.app(scope, coming.get, send)
    return told


SAID = [
    {"type": "websocket.receive", "bytes": b"reboot\r"},
    {"type": "websocket.receive", "text": '{"type": "resize", "cols": 9, "rows": 9}'},
    {"type": "websocket.receive", "bytes": b"reboot\r"},
]


@pytest.mark.parametrize("query", ["", "?mode=drive", "?mode=watch&argv=reboot"])
async def test_an_observer_watches_a_terminal_and_no_byte_of_theirs_goes_there(world: Any, query: str) -> None:
    browser = await entered(world, "observer")
    told = await _socket(world, browser, f"{BOX}/watched/t1{query}", *SAID)
    assert told[0]["type"] == "websocket.accept"
    assert {"type": "websocket.send", "bytes": b"shown"} in told
    assert '"role":"watch"' in told[1]["text"]
    [screen] = world.running.terminals.watched
    assert screen.keys == b""  # a resize, or attaching as a driver, would be another verb of the fake, which has none
    for closed in (f"{BOX}/terminals/t1?mode=watch", f"{BOX}/terminals/t1", f"{P}/sandboxes/main/watched/t1"):
        assert (await _socket(world, browser, closed))[0]["status"] == 403
    assert (await _socket(world, browser, f"{BOX}/watched/t2"))[0]["status"] == 404
    page = (await browser.get(ROOM)).text
    assert "data-watched" in page
    assert "data-new" not in page


async def test_whom_a_link_names_cannot_be_spoken_around(world: Any) -> None:
    world.rooms.links.guests["link_bo"] = Guest(
        "link_bo", "default", GUEST_SCOPES, room_id="red", role="driver", user_id="bo"
    )
    browser = await entered(world, "bo")
    token = await _token(browser)
    await browser.http.post(f"{ROOM}/say", data={"token": token, "text": "hi", "userId": "ana"})
    assert world.rooms.called("say") == [("red", "hi", "bo")]


async def test_a_revoked_link_ends_its_session(world: Any) -> None:
    browser = await entered(world, "driver")
    del world.rooms.links.guests["link_driver"]
    assert (await browser.get(ROOM)).status_code == 303
    assert (await world.browser().http.post("/console/login", data={"key": "kl_link_driver"})).status_code == 401


async def test_whoever_is_logged_in_is_asked_before_a_link_makes_them_another(world: Any) -> None:
    assert "data-asks" not in (await world.browser().get("/console/join")).text
    browser = await world.browser().login()
    assert "data-asks" in (await browser.get("/console/join")).text
    asked = await browser.http.post("/console/login", data={"key": "kl_link_driver"})
    assert "data-asks" in asked.text
    assert "set-cookie" not in asked.headers
    assert (await browser.get(f"{P}/keys")).status_code == 200
    joined = await browser.http.post("/console/login", data={"key": "kl_link_driver", "anyway": "1"})
    assert joined.headers["location"] == f"{ROOM}?id=red"


async def test_what_is_followed_ends_with_the_session(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leash, "PAUSE_SECONDS", 0.001)
    looks = iter([True, True, False])
    coming: asyncio.Queue[Any] = asyncio.Queue()

    async def holds() -> bool:
        return next(looks)

    held = Leash(coming.get, holds, {"type": "http.disconnect"})
    coming.put_nowait({"type": "http.request"})
    assert await held() == {"type": "http.request"}
    assert await held() == {"type": "http.disconnect"}
    assert held.cut
    await held.close()
    assert not coming._getters  # type: ignore[attr-defined]
