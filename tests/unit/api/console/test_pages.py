"""What the pages show and what their forms come to."""

from __future__ import annotations

import json
import re
import time
from typing import Any

import pytest

from console_world import event, view
from kennel.domain.command import Outcome
from kennel.domain.event import Source
from kennel.wire.errors import error
from kennel.wire.node import Counters

pytestmark = pytest.mark.anyio

P = "/console/p/default"
HOSTILE = "<img src=x onerror=alert(1)>\"'</textarea></pre><script>alert(2)</script>{{7*7}}\u202e"
PIECE = {"hx-request": "true"}


async def test_hostile_words_are_text_everywhere(world: Any) -> None:
    world.sandboxes.views = [view(labels={"note": HOSTILE}, env={"X": HOSTILE}, image=HOSTILE)]
    world.sandboxes.outcome = Outcome(HOSTILE.encode(), HOSTILE.encode() + b"\xff\x1b[1m", 1)
    world.streams.streams["/sandboxes/main"] = [
        event(1, "sandbox/exec-started", {"command": HOSTILE}),
        event(2, HOSTILE, {HOSTILE: HOSTILE, "deep": [{"x": HOSTILE}]}, source=Source(key_id=HOSTILE)),
        event(3, "sandbox/configured", {"env": {HOSTILE: None}, "sleepAfter": HOSTILE}),
    ]
    world.facts = {"runtime": HOSTILE, "runtimes": [{"name": HOSTILE, "version": None, "usable": False,
                                                     "reason": HOSTILE, "remedy": HOSTILE}]}  # fmt: skip
    browser = await world.browser().login()
    for path in ("sandboxes", "sandboxes-rows", "sandboxes/main", "sandboxes/main/state", "node", "keys",
                 "streams/one?path=/sandboxes/main", f"sandboxes?q={HOSTILE}&label={HOSTILE}",
                 f"streams?prefix={HOSTILE}", f"streams/one?path={HOSTILE}", f"rooms/{HOSTILE}"):  # fmt: skip
        page = await browser.get(f"{P}/{path}")
        assert "<img" not in page.text, path
        assert "<script>" not in page.text, path
        assert "<i>ci" not in page.text
    for form, data in (("sandboxes", {"name": HOSTILE, "env": HOSTILE, "labels": HOSTILE}),
                       ("sandboxes/main/exec", {"command": HOSTILE}), ("keys", {"name": HOSTILE}),
                       ("projects", {"name": HOSTILE})):  # fmt: skip
        for headers in ({}, PIECE):
            answer = await browser.submit(f"{P}/{form}", data, **headers)
            assert "<img" not in answer.text, form
            assert "<script>" not in answer.text, form
    live = await browser.get(f"{P}/sandboxes/main/events")
    rows = [json.loads(line[6:]) for line in live.text.split("\n") if line.startswith("data: ")]
    assert len(rows) == 3
    assert not any("<img" in row or "<script>" in row for row in rows)
    assert "&lt;img src=x" in rows[0]


async def test_the_overview_asks_for_what_is_filtered(world: Any) -> None:
    browser = await world.browser().login()
    world.sandboxes.views = [view("main"), view("other", status="stopped", running=False)]
    page = await browser.get(f"{P}/sandboxes?q=MAI&status=running&label=a%3Db&cursor=/sandboxes/a")
    [(_, filters)] = world.sandboxes.called("list")
    assert filters == {"status": "running", "label": {"a": "b"}, "limit": 100, "cursor": "/sandboxes/a"}
    assert ">main</a>" in page.text
    assert ">other</a>" not in page.text


async def test_an_empty_overview_teaches_the_next_step(world: Any) -> None:
    world.sandboxes.views = []
    page = await (await world.browser().login()).get(f"{P}/sandboxes")
    assert "kennel sandbox create main" in page.text


async def test_figures_are_of_running_ones_and_hidden_where_not_counted(world: Any, new_world: Any) -> None:
    world.sandboxes.counters = Counters(memory=512 * 1024**2, disk_used=5, disk_size=10)
    page = await (await world.browser().login()).get(f"{P}/sandboxes")
    assert "512 MiB" in page.text
    assert 'width="50.0"' in page.text
    page = await (await new_world(counted=False).browser().login()).get(f"{P}/sandboxes")
    assert "Memory" not in page.text
    assert ">Node<" not in page.text


