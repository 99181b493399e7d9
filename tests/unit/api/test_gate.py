from __future__ import annotations

from typing import Any

import pytest

from kennel.api.services import ApiSettings

pytestmark = pytest.mark.anyio

PATHS = ["/openapi.json", "/v1/projects", "/v1/projects/default/sandboxes", "/nowhere", "/health/", "/", "//health"]


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("method", ["GET", "POST", "DELETE", "OPTIONS", "BREW"])
async def test_nothing_but_health_answers_without_a_key(world: Any, method: str, path: str) -> None:
    async with world.client(None) as http:
        answer = await http.request(method, f"http://localhost{path}")
    assert answer.status_code == 401
    assert answer.json()["code"] == "UNAUTHORIZED"
    assert answer.headers["www-authenticate"] == "Bearer"


async def test_health_needs_no_key_and_only_by_get_and_head(world: Any) -> None:
    async with world.client(None) as http:
        assert (await http.get("/health")).text == "ok"
        assert (await http.head("/health")).status_code == 200
        assert (await http.post("/health")).status_code == 401
        world.healthy = False
        assert (await http.get("/health")).status_code == 503


@pytest.mark.parametrize(
    "value",
    [
        "",
        "Bearer",
        "Bearer ",
        "Basic admin",
        "Bearer wrong",
        "admin",
        "Bearer " + "x" * 600,
        "Bearer \xe9",
        "Bearer a b",
    ],
)
async def test_a_wrong_authorization_is_401(world: Any, value: str) -> None:
    async with world.client(None) as http:
        answer = await http.get("/openapi.json", headers={"authorization": value.encode("latin-1")})
    assert answer.status_code == 401


async def test_two_authorizations_are_none(world: Any) -> None:
    headers = [("authorization", "Bearer admin"), ("authorization", "Bearer admin")]
    async with world.client(None) as http:
        assert (await http.get("/openapi.json", headers=headers)).status_code == 401


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER"])
async def test_a_key_opens(world: Any, scheme: str) -> None:
    async with world.client(None) as http:
        assert (await http.get("/openapi.json", headers={"authorization": f"{scheme} admin"})).status_code == 200


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", 200), ("LOCALHOST:8787", 200), ("localhost.", 200), ("127.0.0.1", 200), ("127.0.0.1:1", 200),
        ("[::1]:8787", 200), ("kennel.example", 200), ("Kennel.Example:443", 200),
        ("evil.example", 400), ("localhost.evil.example", 400), ("x.localhost", 400), ("127.0.0.1.evil.example", 400),
        ("", 400), ("localhost:", 400), ("localhost:80:80", 400), ("localhost@evil.example", 400),
        ("user@localhost", 400), ("localhost/", 400), ("0.0.0.0", 400), ("[::]", 400), ("localhost, evil.example", 400),
    ],
)  # fmt: skip
async def test_host(new_world: Any, host: str, status: int) -> None:
    world = new_world(ApiSettings(allowed_hosts=frozenset({"kennel.example"})))
    async with world.client() as http:
        answer = await http.get("/health", headers={"host": host})
    assert answer.status_code == status
    if status == 400:
        assert answer.json()["code"] == "HOST_REFUSED"


@pytest.mark.parametrize(
    ("origin", "status"),
    [
        ("http://localhost:8787", 200), ("HTTP://LOCALHOST:8787", 200), ("https://kennel.example", 200),
        ("http://localhost:3000", 403), ("http://localhost", 403), ("http://evil.example", 403), ("null", 403),
        ("", 403), ("http://3000-abc.localhost:8788", 403), ("file://", 403),
        ("chrome-extension://localhost:8787", 403),
        ("http://localhost:8787.evil.example", 403), ("http://localhost:8787/", 403),
    ],
)  # fmt: skip
async def test_origin(new_world: Any, origin: str, status: int) -> None:
    world = new_world(ApiSettings(open=True, allowed_hosts=frozenset({"kennel.example"})))
    async with world.client(None) as http:
        answer = await http.get("/openapi.json", headers={"host": "localhost:8787", "origin": origin})
    assert answer.status_code == status
    if status == 403:
        assert answer.json()["code"] == "ORIGIN_REFUSED"


