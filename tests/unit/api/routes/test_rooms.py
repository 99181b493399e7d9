from __future__ import annotations

from typing import Any
from urllib.parse import quote

import pytest

from kennel.domain.command import Outcome
from kennel.wire.errors import error

pytestmark = pytest.mark.anyio


async def test_the_seeds_example(world: Any) -> None:
    world.rooms.outcome = Outcome(stdout=b"Hello from sandbox\n", stderr=b"", exit_code=0)
    async with world.client() as http:
        answer = await http.post("/api/rooms/room-123/sandbox/exec", json={"cmd": "echo 'Hello from sandbox'"})
    assert answer.status_code == 200
    body = answer.json()
    assert set(body) == {"result", "sandboxName"}
    assert body["sandboxName"] == "sandbox-room-123"
    assert body["result"]["stdout"] == "Hello from sandbox\n"
    assert body["result"]["stderr"] == ""
    assert body["result"]["command"] == "echo 'Hello from sandbox'"
    assert {"exitCode", "success", "duration", "timestamp"} <= set(body["result"])


async def test_a_non_zero_exit_is_a_result_and_other_fields_are_ignored(world: Any) -> None:
    world.rooms.outcome = Outcome(stdout=b"", stderr=b"no\n", exit_code=7)
    async with world.client() as http:
        answer = await http.post("/api/rooms/r/sandbox/exec", json={"cmd": " ", "timeout": "never"})
    assert answer.status_code == 200
    assert (answer.json()["result"]["exitCode"], answer.json()["result"]["success"]) == (7, False)
    assert world.rooms.calls == [("exec", "default", "r", " ")]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"cmd": ""}, "Command cannot be empty"), ({}, "Field required"), ({"cmd": None}, "valid string"),
        ({"cmd": 1}, "valid string"), ({"cmd": ["ls"]}, "valid string"), ({"cmd": "a\0"}, "NUL"),
        ({"cmd": "x" * (128 * 1024)}, "at most"), ({"cmd": "é" * (64 * 1024)}, "at most"), ({"Cmd": "x"}, "required"),
    ],
)  # fmt: skip
async def test_a_bad_cmd_is_400_by_field(world: Any, body: dict[str, Any], message: str) -> None:
    async with world.client() as http:
        answer = await http.post("/api/rooms/r/sandbox/exec", json=body)
    assert answer.status_code == 400
    assert answer.json()["error"] == "invalid request"
    assert list(answer.json()["details"]) == ["cmd"]
    assert message in answer.json()["details"]["cmd"][0]
    assert not world.rooms.calls


@pytest.mark.parametrize(
    "room",
    ["room-123", "UPPER", "a b", "a/b", "../x", ".", "..", "%", "%2F", "?", "#", "é", "日本", "a" * 128, "😀" * 128,
     "a;b", "a:b", "sandbox", "\u202e", "a%00b", "+", "&=", "members"],
)  # fmt: skip
async def test_a_room_id_is_one_segment_decoded_once(world: Any, room: str) -> None:
    encoded = quote(room, safe="").replace(".", "%2e")
    async with world.client() as http:
        answer = await http.post(f"/api/rooms/{encoded}/sandbox/exec", json={"cmd": "x"})
        assert answer.status_code == 200, answer.text
        assert answer.json()["sandboxName"] == f"sandbox-{room}"
        gone = await http.delete(f"/api/rooms/{encoded}")
    assert gone.json() == {"cleaned": True, "roomId": room}
    assert world.rooms.calls == [("exec", "default", room, "x"), ("cleanup", "default", room)]


@pytest.mark.parametrize("encoded", ["", "a" * 129, "a%00b", "%0a", "%7f", "%c2%85", "%ff", "%ed%a0%80", "x%09"])
async def test_other_room_ids_are_400(world: Any, encoded: str) -> None:
    async with world.client() as http:
        run = await http.post(f"/api/rooms/{encoded}/sandbox/exec", json={"cmd": "x"})
        gone = await http.delete(f"/api/rooms/{encoded}")
    for answer in (run, gone):
        assert answer.status_code == 400, answer.text
        assert list(answer.json()["details"]) == ["roomId"]
    assert not world.rooms.calls


@pytest.mark.parametrize(
    "code", ["SANDBOX_LOST", "NO_CAPACITY", "RESOURCE_BUSY", "NODE_UNAVAILABLE", "SANDBOX_DESTROYED"]
)
async def test_a_failure_after_validation_is_the_seeds_500(world: Any, code: str) -> None:
    world.rooms.failure = error(code, "no luck", hint="wait", admitted="no", details={"free": 1})
    async with world.client() as http:
        answer = await http.post("/api/rooms/r/sandbox/exec", json={"cmd": "x"})
    assert answer.status_code == 500
    assert answer.json() == {
        "error": "sandbox execution failed: no luck", "code": code, "hint": "wait", "admitted": "no",
        "details": {"free": 1},
    }  # fmt: skip


async def test_a_cleanup_that_fails_is_207(world: Any) -> None:
    world.rooms.complaints = ["sandbox: node is away"]
    async with world.client() as http:
        answer = await http.delete("/api/rooms/r")
    assert answer.status_code == 207
    assert answer.json() == {"cleaned": True, "errors": ["sandbox: node is away"]}