async def test_a_create_carries_all_its_words_and_one_request_id(world: Any) -> None:
    browser = await world.browser().login()
    data = {"name": "pet", "instanceType": "lite", "image": "stock", "isolation": "container", "persist": "disk",
            "sleepAfter": " 5m ", "keepAlive": "1", "env": "A=1\r\nB=x=y\r\n\r\n", "labels": "team=r\r\nci=",
            "request": "abc"}  # fmt: skip
    answer = await browser.submit(f"{P}/sandboxes", data)
    assert (answer.status_code, answer.headers["location"]) == (303, f"{P}/sandboxes/pet")
    [(project, path, options, request)] = world.sandboxes.called("create")
    assert (project, path, request) == ("default", "/sandboxes/pet", "console abc")
    assert (options.instance_type, options.image, options.persist) == ("lite", "stock", "disk")
    assert (options.env, options.labels) == ({"A": "1", "B": "x=y"}, {"team": "r", "ci": ""})
    assert (options.sleep_after, options.keep_alive, options.leave_out) == ("5m", True, {})
    answer = await browser.submit(f"{P}/sandboxes", data, **PIECE)
    assert (answer.status_code, answer.headers["hx-redirect"]) == (204, f"{P}/sandboxes/pet")


@pytest.mark.parametrize(("data", "told"), [
    ({"name": ""}, "give it a name"), ({"name": "No!"}, "one segment of a-z"), ({"name": "a.2"}, "one segment"),
    ({"name": "a", "env": "novalue"}, "line 1 is not NAME=VALUE"), ({"name": "a", "labels": "!=x"}, "label"),
])  # fmt: skip
async def test_a_wrong_create_comes_back_as_typed(world: Any, data: dict[str, str], told: str) -> None:
    browser = await world.browser().login()
    for headers in ({}, PIECE):
        answer = await browser.submit(f"{P}/sandboxes", {"sleepAfter": "77m", **data}, **headers)
        assert answer.status_code == 400
        assert told in answer.text
        assert 'value="77m"' in answer.text
    assert not world.sandboxes.called("create")


async def test_a_refused_create_says_why(world: Any) -> None:
    browser = await world.browser().login()
    await browser.token()
    world.sandboxes.failure = error("SANDBOX_EXISTS", "'/sandboxes/a' already exists")
    answer = await browser.http.post(
        f"{P}/sandboxes", data={"name": "a", "token": await _token(browser)}, headers=PIECE
    )
    assert answer.status_code == 409
    assert "already exists" in answer.text
    assert 'value="a"' in answer.text


async def _token(browser: Any) -> str:
    page = (await browser.get(f"{P}/keys")).text
    return str(page.partition('name="token" value="')[2].partition('"')[0])


@pytest.mark.parametrize(("status", "able"), [
    ("running", {"sleep", "restart", "renew", "kill"}), ("stopped", {"start"}), ("created", {"start"}),
    ("creating", set()), ("destroyed", set()),
])  # fmt: skip
async def test_buttons_follow_the_state(world: Any, status: str, able: set[str]) -> None:
    world.sandboxes.views = [view(status=status, running=status == "running")]
    page = (await (await world.browser().login()).get(f"{P}/sandboxes/main")).text
    found = dict(re.findall(r'<form id="turn-(\w+)".*?<button ([^>]*)>', page))
    assert {verb for verb, attributes in found.items() if "disabled" not in attributes} == able
    assert ("Destroy" in page) is (status not in ("creating", "destroyed"))
    assert ('name="command"' in page) is (status not in ("creating", "destroyed"))


@pytest.mark.parametrize("verb", ["start", "sleep", "restart", "renew", "kill"])
async def test_turns(world: Any, verb: str) -> None:
    browser = await world.browser().login()
    assert (await browser.submit(f"{P}/sandboxes/main/turn/{verb}")).status_code == 303
    piece = await browser.submit(f"{P}/sandboxes/main/turn/{verb}", **PIECE)
    assert piece.text.lstrip().startswith('<section id="state"')
    assert len(world.sandboxes.called(verb)) == 2


