"""Routes of snapshots: what reaches the service, what comes back, what is refused before it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

pytestmark = pytest.mark.anyio
MAIN = "/v1/projects/default/sandboxes/main"


async def test_a_snapshot_is_taken_with_what_was_asked(world: Any) -> None:
    async with world.client() as http:
        answer = await http.post(f"{MAIN}/snapshots", json={"name": "n", "ttl": 60, "leaveOut": {"gitignore": False}})
        assert (answer.status_code, answer.json()["name"]) == (201, "n")
        words = {"name": "n", "ttl_seconds": 60, "leave_out": {"gitignore": False}}
        assert world.snapshots.calls == [("take", words)]
        assert (await http.post(f"{MAIN}/snapshots")).status_code == 201
        for bad in ({"ttl": 0}, {"name": ""}, {"leaveOut": {"all": True}}):
            assert (await http.post(f"{MAIN}/snapshots", json=bad)).status_code == 400


async def test_an_unknown_snapshot_is_404_everywhere(world: Any) -> None:
    async with world.client() as http:
        for method, route, body in (
            ("GET", "snapshots/nope/diff", None),
            ("GET", "snapshots/nope/export", None),
            ("DELETE", "snapshots/nope", None),
            ("POST", "rollback", {"snapshotId": "nope"}),
            ("POST", "fork", {"path": "/sandboxes/x", "snapshotId": "nope"}),
        ):
            answer = await http.request(method, f"{MAIN}/{route}", json=body)
            assert (answer.status_code, answer.json()["code"]) == (404, "SNAPSHOT_NOT_FOUND"), route


async def test_a_roll_back_names_a_snapshot_or_a_command_and_never_both(world: Any) -> None:
    async with world.client() as http:
        assert (await http.post(f"{MAIN}/rollback", json={"before": 7})).status_code == 200
        assert world.snapshots.calls[-1] == ("before", 7)
        for bad in ({}, {"before": 7, "snapshotId": "bk1"}, {"before": 0}, {"before": "7"}, {"before": True}):
            assert (await http.post(f"{MAIN}/rollback", json=bad)).status_code == 400, bad


async def test_forks_and_imports_get_a_new_path(world: Any) -> None:
    async with world.client() as http:
        answer = await http.post(f"{MAIN}/fork", json={"path": "/sandboxes/twin", "secrets": True})
        assert (answer.status_code, answer.json()["path"]) == (201, "/sandboxes/twin")
        assert (await http.post(f"{MAIN}/fork", json={"path": "twin"})).status_code == 400
        brought = await http.post(
            "/v1/projects/default/sandboxes/import?path=/sandboxes/new", content=b"zst",
            headers={"content-type": "application/octet-stream"},
        )  # fmt: skip
        assert brought.status_code == 201
        [(_, (path, body, _))] = [call for call in world.snapshots.calls if call[0] == "import"]
        assert (path, body) == ("/sandboxes/new", b"zst")


async def test_an_export_is_its_bytes(world: Any) -> None:
    async with world.client() as http:
        answer = await http.get(f"{MAIN}/snapshots/bk1/export")
        assert (answer.content, answer.headers["content-type"]) == (b"piece one,piece two", "application/zstd")


async def test_without_sandboxes_the_answer_says_so(world: Any) -> None:
    world.app.state.services = replace(world.app.state.services, snapshots=None)
    async with world.client() as http:
        answer = await http.get(f"{MAIN}/snapshots")
        assert (answer.status_code, answer.json()["code"]) == (503, "NODE_UNAVAILABLE")
