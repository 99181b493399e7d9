"""The groups of commands: what each asks of the server and prints, for people and as JSON."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kennel.cli.__main__ import run

KEY = {
    "id": "k1", "name": "ci", "project": "default", "scopes": ["read", "exec"],
    "createdAt": "2026-01-01T00:00:00Z", "revokedAt": None,
}  # fmt: skip


def test_create_sends_what_was_given(standin: Any, shapes: Any, capsys: Any) -> None:
    standin.will(shapes.Answer(201, shapes.view()), shapes.Answer(200, shapes.view()))
    words = "sandbox create main --type lite --image host --isolation container --sleep-after 10m --keep-alive"
    more = ["--env", "A=b c", "--env", "B=x=y", "--label", "k=v", "--request-id", "once", "--url", standin.url]
    assert run([*words.split(), *more]) == 0
    assert standin.seen[0].json == {
        "path": "/sandboxes/main", "instanceType": "lite", "image": "host", "isolation": "container",
        "env": {"A": "b c", "B": "x=y"}, "sleepAfter": "10m", "keepAlive": True, "labels": {"k": "v"},
    }  # fmt: skip
    assert standin.seen[0].headers["idempotency-key"] == "once"
    assert capsys.readouterr().out.split() == ["PATH", "STATUS", "TYPE", "/sandboxes/main", "created", "basic"]


def test_seconds_are_a_number_on_the_wire(standin: Any, shapes: Any) -> None:
    standin.will(shapes.Answer(201, shapes.view()))
    assert run(["sandbox", "create", "main", "--sleep-after", "90", "--url", standin.url]) == 0
    assert standin.seen[0].json["sleepAfter"] == 90


def test_a_list_is_a_table_for_people(standin: Any, shapes: Any, capsys: Any) -> None:
    views = [shapes.view("a"), shapes.view("b", labels={"k": "v\x1b]0;title\x07"}, status="running")]
    standin.will(shapes.Answer(200, {"sandboxes": views, "cursor": None}))
    assert run(["sandbox", "list", "--destroyed", "--url", standin.url]) == 0
    out = capsys.readouterr().out
    head, first, second = out.splitlines()
    assert head.split() == ["NAME", "STATUS", "TYPE", "IMAGE", "ISOLATION", "CREATED", "LABELS"]
    assert first.split() == ["a", "created", "basic", "host", "container", "2026-01-02T03:04:05.678Z", "-"]
    assert second.endswith("k=v\\x1b]0;title\\x07")
    assert "\x1b" not in out
    assert "includeDestroyed=true" in standin.seen[0].path


def test_a_list_is_an_array_for_programs(standin: Any, shapes: Any, capsys: Any) -> None:
    standin.will(shapes.Answer(200, {"sandboxes": [shapes.view("a")], "cursor": None}))
    assert run(["sandbox", "list", "--json", "--url", standin.url]) == 0
    assert json.loads(capsys.readouterr().out) == [shapes.view("a")]


def test_show_prints_every_field(standin: Any, shapes: Any, capsys: Any) -> None:
    standin.will(shapes.Answer(200, shapes.view(env={"A": "1"})))
    assert run(["sandbox", "show", "/sandboxes/main", "--url", standin.url]) == 0
    lines = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    assert (lines["instanceType"], lines["env"], lines["keepAlive"], lines["sleepAfter"]) == ("basic", "A=1", "no", "-")
    assert set(lines) == set(shapes.view())


@pytest.mark.parametrize("verb", ["start", "sleep", "restart", "kill"])
@pytest.mark.parametrize("as_json", [False, True])
def test_verbs_report_what_they_left(standin: Any, shapes: Any, capsys: Any, verb: str, as_json: bool) -> None:
    view = shapes.view(status="stopped")
    standin.will(shapes.Answer(200, view))
    assert run(["sandbox", verb, "main", "--url", standin.url, *(["--json"] if as_json else [])]) == 0
    out = capsys.readouterr().out
    assert json.loads(out) == view if as_json else out.split()[3:] == ["/sandboxes/main", "stopped", "basic"]
    assert standin.seen[0].path == f"/v1/projects/default/sandboxes/main/{verb}"


def test_destroy(standin: Any, shapes: Any, capsys: Any) -> None:
    standin.will(shapes.Answer(204))
    assert run(["sandbox", "destroy", "main", "--url", standin.url]) == 0
    assert run(["sandbox", "destroy", "main", "--json", "--url", standin.url]) == 0
    first, _, rest = capsys.readouterr().out.partition("\n")
    assert first == "/sandboxes/main is destroyed"
    assert json.loads(rest) == {"path": "/sandboxes/main", "destroyed": True}
    assert {request.method for request in standin.seen} == {"DELETE"}


def test_a_new_keys_token_is_alone_on_stdout(standin: Any, shapes: Any, capsys: Any) -> None:
    standin.will(shapes.Answer(201, {"token": "kn_new", "key": KEY}))
    assert run(["key", "create", "ci", "--scope", "read", "--scope", "exec", "--url", standin.url]) == 0
    out, err = capsys.readouterr()
    assert out == "kn_new\n"
    assert "k1" in err
    assert "kn_new" not in err
    assert standin.seen[0].json == {"name": "ci", "scopes": ["read", "exec"], "project": "default"}


def test_a_key_of_the_installation_names_no_project(standin: Any, shapes: Any) -> None:
    standin.will(shapes.Answer(201, {"token": "kn_new", "key": KEY | {"project": None}}))
    assert run(["key", "create", "ops", "--scope", "admin", "--installation", "--url", standin.url]) == 0
    assert standin.seen[0].json == {"name": "ops", "scopes": ["admin"]}


def test_keys_are_listed_and_revoked(standin: Any, shapes: Any, capsys: Any) -> None:
    standin.will(shapes.Answer(200, {"keys": [KEY]}), shapes.Answer(204))
    assert run(["key", "list", "--url", standin.url]) == 0
    assert run(["key", "revoke", "k1", "--url", standin.url]) == 0
    _, row, last = capsys.readouterr().out.splitlines()
    assert row.split() == ["k1", "ci", "default", "read,", "exec", "2026-01-01T00:00:00Z", "-"]
    assert last == "key k1 is revoked"
    assert (standin.seen[1].method, standin.seen[1].path) == ("DELETE", "/v1/keys/k1")


def test_projects_and_images(standin: Any, shapes: Any, capsys: Any) -> None:
    standin.will(
        shapes.Answer(201, {"name": "p", "createdAt": "2026-01-01T00:00:00Z"}),
        shapes.Answer(200, {"projects": [{"name": "p", "createdAt": "2026-01-01T00:00:00Z"}]}),
        shapes.Answer(200, {"images": [{"name": "stock", "digest": "sha256:9", "kind": "erofs", "size": 123_000_000}]}),
    )
    assert run(["project", "create", "p", "--url", standin.url]) == 0
    assert run(["project", "list", "--url", standin.url]) == 0
    assert run(["image", "list", "--url", standin.url]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines[0] == ["project", "p", "is", "there"]
    assert lines[2] == ["p", "2026-01-01T00:00:00Z"]
    assert lines[4] == ["stock", "123", "MB", "sha256:9", "-"]


def test_a_room_runs_talks_and_is_cleaned_up(standin: Any, shapes: Any, capsys: Any) -> None:
    failed = shapes.result(stdout="out", stderr="err", exitCode=7, success=False)
    standin.will(
        shapes.Answer(200, {"result": failed, "sandboxName": "sandbox-r"}),
        shapes.Answer(200, {"reply": "line\n\x1b[2Jtwo", "messages": []}),
        shapes.Answer(200, {"cleaned": True, "roomId": "r"}),
        shapes.Answer(207, {"cleaned": True, "errors": ["sandbox: stuck"]}),
    )
    at = ["--url", standin.url]
    assert run(["room", "exec", "r", "false; exit 7", *at]) == 7
    assert capsys.readouterr() == ("out", "err")
    assert run(["room", "message", "r", "hello", "--user", "ana", *at]) == 0
    assert capsys.readouterr().out == "line\n\\x1b[2Jtwo\n"
    assert run(["room", "cleanup", "r", *at]) == 0
    assert run(["room", "cleanup", "r", *at]) == 1
    out, err = capsys.readouterr()
    assert out == "room r is cleaned up\n"
    assert err == "warning: sandbox: stuck\n"
    assert standin.seen[1].json == {"text": "hello", "userId": "ana"}
