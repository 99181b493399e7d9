from __future__ import annotations

from typing import Any

import pytest
from msgspec import UNSET

from kennel.domain.create_options import CreateOptions

pytestmark = pytest.mark.anyio

ALL = "/v1/projects/default/sandboxes"
MAIN = ALL + "/main"


async def test_create_with_defaults_and_with_everything(world: Any) -> None:
    async with world.client() as http:
        answer = await http.post(ALL, json={"path": "/sandboxes/main"}, headers={"idempotency-key": "once"})
        assert answer.status_code == 201
        assert answer.json()["path"] == "/sandboxes/main"
        assert world.sandboxes.calls[-1] == ("create", ("default", "/sandboxes/main", CreateOptions(), "once"))
        everything = {
            "path": "/sandboxes/x", "instanceType": "lite", "image": "stock", "isolation": "gvisor",
            "env": {"A": "1", "B": None}, "sleepAfter": "10m", "keepAlive": True, "persist": "disk",
            "labels": {"team": "a b"},
        }  # fmt: skip
        assert (await http.post(ALL, json=everything)).status_code == 201
    options = CreateOptions("lite", "stock", "gvisor", {"A": "1", "B": None}, "10m", True, "disk", {"team": "a b"})
    assert world.sandboxes.calls[-1] == ("create", ("default", "/sandboxes/x", options, None))


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("main", "INVALID_PATH"), ("/sandboxes/", "INVALID_PATH"), ("/sandboxes/A", "INVALID_PATH"),
        ("/sandboxes/a/b", "INVALID_PATH"), ("/sandboxes/-a", "INVALID_PATH"), ("/sandboxes/a-", "INVALID_PATH"),
        ("/sandboxes/a.2", "INVALID_PATH"), ("/sandboxes/..", "INVALID_PATH"), ("/sandboxes/a\n", "INVALID_PATH"),
        ("/other/a", "INVALID_PATH"), ("/sandboxes/" + "a" * 64, "NAME_TOO_LONG"), ("x" * 2000, "VALIDATION_FAILED"),
    ],
)  # fmt: skip
async def test_names_that_cannot_be_claimed(world: Any, path: str, code: str) -> None:
    async with world.client() as http:
        answer = await http.post(ALL, json={"path": path})
    assert answer.status_code == 400
    assert answer.json()["code"] == code
    assert "path" in answer.json()["details"]
    assert not world.sandboxes.calls


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"path": None}, "path"), ({"instanceType": 1}, "instanceType"), ({"instance_type": "lite"}, "instance_type"),
        ({"env": {"A": []}}, "env.A"), ({"keepAlive": "yes"}, "keepAlive"), ({"keepAlive": 1}, "keepAlive"),
        ({"persist": "nothing"}, "persist"), ({"labels": {"a": None}}, "labels.a"),
        ({"labels": {"a b": ""}}, "labels"),
        ({"sleepAfter": -1}, "sleepAfter"), ({"sleepAfter": True}, "sleepAfter"),
        ({"sleepAfter": []}, "sleepAfter"), ({"sleepAfter": "x" * 33}, "sleepAfter"), ({"extra": 1}, "extra"),
    ],
)  # fmt: skip
async def test_bad_words_are_400_by_field(world: Any, change: dict[str, Any], field: str) -> None:
    async with world.client() as http:
        answer = await http.post(ALL, json={"path": "/sandboxes/main", **change})
    assert answer.status_code == 400, answer.text
    assert field in answer.json()["details"], answer.text
    assert not world.sandboxes.calls


@pytest.mark.parametrize("key", ["", " ", "two words", "x" * 129, "caf\xe9", "tab\there"])
async def test_an_idempotency_key_is_visible_ascii(world: Any, key: str) -> None:
    async with world.client() as http:
        answer = await http.post(
            ALL, json={"path": "/sandboxes/main"}, headers={"idempotency-key": key.encode("latin-1")}
        )
    assert answer.status_code == 400
    assert not world.sandboxes.calls


