"""Attacks 54 and 48 again, and byte rates: places where a host shows a value, methods by the back door, caps."""

from __future__ import annotations

import base64
import gzip
import json
import socket
import threading
import time
import zlib
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from egress_gateway import GatewayProcess, Sandbox
from egress_world import OTHER, Heard, World, answering, reply

if TYPE_CHECKING:
    from egress_fixtures import Desk

pytest_plugins = ["egress_fixtures"]
pytestmark = pytest.mark.root

HOST = "api.example.com"
CANARY = "Canary-Zx81k9-Value"
HEADERS = {"X-Token": 'getSecret("/secrets/token")'}


def shown(desk: Desk, answer: bytes) -> bytes:
    """Everything that a sandbox sees of this answer to a request with the value."""
    desk.world.clear()

    def once(heard: Heard, link: socket.socket) -> None:
        heard.read_request(link)
        link.sendall(answer)

    desk.world.site(HOST, handler=once)
    desk.secret("/secrets/token", CANARY, f"https://{HOST}")
    with desk.box.tls(HOST) as link:
        link.sendall(
            f"GET / HTTP/1.1\r\nHost: {HOST}\r\nConnection: close\r\nX-Token: {HEADERS['X-Token']}\r\n\r\n".encode()
        )
        seen = b""
        while more := link.recv(65536):
            seen += more
    return seen


raw = zlib.compressobj(wbits=-15)
HIDING = {
    "reason phrase": f"HTTP/1.1 200 {CANARY}\r\nContent-Length: 0\r\n\r\n".encode(),
    "reason of an error": f"HTTP/1.1 500 no {CANARY} no\r\nContent-Length: 0\r\n\r\n".encode(),
    "field name": reply(b"ok", f"X-{CANARY}: 1"),
    "cookie": reply(b"ok", f"Set-Cookie: t={CANARY}; Path=/"),
    "authenticate": reply(b"", f'WWW-Authenticate: Bearer error="{CANARY}"', status="403 Forbidden"),
    "interim answer": f"HTTP/1.1 103 Early Hints\r\nLink: <{CANARY}>\r\n\r\n".encode() + reply(b"ok"),
    "trailer": (
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-T\r\n\r\n2\r\nok\r\n0\r\nX-T: "
        + CANARY.encode() + b"\r\n\r\n"
    ),
    "chunk extension": (
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2;t=" + CANARY.encode() + b"\r\nok\r\n0\r\n\r\n"
    ),
    "second gzip member": reply(gzip.compress(b"a") + gzip.compress(CANARY.encode()), "Content-Encoding: gzip"),
    "raw deflate": reply(raw.compress(CANARY.encode()) + raw.flush(), "Content-Encoding: deflate"),
    "gzip named twice": reply(gzip.compress(CANARY.encode()), "Content-Encoding: gzip", "Content-Encoding: gzip"),
    "upper case coding": reply(gzip.compress(CANARY.encode()), "Content-Encoding: GZIP"),
    "one byte at a time": (
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
        + b"".join(b"1\r\n%c\r\n" % byte for byte in CANARY.encode()) + b"0\r\n\r\n"
    ),
    "a beginning inside a beginning": reply((CANARY[:7] + CANARY[:3] + CANARY).encode()),
    "the end cut off": b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + CANARY.encode(),
}  # fmt: skip


@pytest.mark.parametrize("label", HIDING)
def test_54_wherever_a_host_shows_it(desk: Desk, label: str) -> None:
    seen = shown(desk, HIDING[label])
    assert seen.startswith(b"HTTP/1.1 ") or label == "raw deflate", "only an encoding that breaks half-way is cut"
    assert CANARY.lower().encode() not in seen.lower(), seen
    if b"deflate" in seen or b"gzip" in seen:
        assert b'"code":"response_encoding_refused"' in seen


def test_54_no_part_of_an_answer_can_be_asked_for(desk: Desk) -> None:
    """Byte by byte a value would be found again by nobody: the host is asked for all of it."""
    site = desk.world.site(HOST, handler=answering(reply(CANARY.encode())))
    desk.secret("/secrets/token", CANARY, f"https://{HOST}")
    ranged = {"Range": "bytes=3-3", "If-Range": '"x"', "Accept-Encoding": "br, gzip"}
    answer = desk.box.fetch(f"https://{HOST}/", headers={**HEADERS, **ranged})
    assert (answer.status, answer.body) == (200, b'getSecret("/secrets/token")')
    assert b"range" not in site.requests[0].lower()
    assert b"accept-encoding: identity\r\n" in site.requests[0]
    desk.box.fetch(f"https://{HOST}/", headers=ranged)
    assert b"range: bytes=3-3\r\n" in site.requests[1]


