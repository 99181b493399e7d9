"""Attack 68: what a host sees of a request through this gateway and through mitmproxy, for the same bytes sent."""

from __future__ import annotations

import random
import socket
import ssl
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from egress_fixtures import Desk
from egress_gateway import GatewayProcess
from egress_world import SITE, Heard, World, reply
from kennel.bench import oracle
from kennel.node import interception

if TYPE_CHECKING:
    from collections.abc import Callable

pytest_plugins = ["egress_fixtures"]
pytestmark = [pytest.mark.root, pytest.mark.full]

HOST, PORT = "diff.example.com", 8090
Seen = tuple[str, str, str, bytes]
"""Method, target, host, body."""


@pytest.fixture(scope="module")
def mitmproxy(world: World, tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    program = oracle.mitmdump()
    if program is None:
        pytest.skip("mitmproxy cannot be had here")
    folder = tmp_path_factory.mktemp("mitm")
    # The host's name is in the machine's resolver for nobody: it is given by its address, checked by its name.
    with oracle.running(program, world.inner, folder, f"https://{SITE}:443", world.authority.roots, PORT):
        yield PORT


def chunked(*parts: bytes, end: bytes = b"0\r\n\r\n") -> bytes:
    return b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts) + end


def head(first: str = "GET / HTTP/1.1", *fields: str, host: str | None = HOST) -> bytes:
    lines = [first, *([f"Host: {host}"] if host else []), *fields]
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n"


REQUESTS = {
    "plain": head(),
    "query": head("GET /a?b=c&d=%20e HTTP/1.1"),
    "dots": head("GET /a/../b/./c HTTP/1.1"),
    "encoded dots": head("GET /a/%2e%2e/b HTTP/1.1"),
    "two slashes": head("GET //a//b HTTP/1.1"),
    "semicolon": head("GET /a;b=c HTTP/1.1"),
    "upper host": head(host=HOST.upper()),
    "host with port": head(host=f"{HOST}:443"),
    "trailing dot": head(host=f"{HOST}."),
    "other host": head(host="evil.example.com"),
    "two hosts": head("GET / HTTP/1.1", "Host: evil.example.com"),
    "no host": head(host=None),
    "absolute": head(f"GET https://{HOST}/x HTTP/1.1"),
    "absolute elsewhere": head("GET https://evil.example.com/x HTTP/1.1"),
    "connect": head(f"CONNECT {HOST}:443 HTTP/1.1"),
    "body": head("POST /b HTTP/1.1", "Content-Length: 5") + b"hello",
    "chunks": head("POST /c HTTP/1.1", "Transfer-Encoding: chunked") + chunked(b"he", b"llo"),
    "chunk extension": head("POST /c HTTP/1.1", "Transfer-Encoding: chunked") + b"5;x=y\r\nhello\r\n0\r\n\r\n",
    "trailer": head("POST /c HTTP/1.1", "Transfer-Encoding: chunked") + chunked(b"hello", end=b"0\r\nX-T: 1\r\n\r\n"),
    "upper chunked": head("POST /c HTTP/1.1", "Transfer-Encoding: CHUNKED") + chunked(b"hello"),
    "xchunked": head("POST /c HTTP/1.1", "Transfer-Encoding: xchunked") + chunked(b"hello"),
    "te list": head("POST /c HTTP/1.1", "Transfer-Encoding: gzip, chunked") + chunked(b"hello"),
    "cl and te": head("POST /c HTTP/1.1", "Content-Length: 3", "Transfer-Encoding: chunked") + chunked(b"hello"),
    "two lengths": head("POST /b HTTP/1.1", "Content-Length: 5", "Content-Length: 5") + b"hello",
    "two other lengths": head("POST /b HTTP/1.1", "Content-Length: 5", "Content-Length: 6") + b"hello!",
    "length list": head("POST /b HTTP/1.1", "Content-Length: 5, 5") + b"hello",
    "plus length": head("POST /b HTTP/1.1", "Content-Length: +5") + b"hello",
    "hex length": head("POST /b HTTP/1.1", "Content-Length: 0x5") + b"hello",
    "space before colon": head("POST /b HTTP/1.1", "Content-Length : 5") + b"hello",
    "folded": head("GET / HTTP/1.1", "X-A: b\r\n c"),
    "bare lf": head("GET / HTTP/1.1", "X-A: b\nX-B: c"),
    "bare cr": head("GET / HTTP/1.1", "X-A: b\rX-B: c"),
    "nul": head("GET / HTTP/1.1", "X-A: b\0c"),
    "http 1.0": head("GET /old HTTP/1.0"),
    "http 1.0 with te": head("POST /old HTTP/1.0", "Transfer-Encoding: chunked") + chunked(b"hello"),
    "connection names a field": head("GET / HTTP/1.1", "Connection: x-secret", "X-Secret: 1"),
    "h2c": head("GET / HTTP/1.1", "Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAA"),
    "lower method": head("get / HTTP/1.1"),
    "odd method": head("PROPFIND /dav HTTP/1.1"),
    "two requests": head("GET /1 HTTP/1.1") + head("GET /2 HTTP/1.1"),
    "request in the body": head("POST /1 HTTP/1.1", "Content-Length: 40") + head("GET /hidden HTTP/1.1")[:40].ljust(40),
}  # fmt: skip