async def test_list_passes_its_filters_on(world: Any) -> None:
    async with world.client() as http:
        query = "status=running&label=team=a&label=team2&includeDestroyed=true&limit=5&cursor=c&unknown=1"
        answer = await http.get(f"{ALL}?{query}")
    assert answer.status_code == 200
    assert list(answer.json()) == ["sandboxes", "cursor"]
    assert world.sandboxes.calls[-1] == (
        "list",
        (
            "default",
            {"status": "running", "label": {"team": "a", "team2": None}, "include_destroyed": True, "limit": 5,
             "cursor": "c"},
        ),
    )  # fmt: skip


@pytest.mark.parametrize("query", ["limit=0", "limit=1001", "limit=x", "includeDestroyed=perhaps", "label==x"])
async def test_bad_filters_are_400(world: Any, query: str) -> None:
    async with world.client() as http:
        answer = await http.get(f"{ALL}?{query}")
    assert answer.status_code == 400
    assert not world.sandboxes.calls


@pytest.mark.parametrize(
    ("body", "change"),
    [
        ({}, {}),
        ({"sleepAfter": None}, {"sleep_after": None}),
        ({"sleepAfter": 60, "keepAlive": False}, {"sleep_after": 60, "keep_alive": False}),
        ({"labels": {}}, {"labels": {}}),
        (
            {"leaveOut": {"gitignore": False, "patterns": ["*.o"]}},
            {"leave_out": {"gitignore": False, "patterns": ["*.o"]}},
        ),
        ({"leaveOut": {}}, {"leave_out": {}}),
        ({"points": True}, {"points": True}),
    ],
)
async def test_patch_changes_only_what_is_named(world: Any, body: dict[str, Any], change: dict[str, Any]) -> None:
    async with world.client() as http:
        assert (await http.patch(MAIN, json=body)).status_code == 200
    untouched = dict.fromkeys(("sleep_after", "keep_alive", "labels", "leave_out", "points"), UNSET)
    assert world.sandboxes.calls[-1] == ("update", ("default", "/sandboxes/main", {**untouched, **change}))


@pytest.mark.parametrize(
    "bad",
    [{"all": True}, {"gitignore": 1}, {"patterns": [""]}, {"patterns": ["x" * 257]}, {"patterns": ["a"] * 65},
     {"patterns": ["a\0b"]}, [], None],
)  # fmt: skip
async def test_what_is_left_out_is_checked_before_it_is_stored(world: Any, bad: Any) -> None:
    async with world.client() as http:
        assert (await http.patch(MAIN, json={"leaveOut": bad})).status_code == 400
        if bad is not None:
            assert (await http.post(ALL, json={"path": "/sandboxes/main", "leaveOut": bad})).status_code == 400
    assert not world.sandboxes.calls


async def test_what_is_left_out_is_part_of_a_create(world: Any) -> None:
    async with world.client() as http:
        body = {"path": "/sandboxes/main", "leaveOut": {"nodeModules": False}}
        assert (await http.post(ALL, json=body)).status_code == 201
    assert world.sandboxes.calls[-1][1][2].leave_out == {"nodeModules": False}


async def test_env_is_merged_and_null_unsets(world: Any) -> None:
    async with world.client() as http:
        assert (await http.patch(MAIN + "/env", json={"A": "1", "B": None})).status_code == 200
        assert world.sandboxes.calls[-1] == ("set_env", ("default", "/sandboxes/main", {"A": "1", "B": None}))
        for bad in ({"A": 1}, {"": "x"}, [], {"A=": "x"}):
            assert (await http.patch(MAIN + "/env", json=bad)).status_code == 400


@pytest.mark.parametrize("verb", ["start", "sleep", "restart", "kill", "renew"])
async def test_turns_take_no_body_or_an_empty_one(world: Any, verb: str) -> None:
    async with world.client() as http:
        for body in (None, {}):
            answer = await http.post(f"{MAIN}/{verb}", json=body)
            assert answer.status_code == 200
            assert world.sandboxes.calls[-1] == (verb, ("default", "/sandboxes/main"))
        calls = len(world.sandboxes.calls)
        assert (await http.post(f"{MAIN}/{verb}", json={"nothing": True})).status_code == 400
        assert len(world.sandboxes.calls) == calls


async def test_show_and_destroy(world: Any) -> None:
    async with world.client() as http:
        assert (await http.get(MAIN)).json()["name"] == "main"
        gone = await http.delete(MAIN)
    assert (gone.status_code, gone.content) == (204, b"")
    assert [name for name, _ in world.sandboxes.calls] == ["get", "destroy"]
