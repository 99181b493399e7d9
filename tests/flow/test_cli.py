"""The command line as a person's process, against the real system."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from installation import Installation
from kennel import Kennel

EVERY_BYTE = bytes(range(256))


def unused(kind: str = "cli") -> str:
    return f"{kind}-{uuid.uuid4().hex[:10]}"


@pytest.fixture
def name(installation: Installation, itx: Kennel) -> Iterator[str]:
    made = itx.sandboxes.get(unused()).create()
    yield made.name
    made.destroy()


def words_of(text: bytes) -> list[list[str]]:
    return [line.split() for line in text.decode().splitlines()]


def running(installation: Installation, *words: str) -> subprocess.Popen[bytes]:
    """A command that goes on until it is ended."""
    environment = {**os.environ, "KENNEL_DATA": str(installation.data)}
    return subprocess.Popen(
        [sys.executable, "-m", "kennel.cli", *words], env=environment, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def test_a_life(installation: Installation) -> None:
    cli, name = installation.cli, unused()
    made = cli("sandbox", "create", name, "--type", "basic", "--label", f"k={name}", "--env", "A=1")
    assert words_of(made.stdout)[1] == [f"/sandboxes/{name}", "created", "basic"]
    assert cli("exec", name, "--", "sh", "-c", "echo $A > note").returncode == 0
    for verb, status in (("sleep", "stopped"), ("start", "running"), ("restart", "running"), ("kill", "stopped")):
        done = cli("sandbox", verb, name, "--json")
        assert (done.returncode, json.loads(done.stdout)["status"]) == (0, status), verb
    assert cli("exec", f"/sandboxes/{name}", "--", "cat", "note").stdout == b"1\n"
    assert [row[:2] for row in words_of(cli("sandbox", "list", "--label", f"k={name}").stdout)[1:]] == [
        [name, "running"]
    ]
    assert dict(row[:2] for row in words_of(cli("sandbox", "show", name).stdout))["status"] == "running"
    again = cli("sandbox", "create", name)
    assert (again.returncode, again.stdout, b"SANDBOX_EXISTS" in again.stderr) == (1, b"", True)
    assert cli("sandbox", "destroy", name).stdout.decode() == f"/sandboxes/{name} is destroyed\n"
    gone = json.loads(cli("sandbox", "list", "--destroyed", "--label", f"k={name}", "--json").stdout)
    assert [view["status"] for view in gone] == ["destroyed"]
    dead = cli("exec", name, "--", "true")
    assert (dead.returncode, b"SANDBOX_DESTROYED" in dead.stderr) == (1, True)


def test_every_byte_survives_both_ways(installation: Installation, name: str) -> None:
    sent = EVERY_BYTE * 500 + os.urandom(10_000)
    done = installation.cli("exec", name, "--", "tee", "/dev/stderr", stdin=sent)
    assert (done.returncode, done.stdout == sent, done.stderr == sent) == (0, True, True)
    # What JSON can hold of an argument goes through as it is, blanks, quotes and line ends included.
    words = ["a b", "'", '"', "\n", "*", "ü", "--json", ""]
    assert installation.cli("exec", name, "--", "printf", "%s|", *words).stdout.decode() == "|".join(words) + "|"


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["--", "sh", "-c", "exit 7"], 7), (["--", "sh", "-c", "kill -9 $$"], 137),
        (["--timeout", "0.3", "--", "sleep", "30"], 124), (["--", "/no/such/program"], 127), ([], 2),
        (["--env", "nonsense", "--", "true"], 2), (["--cwd", "/no/such/place", "--", "true"], 1),
    ],
)  # fmt: skip
def test_exit_codes(installation: Installation, name: str, words: list[str], code: int) -> None:
    done = installation.cli("exec", name, *words)
    assert done.returncode == code, done.stderr
    if code in (1, 2):
        assert done.stderr.startswith(b"error ")
    assert b"Traceback" not in done.stderr


def test_json_and_sessions(installation: Installation, itx: Kennel, name: str) -> None:
    itx.sandboxes.get(name).create_session("s")
    installation.cli("exec", name, "--session", "s", "--", "cd", "/tmp")
    done = installation.cli("--json", "exec", name, "--session", "s", "--", "pwd")
    told = json.loads(done.stdout)
    assert (told["stdout"], told["exitCode"], told["sessionId"]) == ("/tmp\n", 0, "s")


def left_running(box: Any, seconds: str) -> bool:
    """Whether a `sleep` of that many seconds runs in the sandbox; the search's own command line does not match."""
    pattern = f"sleep [{seconds[0]}]{seconds[1:]}"
    search = f"cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' ' | grep -c '{pattern}'"
    return bool(box.exec(search).stdout != "0\n")


