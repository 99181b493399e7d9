"""How the command line starts and ends: order of words, exit codes, errors, and how soon."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from kennel.cli.__main__ import in_order, run


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ([], []),
        (["sandbox", "list"], ["sandbox", "list"]),
        (["--json", "sandbox", "list"], ["sandbox", "list", "--json"]),
        (["--project", "p", "--url=u", "key", "list"], ["key", "list", "--project", "p", "--url=u"]),
        (["--data", "d", "exec", "a", "--", "ls", "--json"], ["exec", "a", "--data", "d", "--", "ls", "--json"]),
        (["exec", "a", "--", "--json"], ["exec", "a", "--", "--json"]),
        (["--help"], ["--help"]),
        (["--project"], ["--project"]),
    ],
)
def test_leading_flags_go_behind_the_command(given: list[str], meant: list[str]) -> None:
    assert in_order(given) == meant


def test_flags_count_on_either_side_of_the_command(standin: Any, shapes: Any, capsys: Any) -> None:
    standin.will(shapes.Answer(200, {"sandboxes": [], "cursor": None}))
    assert run(["--project", "p", "--url", standin.url, "sandbox", "list"]) == 0
    assert run(["sandbox", "list", "--project=p", "--url", standin.url]) == 0
    assert [request.path for request in standin.seen] == ["/v1/projects/p/sandboxes"] * 2


@pytest.mark.parametrize(
    "words",
    [
        ["nope"],
        ["sandbox", "nope"],
        ["sandbox", "create"],
        ["sandbox", "list", "--nope"],
        ["exec", "main"],
        ["exec", "main", "--timeout", "soon", "--", "ls"],
        ["exec", "main", "--env", "NOVALUE", "--", "ls"],
        ["sandbox", "create", "main", "--label", "=x"],
        ["run"],
        ["run", "-e", "1", "--file", "x"],
        ["run", "--file", "/no/such/file"],
        ["key", "create", "ci", "--installation", "--project", "p"],
    ],
)
def test_a_misuse_ends_with_two(words: list[str], capsys: Any) -> None:
    assert run(words) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error USAGE: ")


def test_an_error_has_its_code_and_hint_on_stderr(standin: Any, shapes: Any, capsys: Any) -> None:
    body = {"error": "it \x1b[31mis there", "code": "SANDBOX_EXISTS", "hint": "take another"}
    standin.will(shapes.Answer(409, body))
    assert run(["sandbox", "create", "main", "--url", standin.url]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err == "error SANDBOX_EXISTS: it \\x1b[31mis there\nhint: take another\n"


def test_every_wrong_field_is_named(standin: Any, shapes: Any, capsys: Any) -> None:
    details = {"path": ["too long", "not flat"], "env.A\x1b": ["must be text"]}
    standin.will(shapes.Answer(400, {"error": "invalid request", "code": "VALIDATION_FAILED", "details": details}))
    assert run(["sandbox", "create", "main", "--url", standin.url]) == 1
    assert capsys.readouterr().err.splitlines() == [
        "error VALIDATION_FAILED: invalid request",
        "  path: too long, not flat",
        "  env.A\\x1b: must be text",
    ]


def test_hints_speak_of_commands(standin: Any, shapes: Any, capsys: Any) -> None:
    standin.will(shapes.Answer(404, {"error": "none", "code": "SANDBOX_NOT_FOUND", "hint": "POST /v1/…"}))
    assert run(["sandbox", "show", "main", "--url", standin.url]) == 1
    assert capsys.readouterr().err.splitlines()[1] == "hint: create it first: kennel sandbox create NAME"


def test_a_lost_call_says_that_nothing_is_known(standin: Any, shapes: Any, capsys: Any) -> None:
    standin.will(shapes.Answer(cut="before"))
    assert run(["exec", "main", "--url", standin.url, "--no-stdin", "--", "true"]) == 1
    err = capsys.readouterr().err
    assert err.startswith("error CONNECTION_LOST: ")
    assert "unknown" in err


def test_no_server_is_said_with_the_remedy(kennel: Any, refused: str) -> None:
    done = kennel("sandbox", "list", KENNEL_URL=refused)
    assert (done.returncode, done.stdout) == (1, b"")
    assert done.stderr.startswith(b"error CONNECTION_LOST: no server answers at " + refused.encode())
    assert b"\nhint: start it with 'kennel up'" in done.stderr
    assert b"\x1b" not in done.stderr


def test_help_lists_every_command_and_imports_none(kennel: Any) -> None:
    done = kennel("--help")
    assert done.returncode == 0
    for name in ["sandbox", "exec", "run", "room", "project", "key", "image", "up", "down", "doctor", "bench"]:
        assert f" {name} ".encode() in done.stdout
    script = (
        "import sys; from kennel.cli.__main__ import run; run(['--help']);"
        "print([m for m in sys.modules if m.startswith('kennel.cli.') and m.rpartition('.')[2] not in"
        " ('__main__', 'commands', 'output')])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=30, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_ctrl_c_ends_the_call_and_the_process(standin: Any, shapes: Any) -> None:
    release = threading.Event()
    standin.will(shapes.Answer(200, shapes.result(), wait=release))
    process = subprocess.Popen(
        [sys.executable, "-m", "kennel.cli", "exec", "main", "--url", standin.url, "--no-stdin", "--", "sleep", "99"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    deadline = time.monotonic() + 20
    while not standin.seen and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=10)
    release.set()
    assert process.returncode == 130
    assert err == b""


def test_nobody_reading_is_no_traceback(standin: Any, shapes: Any) -> None:
    views = [shapes.view(f"box-{n}") for n in range(2000)]
    standin.will(shapes.Answer(200, {"sandboxes": views, "cursor": None}))
    read, write = os.pipe()
    os.close(read)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "kennel.cli", "sandbox", "list", "--json", "--url", standin.url],
            stdout=write,
            stderr=subprocess.PIPE,
            timeout=30,
        )
    finally:
        os.close(write)
    assert done.returncode == 141
    assert done.stderr == b""


def test_a_command_imports_only_what_it_needs(refused: str) -> None:
    """What made the start slow may not come back; the time itself is `kennel bench cli`."""
    code = """
