"""`kennel exec` as a process: bytes both ways, exit codes, what is asked of the server."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

EVERY = bytes(range(256)) * 3


def encoded(stdout: bytes, stderr: bytes = b"", **changes: Any) -> dict[str, Any]:
    fields = {"stdout": base64.b64encode(stdout).decode(), "stderr": base64.b64encode(stderr).decode()}
    return fields | {"encoding": "base64", "stdoutBytes": len(stdout), "stderrBytes": len(stderr)} | changes


def test_every_byte_passes_both_ways(kennel: Any, standin: Any, shapes: Any) -> None:
    standin.will(shapes.Answer(200, shapes.result(**encoded(EVERY, EVERY[::-1]))))
    done = kennel("exec", "main", "--", "cat", input=EVERY, KENNEL_URL=standin.url)
    assert (done.returncode, done.stdout, done.stderr) == (0, EVERY, EVERY[::-1])
    sent = standin.seen[0].json
    assert base64.b64decode(sent.pop("stdin")) == EVERY
    assert sent == {"argv": ["cat"], "stdinEncoding": "base64", "encoding": "base64"}


@pytest.mark.parametrize("code", [0, 1, 7, 124, 137, 255])
def test_the_exit_code_is_the_commands(kennel: Any, standin: Any, shapes: Any, code: int) -> None:
    standin.will(shapes.Answer(200, shapes.result(**encoded(b"out"), exitCode=code, success=code == 0)))
    done = kennel("exec", "/sandboxes/main", "--", "x", KENNEL_URL=standin.url)
    assert (done.returncode, done.stdout) == (code, b"out")


def test_words_after_the_dashes_are_the_commands_own(kennel: Any, standin: Any, shapes: Any) -> None:
    standin.will(shapes.Answer(200, shapes.result(**encoded(b""))))
    kennel(
        "exec", "main", "--cwd", "/tmp", "--env", "A=b=c", "--env", "B=", "--user", "0:0", "--timeout", "1.5",
        "--", "sh", "-c", "echo $0", "--json", "--", "--project=x", "",
        KENNEL_URL=standin.url,
    )  # fmt: skip
    request = standin.seen[0]
    assert request.path == "/v1/projects/default/sandboxes/main/exec"
    assert request.json == {
        "argv": ["sh", "-c", "echo $0", "--json", "--", "--project=x", ""],
        "cwd": "/tmp",
        "env": {"A": "b=c", "B": ""},
        "user": "0:0",
        "timeout": 1500,
        "encoding": "base64",
    }


def test_a_session_gets_the_words_as_shell_text(kennel: Any, standin: Any, shapes: Any) -> None:
    standin.will(shapes.Answer(200, shapes.result(**encoded(b""))))
    kennel("exec", "main", "--session", "s", "--", "echo", "a b", "$HOME", KENNEL_URL=standin.url)
    assert standin.seen[0].json == {"command": "echo 'a b' '$HOME'", "sessionId": "s", "encoding": "base64"}


def test_json_is_the_result_and_the_code_is_still_the_commands(kennel: Any, standin: Any, shapes: Any) -> None:
    sent = shapes.result(exitCode=3, success=False)
    standin.will(shapes.Answer(200, sent))
    done = kennel("exec", "main", "--json", "--", "x", KENNEL_URL=standin.url)
    assert done.returncode == 3
    assert json.loads(done.stdout) == sent
    assert "encoding" not in standin.seen[0].json


def test_cut_output_is_said_so(kennel: Any, standin: Any, shapes: Any) -> None:
    standin.will(shapes.Answer(200, shapes.result(**encoded(b"head", truncated=True, stdoutBytes=10**9))))
    done = kennel("exec", "main", "--", "yes", KENNEL_URL=standin.url)
    assert done.stdout == b"head"
    assert b"warning: output was cut: the command wrote 1000000000 and 0 bytes" in done.stderr


def test_stdin_can_be_left_alone(kennel: Any, standin: Any, shapes: Any) -> None:
    standin.will(shapes.Answer(200, shapes.result(**encoded(b""))))
    kennel("exec", "main", "--no-stdin", "--", "x", input=b"not for it", KENNEL_URL=standin.url)
    assert "stdin" not in standin.seen[0].json


def test_too_much_stdin_is_refused_before_anything_is_sent(kennel: Any, standin: Any, shapes: Any) -> None:
    standin.will(shapes.Answer(200, shapes.result()))
    done = kennel("exec", "main", "--", "cat", input=bytes(16 * 1024 * 1024 + 1), KENNEL_URL=standin.url)
    assert done.returncode == 1
    assert done.stderr.startswith(b"error BODY_TOO_LARGE: ")
    assert standin.seen == []


def test_an_argument_that_is_not_text_is_refused(kennel: Any, standin: Any, shapes: Any) -> None:
    standin.will(shapes.Answer(200, shapes.result()))
    done = kennel("exec", "main", "--", "\udcff", KENNEL_URL=standin.url)
    assert (done.returncode, standin.seen) == (1, [])
    assert done.stderr.startswith(b"error VALIDATION_FAILED: ")
