"""What a command looks like in a request, and its output bytes out of an answer."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from kennel.sdk.execution import exec_body, milliseconds, output_bytes
from kennel.wire.errors import Failed, InvalidRequest

NOTHING: dict[str, Any] = {
    "argv": None, "cwd": None, "env": None, "stdin": None, "timeout": None, "user": None, "session_id": None,
    "encoding": "utf8", "max_bytes": None,
}  # fmt: skip


def body(command: str | None = None, **given: Any) -> dict[str, Any]:
    return exec_body(command, **(NOTHING | given))


def test_what_is_not_given_is_not_sent() -> None:
    assert body("ls") == {"command": "ls"}
    assert body(argv=("ls", "-l")) == {"argv": ["ls", "-l"]}


def test_everything_given_is_sent() -> None:
    sent = body(
        argv=["cat"],
        cwd="/",
        env={"A": ""},
        stdin="",
        timeout=1.5,
        user="0",
        session_id="s",
        encoding="base64",
        max_bytes=0,
    )
    assert sent == {
        "argv": ["cat"], "cwd": "/", "env": {"A": ""}, "stdin": "", "timeout": 1500, "user": "0", "sessionId": "s",
        "encoding": "base64", "maxBytes": 0,
    }  # fmt: skip


def test_bytes_on_stdin_are_exact_whatever_they_are() -> None:
    every = bytes(range(256))
    sent = body("cat", stdin=every)
    assert sent["stdinEncoding"] == "base64"
    assert base64.b64decode(sent["stdin"]) == every
    assert "encoding" not in sent


def test_every_byte_comes_back() -> None:
    every = bytes(range(256))
    assert output_bytes(base64.b64encode(every).decode(), "base64") == every
    assert output_bytes("é\n", "utf8") == "é\n".encode()
    with pytest.raises(Failed):
        output_bytes("not base64!", "base64")


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"command": "ls", "argv": ["ls"]},
        {"argv": "ls"},
        {"command": "ls", "encoding": "latin1"},
        {"command": "ls", "timeout": 0},
        {"command": "ls", "timeout": -1},
        {"command": "ls", "timeout": float("nan")},
        {"command": "ls", "timeout": float("inf")},
        {"command": "ls", "timeout": "10s"},
    ],
)
def test_what_cannot_be_meant_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest):
        body(given.pop("command", None), **given)


def test_seconds_become_whole_milliseconds() -> None:
    assert [milliseconds(value) for value in (1, 0.25, 0.0001, 1e3)] == [1000, 250, 1, 1_000_000]
