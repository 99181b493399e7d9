"""The HTTP door of a real installation: keys, hosts, broken requests, callers that hang up."""

from __future__ import annotations

import contextlib
import json
import socket
import time
import uuid
from urllib.parse import urlsplit

import pytest

from installation import Installation
from kennel import Kennel


def talk(installation: Installation, request: bytes, *, finish: bool = True) -> bytes:
    """The bytes that answer `request`."""
    parts = urlsplit(installation.url)
    with socket.create_connection((parts.hostname or "", parts.port or 0), timeout=20) as connection:
        connection.sendall(request)
        if finish:
            connection.shutdown(socket.SHUT_WR)
        answer = b""
        while piece := connection.recv(65536):
            answer += piece
    return answer


@pytest.mark.parametrize(
    ("path", "status"),
    [("/health", 200), ("/openapi.json", 401), ("/v1/projects", 401), ("/api/rooms/r/sandbox/exec", 401), ("/x", 401)],
)
def test_nothing_but_health_answers_without_a_key(installation: Installation, path: str, status: int) -> None:
    answer = talk(installation, f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
    assert answer.startswith(f"HTTP/1.1 {status} ".encode())


def test_a_foreign_host_is_refused(installation: Installation) -> None:
    answer = talk(installation, b"GET /health HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b"HOST_REFUSED" in answer


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"\r\n\r\n", b"nonsense\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"GET /\0 HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: x\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 300_000 + b"\r\n\r\n",
        bytes(range(256)) * 16,
    ],
)  # fmt: skip
def test_broken_requests_end_without_a_trace(installation: Installation, request_bytes: bytes) -> None:
    try:
        answer = talk(installation, request_bytes)
    except ConnectionError:
        answer = b""
    assert b"Traceback" not in answer
    assert answer == b"" or answer.startswith((b"HTTP/1.1 4", b"HTTP/1.0 4"))
    fine = talk(installation, b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    assert fine.startswith(b"HTTP/1.1 200 ")


def test_a_chunked_body_without_end_is_cut_at_the_limit(installation: Installation) -> None:
    head = (
        "POST /api/rooms/r/sandbox/exec HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"Authorization: Bearer {installation.key}\r\nTransfer-Encoding: chunked\r\n\r\n"
    ).encode()
    parts = urlsplit(installation.url)
    chunk = b"10000\r\n" + b" " * 65536 + b"\r\n"
    answer = b""
    with socket.create_connection((parts.hostname or "", parts.port or 0), timeout=20) as connection:
        connection.sendall(head)
        sent = 0
        with contextlib.suppress(ConnectionError):  # refused before all was sent, as it should be
            while sent < 64 * 1024 * 1024:
                connection.sendall(chunk)
                sent += 65536
        with contextlib.suppress(ConnectionError):
            answer = connection.recv(65536)
    assert sent < 64 * 1024 * 1024 or answer.startswith(b"HTTP/1.1 413 ")
    assert answer == b"" or b"BODY_TOO_LARGE" in answer


def test_a_caller_that_hangs_up_kills_the_whole_tree(installation: Installation, itx: Kennel) -> None:
    box = itx.sandboxes.get(f"/sandboxes/t-{uuid.uuid4().hex[:12]}").create()
    box.exec("true")
    command = "(setsid sleep 987654 &) ; echo started > /workspace/started; sleep 987654"
    body = json.dumps({"command": command}).encode()
    head = (
        f"POST /v1/projects/default{box.path}/exec HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"Authorization: Bearer {installation.key}\r\nContent-Length: {len(body)}\r\n\r\n"
    ).encode()
    parts = urlsplit(installation.url)
    with socket.create_connection((parts.hostname or "", parts.port or 0), timeout=20) as connection:
        connection.sendall(head + body)
        deadline = time.monotonic() + 10
        while box.exec("cat /workspace/started").exit_code != 0:
            assert time.monotonic() < deadline
            time.sleep(0.02)
    # In `[9]87654` the pattern does not match the command line of the search itself.
    search = "cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' ' | grep -c 'sleep [9]87654'"
    deadline = time.monotonic() + 5
    while box.exec(search).stdout.strip() != "0":
        assert time.monotonic() < deadline, "the tree outlived its caller"
        time.sleep(0.05)
    box.destroy()