def wait_until_gone(box: Any, seconds: str) -> None:
    deadline = time.monotonic() + 10
    while left_running(box, seconds):
        assert time.monotonic() < deadline, "the command outlived its caller"


def wait_until_begun(box: Any) -> None:
    deadline = time.monotonic() + 15
    while box.exec("rm /workspace/begun").exit_code:
        assert time.monotonic() < deadline


def test_interrupting_reaches_the_remote_command(installation: Installation, itx: Kennel, name: str) -> None:
    box = itx.sandboxes.get(name)
    with running(installation, "exec", name, "--", "bash", "-c", "touch /workspace/begun; sleep 876543") as process:
        wait_until_begun(box)
        process.send_signal(signal.SIGINT)
        assert process.wait(10) == 130
    wait_until_gone(box, "876543")


def test_leaving_ends_all_of_the_remote_command(installation: Installation, itx: Kennel, name: str) -> None:
    box = itx.sandboxes.get(name)
    script = "(setsid sleep 765432 &); touch /workspace/begun; sleep 765432"
    with running(installation, "exec", name, "--", "bash", "-c", script) as process:
        wait_until_begun(box)
        process.kill()
        process.wait(10)
    wait_until_gone(box, "765432")


def test_the_smoke_test_of_run(installation: Installation) -> None:
    text = f"""
path = "/sandboxes/{unused("smoke")}"
sb = itx.sandboxes.get(path).create(instance_type="lite")
try:
    r = sb.exec("ls /")
finally:
    sb.destroy()
return {{"exitCode": r.exit_code, "stdout": r.stdout}}
"""
    done = installation.cli("run", "-e", text)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["exitCode"] == 0
    assert {"workspace", "usr", "tmp"} <= set(told["stdout"].split())
    failed = installation.cli("run", "-e", 'itx.sandboxes.get("never-made").exec("true")')
    assert (failed.returncode, b"SANDBOX_NOT_FOUND" in failed.stderr) == (1, True)


def test_a_room(installation: Installation) -> None:
    room = unused("room")
    installation.cli("room", "exec", room, "cd /tmp; export X=1")
    done = installation.cli("room", "exec", room, "pwd; echo $X >&2; exit 4")
    assert (done.stdout, done.stderr, done.returncode) == (b"/tmp\n", b"1\n", 4)
    assert installation.cli("room", "cleanup", room).stdout.decode() == f"room {room} is cleaned up\n"


def test_projects_keys_and_images(installation: Installation) -> None:
    cli, project = installation.cli, unused("p")
    assert cli("project", "create", project).returncode == 0
    assert project in {row[0] for row in words_of(cli("project", "list").stdout)}
    made = json.loads(cli("key", "create", "ci", "--scope", "read", "--project", project, "--json").stdout)
    assert made["key"]["project"] == project
    assert made["key"]["id"] in cli("key", "list").stdout.decode()
    assert cli("key", "revoke", made["key"]["id"]).returncode == 0
    assert {"host"} <= {row[0] for row in words_of(cli("image", "list").stdout)}


