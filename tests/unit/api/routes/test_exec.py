from __future__ import annotations

import asyncio
import base64
from typing import Any

import pytest

from kennel.api.hangup import unless_hung_up
from kennel.domain.command import DEFAULT_MAX_BYTES, Command, Outcome
from kennel.wire.errors import KennelError

pytestmark = pytest.mark.anyio

EXEC = "/v1/projects/default/sandboxes/main/exec"


async def asked(world: Any, **body: Any) -> Command:
    async with world.client() as http:
        answer = await http.post(EXEC, json=body)
    assert answer.status_code == 200, answer.text
    name, (project, path, command) = world.sandboxes.calls[-1]
    assert (name, project, path) == ("exec", "default", "/sandboxes/main")
    assert isinstance(command, Command)
    return command


async def test_the_least_that_can_be_asked(world: Any) -> None:
    assert await asked(world, command="true") == Command(command="true")


async def test_everything_that_can_be_asked(world: Any) -> None:
    command = await asked(
        world, argv=["a", "", "b c"], cwd="/tmp", env={"A": "1", "B": None, "C": ""}, stdin="é\n", timeout=5,
        user="1000:1000", sessionId="s-1", encoding="base64", maxBytes=0,
    )  # fmt: skip
    assert command == Command(
        argv=("a", "", "b c"), cwd="/tmp", env={"A": "1", "C": ""}, stdin="é\n".encode(), timeout_ms=5,
        user="1000:1000", session_id="s-1", max_bytes=0,
    )  # fmt: skip


async def test_stdin_can_be_any_bytes_up_to_16_mib(world: Any) -> None:
    data = bytes(range(256)) * 65536
    command = await asked(world, command="x", stdin=base64.b64encode(data).decode(), stdinEncoding="base64")
    assert command.stdin == data
    async with world.client() as http:
        more = base64.b64encode(data + b"x").decode()
        answer = await http.post(EXEC, json={"command": "x", "stdin": more, "stdinEncoding": "base64"})
    assert answer.status_code == 400
    assert "stdin" in answer.json()["details"]


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "body"), ({"command": "x", "argv": ["x"]}, "body"), ({"command": ""}, "command"),
        ({"command": 1}, "command"), ({"command": ["x"]}, "command"), ({"command": "a\0b"}, "command"),
        ({"command": "x" * (128 * 1024)}, "command"), ({"command": "é" * (64 * 1024)}, "command"),
        ({"argv": []}, "argv"), ({"argv": [""]}, "argv.0"), ({"argv": [1]}, "argv.0"), ({"argv": ["a\0"]}, "argv.0"),
        ({"argv": ["x"] * 4097}, "argv"), ({"argv": ["x" * 131071] * 9}, "body"), ({"argv": "ls"}, "argv"),
        ({"command": "x", "cwd": "rel"}, "cwd"), ({"command": "x", "cwd": ""}, "cwd"),
        ({"command": "x", "cwd": "/\0"}, "cwd"), ({"command": "x", "cwd": "/" + "x" * 4096}, "cwd"),
        ({"command": "x", "env": {"A": 1}}, "env.A"), ({"command": "x", "env": {"": "1"}}, "env"),
        ({"command": "x", "env": {"A=B": "1"}}, "env"), ({"command": "x", "env": {"A\0": "1"}}, "env"),
        ({"command": "x", "env": {"A": "\0"}}, "env.A"), ({"command": "x", "env": []}, "env"),
        ({"command": "x", "env": {f"V{n}": "" for n in range(513)}}, "env"),
        ({"command": "x", "env": {f"V{n}": "x" * 131071 for n in range(9)}}, "body"),
        ({"command": "x", "stdin": 1}, "stdin"), ({"command": "x", "stdin": "?", "stdinEncoding": "base64"}, "stdin"),
        ({"command": "x", "stdinEncoding": "hex"}, "stdinEncoding"),
        ({"command": "x", "encoding": "latin1"}, "encoding"),
        ({"command": "x", "timeout": 0}, "timeout"), ({"command": "x", "timeout": -1}, "timeout"),
        ({"command": "x", "timeout": 1.5}, "timeout"), ({"command": "x", "timeout": True}, "timeout"),
        ({"command": "x", "timeout": "5"}, "timeout"), ({"command": "x", "timeout": 10**30}, "timeout"),
        ({"command": "x", "user": ""}, "user"), ({"command": "x", "user": "-u"}, "user"),
        ({"command": "x", "user": "a b"}, "user"), ({"command": "x", "user": "a:b"}, "user"),
        ({"command": "x", "sessionId": ""}, "sessionId"), ({"command": "x", "sessionId": "../x"}, "sessionId"),
        ({"command": "x", "sessionId": "a/b"}, "sessionId"), ({"command": "x", "maxBytes": -1}, "maxBytes"),
        ({"command": "x", "maxBytes": DEFAULT_MAX_BYTES + 1}, "maxBytes"), ({"command": "x", "nope": 1}, "nope"),
        ({"command": "x", "session_id": "s"}, "session_id"),
    ],
)  # fmt: skip
async def test_bad_words_are_400_by_field(world: Any, body: dict[str, Any], field: str) -> None:
    async with world.client() as http:
        answer = await http.post(EXEC, json=body)
    assert answer.status_code == 400, answer.text
    assert answer.json()["error"] == "invalid request"
    assert answer.json()["code"] == "VALIDATION_FAILED"
    assert list(answer.json()["details"]) == [field]
    assert not world.sandboxes.calls