async def test_only_verbs_are_turns(world: Any) -> None:
    browser = await world.browser().login()
    for verb in ("destroy", "create", "__class__", "exec"):
        assert (await browser.submit(f"{P}/sandboxes/main/turn/{verb}")).status_code == 404
    assert not world.sandboxes.called("destroy")


@pytest.mark.parametrize("typed", ["", "Main", "mai", "main2"])
async def test_a_destroy_needs_the_name(world: Any, typed: str) -> None:
    browser = await world.browser().login()
    assert (await browser.submit(f"{P}/sandboxes/main/destroy", {"confirm": typed})).status_code == 400
    assert not world.sandboxes.called("destroy")
    answer = await browser.submit(f"{P}/sandboxes/main/destroy", {"confirm": "main"})
    assert answer.headers["location"] == f"{P}/sandboxes"
    assert world.sandboxes.called("destroy") == [("default", "/sandboxes/main")]
    assert "main was destroyed" in (await browser.get(f"{P}/sandboxes")).text


async def test_environment_sets_and_unsets(world: Any) -> None:
    browser = await world.browser().login()
    await browser.submit(f"{P}/sandboxes/main/env", {"variable": "A", "value": "1\r\n2", "do": "set"}, **PIECE)
    await browser.submit(f"{P}/sandboxes/main/env", {"variable": "A", "value": "1", "do": "unset"})
    assert world.sandboxes.called("set_env") == [({"A": "1\n2"},), ({"A": None},)]


async def test_settings(world: Any) -> None:
    browser = await world.browser().login()
    data = {"sleepAfter": "5m", "labels": "a=b", "keepAlive": "1"}
    assert "saved" in (await browser.submit(f"{P}/sandboxes/main/settings", data, **PIECE)).text
    assert world.sandboxes.called("update") == [({"sleep_after": "5m", "keep_alive": True, "labels": {"a": "b"}},)]


async def test_a_command_and_its_output(world: Any) -> None:
    browser = await world.browser().login()
    world.sandboxes.outcome = Outcome(b"a\n", b"b\n", 3, stdout_bytes=2, stderr_bytes=2_000_002, timed_out=True)
    data = {"command": "ls <x>", "cwd": "/tmp", "timeout": "5"}
    piece = await browser.submit(f"{P}/sandboxes/main/exec", data, **PIECE)
    [(_, _, command)] = world.sandboxes.called("exec")
    assert (command.command, command.cwd, command.timeout_ms) == ("ls <x>", "/tmp", 5000)
    assert "exit code 3" in piece.text
    assert "time ran out" in piece.text
    assert "1.9 MiB more were written" in piece.text
    page = await browser.submit(f"{P}/sandboxes/main/exec", data)
    assert "<!doctype html>" in page.text
    assert "exit code 3" in page.text


@pytest.mark.parametrize("data", [{"command": ""}, {"command": "a\0b"}, {"command": "a", "cwd": "tmp"},
                                  {"command": "a", "timeout": "0"}, {"command": "a", "timeout": "9999999"},
                                  {"command": "a", "timeout": "1e3"}, {"command": "a" * 140_000}])  # fmt: skip
async def test_a_wrong_command_is_refused_at_the_top(world: Any, data: dict[str, str]) -> None:
    answer = await (await world.browser().login()).submit(f"{P}/sandboxes/main/exec", data, **PIECE)
    assert answer.status_code == 400
    assert answer.headers["hx-retarget"] == "#notices"
    assert not world.sandboxes.called("exec")


@pytest.mark.parametrize("path", ["sandboxes/nosuch", "sandboxes/No%20Such", "sandboxes/..%2Fx", "nosuch",
                                  "streams/one?path=/nosuch", "rooms/nosuch", "sandboxes/nosuch/events"])  # fmt: skip
async def test_a_mistyped_address_is_a_helpful_404_and_changes_nothing(world: Any, path: str) -> None:
    before = dict(world.streams.streams)
    answer = await (await world.browser().login()).get(f"{P}/{path}")
    assert answer.status_code == 404
    assert "All sandboxes of default" in answer.text
    if path == "sandboxes/nosuch":
        assert "kennel sandbox create NAME" in answer.text
    assert world.streams.streams == before
    assert {call[0] for call in world.sandboxes.calls} <= {"get"}