GOOD = ("plain", "query", "body", "chunks", "two requests", "odd method", "dots")
"""What everybody sends on as it is."""


def mutations(seed: int, count: int) -> list[bytes]:
    """Requests that are sent as they are, each with one byte replaced, taken out or doubled."""
    dice = random.Random(seed)
    made = []
    for _ in range(count):
        text = bytearray(REQUESTS[dice.choice(GOOD)])
        at = dice.randrange(len(text))
        text[at : at + 1] = dice.choice([b"", bytes([text[at]]) * 2, dice.choice([b"\r", b"\n", b" ", b"\t", b":"]),
                                             bytes([dice.randrange(256)])])  # fmt: skip
        made.append(bytes(text))
    return made


class Site:
    """A host that keeps what it saw, and answers so that both connections end."""

    def __init__(self, world: World) -> None:
        self.seen: list[Seen] = []
        world.resolver.names[HOST] = [SITE]
        world.serve(SITE, 443, self._serve, world.authority.context(HOST, SITE))

    def _serve(self, heard: Heard, link: socket.socket) -> None:
        while (request := heard.read_request(link)) is not None:
            top, _, body = request.partition(b"\r\n\r\n")
            lines = top.decode("latin-1").split("\r\n")
            method, target, _ = lines[0].split(" ", 2)
            fields = [line.partition(":") for line in lines[1:]]
            host = ", ".join(value.strip() for name, _, value in fields if name.lower() == "host")
            if any(name.lower() == "transfer-encoding" for name, _, _ in fields):
                body = dechunked(body)
            self.seen.append((method, target, host.lower(), body))
            link.sendall(reply(b"ok"))

    def take(self) -> list[Seen]:
        seen, self.seen = self.seen, []
        return seen


def dechunked(body: bytes) -> bytes:
    whole = b""
    while body:
        size, _, body = body.partition(b"\r\n")
        count = int(size.partition(b";")[0], 16)
        whole, body = whole + body[:count], body[count + 2 :]
        if not count:
            break
    return whole


def send(open_: Callable[[], socket.socket], raw: bytes) -> None:
    with suppress(OSError, ssl.SSLError), open_() as link:
        link.settimeout(0.6)
        link.sendall(raw)
        while link.recv(65536):
            link.settimeout(0.1)


def through_mitmproxy(world: World) -> socket.socket:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    link = interception.inside(world.inner, lambda: socket.create_connection(("127.0.0.1", PORT), 5))
    return context.wrap_socket(link, server_hostname=HOST)


@pytest.fixture
def site(desk: Desk, mitmproxy: int) -> Site:
    return Site(desk.world)


def same(ours: list[Seen], theirs: list[Seen]) -> bool:
    """Whether a host saw nothing through this gateway that it does not see, in this order, through the other.

    Requests may be missing: this gateway refuses some that the other lets by. Host names are looked at elsewhere.
    """
    left = iter([(seen[0], seen[1], seen[3]) for seen in theirs])
    return all((seen[0], seen[1], seen[3]) in left for seen in ours)


# mitmproxy writes these anew in another way, or refuses them; here they mean what they say.
OTHERWISE = {"host with port", "trailing dot", "upper host", "lower method"}


@pytest.mark.parametrize("label", REQUESTS)
def test_68_a_host_sees_the_same_or_nothing(desk: Desk, site: Site, label: str) -> None:
    send(lambda: desk.box.tls(HOST), REQUESTS[label])
    ours = site.take()
    send(lambda: through_mitmproxy(desk.world), REQUESTS[label])
    theirs = site.take()
    assert all(seen[2] == HOST for seen in ours), "nothing goes out under another name"
    assert len(ours) <= (2 if label == "two requests" else 1)
    if label not in OTHERWISE:
        assert not theirs or same(ours, theirs), (ours, theirs)
    if label in GOOD:
        assert ours == theirs


@pytest.mark.timeout(600)
def test_68_mutations(desk: Desk, site: Site, gateway: GatewayProcess) -> None:
    differing, sent = [], 0
    for raw in mutations(2026, 80):
        send(lambda raw=raw: desk.box.tls(HOST), raw)
        ours = site.take()
        send(lambda raw=raw: through_mitmproxy(desk.world), raw)
        theirs = site.take()
        sent += bool(ours)
        assert all(seen[2] == HOST for seen in ours), raw
        if theirs and not same(ours, theirs):
            differing.append((raw, ours, theirs))
    assert sent > 10, "most mutations would be refused by anybody: this compares nothing"
    assert differing == []
    assert gateway.process.poll() is None
