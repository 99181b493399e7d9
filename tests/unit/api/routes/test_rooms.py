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
    assert world.rooms.calls == [("exec", "default", "r", " ", None)]


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
    assert world.rooms.calls == [("exec", "default", room, "x", None), ("cleanup", "default", room)]


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


async def test_a_message_and_its_answer(world: Any) -> None:
    async with world.client() as http:
        answer = await http.post("/api/rooms/r/message", json={"text": " hi ", "userId": "ana", "other": [1]})
        alone = await http.post("/api/rooms/r/message", json={"text": " "})
    assert answer.status_code == alone.status_code == 200
    assert answer.json() == {
        "reply": "hello",
        "messages": [
            {"role": "user", "text": "hi", "ts": 1, "userId": "ana"}, {"role": "agent", "text": "hello", "ts": 2},
        ],
    }  # fmt: skip
    assert world.rooms.calls == [("say", "default", "r", " hi ", "ana"), ("say", "default", "r", " ", None)]


@pytest.mark.parametrize(
    ("body", "field", "message"),
    [
        ({"text": ""}, "text", "Text cannot be empty"), ({}, "text", "Field required"),
        ({"text": None}, "text", "valid string"), ({"text": 1}, "text", "valid string"),
        ({"text": "a\0"}, "text", "NUL"), ({"text": "x" * 32_769}, "text", "at most"),
        ({"text": "x", "userId": None}, "userId", "valid string"),
        ({"text": "x", "userId": 7}, "userId", "valid string"),
        ({"text": "x", "userId": "a" * 129}, "userId", "at most"),
    ],
)  # fmt: skip
async def test_a_bad_message_is_400_by_field(world: Any, body: dict[str, Any], field: str, message: str) -> None:
    async with world.client() as http:
        answer = await http.post("/api/rooms/r/message", json=body)
    assert answer.status_code == 400
    assert answer.json()["error"] == "invalid request"
    assert list(answer.json()["details"]) == [field]
    assert message in answer.json()["details"][field][0]
    assert not world.rooms.calls


async def test_a_body_that_is_no_json_is_400_and_another_method_405(world: Any) -> None:
    async with world.client() as http:
        bad = await http.post("/api/rooms/r/message", content=b"{", headers={"content-type": "application/json"})
        other = await http.get("/api/rooms/r/message")
    assert (bad.status_code, other.status_code) == (400, 405)
    assert bad.json()["details"]["body"]


@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("MODEL_FAILED", 502), ("MODEL_NOT_CONFIGURED", 503), ("QUOTA_EXCEEDED", 429), ("RESOURCE_BUSY", 409),
        ("OPERATION_INTERRUPTED", 409), ("FORBIDDEN", 403),
    ],
)  # fmt: skip
async def test_a_message_that_fails_is_typed(world: Any, code: str, status: int) -> None:
    world.rooms.failure = error(code, "no luck", retry_after_ms=1500)
    async with world.client() as http:
        answer = await http.post("/api/rooms/r/message", json={"text": "x"})
    assert answer.status_code == status
    assert (answer.json()["code"], answer.headers["retry-after"]) == (code, "2")


async def test_without_a_model_the_answer_says_what_to_set(world: Any) -> None:
    world.rooms.failure = error("MODEL_NOT_CONFIGURED", "no model")
    async with world.client() as http:
        answer = await http.post("/api/rooms/r/message", json={"text": "x"})
    assert "KENNEL_AI_BASE_URL" in answer.json()["hint"]


async def test_looking_listing_and_settings(world: Any) -> None:
    async with world.client() as http:
        shown = (await http.get("/api/rooms/r")).json()
        listed = (await http.get("/api/rooms?limit=5&cursor=/rooms/a")).json()
        changed = await http.put(
            "/api/rooms/r", json={"title": "T", "settings": {"maxRounds": 2.0, "history": None}, "x": 1}
        )
        untitled = await http.put("/api/rooms/r", json={"title": None})
        nothing = await http.put("/api/rooms/r", json={})
    assert [message["text"] for message in shown["messages"]] == ["hi", "hello"]
    assert (listed["rooms"][0]["roomId"], listed["cursor"]) == ("r", "/rooms/r")
    assert changed.status_code == untitled.status_code == nothing.status_code == 200
    assert world.rooms.calls == [
        ("view", "default", "r"),
        ("list", "default", 5, "/rooms/a"),
        ("configure", "default", "r", {"title": "T", "settings": {"maxRounds": 2, "history": None}}),
        ("configure", "default", "r", {"title": None}),
        ("configure", "default", "r", {}),
    ]


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"title": 1}, "title"), ({"title": "x" * 201}, "title"),
        ({"settings": {"maxRounds": 0}}, "settings.maxRounds"),
        ({"settings": {"history": 201}}, "settings.history"), ({"settings": None}, "settings"),
        ({"settings": {"instructions": "x" * 9000}}, "settings.instructions"),
    ],
)  # fmt: skip
async def test_bad_settings_are_400(world: Any, body: dict[str, Any], field: str) -> None:
    async with world.client() as http:
        answer = await http.put("/api/rooms/r", json=body)
    assert (answer.status_code, list(answer.json()["details"])) == (400, [field])


async def test_events_are_numbered_and_what_passes_by_is_not(world: Any) -> None:
    async with world.client() as http:
        unknown = await http.get("/api/rooms/unknown/events")
        answer = await http.get("/api/rooms/r/events", headers={"last-event-id": "1"})
    assert unknown.status_code == 404
    assert answer.headers["content-type"].startswith("text/event-stream")
    told = [block.split("\n") for block in answer.text.strip().split("\n\n")]
    assert [block[0] for block in told] == ["id: 2", "event: delta", "event: gap"]
    assert told[1][1] == 'data: {"turnId":"t","at":0,"text":"hel"}'