async def test_open_needs_no_key_and_is_admin(new_world: Any) -> None:
    world = new_world(ApiSettings(open=True))
    async with world.client(None) as http:
        assert (await http.get("/v1/projects")).status_code == 200


@pytest.mark.parametrize(
    ("token", "method", "path", "body", "status", "code"),
    [
        ("reader", "GET", "/v1/projects/default/sandboxes", None, 200, None),
        ("reader", "POST", "/v1/projects/default/sandboxes/a/exec", {"command": "x"}, 403, "FORBIDDEN"),
        ("reader", "POST", "/v1/projects/default/sandboxes/a/exec", {"bad": 1}, 403, "FORBIDDEN"),
        ("reader", "POST", "/v1/projects/default/sandboxes", {"path": "/sandboxes/a"}, 403, "FORBIDDEN"),
        ("reader", "DELETE", "/v1/projects/default/sandboxes/a", None, 403, "FORBIDDEN"),
        ("reader", "POST", "/api/rooms/r/sandbox/exec", {"cmd": "x"}, 403, "FORBIDDEN"),
        ("reader", "POST", "/v1/projects/default/streams/known", {"events": [{"type": "n"}]}, 403, "FORBIDDEN"),
        ("reader", "GET", "/v1/projects/default/streams/known", None, 200, None),
        ("reader", "GET", "/v1/keys", None, 403, "FORBIDDEN"),
        ("runner", "POST", "/v1/projects/default/sandboxes/a/exec", {"command": "x"}, 200, None),
        ("runner", "POST", "/v1/projects/default/sandboxes/a/sessions", {}, 201, None),
        ("runner", "GET", "/v1/projects/default/sandboxes", None, 403, "FORBIDDEN"),
        ("runner", "POST", "/v1/projects/default/sandboxes/a/start", None, 403, "FORBIDDEN"),
        ("runner", "POST", "/api/rooms/r/sandbox/exec", {"cmd": "x"}, 200, None),
        ("runner", "DELETE", "/api/rooms/r", None, 403, "FORBIDDEN"),
        ("runner", "GET", "/v1/projects", None, 403, "FORBIDDEN"),
        ("other", "GET", "/v1/projects/default/sandboxes", None, 404, "PROJECT_NOT_FOUND"),
        ("other", "GET", "/v1/projects/missing/sandboxes", None, 404, "PROJECT_NOT_FOUND"),
        ("other", "GET", "/v1/projects", None, 403, "FORBIDDEN"),
        ("other", "POST", "/v1/projects", {"name": "new"}, 403, "FORBIDDEN"),
        ("other", "GET", "/v1/keys?project=default", None, 404, "PROJECT_NOT_FOUND"),
        ("other", "GET", "/v1/keys", None, 200, None),
        ("admin", "GET", "/v1/projects/missing/sandboxes", None, 404, "PROJECT_NOT_FOUND"),
        ("admin", "POST", "/v1/projects", {"name": "new"}, 201, None),
    ],
)
async def test_scopes(world: Any, token: str, method: str, path: str, body: Any, status: int, code: str | None) -> None:
    async with world.client(token) as http:
        answer = await http.request(method, path, json=body)
    assert answer.status_code == status, answer.text
    if code is not None:
        assert answer.json()["code"] == code


async def test_another_project_answers_like_a_missing_one(world: Any) -> None:
    async with world.client("other") as http:
        foreign = await http.get("/v1/projects/default/sandboxes/main")
        missing = await http.get("/v1/projects/missing/sandboxes/main")
    async with world.client("admin") as http:
        missing_for_admin = await http.get("/v1/projects/missing/sandboxes/main")
    assert foreign.content == missing.content == missing_for_admin.content


async def test_a_room_belongs_to_the_keys_project(world: Any) -> None:
    for token, project in (("admin", "default"), ("other", "other")):
        async with world.client(token) as http:
            await http.post("/api/rooms/r/sandbox/exec", json={"cmd": "x"})
        assert world.rooms.calls[-1] == ("exec", project, "r", "x", None)


async def test_a_websocket_without_a_key_is_closed(world: Any) -> None:
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "websocket.connect"}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    scope = {"type": "websocket", "path": "/", "headers": [(b"host", b"localhost")], "query_string": b""}
    await world.app(scope, receive, send)
    assert [message["type"] for message in sent] == ["websocket.close"]
