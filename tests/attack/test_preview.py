"""Attacks on and through previews: smuggled requests, confused hosts, hostile servers, visitors without manners."""

from __future__ import annotations

import os
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING

import pytest

from egress_gateway import GatewayProcess, Sandbox
from kennel.domain.preview import new_token
from kennel.wire import gateway as wire
from preview_visitor import Answer, Visitor, read

if TYPE_CHECKING:
    from egress_fixtures import Desk

pytest_plugins = ["egress_fixtures"]
pytestmark = pytest.mark.root

PLAIN = b"HTTP/1.1 200 ok\r\ncontent-length: 2\r\n\r\nok"


class Servant:
    """A server inside a sandbox: keeps what it hears, says what it is told to, byte for byte."""

    def __init__(self, box: Sandbox, port: int) -> None:
        self.heard: list[bytes] = []
        self.says: Callable[[bytes], bytes] = lambda _: PLAIN
        self.connections = 0
        self._listener = box.inside(lambda: socket.create_server(("127.0.0.1", port)))
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                link, _ = self._listener.accept()
                self.connections += 1
                threading.Thread(target=self._talk, args=(link,), daemon=True).start()

    def _talk(self, link: socket.socket) -> None:
        with link, suppress(OSError):
            while data := link.recv(1 << 20):
                self.heard.append(data)
                if b"\r\n\r\n" in data:
                    link.sendall(self.says(data))

    def requests(self) -> list[bytes]:
        """The request lines it heard, wherever they stand."""
        return re.findall(rb"[A-Z]+ \S+ HTTP/1\.[01]", b"".join(self.heard))

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()


class Show:
    """Two previews of one sandbox, and their servers."""

    def __init__(self, gateway: GatewayProcess, box: Sandbox) -> None:
        self.gateway, self.box = gateway, box
        rows = [wire.PreviewRow(port, new_token()) for port in (3000, 3001)]
        gateway.control.call(wire.SetPreviews(box.id, rows))
        gateway.control.call(wire.PreviewsTold(gateway.control.facts["instance"]))
        self.visitor, self.other = (Visitor(gateway.base.url(row.port, row.token)) for row in rows)
        self.servant, self.second = Servant(box, 3000), Servant(box, 3001)

    def send(self, head: str, body: bytes = b"") -> Answer:
        """A head with HOST and OTHER in it, in lines."""
        names = head.replace("HOST", self.visitor.host).replace("OTHER", self.other.host)
        return self.visitor.raw(names.replace("\n", "\r\n").encode("latin-1") + body)

    def close(self) -> None:
        self.servant.close()
        self.second.close()


@pytest.fixture
def show(desk: Desk) -> Iterator[Show]:
    made = Show(desk.gateway, desk.box)
    assert made.visitor.get("/").body == b"ok"
    made.servant.heard.clear()
    yield made
    made.close()


SMUGGLED = b"GET /smuggled HTTP/1.1\r\nHost: HOST\r\n\r\n"
REFUSED = {
    "length and chunked": "POST / HTTP/1.1\nHost: HOST\nContent-Length: 5\nTransfer-Encoding: chunked\n\n",
    "two lengths": "POST / HTTP/1.1\nHost: HOST\nContent-Length: 5\nContent-Length: 50\n\n",
    "a signed length": "POST / HTTP/1.1\nHost: HOST\nContent-Length: +5\n\n",
    "chunked twice": "POST / HTTP/1.1\nHost: HOST\nTransfer-Encoding: chunked, chunked\n\n",
    "hidden chunked": "POST / HTTP/1.1\nHost: HOST\nTransfer-Encoding: xchunked\n\n",
    "chunked in 1.0": "POST / HTTP/1.0\nHost: HOST\nTransfer-Encoding: chunked\n\n",
    "a space before the colon": "POST / HTTP/1.1\nHost: HOST\nContent-Length : 5\n\n",
    "a folded line": "GET / HTTP/1.1\nHost: HOST\nX-A: b\n c: d\n\n",
    "two hosts": "GET / HTTP/1.1\nHost: HOST\nHost: OTHER\n\n",
    "no host": "GET / HTTP/1.1\n\n",
    "absolute form": "GET http://OTHER/ HTTP/1.1\nHost: HOST\n\n",
    "authority form": "CONNECT OTHER HTTP/1.1\nHost: HOST\n\n",
    "trace": "TRACE / HTTP/1.1\nHost: HOST\n\n",
    "not a path": "GET secret HTTP/1.1\nHost: HOST\n\n",
    "a fragment": "GET /#x HTTP/1.1\nHost: HOST\n\n",
    "half a websocket": "GET / HTTP/1.1\nHost: HOST\nConnection: upgrade\nUpgrade: websocket\n\n",
    "another upgrade": "GET / HTTP/1.1\nHost: HOST\nConnection: upgrade\nUpgrade: raw\n\n",
    "http 2": "PRI * HTTP/2.0\n\nSM\n\n",
    "a head too large": "GET / HTTP/1.1\nHost: HOST\nX: " + "y" * 70_000 + "\n\n",
    "too many fields": "GET / HTTP/1.1\nHost: HOST\n" + "X: y\n" * 200 + "\n",
}


