from __future__ import annotations

import json
import logging
from typing import Any

import pytest

from kennel.api.failures import MAX_FIELDS, field_messages
from kennel.wire.errors import STATUS, error

pytestmark = pytest.mark.anyio

MAIN = "/v1/projects/default/sandboxes/main"


@pytest.mark.parametrize(
    ("method", "path", "allow"),
    [
        ("PUT", MAIN, "DELETE, GET, PATCH"),
        ("OPTIONS", "/v1/projects/default/sandboxes", "GET, POST"),
        ("PUT", MAIN + "/exec", "POST"),
        ("GET", "/api/rooms/x/sandbox/exec", "POST"),
        ("PUT", "/api/rooms/x/sandbox/exec", "POST"),
        ("POST", "/api/rooms/x", "DELETE, GET, PUT"),
        ("DELETE", "/v1/projects/default/streams/a", "GET, POST"),
        ("POST", "/openapi.json", "GET"),
    ],
)
async def test_a_wrong_method_is_405_with_every_right_one(world: Any, method: str, path: str, allow: str) -> None:
    async with world.client() as http:
        answer = await http.request(method, path)
    assert answer.status_code == 405
    assert answer.headers["allow"] == allow
    assert answer.json()["code"] == "METHOD_NOT_ALLOWED"
    assert answer.json()["error"]


@pytest.mark.parametrize("path", ["/exec", "/terminals/main"])
async def test_a_plain_get_where_a_websocket_is_served_is_426(world: Any, path: str) -> None:
    async with world.client() as http:
        answer = await http.get(MAIN + path)
    assert answer.status_code == 426
    assert (answer.headers["upgrade"], answer.headers["connection"]) == ("websocket", "Upgrade")
    assert answer.json()["code"] == "UPGRADE_REQUIRED"


@pytest.mark.parametrize(
    "path",
    ["/", "/nope", "/api/rooms/x/sandbox", "/docs", "/redoc",
     "/v1/projects/default/sandboxes/main/nope", "/v1/projects/default/streamsx", "/api/rooms/x/sandbox/exec/"],
)  # fmt: skip
async def test_an_unknown_route_is_404(world: Any, path: str) -> None:
    async with world.client() as http:
        answer = await http.post(path, json={})
    assert answer.status_code == 404
    assert answer.json() == {"error": "no such route", "code": "NOT_FOUND"}


@pytest.mark.parametrize("code", sorted(STATUS))
async def test_every_code_keeps_its_status_and_fields(world: Any, code: str) -> None:
    world.sandboxes.failure = error(
        code, "it went wrong", details={"x": 1}, hint="try", admitted="unknown", retry_after_ms=1500
    )
    async with world.client() as http:
        answer = await http.get(MAIN)
    assert answer.status_code == STATUS[code]
    assert answer.json() == {
        "error": "it went wrong", "code": code, "details": {"x": 1}, "hint": "try", "admitted": "unknown",
        "retryAfterMs": 1500,
    }  # fmt: skip
    assert answer.headers["retry-after"] == "2"


async def test_a_bug_shows_a_request_id_and_nothing_else(world: Any, caplog: pytest.LogCaptureFixture) -> None:
    world.sandboxes.failure = RuntimeError("secret /etc/passwd")
    async with world.client() as http:
        with caplog.at_level(logging.ERROR, "kennel.api"):
            answer = await http.get(MAIN)
            in_room = await http.get(MAIN)
    assert answer.status_code == in_room.status_code == 500
    assert answer.json()["code"] == "INTERNAL_ERROR"
    assert "secret" not in answer.text
    assert "Traceback" not in answer.text
    assert answer.json()["details"]["requestId"] in caplog.text


async def test_details_that_json_cannot_say_do_not_break_the_answer(world: Any) -> None:
    world.sandboxes.failure = error("NO_CAPACITY", "full \ud800", details={"free": object()})
    async with world.client() as http:
        answer = await http.get(MAIN)
    assert answer.status_code == 503
    assert json.loads(answer.content)["code"] == "NO_CAPACITY"


def test_complaints_are_bounded_whoever_names_the_fields() -> None:
    errors = [{"type": "extra_forbidden", "loc": ("body", "x" * 1000 + str(n)), "msg": "no"} for n in range(1000)]
    errors += [{"type": "t", "loc": ("body", "same"), "msg": "no"}] * 1000
    found = field_messages(errors)
    assert len(found) <= MAX_FIELDS
    assert all(len(name) <= 128 and len(messages) <= 4 for name, messages in found.items())