async def test_a_foreign_project_and_a_missing_one_look_alike(world: Any) -> None:
    browser = await world.browser().login("reader")
    texts = [(await browser.get(f"/console/p/{name}/sandboxes")) for name in ("other", "nosuch")]
    assert [answer.status_code for answer in texts] == [404, 404]
    assert texts[0].text == texts[1].text


async def test_a_reader_sees_no_button_and_can_press_none(world: Any) -> None:
    browser = await world.browser().login("reader")
    world.sandboxes.views = [view(env={"A": "1"})]
    page = (await browser.get(f"{P}/sandboxes/main")).text
    for word in ("Destroy", 'name="command"', "Unset", "Sleep<", ">Keys<", ">Projects<"):
        assert word not in page
    assert "New sandbox" not in (await browser.get(f"{P}/sandboxes")).text
    for form in ("sandboxes", "sandboxes/main/turn/start", "sandboxes/main/destroy", "sandboxes/main/exec", "keys",
                 "projects", "rooms/r/exec", "rooms/r/cleanup"):  # fmt: skip
        assert (await browser.submit(f"{P}/{form}", {"confirm": "main"})).status_code == 403, form
    for path in ("keys", "projects"):
        assert (await browser.get(f"{P}/{path}")).status_code == 403


async def test_a_key_is_shown_once(world: Any) -> None:
    browser = await world.browser().login()
    answer = await browser.submit(f"{P}/keys", {"name": "ci", "scope": ["read", "exec"]})
    assert "kn_the-token" in answer.text
    assert world.keys.called("create") == [("default", ("read", "exec"), "ci")]
    assert "kn_the-token" not in (await browser.get(f"{P}/keys")).text
    await browser.submit(f"{P}/keys", {"name": "ci", "scope": "read", "reach": "installation"})
    assert world.keys.called("create")[1] == (None, ("read",), "ci")
    assert (await browser.submit(f"{P}/keys/key_1/revoke")).status_code == 303
    assert world.keys.called("revoke") == [("key_1",)]
    answer = await browser.submit(f"{P}/keys", {"name": "ci"})
    assert answer.status_code == 400


async def test_projects(world: Any) -> None:
    browser = await world.browser().login()
    answer = await browser.submit(f"{P}/projects", {"name": "new"})
    assert answer.headers["location"] == "/console/p/new/sandboxes"
    assert (await browser.submit(f"{P}/projects", {"name": "Bad Name"})).status_code == 400
    assert (await (await world.browser().login("stranger")).get("/console/p/other/projects")).status_code == 403


async def test_a_room(world: Any) -> None:
    world.streams.streams["/rooms/r1"] = [
        event(1, "stream/created"),
        event(2, "room/sandbox-assigned", {"path": "/sandboxes/sandbox-r1", "generation": 1, "roomId": "r1"}),
    ]
    world.streams.streams["/rooms/forged"] = [
        event(
            1,
            "room/sandbox-assigned",
            {"path": "/sandboxes/main", "generation": 1, "roomId": "forged"},
            source=Source(key_id="k"),
        )
    ]
    browser = await world.browser().login()
    listing = (await browser.get(f"{P}/rooms")).text
    assert ">r1</a>" in listing
    assert ">sandbox-r1</a>" in listing
    assert "forged" not in listing
    assert (await browser.submit(f"{P}/rooms/r1/exec", {"command": "ls"}, **PIECE)).status_code == 200
    assert world.rooms.called("exec") == [("default", "r1", "ls")]
    assert (await browser.submit(f"{P}/rooms/r1/cleanup", {"confirm": "r"})).status_code == 400
    assert (await browser.submit(f"{P}/rooms/r1/cleanup", {"confirm": "r1"})).status_code == 303
    assert world.rooms.called("cleanup") == [("default", "r1")]


async def test_a_room_of_any_id_is_opened_before_it_exists(world: Any) -> None:
    browser = await world.browser().login()
    answer = await browser.submit(f"{P}/rooms", {"roomId": "a b/ü<"})
    page = await browser.get(answer.headers["location"])
    assert page.status_code == 200
    assert "a b/ü&lt;" in page.text
    where = answer.headers["location"].partition("?")[0]
    await browser.submit(f"{where}/exec", {"command": "ls", "roomId": "a b/ü<"}, **PIECE)
    assert world.rooms.called("exec") == [("default", "a b/ü<", "ls")]
    assert (await browser.submit(f"{where}/exec", {"command": "ls", "roomId": "another"})).status_code == 404
    assert "/rooms" not in "".join(world.streams.streams)


