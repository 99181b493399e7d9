"""`kennel room …` against a scripted server."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from kennel.cli.__main__ import run
from kennel.cli.room import told
from kennel.sdk.room_records import RoomMoment

AT = "2026-01-01T00:00:00.000Z"
VIEW = {
    "roomId": "r\x1b[2J", "title": None, "settings": {}, "openedAt": AT, "activeAt": AT,
    "sandbox": "/sandboxes/sandbox-r", "members": 1, "said": 2, "waiting": 0,
}  # fmt: skip
MEMBER = {"userId": "ana", "role": "driver", "joinedAt": AT, "present": True}
LINK = {"id": "link_1", "role": "observer", "createdAt": AT}


def test_list_and_show(standin: Any, shapes: Any, capsys: Any) -> None:
    talk = {
        **VIEW,
        "messages": [
            {"role": "user", "userId": "ana", "text": "hi\x07", "ts": 1},
            {"role": "agent", "text": "yo", "ts": 2},
        ],
    }
    standin.will(shapes.Answer(200, {"rooms": [VIEW], "cursor": None}), shapes.Answer(200, talk))
    at = ["--url", standin.url]
    assert run(["room", "list", *at]) == 0
    assert capsys.readouterr().out.splitlines()[1].split() == ["r\\x1b[2J", "-", "/sandboxes/sandbox-r", "1", "0", AT]
    assert run(["room", "show", "r", *at]) == 0
    assert capsys.readouterr().out == "[ana] hi\\x07\n[agent] yo\n"


def test_members(standin: Any, shapes: Any, capsys: Any) -> None:
    standin.will(shapes.Answer(200, MEMBER), shapes.Answer(204), shapes.Answer(200, {"members": [MEMBER]}))
    at = ["--url", standin.url]
    assert run(["room", "members", "r", "--join", "ana", "--role", "observer", "--leave", "bob", *at]) == 0
    assert capsys.readouterr().out.splitlines()[1].split() == ["ana", "driver", "yes", AT]
    assert standin.seen[0].json == {"userId": "ana", "role": "observer"}
    assert standin.seen[1].path.endswith("/members?userId=bob")
    assert run(["room", "members", "r", "--role", "driver", *at]) == 2


def test_links(standin: Any, shapes: Any, capsys: Any) -> None:
    standin.will(
        shapes.Answer(201, {"token": "kl_new", "link": LINK}), shapes.Answer(201, {"token": "kl_new", "link": LINK}),
        shapes.Answer(200, {"links": [LINK]}), shapes.Answer(200, {"revoked": ["link_1"]}),
    )  # fmt: skip
    at = ["--url", standin.url]
    assert run(["room", "link", "r", "--observer", "--user", "eve", "--expires-in", "60", *at]) == 0
    assert capsys.readouterr().out.splitlines()[-2:] == [
        "token (shown this once): kl_new", f"in a browser: {standin.url}/console/join#kl_new",
    ]  # fmt: skip
    assert run(["room", "link", "r", "--json", *at]) == 0
    assert json.loads(capsys.readouterr().out)["token"] == "kl_new"
    assert run(["room", "link", "r", "--list", *at]) == 0
    assert capsys.readouterr().out.splitlines()[1].split() == ["link_1", "observer", "-", "-", "-"]
    assert run(["room", "link", "r", "--revoke", "all", *at]) == 0
    assert capsys.readouterr().out == "link_1 is revoked\n"
    assert standin.seen[0].json == {"role": "observer", "name": "", "userId": "eve", "expiresInSeconds": 60}
    assert [one.method for one in standin.seen] == ["POST", "POST", "GET", "DELETE"]


@pytest.mark.parametrize(
    ("kind", "payload", "text"),
    [
        ("delta", {"text": "hel\x1b"}, "hel\\x1b"), ("delta", {"end": True}, "\n"),
        ("room/message-said", {"role": "user", "userId": "ana", "text": "hi"}, "[ana] hi\n"),
        ("room/message-said", {"role": "agent", "text": "two\nlines\n"}, "[agent] two\nlines\n"),
        ("room/command-started", {"command": "ls", "waking": True}, "$ ls (waking)\n"),
        ("room/command-finished", {"output": "a\n", "exitCode": 0}, "a\n"),
        ("room/command-finished", {"error": "no room"}, "no room\n"),
        ("room/turn-ended", {"outcome": "replied"}, ""),
        ("room/turn-ended", {"outcome": "failed", "error": "it fell over"}, "(failed: it fell over)\n"),
        ("presence", {"userId": "ana", "present": True}, "(ana is here)\n"), ("queue", {"commands": 1}, ""),
    ],
)  # fmt: skip
def test_moments_as_people_read_them(kind: str, payload: dict[str, Any], text: str) -> None:
    assert told(RoomMoment(kind=kind, payload=payload)) == text


def test_create_makes_an_id_that_nobody_guesses(standin: Any, shapes: Any, capsys: Any) -> None:
    standin.will(*(shapes.Answer(200, VIEW) for _ in range(2)))
    at = ["--url", standin.url]
    assert run(["room", "create", *at]) == 0
    assert capsys.readouterr().out == "r\\x1b[2J\n"
    assert re.search(r"/rooms/room-[0-9a-f]{16}$", standin.seen[0].path)
    assert run(["room", "create", "mine", "--title", "Ours", "--json", *at]) == 0
    assert standin.seen[1].path.endswith("/rooms/mine")
    assert standin.seen[1].json == {"title": "Ours"}


def test_set_names_only_what_is_given(standin: Any, shapes: Any, capsys: Any) -> None:
    standin.will(*(shapes.Answer(200, VIEW) for _ in range(2)))
    at = ["--url", standin.url]
    words = ["--setting", "maxRounds=3", "--setting", "instructions=7", "--setting", "history=", "--title", ""]
    assert run(["room", "set", "r", *words, *at]) == 0
    assert standin.seen[0].json == {"settings": {"maxRounds": 3, "instructions": "7", "history": None}}
    assert standin.seen[1].json == {"title": None}
    assert run(["room", "set", "r", *at]) == 2
    assert run(["room", "set", "r", "--setting", "colour=red", *at]) == 2


def test_the_short_names_are_the_same_commands(standin: Any, shapes: Any, capsys: Any) -> None:
    standin.will(
        shapes.Answer(200, {"reply": "yo", "messages": []}), shapes.Answer(200, {"revoked": ["link_1"]}),
        shapes.Answer(200, {"cleaned": True, "roomId": "r"}),
    )  # fmt: skip
    at = ["--url", standin.url]
    assert run(["room", "send", "r", "hi", *at]) == 0
    assert run(["room", "invite", "r", "--revoke", "all", "--json", *at]) == 0
    assert capsys.readouterr().out.splitlines()[-1].strip() == "]"
    assert run(["room", "close", "r", *at]) == 0