@pytest.mark.parametrize("name", REFUSED)
def test_bytes_that_two_servers_would_read_differently_reach_none(show: Show, name: str) -> None:
    answer = show.send(REFUSED[name], SMUGGLED.replace(b"HOST", show.visitor.host.encode()))
    assert answer.code in ("VALIDATION_FAILED", "PAYLOAD_TOO_LARGE"), answer
    assert show.servant.requests() == []
    assert show.second.requests() == []


def test_a_second_request_goes_where_its_own_host_says(show: Show) -> None:
    """Pipelined behind the first, as a body or as a request: never to the first one's server unasked."""
    v, o = show.visitor, show.other
    with v.connect() as link, link.makefile("rb") as file:
        link.sendall(v.request("/one") + v.request("/two", host=o.host) + v.request("/three", host="nobody.localhost"))
        assert [read(file).status for _ in range(3)] == [200, 200, 404]
    inner = b"GET /inner HTTP/1.1\r\nHost: " + o.host.encode() + b"\r\n\r\n"
    assert v.raw(v.request("/outer", f"Content-Length: {len(inner)}", method="POST") + inner).status == 200
    assert [r.split()[1] for r in show.second.requests()] == [b"/two"]
    assert [r.split()[1] for r in show.servant.requests()] == [b"/one", b"/outer", b"/inner"]


@pytest.mark.parametrize(
    "path", ["/../../etc/passwd", "//evil.example/x", "/a/..%2f..%2fb", "/%00", "/a\\b", "/@id/x?a=b?c"]
)
def test_paths_pass_as_they_were_written(show: Show, path: str) -> None:
    """They are the server's to read: nothing here looks anything up by them."""
    assert show.visitor.get(path).status == 200
    assert show.servant.requests() == [f"GET {path} HTTP/1.1".encode()]


BAD_ANSWERS = {
    "nonsense": b"nonsense\r\n\r\n",
    "nothing": b"",
    "length and chunked": b"HTTP/1.1 200 ok\r\ncontent-length: 1\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
    "two lengths": b"HTTP/1.1 200 ok\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nab",
    "a head bomb": b"HTTP/1.1 200 ok\r\n" + b"x: " + b"y" * 100_000 + b"\r\n\r\n",
    "a field bomb": b"HTTP/1.1 200 ok\r\n" + b"x: y\r\n" * 5000 + b"\r\n",
    "endless interim": b"HTTP/1.1 103 hints\r\n\r\n" * 50,
    "an upgrade unasked": b"HTTP/1.1 101 ok\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n",
}


@pytest.mark.parametrize("name", BAD_ANSWERS)
def test_an_answer_that_cannot_be_trusted_is_a_502(show: Show, name: str) -> None:
    def say(_: bytes) -> bytes:
        if name == "nothing":
            raise OSError
        return BAD_ANSWERS[name]

    show.servant.says = say
    answer = show.visitor.get("/")
    assert (answer.status, answer.code) == (502, "SERVICE_NOT_RESPONDING")
    show.servant.says = lambda _: PLAIN
    assert show.visitor.get("/").body == b"ok"


def test_an_answer_nobody_asked_for_is_never_the_next_visitors(show: Show) -> None:
    evil = b"HTTP/1.1 200 ok\r\ncontent-length: 4\r\n\r\nevil"
    show.servant.says = lambda _: PLAIN + evil
    with show.visitor.connect() as link, link.makefile("rb") as file:
        for _ in range(5):
            link.sendall(show.visitor.request("/"))
            assert read(file).body == b"ok"


def test_a_field_of_the_answer_does_not_end_its_head(show: Show) -> None:
    show.servant.says = lambda _: b"HTTP/1.1 200 ok\r\nx-a: b\nset-cookie: c\r\ncontent-length: 2\r\n\r\nok"
    answer = show.visitor.get("/")
    assert answer.status in (200, 502)
    assert all("\n" not in value for _, value in answer.headers)