async def test_members_come_and_go(world: Any) -> None:
    async with world.client() as http:
        joined = await http.post("/api/rooms/r/members", json={"userId": "ana", "role": "observer", "ttlSeconds": 5})
        nobody = await http.post("/api/rooms/r/members", json={})
        listed = await http.get("/api/rooms/r/members")
        left = await http.delete("/api/rooms/r/members?userId=ana")
        unsaid = await http.delete("/api/rooms/r/members")
    assert (joined.status_code, joined.json()["role"]) == (200, "observer")
    assert nobody.json()["userId"] == "guest"
    assert listed.json()["members"][0]["userId"] == "ana"
    assert (left.status_code, unsaid.status_code) == (204, 400)
    assert world.rooms.members.calls == [
        ("join", "default", "r", "ana", "observer", "driver", True, 5),
        ("join", "default", "r", "guest", None, "driver", True, None), ("leave", "default", "r", "ana"),
    ]  # fmt: skip


async def test_a_key_that_only_reads_joins_as_an_observer(world: Any) -> None:
    async with world.client("reader") as http:
        assert (await http.post("/api/rooms/r/members", json={"userId": "ana"})).json()["role"] == "observer"
        assert (await http.post("/api/rooms/r/message", json={"text": "x"})).status_code == 403
        assert (await http.get("/api/rooms/r")).status_code == 200
        assert (await http.put("/api/rooms/r", json={})).status_code == 403
    assert world.rooms.members.calls == [("join", "default", "r", "ana", None, "observer", False, None)]


async def test_links_are_made_listed_and_revoked(world: Any) -> None:
    async with world.client() as http:
        made = await http.post("/api/rooms/r/links", json={"role": "observer", "name": "n", "expiresInSeconds": 60})
        listed = await http.get("/api/rooms/r/links")
        one = await http.delete("/api/rooms/r/links?id=link_1")
        every = await http.delete("/api/rooms/r/links")
    assert (made.status_code, made.json()["token"], made.json()["link"]["id"]) == (201, "kl_new", "link_1")
    assert listed.json() == {"links": []}
    assert one.json() == every.json() == {"revoked": ["link_1"]}
    assert world.rooms.links.calls == [
        ("create", "default", "r", "observer", "n", None, 60), ("revoke", "default", "r", "link_1"),
        ("revoke", "default", "r", None),
    ]  # fmt: skip


async def test_a_drivers_link_opens_its_room_and_nothing_else(world: Any) -> None:
    async with world.client("kl_driver") as http:
        assert (await http.post("/api/rooms/a%2Fb/message", json={"text": "x", "userId": "bob"})).status_code == 200
        assert (await http.post("/api/rooms/a%2fb/sandbox/exec", json={"cmd": "ls"})).status_code == 200
        assert (await http.get("/api/rooms/a%2Fb/events")).status_code == 200
        assert (await http.post("/api/rooms/a%2Fb/members", json={"role": "driver"})).status_code == 200
        assert (await http.delete("/api/rooms/a%2Fb/members?userId=ana")).status_code == 204
        refused = [
            await http.delete("/api/rooms/a%2Fb"), await http.put("/api/rooms/a%2Fb", json={}),
            await http.get("/api/rooms/a%2Fb/links"), await http.post("/api/rooms/a%2Fb/links", json={}),
            await http.delete("/api/rooms/a%2Fb/links"), await http.delete("/api/rooms/a%2Fb/members?userId=bob"),
            await http.get("/api/rooms"), await http.get("/api/rooms/a"), await http.get("/api/rooms/a/b"),
            await http.get("/api/rooms/a%252Fb"), await http.get("/api/rooms/a%2Fb%2F"),
            await http.get("/openapi.json"),
            await http.get("/v1/projects"), await http.get("/v1/images"), await http.get("/v1/keys"),
            await http.get("/v1/projects/default/sandboxes"), await http.get("/v1/projects/default/streams"),
            await http.post("/v1/projects/default/sandboxes/sandbox-a/exec", json={"command": "ls"}),
        ]  # fmt: skip
    assert [answer.status_code for answer in refused] == [403] * len(refused)
    assert world.rooms.calls == [("say", "default", "a/b", "x", "ana"), ("exec", "default", "a/b", "ls", "ana")]


async def test_an_observers_link_looks_only_and_may_stand_in_a_header(world: Any) -> None:
    async with world.client(None, **{"x-kennel-room-link": "kl_observer"}) as http:
        assert (await http.get("/api/rooms/a%2Fb")).status_code == 200
        assert (await http.post("/api/rooms/a%2Fb/members", json={"userId": "eve"})).json()["role"] == "observer"
        said = await http.post("/api/rooms/a%2Fb/message", json={"text": "x"})
        ran = await http.post("/api/rooms/a%2Fb/sandbox/exec", json={"cmd": "ls"})
        sent_away = await http.delete("/api/rooms/a%2Fb/members?userId=ana")
    assert [said.status_code, ran.status_code, sent_away.status_code] == [403] * 3
    assert world.rooms.calls == [("view", "default", "a/b")]


async def test_an_unknown_link_is_401_and_a_key_goes_before_a_link(world: Any) -> None:
    async with world.client("kl_forged") as http:
        assert (await http.get("/api/rooms/a%2Fb")).status_code == 401
    async with world.client("admin", **{"x-kennel-room-link": "kl_forged"}) as http:
        assert (await http.get("/api/rooms/r")).status_code == 200