import sys
from kennel.cli.__main__ import run
run(["sandbox", "list"])
print(*sys.modules, file=sys.stderr)"""
    environment = {**os.environ, "KENNEL_URL": refused}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30, env=environment)
    loaded = {name.split(".")[0] for name in done.stderr.split()}
    assert "cyclopts" in loaded
    assert not loaded & {"httpx2", "fastapi", "starlette", "pydantic", "sqlalchemy", "uvicorn", "cryptography"}


def test_a_stdin_that_cannot_be_read_is_an_error_not_a_traceback(refused: str) -> None:
    null = os.open("/dev/null", os.O_WRONLY)
    try:
        command = [sys.executable, "-m", "kennel.cli", "exec", "main", "--url", refused, "--", "cat"]
        done = subprocess.run(command, stdin=null, capture_output=True, timeout=30)
    finally:
        os.close(null)
    assert done.returncode == 1
    assert done.stderr.startswith(b"error FILESYSTEM_ERROR: ")


def test_output_that_cannot_be_written_is_an_error_not_a_traceback() -> None:
    full = os.open("/dev/full", os.O_WRONLY)
    try:
        command = [sys.executable, "-m", "kennel.cli", "run", "-e", "'x'"]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, timeout=30)
    finally:
        os.close(full)
    assert done.returncode == 1
    assert done.stderr == b"error FILESYSTEM_ERROR: [Errno 28] No space left on device\n"


def test_closed_output_is_no_traceback(tmp_path: Path) -> None:
    script = f'"{sys.executable}" -m kennel.cli run -e "return [1]" >&-; echo $? >{tmp_path}/code'
    done = subprocess.run(["/bin/sh", "-c", script], stderr=subprocess.PIPE, timeout=30)
    assert ((tmp_path / "code").read_text(), done.stderr) == ("0\n", b"")


def test_what_makes_starting_slow_is_not_imported() -> None:
    script = (
        "import sys; from kennel.cli.__main__ import run; run(['sandbox', 'list', '--url', 'http://127.0.0.1:1']);"
        "slow = ('rich', 'httpx2', 'pydantic', 'asyncio', 'tarfile', 'kennel.sdk._async');"
        "print([m for m in slow if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=30, check=True)
    assert done.stdout.strip() == "[]"
