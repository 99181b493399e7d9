"""`kennel exec` as a process: bytes both ways as they come, exit codes, what is asked of the server."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from websockets.sync.server import Server, ServerConnection, serve

EVERY = bytes(range(256)) * 3
ROUTE = "/v1/projects/default/sandboxes/main/exec"


def exit_of(code: int) -> dict[str, Any]:
    return {"type": "exit", "exitCode": code, "success": code == 0, "durationMs": 1.0}


@dataclass
class Peer:
    """A server that speaks the socket of exec: `script` is what happens after the request."""

    script: Callable[[Peer, ServerConnection], None]
    url: str = ""
    paths: list[str] = field(default_factory=list)
    requests: list[dict[str, Any]] = field(default_factory=list)
    heard: list[bytes | dict[str, Any]] = field(default_factory=list)

    def handle(self, connection: ServerConnection) -> None:
        assert connection.request is not None
        self.paths.append(connection.request.path)
        self.requests.append(json.loads(connection.recv()))
        connection.send(json.dumps({"type": "start", "execId": "e1"}))
        self.script(self, connection)

    def listen(self, connection: ServerConnection) -> bytes:
        """Standard input up to its end."""
        got = b""
        while True:
            message = connection.recv()
            self.heard.append(message if isinstance(message, bytes) else json.loads(message))
            if not isinstance(message, bytes):
                return got
            assert message[0] == 0
            got += message[1:]


@pytest.fixture
def peer() -> Iterator[Callable[[Callable[[Peer, ServerConnection], None]], Peer]]:
    servers: list[Server] = []

    def make(script: Callable[[Peer, ServerConnection], None]) -> Peer:
        made = Peer(script)
        server = serve(made.handle, "127.0.0.1", 0, compression=None)
        servers.append(server)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        made.url = f"http://127.0.0.1:{server.socket.getsockname()[1]}"
        return made

    yield make
    for server in servers:
        server.shutdown()


def says(*messages: bytes | dict[str, Any], code: int = 0) -> Callable[[Peer, ServerConnection], None]:
    def script(_: Peer, connection: ServerConnection) -> None:
        for message in (*messages, exit_of(code)):
            connection.send(message if isinstance(message, bytes) else json.dumps(message))

    return script


def echo(made: Peer, connection: ServerConnection) -> None:
    given = made.listen(connection)
    connection.send(b"\1" + given)
    connection.send(b"\2" + given[::-1])
    connection.send(json.dumps(exit_of(0)))


def test_every_byte_passes_both_ways(kennel: Any, peer: Any) -> None:
    made = peer(echo)
    done = kennel("exec", "main", "--", "cat", input=EVERY, KENNEL_URL=made.url)
    assert (done.returncode, done.stdout, done.stderr) == (0, EVERY, EVERY[::-1])
    assert (made.paths, made.requests) == ([ROUTE], [{"argv": ["cat"]}])
    assert made.heard[-1] == {"type": "eof"}


@pytest.mark.full
def test_input_has_no_limit(kennel: Any, peer: Any) -> None:
    made = peer(lambda p, c: c.send(json.dumps(exit_of(len(p.listen(c)) // 1_000_000))))
    assert kennel("exec", "main", "--", "cat", input=bytes(33_000_000), KENNEL_URL=made.url).returncode == 33


@pytest.mark.parametrize("code", [0, 1, 7, 124, 137, 255])
def test_the_exit_code_is_the_commands(kennel: Any, peer: Any, code: int) -> None:
    done = kennel("exec", "/sandboxes/main", "--", "x", KENNEL_URL=peer(says(b"\1out", code=code)).url)
    assert (done.returncode, done.stdout) == (code, b"out")


def test_words_after_the_dashes_are_the_commands_own(kennel: Any, peer: Any) -> None:
    made = peer(says())
    kennel(
        "exec", "main", "--cwd", "/tmp", "--env", "A=b=c", "--env", "B=", "--user", "0:0", "--timeout", "1.5",
        "--", "sh", "-c", "echo $0", "--json", "--", "--project=x", "",
        KENNEL_URL=made.url,
    )  # fmt: skip
    assert made.requests == [
        {
            "argv": ["sh", "-c", "echo $0", "--json", "--", "--project=x", ""],
            "cwd": "/tmp",
            "env": {"A": "b=c", "B": ""},
            "user": "0:0",
            "timeout": 1500,
        }
    ]


def test_a_session_gets_the_words_as_shell_text(kennel: Any, peer: Any) -> None:
    made = peer(says())
    kennel("exec", "main", "--session", "s", "--", "echo", "a b", "$HOME", KENNEL_URL=made.url)
    assert made.requests == [{"command": "echo 'a b' '$HOME'", "sessionId": "s"}]


def test_json_is_the_result_and_the_code_is_still_the_commands(kennel: Any, standin: Any, shapes: Any) -> None:
    sent = shapes.result(exitCode=3, success=False)
    standin.will(shapes.Answer(200, sent))
    done = kennel("exec", "main", "--json", "--", "x", KENNEL_URL=standin.url)
    assert done.returncode == 3
    assert json.loads(done.stdout) == sent
    assert "encoding" not in standin.seen[0].json


def test_too_much_stdin_for_json_is_refused_before_anything_is_sent(kennel: Any, standin: Any, shapes: Any) -> None:
    standin.will(shapes.Answer(200, shapes.result()))
    done = kennel("exec", "main", "--json", "--", "cat", input=bytes(16 * 1024 * 1024 + 1), KENNEL_URL=standin.url)
    assert done.returncode == 1
    assert done.stderr.startswith(b"error BODY_TOO_LARGE: ")
    assert standin.seen == []


def test_stdin_can_be_left_alone(kennel: Any, peer: Any) -> None:
    made = peer(echo)
    done = kennel("exec", "main", "--no-stdin", "--", "x", input=b"not for it", KENNEL_URL=made.url)
    assert (done.returncode, done.stdout, made.heard) == (0, b"", [{"type": "eof"}])


def test_an_argument_that_is_not_text_is_refused(kennel: Any, peer: Any) -> None:
    done = kennel("exec", "main", "--", "\udcff", KENNEL_URL=peer(says()).url)
    assert done.returncode == 1
    assert done.stderr.startswith(b"error VALIDATION_FAILED: ")


def test_what_the_server_says_before_an_exit_is_the_error(kennel: Any, peer: Any) -> None:
    told = {"type": "error", "error": "no such folder", "code": "INVALID_PROCESS_CWD", "admitted": "no"}
    done = kennel("exec", "main", "--", "x", KENNEL_URL=peer(says(told)).url)
    assert done.returncode == 1
    assert done.stderr.startswith(b"error INVALID_PROCESS_CWD: no such folder")


def test_a_socket_that_closes_without_an_exit_is_no_success(kennel: Any, peer: Any) -> None:
    done = kennel("exec", "main", "--", "x", KENNEL_URL=peer(lambda p, c: c.send(b"\1part")).url)
    assert (done.returncode, done.stdout) == (1, b"part")
    assert done.stderr.startswith(b"error CONNECTION_LOST: ")


def test_output_comes_when_it_is_written_and_an_interrupt_is_passed_on(peer: Any) -> None:
    def script(made: Peer, connection: ServerConnection) -> None:
        connection.send(b"\1early")
        while (told := json.loads(connection.recv())).get("type") != "signal":
            continue
        made.heard.append(told)
        connection.send(json.dumps(exit_of(130)))

    made = peer(script)
    command = [sys.executable, "-m", "kennel.cli", "--url", made.url, "exec", "main", "--", "x"]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.read(5) == b"early"
        time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        assert process.wait(10) == 130
    assert made.heard == [{"type": "signal", "signal": "SIGINT"}]
