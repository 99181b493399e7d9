from __future__ import annotations

from typing import Any

import pytest

pytestmark = pytest.mark.anyio


async def test_a_token_is_shown_once(world: Any) -> None:
    async with world.client() as http:
        made = await http.post("/v1/keys", json={"project": "other", "scopes": ["read", "read", "exec"], "name": "ci"})
        listed = await http.get("/v1/keys")
    assert made.status_code == 201
    assert made.json() == {"token": "secret-token", "key": {"id": "k1", "project": "other"}}
    assert "secret-token" not in listed.text
    assert world.keys.calls == [("create", "other", ("read", "exec"), "ci"), ("list", None)]


async def test_a_projects_holder_stays_in_its_project(world: Any) -> None:
    async with world.client("other") as http:
        assert (await http.post("/v1/keys", json={"scopes": ["read"]})).status_code == 201
        assert (await http.post("/v1/keys", json={"scopes": ["read"], "project": "default"})).status_code == 404
    assert world.keys.calls == [("create", "other", ("read",), "")]


@pytest.mark.parametrize(
    "body", [{}, {"scopes": []}, {"scopes": ["root"]}, {"scopes": "read"}, {"scopes": ["read"], "name": 1}]
)
async def test_bad_keys_are_400(world: Any, body: dict[str, Any]) -> None:
    async with world.client() as http:
        assert (await http.post("/v1/keys", json=body)).status_code == 400
    assert not world.keys.calls


async def test_revoke(world: Any) -> None:
    async with world.client() as http:
        assert (await http.delete("/v1/keys/k1")).status_code == 204
        assert (await http.delete("/v1/keys/k2")).status_code == 404
        assert (await http.delete("/v1/keys/a%20b")).status_code == 400


@pytest.mark.parametrize("name", ["", "A", "-a", "a-", "a_b", "a" * 64, None, 1, "_kennel"])
async def test_bad_project_names_are_400(world: Any, name: Any) -> None:
    async with world.client() as http:
        assert (await http.post("/v1/projects", json={"name": name})).status_code == 400


async def test_images(world: Any) -> None:
    async with world.client("reader") as http:
        assert (await http.get("/v1/images")).json() == {"images": [{"name": "host", "digest": "sha256:00"}]}
    async with world.client("runner") as http:
        assert (await http.get("/v1/images")).status_code == 403
