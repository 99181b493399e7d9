"""`kennel logs` and `kennel stream`: what they ask, what they print, what they exit with."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest

from kennel.cli.__main__ import run

NO_KEYS = {"error": "this takes an admin key", "code": "FORBIDDEN"}


def event(offset: int, type: str, payload: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return {
        "offset": offset, "type": type, "payload": payload, "path": "/sandboxes/main", "project": "default",
        "createdAt": "2026-01-02T03:04:05.678Z", "metadata": {}, "idempotencyKey": None,
        "source": {"platform": True, "keyId": "k1"}, "position": offset, "hash": "00",
    } | changes  # fmt: skip


EVENTS = [
    event(1, "sandbox/exec-started", {"execId": "abcdef012345", "command": "echo \x1b[31m\nred", "cwd": "/workspace"}),
    event(2, "sandbox/exec-finished", {"execId": "abcdef012345", "exitCode": 2, "timedOut": False, "durationMs": 12.4,
                                       "stdoutBytes": 3, "stderrBytes": 0}),
    event(3, "sandbox/exec-finished", {"execId": "f", "timedOut": True, "signal": "SIGKILL", "error": "INTERRUPTED"}),
    event(4, "note", {"n": [1, 2], "text": "x" * 500}, source={}),
]  # fmt: skip


def test_a_line_says_who_asked_what_and_what_came_of_it(standin: Any, shapes: Any, capsys: Any) -> None:
    key = {"id": "k1", "name": "ci", "project": None, "scopes": ["admin"]}
    standin.will(shapes.Answer(200, {"keys": [key]}), shapes.Answer(200, {"events": EVENTS}))
    assert run(["logs", "main", "--after", "3", "--types", "a,b", "--url", standin.url]) == 0
    out = capsys.readouterr().out
    first, second, third, fourth = out.splitlines()
    assert first.split(maxsplit=4) == [
        "1", "2026-01-02T03:04:05.678Z", "k1", "(ci)", r"sandbox/exec-started      [abcdef] $ echo \x1b[31m\nred",
    ]  # fmt: skip
    assert second.endswith("[abcdef] exit 2, 12 ms, 3+0 bytes")
    assert third.endswith("[f] error INTERRUPTED, timed out, SIGKILL")
    assert "  -  " in fourth
    assert " n=[1,2] text=xxx" in fourth
    assert fourth.endswith("…")
    assert standin.seen[1].path == "/v1/projects/default/streams/sandboxes/main?after=3&types=a%2Cb&limit=500"


def test_a_key_that_may_not_list_keys_sees_ids(standin: Any, shapes: Any, capsys: Any) -> None:
    standin.will(shapes.Answer(403, NO_KEYS), shapes.Answer(200, {"events": EVENTS[:1]}))
    assert run(["logs", "/rooms/r", "--url", standin.url]) == 0
    assert "  k1  " in capsys.readouterr().out
    assert standin.seen[1].path.startswith("/v1/projects/default/streams/rooms/r?")


def test_json_is_a_line_an_event_page_after_page(standin: Any, shapes: Any, capsys: Any) -> None:
    first = [event(n, "note", {}) for n in range(1, 501)]
    standin.will(shapes.Answer(200, {"events": first}), shapes.Answer(200, {"events": [event(501, "note", {})]}))
    assert run(["logs", "main", "--json", "--url", standin.url]) == 0
    assert [json.loads(line)["offset"] for line in capsys.readouterr().out.splitlines()] == list(range(1, 502))
    assert "after=500" in standin.seen[1].path


def test_following_ends_when_the_server_stays_away(standin: Any, shapes: Any, capsys: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr("kennel.sdk._sync.following.PAUSES", (0.01,))
    message = b"id: 1\ndata: %s\n\n" % json.dumps(EVENTS[0]).encode()
    standin.will(shapes.Answer(raw=message), shapes.Answer(cut="before"))
    assert run(["logs", "main", "--follow", "--json", "--url", standin.url]) == 1
    shown = capsys.readouterr()
    assert json.loads(shown.out)["offset"] == 1
    assert "CONNECTION_LOST" in shown.err


@pytest.mark.parametrize(("faults", "code"), [([], 0), ([{"offset": 7, "reason": "the event does not match"}], 1)])
def test_verify_exits_with_what_it_found(standin: Any, shapes: Any, capsys: Any, faults: Any, code: int) -> None:
    found = {"path": "/sandboxes/main", "events": 9, "holds": not faults, "faults": faults}
    standin.will(shapes.Answer(200, found))
    assert run(["logs", "main", "--verify", "--url", standin.url]) == code
    assert ("at offset 7: the event does not match" if faults else "9 events") in capsys.readouterr().out
    assert run(["logs", "main", "--verify", "--json", "--url", standin.url]) == code
    assert json.loads(capsys.readouterr().out)["holds"] is not bool(faults)


def test_follow_and_verify_are_a_misuse() -> None:
    assert run(["logs", "main", "--follow", "--verify"]) == 2


def test_append_from_words(standin: Any, shapes: Any, capsys: Any) -> None:
    standin.will(shapes.Answer(201, {"events": [event(5, "note", {"a": 1})]}))
    words = ["stream", "append", "/notes", "note", "--payload", '{"a": 1}', "--key", "k", "--offset", "5"]
    assert run([*words, "--url", standin.url]) == 0
    sent = {"type": "note", "payload": {"a": 1}, "idempotencyKey": "k", "offset": 5}
    assert standin.seen[0].json == {"events": [sent]}
    assert capsys.readouterr().out.split() == ["5", "2026-01-02T03:04:05.678Z", "k1", "note", "a=1"]


class Stdin:
    def __init__(self, text: bytes) -> None:
        self.buffer = io.BytesIO(text)


def test_append_a_batch_from_stdin(standin: Any, shapes: Any, capsys: Any, monkeypatch: Any) -> None:
    standin.will(shapes.Answer(201, {"events": [event(5, "a", {}), event(6, "b", {})]}))
    monkeypatch.setattr("sys.stdin", Stdin(b'{"type": "a"}\n{"type": "b", "payload": {"x": "\xc3\xbc"}}\n'))
    assert run(["stream", "append", "/notes", "--json", "--url", standin.url]) == 0
    assert standin.seen[0].json == {"events": [{"type": "a"}, {"type": "b", "payload": {"x": "ü"}}]}
    assert [kept["offset"] for kept in json.loads(capsys.readouterr().out)] == [5, 6]


@pytest.mark.parametrize("text", [b"", b"nonsense", b"[1]\n", b'{"type": "\xff"}\n'])
def test_a_batch_that_is_none_is_a_misuse(monkeypatch: Any, capsys: Any, text: bytes) -> None:
    monkeypatch.setattr("sys.stdin", Stdin(text))
    assert run(["stream", "append", "/notes"]) == 2
    assert "USAGE" in capsys.readouterr().err


@pytest.mark.parametrize("payload", ["nonsense", "[]", '{"a":'])
def test_a_payload_is_an_object(payload: str, capsys: Any) -> None:
    assert run(["stream", "append", "/notes", "note", "--payload", payload]) == 2
    assert "--payload" in capsys.readouterr().err


def test_list_and_export(standin: Any, shapes: Any, kennel: Any) -> None:
    standin.will(shapes.Answer(200, {"streams": [{"path": "/a"}, {"path": "/b"}], "cursor": None}))
    assert kennel("stream", "list", "/x", "--url", standin.url).stdout == b"/a\n/b\n"
    assert "prefix=%2Fx" in standin.seen[0].path
    lines = b'{"offset":1}\n{"offset":2}\n'
    standin.will(shapes.Answer(raw=lines))
    assert kennel("stream", "export", "/a", "--url", standin.url).stdout == lines
    standin.will(shapes.Answer(raw=lines + b" " * 100, cut="inside"))
    cut = kennel("stream", "export", "/a", "--url", standin.url)
    assert (cut.returncode, b"CONNECTION_LOST" in cut.stderr) == (1, True)
