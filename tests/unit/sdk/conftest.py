"""A server of the tests' own on loopback: it answers as each test tells it to, and is not Kennel."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

CREATED_AT = "2026-01-02T03:04:05.678Z"


@dataclass
class Seen:
    """A request as it arrived."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    connection: int

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Answer:
    """What to send: `cut` closes the connection "before" a byte or "inside" the body."""

    status: int = 200
    body: Any = None
    raw: bytes | None = None
    cut: str | None = None
    wait: threading.Event | None = None


@dataclass
class StandIn:
    """The scripted server: answers are taken from `script` in order, the last one again and again."""

    url: str
    seen: list[Seen] = field(default_factory=list)
    script: list[Answer | Callable[[Seen], Answer]] = field(default_factory=list)

    def will(self, *answers: Answer | Callable[[Seen], Answer]) -> None:
        self.script[:] = answers

    def next(self, request: Seen) -> Answer:
        step = self.script.pop(0) if len(self.script) > 1 else self.script[0]
        return step(request) if callable(step) else step


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    standin: StandIn
    server: ThreadingHTTPServer

    def serve(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", "0")))
        headers = {name.lower(): value for name, value in self.headers.items()}
        request = Seen(self.command, self.path, headers, body, self.client_address[1])
        self.standin.seen.append(request)
        answer = self.standin.next(request)
        if answer.wait is not None:
            answer.wait.wait(10)
        content = answer.raw if answer.raw is not None else json.dumps(answer.body).encode()
        if answer.cut == "before":
            self.close_connection = True
            return
        self.send_response(answer.status)
        if answer.status != 204:
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(content)))
        self.end_headers()
        if answer.cut == "inside":
            content, self.close_connection = content[: len(content) // 2], True
        if answer.status != 204:
            # A client that stopped waiting is what some tests are about.
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                self.wfile.write(content)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = serve

    def log_message(self, *_: object) -> None:
        """Nothing: the tests look at what was seen."""


@pytest.fixture
def standin() -> Iterator[StandIn]:
    handler = type("Scripted", (Handler,), {})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    handler.standin = StandIn(f"http://127.0.0.1:{server.server_address[1]}")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield handler.standin
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture
def refused() -> str:
    """A URL on which nothing listens."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    port = server.server_address[1]
    server.server_close()
    return f"http://127.0.0.1:{port}"


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(autouse=True)
def no_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    """No setting of the machine that runs the tests reaches a client."""
    for name in ("KENNEL_URL", "KENNEL_API_KEY", "KENNEL_PROJECT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("KENNEL_DATA", str(tmp_path / "no-data"))


def view(name: str = "main", **changes: Any) -> dict[str, Any]:
    """A sandbox as the API shows it."""
    return {
        "path": f"/sandboxes/{name}", "name": name, "project": "default", "status": "created", "running": False,
        "instanceType": "basic", "image": "host", "imageDigest": "sha256:1", "isolation": "container",
        "createdAt": CREATED_AT, "sandboxId": "sb1", "env": {}, "labels": {}, "sleepAfter": None,
        "keepAlive": False, "persist": "workspace", "lastBackupId": None,
        "leaveOut": {}, "points": False, "lastBackupAt": None, "warnings": [],
    } | changes  # fmt: skip


def result(**changes: Any) -> dict[str, Any]:
    """A finished command as the API shows it."""
    return {
        "stdout": "hi\n", "stderr": "", "exitCode": 0, "success": True, "command": "echo hi", "duration": 1.5,
        "timestamp": CREATED_AT, "durationMs": 1.5, "signal": None, "timedOut": False, "truncated": False,
        "lossy": False, "oomKilled": False, "encoding": "utf8", "stdoutBytes": 3, "stderrBytes": 0, "sessionId": None,
    } | changes  # fmt: skip


@pytest.fixture
def shapes() -> Any:
    """Answers to script with: `shapes.view()`, `shapes.result()`, `shapes.Answer(…)`."""

    class Shapes:
        pass

    Shapes.view, Shapes.result, Shapes.Answer = staticmethod(view), staticmethod(result), Answer  # type: ignore[attr-defined]
    return Shapes