def test_logs_say_who_asked_and_what_came_of_it(installation: Installation, itx: Kennel, name: str) -> None:
    assert installation.cli("exec", name, "--", "sh", "-c", "echo hello; exit 5").returncode == 5
    itx.streams.get(f"/sandboxes/{name}").wait_for_event("sandbox/exec-finished", timeout=10)
    told = installation.cli("logs", name).stdout.decode()
    begun, ended = (line for line in told.splitlines() if " sandbox/exec-" in line)
    assert "sh -c echo hello; exit 5" in begun
    assert " exit 5, " in ended
    assert ended.endswith(", 6+0 bytes")
    admin = next(key for key in itx.keys.list() if key.project is None)
    assert f"{admin.id} ({admin.name})" in begun
    found = [json.loads(line) for line in installation.cli("logs", name, "--json").stdout.splitlines()]
    assert [event["offset"] for event in found] == list(range(1, len(found) + 1))
    some = installation.cli("logs", name, "--json", "--after", "1", "--types", "sandbox/created,stream/created").stdout
    assert [json.loads(line)["type"] for line in some.splitlines()] == ["sandbox/created"]
    checked = installation.cli("logs", f"/sandboxes/{name}", "--verify")
    assert (checked.returncode, b"the hash chain holds" in checked.stdout) == (0, True)
    unknown = installation.cli("logs", "never-made")
    assert (unknown.returncode, b"STREAM_NOT_FOUND" in unknown.stderr) == (1, True)


def test_logs_follow_until_interrupted(installation: Installation, itx: Kennel) -> None:
    stream = itx.streams.get(f"/notes/{unused()}")
    stream.append({"type": "one"})
    with running(installation, "logs", stream.path, "--follow", "--json") as process:
        assert process.stdout is not None
        seen: list[Any] = [json.loads(process.stdout.readline()) for _ in range(2)]
        stream.append({"type": "two", "payload": {"text": "line\nend"}})
        seen.append(json.loads(process.stdout.readline()))
        process.send_signal(signal.SIGINT)
        assert process.wait(10) == 130
        assert process.stderr is not None
        assert process.stderr.read() == b""
    assert [event["type"] for event in seen] == ["stream/created", "one", "two"]


def test_streams(installation: Installation) -> None:
    cli, path = installation.cli, f"/notes/{unused()}"
    one = cli("stream", "append", path, "note", "--payload", '{"a": "\u00fc"}', "--key", "k", "--json")
    assert json.loads(one.stdout)[0]["offset"] == 2
    batch = cli("stream", "append", path, "--json", stdin=b'{"type": "x"}\n{"type": "y", "offset": 4}\n')
    assert [event["offset"] for event in json.loads(batch.stdout)] == [3, 4]
    refused = cli("stream", "append", path, "sandbox/destroyed")
    assert (refused.returncode, b"PLATFORM_TYPE_REFUSED" in refused.stderr) == (1, True)
    assert cli("stream", "list", path).stdout.decode() == f"{path}\n"
    lines = cli("stream", "export", path).stdout.splitlines()
    assert [json.loads(line)["type"] for line in lines] == ["stream/created", "note", "x", "y"]
    assert json.loads(lines[1])["payload"] == {"a": "ü"}


def test_top_shows_what_works_and_wakes_nothing(installation: Installation, itx: Kennel, name: str) -> None:
    asleep = itx.sandboxes.get(unused()).create()
    box = itx.sandboxes.get(name)
    box.start_process("while :; do :; done")
    rows = words_of(installation.cli("top").stdout)
    assert rows[0] == ["NAME", "TYPE", "CPU", "MEMORY", "DISK", "PROCESSES", "OOM"]
    (row,) = (row for row in rows if row[0] == name)
    assert row[1] == "basic"
    assert 0 < float(row[2]) <= 0.3, "a quarter of a CPU is what it may have"
    assert asleep.name not in {row[0] for row in rows}
    assert not asleep.info().running
    (one,) = (one for one in itx.sandboxes.usage() if one.name == name)
    assert 0 < one.memory < one.memory_limit
    assert 0 < one.disk < one.disk_limit
    assert one.processes >= 2
    asleep.destroy()