async def test_a_stream_is_paged_and_verified(world: Any) -> None:
    world.streams.streams["/notes"] = [event(n, "note", {"n": n}) for n in range(1, 121)]
    browser = await world.browser().login()
    page = (await browser.get(f"{P}/streams/one?path=/notes")).text
    assert page.index(">120<") < page.index(">71<")
    assert ">70<" not in page
    assert "before=71" in page
    older = (await browser.get(f"{P}/streams/one?path=/notes&before=71")).text
    assert ">70<" in older
    assert "data-live" not in older
    piece = await browser.get(f"{P}/streams/one/verification?path=/notes", **PIECE)
    assert "All 120 events fit" in piece.text
    assert ">/notes</a>" in (await browser.get(f"{P}/streams")).text


async def test_following_starts_after_what_was_seen(world: Any) -> None:
    browser = await world.browser().login()
    live = await browser.get(f"{P}/sandboxes/main/events?after=1")
    assert "id: 2\n" in live.text
    assert "id: 1\n" not in live.text
    live = await browser.get(f"{P}/sandboxes/main/events?after=0", **{"last-event-id": "2"})
    assert "id:" not in live.text


async def test_a_node_that_is_away_is_said_to_be(world: Any) -> None:
    world.node_away = error("NODE_UNAVAILABLE", "the node does not answer")
    page = await (await world.browser().login()).get(f"{P}/node")
    assert page.status_code == 200
    assert "the node does not answer" in page.text


async def test_a_bug_is_a_page_without_its_text(world: Any) -> None:
    browser = await world.browser().login()
    world.sandboxes.failure = RuntimeError("the secret inside")
    page = await browser.get(f"{P}/sandboxes")
    assert page.status_code == 500
    assert "the secret" not in page.text
    assert "request " in page.text
    assert "content-security-policy" in page.headers


async def test_a_sandbox_that_sleeps_is_looked_into_after_a_button(world: Any) -> None:
    world.sandboxes.views = [view(status="stopped", running=False)]
    browser = await world.browser().login()
    page = await browser.get(f"{P}/sandboxes/main/files?path=/a%FF")
    assert "Start it and look" in page.text
    assert not world.sandboxes.called("start")
    at = page.text.partition('name="at" value="')[2].partition('"')[0]
    answer = await browser.submit(f"{P}/sandboxes/main/files/wake", {"at": at})
    assert answer.headers["location"] == f"{P}/sandboxes/main/files?path=/a%FF"
    assert len(world.sandboxes.called("start")) == 1


@pytest.mark.parametrize("page", ["terminal", "files", "snapshots", "previews", "usage"])
async def test_pages_of_a_sandbox_that_is_no_more(world: Any, page: str) -> None:
    browser = await world.browser().login()
    assert (await browser.get(f"{P}/sandboxes/nosuch/{page}")).status_code == 404
    world.sandboxes.views = [view(status="destroyed", running=False)]
    assert (await browser.get(f"{P}/sandboxes/main/{page}")).status_code == 410
    world.sandboxes.views = [view(status="creating", running=False)]
    assert (await browser.get(f"{P}/sandboxes/main/{page}")).status_code == 409


async def test_usage_is_drawn_from_the_looks_that_were_taken(world: Any) -> None:
    world.sandboxes.counters = Counters(memory=512 * 1024**2, disk_used=5, disk_size=10, pids=3)
    world.streams.streams["/egress/log"] = [
        event(1, "egress/recorded", {"kind": "outcome", "sandbox": "/sandboxes/main", "bytesIn": 2048,
                                     "at": int(time.time() * 1000)})
    ]  # fmt: skip
    browser = await world.browser().login()
    page = (await browser.get(f"{P}/sandboxes/main/usage")).text
    assert page.count('class="panel plot"') == 6
    assert ">512 MiB<" in page
    assert "2 KiB in 10 s" in page
    assert 'd="M600.0 ' in page
