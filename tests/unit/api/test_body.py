from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kennel.api import body
from kennel.api.body import BodyLimit, read_json

pytestmark = pytest.mark.anyio

EXEC = "/v1/projects/default/sandboxes/main/exec"
ROOM = "/api/rooms/r/sandbox/exec"
JSON = {"content-type": "application/json"}


@pytest.mark.parametrize(
    "text",
    [
        b"", b"{", b"nope", b'{"a":1}}', b'{"a":NaN}', b'{"a":Infinity}', b'{"a":-Infinity}', b'{"a":"\xff"}',
        b"\xff\xfe{\x00}\x00", b"\xef\xbb\xbf{}", b'{"a":1,"a":2}', b'{"x":{"a":1,"a":1}}', b'{"a":"\\ud800"}',
        b'{"a":"\\u00"}', b"[" * 100_000, b'{"a":' * 50_000, b"{'a':1}", b'{"a":01}', b'{"a":1,}', b'{"a":"\x01"}',
    ],
)  # fmt: skip
async def test_what_is_not_json_is_400(world: Any, text: bytes) -> None:
    async with world.client() as http:
        for url in (ROOM, EXEC, "/v1/projects/default/sandboxes", "/v1/projects/default/streams/x", "/v1/keys"):
            answer = await http.post(url, content=text, headers=JSON)
            assert answer.status_code == 400, (url, answer.text)
            assert answer.json()["error"] == "invalid request"
            assert answer.json()["details"]["body"]
    assert not world.sandboxes.calls
    assert not world.rooms.calls


@pytest.mark.parametrize(
    "kind", ["", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "json", "*/*"]
)
async def test_what_is_not_sent_as_json_is_400(world: Any, kind: str) -> None:
    async with world.client() as http:
        answer = await http.post(ROOM, content=b'{"cmd":"x"}', headers={"content-type": kind})
    assert answer.status_code == 400
    assert "body" in answer.json()["details"]


@pytest.mark.parametrize("kind", ["application/json", "application/json; charset=utf-8", "APPLICATION/JSON"])
async def test_json_by_any_spelling(world: Any, kind: str) -> None:
    async with world.client() as http:
        answer = await http.post(ROOM, content=b'{"cmd":"\xc3\xa9"}', headers={"content-type": kind})
    assert answer.status_code == 200


@pytest.mark.parametrize("value", ["[]", "1", '"x"', "null", "true"])
async def test_json_that_is_no_object_is_400(world: Any, value: str) -> None:
    async with world.client() as http:
        for url in (ROOM, EXEC, "/v1/projects/default/sandboxes"):
            answer = await http.post(url, content=value, headers=JSON)
            assert answer.status_code == 400, (url, answer.text)


def test_json_is_read_whole() -> None:
    assert read_json(b' {"a": [1, 2.5, null, true, "\\ud83d\\ude00"]} ') == {"a": [1, 2.5, None, True, "😀"]}


@pytest.mark.parametrize(
    ("url", "limit"),
    [
        (ROOM, body.MAX_BODY),
        ("/v1/projects/default/sandboxes", body.MAX_BODY),
        ("/v1/projects/default/sandboxes/main/sessions", body.MAX_BODY),
        ("/v1/projects/default/streams/a/b", body.MAX_EVENTS_BODY),
        (EXEC, body.MAX_EXEC_BODY),
    ],
)
@pytest.mark.parametrize("chunked", [False, True])
async def test_a_body_over_the_limit_is_413_and_ends_the_connection(
    world: Any, url: str, limit: int, chunked: bool
) -> None:
    async def pieces() -> Any:
        for _ in range(limit // 65536 + 2):
            yield b" " * 65536

    content: Any = pieces() if chunked else b" " * (limit + 1)
    async with world.client() as http:
        answer = await http.post(url, content=content, headers=JSON)
    assert answer.status_code == 413
    assert answer.json()["code"] == "BODY_TOO_LARGE"
    assert answer.headers["connection"] == "close"


class Connection:
    """A hand-driven ASGI connection."""

    def __init__(self, *messages: dict[str, Any]) -> None:
        self.messages = list(messages)
        self.reads = 0
        self.sent: list[dict[str, Any]] = []

    async def receive(self) -> dict[str, Any]:
        self.reads += 1
        if not self.messages:
            await asyncio.Event().wait()
        return self.messages.pop(0)

    async def send(self, message: dict[str, Any]) -> None:
        self.sent.append(message)


def chunk(size: int, more: bool) -> dict[str, Any]:
    return {"type": "http.request", "body": b"x" * size, "more_body": more}


SCOPE = {"type": "http", "method": "POST", "path": "/x", "headers": []}


async def never(*_: Any) -> None:
    raise AssertionError("the route must not run")


async def test_reading_stops_at_the_limit() -> None:
    connection = Connection(*(chunk(10, True) for _ in range(100)))
    await BodyLimit(never, max_body=25)(SCOPE, connection.receive, connection.send)
    assert connection.reads == 3
    assert connection.sent[0]["status"] == 413


async def test_a_declared_length_over_the_limit_is_not_read_at_all() -> None:
    connection = Connection(chunk(10, True))
    scope = {**SCOPE, "headers": [(b"content-length", b"26")]}
    await BodyLimit(never, max_body=25)(scope, connection.receive, connection.send)
    assert connection.reads == 0
    assert connection.sent[0]["status"] == 413


async def test_a_body_that_stops_coming_is_408() -> None:
    connection = Connection(chunk(1, True))
    await BodyLimit(never, patience=0.05)(SCOPE, connection.receive, connection.send)
    assert connection.sent[0]["status"] == 408


async def test_a_caller_that_leaves_amid_the_body_runs_nothing() -> None:
    connection = Connection(chunk(1, True), {"type": "http.disconnect"})
    await BodyLimit(never)(SCOPE, connection.receive, connection.send)
    assert connection.sent == []


async def test_the_route_gets_the_body_once_and_then_the_connection() -> None:
    got: list[dict[str, Any]] = []

    async def route(_: Any, receive: Any, __: Any) -> None:
        got.extend([await receive(), await receive()])

    connection = Connection(chunk(2, True), chunk(3, False), {"type": "http.disconnect"})
    await BodyLimit(route)(SCOPE, connection.receive, connection.send)
    assert got == [chunk(5, False), {"type": "http.disconnect"}]