def test_two_visitors_of_one_sandbox_share_no_connection(show: Show) -> None:
    """A server that answers late must not answer somebody else."""
    for _ in range(4):
        assert show.visitor.get("/").status == 200
    assert show.servant.connections >= 4


def test_revocation_and_rebirth_hold_against_late_sockets(show: Show) -> None:
    gateway, box = show.gateway, show.box
    with show.visitor.connect() as link, link.makefile("rb") as file:
        link.sendall(show.visitor.request("/"))
        assert read(file).status == 200
        gateway.control.call(wire.SetPreviews(box.id, [], []))
        link.sendall(show.visitor.request("/"))
        assert read(file).code == "STALE_PREVIEW_URL"
    assert show.other.get("/").code == "STALE_PREVIEW_URL"


def test_nothing_of_a_namespace_is_held_after_its_sandbox(desk: Desk) -> None:
    """One socket that stays open would keep the namespace alive."""
    box = desk.another()
    show = Show(desk.gateway, box)
    before = desk.gateway.descriptors()
    with show.visitor.connect() as link, link.makefile("rb") as file:
        link.sendall(show.visitor.request("/"))
        assert read(file).status == 200
        assert desk.gateway.descriptors() > before
        show.close()
        box.remove()
        link.sendall(show.visitor.request("/"))
        assert read(file).code == "STALE_PREVIEW_URL"
    deadline = time.monotonic() + 5
    while desk.gateway.descriptors() > before:
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.fixture
def strict(start: Callable[..., GatewayProcess]) -> Iterator[Show]:
    """A gateway with little patience and few places."""
    gateway = start(preview_connections=24, max_connections=8, hello_timeout=1.0, response_timeout=2.0)
    made = Show(gateway, gateway.sandbox("strictbox"))
    yield made
    made.close()


def test_slow_heads_and_crowds_hold_nobody_up_for_long(strict: Show) -> None:
    """Slow loris: heads that never end are answered 408; a full house makes room again by itself."""
    v = strict.visitor
    with ExitStack() as crowd:
        links = [crowd.enter_context(v.connect()) for _ in range(40)]
        for link in links:
            link.sendall(b"GET / HTTP/1.1\r\nHost: ")
        assert v.get("/").status == 200
        with links[0].makefile("rb") as file:
            assert read(file).code == "WAIT_TIMEOUT"
    assert strict.gateway.descriptors() < 200


def test_one_sandboxs_visitors_are_counted_apart_from_its_own_way_out(strict: Show) -> None:
    hold = threading.Event()
    strict.servant.says = lambda _: PLAIN if hold.wait(10) else b""
    v = strict.visitor
    with ExitStack() as crowd:
        for _ in range(9):
            crowd.enter_context(v.connect()).sendall(v.request("/"))
        deadline = time.monotonic() + 5
        while len(strict.servant.heard) < 9:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        assert v.get("/").code == "QUOTA_EXCEEDED"
        hold.set()


def test_a_silent_server_is_given_up_as_json(strict: Show) -> None:
    strict.servant.says = lambda _: b""
    assert strict.visitor.get("/").code == "SERVICE_NOT_RESPONDING"


def test_only_control_says_what_is_shown_and_only_node_brings_sockets(show: Show) -> None:
    from egress_gateway import connect_as
    from kennel.settings import CONTROL_UID

    rows = [wire.PreviewRow(3000, new_token())]
    for uid, request in (
        (0, wire.SetPreviews(show.box.id, rows)),
        (0, wire.Woken(show.box.id)),
        (CONTROL_UID, wire.Supply()),
        (CONTROL_UID, wire.Sockets(show.box.id, 1, "no")),
    ):
        with connect_as(uid, show.gateway.socket_path) as link:
            link.sendall(wire.encode(wire.Call(1, request)))
            link.settimeout(5)
            assert link.recv(1000) == b""
    assert show.visitor.get("/").status == 200


def test_sockets_of_another_time_are_not_used(show: Show) -> None:
    """Node's sockets carry the attachment they were made for; a stranger's count for nothing."""
    from egress_gateway import connect_as

    outside = [socket.socket(family) for family in (socket.AF_INET, socket.AF_INET6) for _ in range(wire.PAIRS)]
    with connect_as(0, show.gateway.socket_path) as link:
        frame = wire.encode(wire.Call(1, wire.Sockets(show.box.id, 999_999)))
        socket.send_fds(link, [frame], [one.fileno() for one in outside])
        link.settimeout(5)
        assert b"reply" in link.recv(1000)
    for one in outside:
        one.close()
    for _ in range(2 * wire.PAIRS):
        assert show.visitor.get("/").body == b"ok"
    assert os.path.exists(show.box.handle)