@pytest.mark.parametrize("name", ["A", "-a", "a-", "a_b", "a" * 64, "a.b.c.d", "%2e%2e", "a%2Fb", "a%00", "é", "a."])
async def test_no_other_sandbox_name_reaches_a_service(world: Any, name: str) -> None:
    async with world.client() as http:
        answer = await http.post(f"/v1/projects/default/sandboxes/{name}/exec", json={"command": "x"})
    assert answer.status_code in (400, 404)
    assert not world.sandboxes.calls


@pytest.mark.parametrize("name", ["a", "0", "a" * 63, "sandbox-x.2", "room." + "a" * 52 + ".3"])
async def test_names_that_can_exist_do(world: Any, name: str) -> None:
    async with world.client() as http:
        answer = await http.post(f"/v1/projects/default/sandboxes/{name}/exec", json={"command": "x"})
    assert answer.status_code == 200
    assert world.sandboxes.calls[-1][1][1] == f"/sandboxes/{name}"


async def result(world: Any, outcome: Outcome, **body: Any) -> dict[str, Any]:
    async def run(_: Command) -> Outcome:
        return outcome

    world.sandboxes.run = run
    async with world.client() as http:
        answer = await http.post(EXEC, json={"command": "x", **body})
    assert answer.status_code == 200
    found: dict[str, Any] = answer.json()
    return found


async def test_a_result_says_how_it_ended(world: Any) -> None:
    outcome = Outcome(
        stdout=b"a\xffb\0", stderr=b"e", exit_code=137, signal="SIGKILL", timed_out=False, stdout_bytes=9,
        stderr_bytes=1, stdout_truncated=True, duration_ms=12.5,
    )  # fmt: skip
    found = await result(world, outcome)
    timestamp = found.pop("timestamp")
    assert timestamp.endswith("Z")
    assert found == {
        "stdout": "a\ufffdb\0", "stderr": "e", "exitCode": 137, "success": False, "command": "x", "duration": 12.5,
        "durationMs": 12.5, "signal": "SIGKILL", "timedOut": False, "truncated": True, "lossy": True,
        "oomKilled": False, "encoding": "utf8", "stdoutBytes": 9, "stderrBytes": 1, "sessionId": None,
    }  # fmt: skip


async def test_base64_keeps_every_byte(world: Any) -> None:
    data = bytes(range(256))
    found = await result(world, Outcome(stdout=data, stderr=b"", exit_code=0), encoding="base64")
    assert base64.b64decode(found["stdout"]) == data
    assert found["lossy"] is False
    assert found["success"] is True


async def test_a_caller_that_hangs_up_ends_the_command(world: Any) -> None:
    started, ended = asyncio.Event(), asyncio.Event()

    async def run(_: Command) -> Outcome:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        raise AssertionError

    world.sandboxes.run = run
    body = b'{"command":"sleep 1000"}'
    messages = [{"type": "http.request", "body": body, "more_body": False}]
    headers = [
        (b"host", b"localhost"), (b"authorization", b"Bearer admin"), (b"content-type", b"application/json"),
    ]  # fmt: skip

    async def receive() -> dict[str, Any]:
        if messages:
            return messages.pop(0)
        await started.wait()
        return {"type": "http.disconnect"}

    async def send(_: dict[str, Any]) -> None:
        return None

    scope = {
        "type": "http", "method": "POST", "path": EXEC, "raw_path": EXEC.encode(), "query_string": b"",
        "headers": headers, "http_version": "1.1", "scheme": "http", "server": ("localhost", 80), "root_path": "",
    }  # fmt: skip
    before = asyncio.all_tasks()
    await asyncio.wait_for(world.app(scope, receive, send), 5)
    await asyncio.sleep(0)
    assert ended.is_set()
    assert asyncio.all_tasks() == before


class Connection:
    """What `unless_hung_up` needs of a request."""

    def __init__(self) -> None:
        self.gone = asyncio.Event()

    async def receive(self) -> dict[str, Any]:
        await self.gone.wait()
        return {"type": "http.disconnect"}


async def test_a_cancellation_from_elsewhere_passes_through() -> None:
    task = asyncio.create_task(unless_hung_up(Connection(), asyncio.Event().wait()))  # type: ignore[arg-type]
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_hanging_up_is_an_interrupted_operation_and_leaves_the_task_usable() -> None:
    connection = Connection()
    asyncio.get_running_loop().call_soon(connection.gone.set)
    with pytest.raises(KennelError) as caught:
        await unless_hung_up(connection, asyncio.Event().wait())  # type: ignore[arg-type]
    assert caught.value.code == "OPERATION_INTERRUPTED"
    await asyncio.sleep(0)