def test_54_a_pair_of_credentials_is_hidden_whole_whatever_stands_before_it(desk: Desk) -> None:
    """A short value has no spelling of its own inside base64: the pair it was sent in is looked for."""

    def echo(heard: Heard, link: socket.socket) -> None:
        while (request := heard.read_request(link)) is not None:
            pair = request.split(b"authorization: Basic ")[1].split(b"\r\n")[0]
            forms = [pair, pair.rstrip(b"="), pair.replace(b"+", b"-").replace(b"/", b"_")]
            link.sendall(reply(b" ".join(forms), f"X-Echo: {pair.decode()}"))

    site = desk.world.site(HOST, handler=echo)
    desk.secret("/secrets/token", "k?>", f"https://{HOST}")
    reference = HEADERS["X-Token"]
    fields = {
        "X-Kennel-Secret-Template": "json",
        "Authorization": "Basic " + base64.b64encode(f"u?>~:{reference}".encode()).decode(),
        "Content-Type": "application/json",
    }
    body = json.dumps({"token": reference}).encode()
    answer = desk.box.fetch(f"https://{HOST}/", method="POST", headers=fields, body=body)
    pair = base64.b64encode(b"u?>~:k?>")
    assert (answer.status, pair in site.requests[0]) == (200, True)
    shown = answer.head + answer.body
    assert pair.rstrip(b"=") not in shown, shown
    assert base64.urlsafe_b64encode(b"u?>~:k?>").rstrip(b"=") not in shown, shown


@pytest.mark.parametrize("name", ["X-HTTP-Method-Override", "X-Method-Override", "x-http-method"])
def test_48_a_method_by_the_back_door_is_reported(desk: Desk, name: str) -> None:
    desk.world.site(HOST)
    assert desk.box.fetch(f"https://{HOST}/", method="POST", headers={name: "DELETE"}).status == 200
    row = desk.decision(method="POST")
    assert (name.lower() in row.detail, "DELETE" in row.detail) == (True, True)


@pytest.fixture
def slow(world: World, start: Callable[..., GatewayProcess]) -> Sandbox:
    """A sandbox that may move 1 MB a second."""
    gateway = start(bytes_per_second=1_000_000.0)
    rule = {
        "ruleKey": "raw", "verdict": "allow", "mode": "tcp", "match": {"hosts": ["raw.example.com"], "ports": [9000]},
    }  # fmt: skip
    gateway.control.policy(rule)
    return gateway.sandbox("slowsandbox1")


def took(work: Callable[[], object]) -> float:
    begun = time.monotonic()
    work()
    return time.monotonic() - begun


def test_bytes_over_the_rate_wait_and_all_arrive(world: World, slow: Sandbox) -> None:
    body = b"x" * 1_500_000
    site = world.site(HOST, handler=answering(reply(body)))

    def down() -> None:
        assert slow.fetch(f"https://{HOST}/").body == body

    def up() -> None:
        assert slow.fetch(f"https://{HOST}/", method="POST", body=body).status == 200
        assert site.requests[-1].endswith(body)

    assert took(down) > 1.0
    assert took(up) > 2.0


def test_the_rate_holds_for_tunnels_and_for_all_connections_together(world: World, slow: Sandbox) -> None:
    world.resolver.names["raw.example.com"] = [OTHER]
    size = 700_000

    def pour(heard: Heard, link: socket.socket) -> None:
        link.sendall(b"y" * size)
        link.shutdown(socket.SHUT_WR)
        link.recv(1)

    world.serve(OTHER, 9000, pour)
    got: list[int] = []

    def read() -> None:
        with slow.connect("raw.example.com", 9000) as link:
            count = 0
            while more := link.recv(65536):
                count += len(more)
            got.append(count)

    def both() -> None:
        threads = [threading.Thread(target=read) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    assert took(both) > 0.9
    assert got == [size, size]
