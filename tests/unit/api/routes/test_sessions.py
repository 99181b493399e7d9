from __future__ import annotations

from typing import Any

import pytest

pytestmark = pytest.mark.anyio

SESSIONS = "/v1/projects/default/sandboxes/main/sessions"


async def test_a_session_is_opened_listed_and_closed(world: Any) -> None:
    world.sandboxes.sessions = ["s1"]
    async with world.client() as http:
        made = await http.post(SESSIONS, json={"id": "s1", "cwd": "/tmp", "env": {"A": "1", "B": None}, "user": "root"})
        assert (made.status_code, made.json()) == (201, {"id": "s1"})
        assert world.sandboxes.calls[-1] == (
            "open_session",
            ("default", "/sandboxes/main", "s1", {"cwd": "/tmp", "env": {"A": "1"}, "user": "root"}),
        )
        assert (await http.get(SESSIONS)).json() == {"sessions": ["s1"]}
        assert (await http.get(SESSIONS + "/s1")).json() == {"id": "s1"}
        assert (await http.get(SESSIONS + "/s2")).json()["code"] == "SESSION_NOT_FOUND"
        assert (await http.delete(SESSIONS + "/s1")).status_code == 204


async def test_ids_are_made_up_and_differ(world: Any) -> None:
    async with world.client() as http:
        made = [(await http.post(SESSIONS)).json()["id"] for _ in range(3)]
    assert len(set(made)) == 3


@pytest.mark.parametrize(
    "body", [{"id": ""}, {"id": "a/b"}, {"id": "x" * 65}, {"cwd": "rel"}, {"env": {"": "1"}}, {"x": 1}, []]
)
async def test_bad_sessions_are_400(world: Any, body: Any) -> None:
    async with world.client() as http:
        assert (await http.post(SESSIONS, json=body)).status_code == 400
    assert not world.sandboxes.calls
