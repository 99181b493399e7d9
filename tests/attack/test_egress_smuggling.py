"""Attacks 25 to 49: one way to read any bytes, on the way out and on the way back; paths and methods."""

from __future__ import annotations

import base64
import hashlib
import socket
import time
from typing import TYPE_CHECKING

import pytest

from egress_gateway import Response, read_response
from egress_world import Heard, Server, answering, reply

if TYPE_CHECKING:
    from egress_fixtures import Desk

pytest_plugins = ["egress_fixtures"]
pytestmark = pytest.mark.root

HOST = "good.example.com"
KEY = base64.b64encode(b"0123456789abcdef").decode()
ACCEPT = base64.b64encode(hashlib.sha1(KEY.encode() + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest()).decode()


@pytest.fixture
def site(desk: Desk) -> Server:
    return desk.world.site(HOST)


def send(desk: Desk, head: str | bytes, body: bytes = b"") -> Response:
    raw = head if isinstance(head, bytes) else head.replace("\n", "\r\n").encode("latin-1")
    return desk.box.raw(HOST, 443, raw + body)


SMUGGLED = "GET /smuggled HTTP/1.1\r\nHost: good.example.com\r\n\r\n"
CHUNKS = b"5\r\nhello\r\n0\r\n\r\n"
REQUESTS: dict[str, bytes] = {
    "25 length and chunked": b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n" + CHUNKS,
    "25 chunked and length": b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n" + CHUNKS,
    "26 a list of codings": b"Transfer-Encoding: gzip, chunked\r\n\r\n" + CHUNKS,
    "26 identity and chunked": b"Transfer-Encoding: identity\r\nTransfer-Encoding: chunked\r\n\r\n" + CHUNKS,
    "26 chunked twice": b"Transfer-Encoding: chunked, chunked\r\n\r\n" + CHUNKS,
    "27 xchunked": b"Transfer-Encoding: xchunked\r\n\r\n" + CHUNKS,
    "27 chunked with a tail": b"Transfer-Encoding: chunked;a=b\r\n\r\n" + CHUNKS,
    "28 space before the colon": b"Content-Length : 5\r\n\r\nhello",
    "28 tab before the colon": b"Transfer-Encoding\t: chunked\r\n\r\n" + CHUNKS,
    "29 two equal lengths": b"Content-Length: 5\r\nContent-Length: 5\r\n\r\nhello",
    "29 two lengths": b"Content-Length: 5\r\nContent-Length: 50\r\n\r\nhello",
    "30 a signed length": b"Content-Length: +5\r\n\r\nhello",
    "30 a negative length": b"Content-Length: -5\r\n\r\nhello",
    "31 a list of lengths": b"Content-Length: 5, 5\r\n\r\nhello",
    "31 an empty length": b"Content-Length: \r\n\r\nhello",
    "32 bare LF": b"X: a\nContent-Length: 5\r\n\r\nhello",
    "33 bare CR": b"X: a\rContent-Length: 5\r\n\r\nhello",
    "34 folding": b"X: a\r\n Content-Length: 5\r\n\r\nhello",
    "35 NUL in a value": b"X: a\0b\r\n\r\n",
    "35 NUL in a name": b"X\0: a\r\n\r\n",
    "36 an extension with LF": b"Transfer-Encoding: chunked\r\n\r\n5;a\nb\r\nhello\r\n0\r\n\r\n",
    "36 a chunk's size with LF": b"Transfer-Encoding: chunked\r\n\r\n5\nhello\r\n0\r\n\r\n",
    "37 a hexadecimal length": b"Content-Length: 0x5\r\n\r\nhello",
    "37 a chunk's size with 0x": b"Transfer-Encoding: chunked\r\n\r\n0x5\r\nhello\r\n0\r\n\r\n",
    "37 a chunk's size too large": b"Transfer-Encoding: chunked\r\n\r\n10000000000000005\r\nhello\r\n0\r\n\r\n",
    "39 a head of 200 KB": b"X: " + b"a" * 200_000 + b"\r\n\r\n",
    "39 a thousand fields": b"X: a\r\n" * 1000 + b"\r\n",
    "expect something else": b"Expect: 200-maybe\r\nContent-Length: 5\r\n\r\nhello",
}


@pytest.mark.parametrize("label", REQUESTS)
def test_25_to_39_two_ways_to_read_a_request(desk: Desk, site: Server, label: str) -> None:
    raw = b"POST /first HTTP/1.1\r\nHost: good.example.com\r\n" + REQUESTS[label] + SMUGGLED.encode()
    answer = send(desk, raw)
    assert answer.status in (400, 417, 431), (label, answer.head)
    # What is refused while its body arrives may have begun upstream; it never becomes a second request there.
    assert all(b"/smuggled" not in request for request in site.requests), label


def test_38_chunked_in_http_1_0_and_old_versions(desk: Desk, site: Server) -> None:
    raw = b"POST / HTTP/1.0\r\nHost: good.example.com\r\nTransfer-Encoding: chunked\r\n\r\n" + CHUNKS
    assert send(desk, raw).status == 400
    for version in ("HTTP/0.9", "HTTP/1.2", "HTTP/2.0", "http/1.1", "HTTP/1.1 "):
        assert send(desk, f"GET / {version}\nHost: {HOST}\n\n").status in (0, 400), version
    assert send(desk, b"GET /\r\n\r\n").status in (0, 400)
    assert site.requests == []
    answer = send(desk, f"GET / HTTP/1.0\nHost: {HOST}\n\n")
    assert (answer.status, answer.field("connection")) == (200, "close")


def test_40_lower_case_and_invented_methods(desk: Desk, site: Server) -> None:
    for method in ("get", "Get", "FOO", "GET\t", "G E T", "GET\0"):
        assert send(desk, f"{method} / HTTP/1.1\nHost: {HOST}\n\n").status in (0, 400), method
    assert site.requests == []


def test_what_goes_out_is_written_anew(desk: Desk, site: Server) -> None:
    head = (
        "POST /a?b=%20 HTTP/1.1\nHost: GOOD.example.com:443\nX-Kept: yes\nConnection: close, X-Dropped, keep-alive\n"
        "X-Dropped: 1\nKeep-Alive: 5\nTE: trailers\nProxy-Authorization: Basic eA==\nX-Kennel-Project: other\n"
        "Transfer-Encoding: Chunked\n\n"
    )
    assert send(desk, head, b"5;x=y\r\nhello\r\n0\r\nX-Trailer: 1\r\n\r\n").status == 200
    assert site.requests == [
        b"POST /a?b=%20 HTTP/1.1\r\nhost: good.example.com\r\ntransfer-encoding: chunked\r\nx-kept: yes\r\n\r\n"
        b"5\r\nhello\r\n0\r\n\r\n"
    ]


def test_41_h2c_upgrade_is_not_forwarded_and_the_next_request_is_read(desk: Desk, site: Server) -> None:
    head = f"GET /one HTTP/1.1\nHost: {HOST}\nConnection: Upgrade, HTTP2-Settings\n"
    head += "Upgrade: h2c\nHTTP2-Settings: AAMAAABkAAQ\n\n"
    second = f"GET /two HTTP/1.1\nHost: {HOST}\n\n"
    with desk.box.tls(HOST) as link:
        link.sendall((head + second).replace("\n", "\r\n").encode())
        assert [read_response(link).status, read_response(link).status] == [200, 200]
    assert [request.split(b" ")[1] for request in site.requests] == [b"/one", b"/two"]
    assert b"h2c" not in site.requests[0].lower()
    assert b"http2-settings" not in site.requests[0].lower()


def upgrade(**other: str) -> str:
    fields = {"Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Key": KEY, "Sec-WebSocket-Version": "13"}
    lines = "".join(f"{name}: {value}\n" for name, value in {**fields, **other}.items() if value)
    return f"GET /socket HTTP/1.1\nHost: {HOST}\n{lines}\n"


def test_42_an_upgrade_answered_200_and_bytes_behind_it(desk: Desk, site: Server) -> None:
    with desk.box.tls(HOST) as link:
        link.sendall((upgrade().replace("\n", "\r\n") + SMUGGLED).encode())
        assert read_response(link).status == 200
        assert link.recv(100) == b""
    assert len(site.requests) == 1
    assert all(b"smuggled" not in heard.raw for heard in site.connections)


def switching(*fields: str) -> bytes:
    return "\r\n".join(["HTTP/1.1 101 Switching Protocols", *fields]).encode() + b"\r\n\r\n"


@pytest.mark.parametrize(
    "fields",
    [
        ["Upgrade: websocket", "Connection: Upgrade"],
        ["Upgrade: websocket", "Connection: Upgrade", "Sec-WebSocket-Accept: AAAA"],
        ["Upgrade: h2c", "Connection: Upgrade", f"Sec-WebSocket-Accept: {ACCEPT}"],
        [
            "Upgrade: websocket",
            "Connection: Upgrade",
            f"Sec-WebSocket-Accept: {ACCEPT}",
            "Sec-WebSocket-Protocol: other",
        ],
    ],
)
def test_43_a_101_that_does_not_answer_this_key(desk: Desk, fields: list[str]) -> None:
    desk.world.site(HOST, handler=answering(switching(*fields) + b"frames"))
    answer = send(desk, upgrade(**{"Sec-WebSocket-Protocol": "chat"}))
    assert answer.code == "upstream_malformed"


def test_43_a_101_nobody_asked_for(desk: Desk) -> None:
    desk.world.site(HOST, handler=answering(switching("Upgrade: websocket", f"Sec-WebSocket-Accept: {ACCEPT}")))
    assert send(desk, f"GET / HTTP/1.1\nHost: {HOST}\n\n").code == "upstream_malformed"


def test_websocket_frames_pass_both_ways_and_half_upgrades_do_not(desk: Desk) -> None:
    def echo(heard: Heard, link: socket.socket) -> None:
        heard.read_request(link)
        accept = f"Sec-WebSocket-Accept: {ACCEPT}"
        extra = ["Location: /x", "Sec-WebSocket-Protocol: chat"]
        link.sendall(switching("Upgrade: WebSocket", "Connection: Upgrade", accept, *extra) + b"\x81\x02hi")
        while data := link.recv(65536):
            heard.raw += data
            link.sendall(data[::-1])

    server = desk.world.site(HOST, handler=echo)
    with desk.box.tls(HOST) as link:
        fields = {"Sec-WebSocket-Protocol": "chat, other", "Origin": "https://x.example.com"}
        link.sendall(upgrade(**fields).replace("\n", "\r\n").encode())
        answer = read_response(link)
        assert (answer.status, answer.field("sec-websocket-protocol")) == (101, "chat")
        assert answer.field("location") is None
        got = answer.rest or link.recv(100)
        assert got == b"\x81\x02hi"
        for _ in range(3):
            link.sendall(b"abc" * 1000)
            back = b""
            while len(back) < 3000:
                back += link.recv(65536)
            assert back == b"cba" * 1000
    assert b"origin: https://x.example.com" in server.requests[0]
    for broken in (
        {"Sec-WebSocket-Key": ""}, {"Sec-WebSocket-Version": "8"}, {"Sec-WebSocket-Key": "short"},
        {"Upgrade": "websocket, h2c"}, {"Upgrade": "tls/1.0"}, {"Content-Length": "5"},
    ):  # fmt: skip
        assert send(desk, upgrade(**broken)).code == "upgrade_refused", broken


def test_44_an_answer_before_the_body_and_then_the_body(desk: Desk) -> None:
    def early(heard: Heard, link: socket.socket) -> None:
        while b"\r\n\r\n" not in heard.raw:
            heard.raw += link.recv(65536)
        link.sendall(reply(b"no thanks", status="413 Too Large"))
        while more := link.recv(65536):
            heard.raw += more

    server = desk.world.site(HOST, handler=early)
    with desk.box.tls(HOST) as link:
        link.sendall(f"POST / HTTP/1.1\r\nHost: {HOST}\r\nContent-Length: 60\r\n\r\nfirst".encode())
        assert read_response(link).status == 413
        link.sendall(SMUGGLED.encode())
        assert link.recv(1000) == b""
    time.sleep(0.1)
    assert len(server.connections) == 1
    assert b"smuggled" not in server.connections[0].raw


ANSWERS: dict[str, bytes] = {
    "two lengths": b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 30\r\n\r\nok",
    "two equal lengths": b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\nok",
    "length and chunked": b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n" + CHUNKS,
    "a coding that is not chunked": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\nok",
    "bare CR in a field": b"HTTP/1.1 200 OK\r\nX: a\rSet-Cookie: b\r\nContent-Length: 2\r\n\r\nok",
    "bare LF": b"HTTP/1.1 200 OK\nContent-Length: 2\n\nok",
    "NUL in a field": b"HTTP/1.1 200 OK\r\nX: a\0b\r\nContent-Length: 2\r\n\r\nok",
    "no HTTP": b"SSH-2.0-OpenSSH_9.2\r\n",
    "an endless head": b"HTTP/1.1 200 OK\r\n" + b"X: aaaaaaaaaaaaaaaa\r\n" * 6000,
    "a thousand interim answers": b"HTTP/1.1 102 Processing\r\n\r\n" * 1000 + reply(),
    "a status that is none": b"HTTP/1.1 20 OK\r\nContent-Length: 2\r\n\r\nok",
}


@pytest.mark.parametrize("label", ANSWERS)
def test_45_answers_that_cannot_be_read(desk: Desk, label: str) -> None:
    desk.world.site(HOST, handler=answering(ANSWERS[label]))
    answer = send(desk, f"GET / HTTP/1.1\nHost: {HOST}\n\n")
    assert (answer.status, answer.code) == (502, "upstream_malformed"), answer.head


def test_45_truncated_bodies_do_not_look_whole(desk: Desk) -> None:
    def cut(body: bytes) -> Server:
        def handle(heard: Heard, link: socket.socket) -> None:
            heard.read_request(link)
            link.sendall(body)

        return desk.world.site(HOST, handler=handle)

    for body in (
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel",
        b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nhello",
    ):
        desk.world.clear()
        cut(body)
        with desk.box.tls(HOST) as link:
            link.sendall(f"GET / HTTP/1.1\r\nHost: {HOST}\r\n\r\n".encode())
            got, ended = b"", False
            try:
                while more := link.recv(65536):
                    got += more
                ended = True
            except OSError:
                pass  # a reset, or TLS without its goodbye
            assert not (ended and b"content-length" not in got.lower() and got.endswith(b"0\r\n\r\n"))
            assert not got.endswith(b"0\r\n\r\n")
            assert got.count(b"hello") <= 1


def test_46_leftover_bytes_never_reach_the_next_request(desk: Desk) -> None:
    poison = reply(b"poison", "X-Poison: yes")
    answers = {
        "behind the end": reply() + poison,
        "behind a HEAD": b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n" + poison,
        "behind a 304": b"HTTP/1.1 304 Not Modified\r\nContent-Length: 2\r\n\r\n" + poison,
        "garbage": reply() + b"garbage",
    }
    for label, answer in answers.items():
        desk.world.clear()
        server = desk.world.site(HOST, handler=answering(answer, reply(b"clean")))
        method = "HEAD" if "HEAD" in label else "GET"
        with desk.box.tls(HOST) as link:
            link.sendall(f"{method} /1 HTTP/1.1\r\nHost: {HOST}\r\n\r\n".encode())
            read_response(link, bodiless=method == "HEAD")
            time.sleep(0.05)
            link.sendall(f"GET /2 HTTP/1.1\r\nHost: {HOST}\r\n\r\n".encode())
            second = read_response(link)
        assert second.field("x-poison") is None, label
        assert len(server.connections) == 2, label


def test_pipelined_requests_are_answered_in_order(desk: Desk, site: Server) -> None:
    one = "".join(f"GET /{number} HTTP/1.1\r\nHost: {HOST}\r\n\r\n" for number in range(20))
    with desk.box.tls(HOST) as link:
        link.sendall(one.encode())
        assert [read_one(link) for _ in range(20)] == [200] * 20
    assert [request.split(b" ")[1] for request in site.requests] == [b"/%d" % number for number in range(20)]


def read_one(link: socket.socket) -> int:
    """A response without a byte of the next."""
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        head += link.recv(1)
    length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
    while length:
        length -= len(link.recv(length))
    return int(head.split(b" ")[1])


PATHS = [
    "/%2e%2e/admin", "/x/%2e%2e/admin/", "/x/..;/admin", "/%2fadmin", "/x%2f..%2fadmin", "/\\admin", "/x/..\\admin",
    "//admin", "/%00/admin", "/admin%00", "/%c0%ae%c0%ae/admin", "/x/./../admin", "/%61dmin", "/%252e%252e/admin",
    "/.;/admin", "/%2e/admin", "/x/%2E%2E;a=b/admin", "/%ad%ae/../admin", "/%zz/../admin", "/admin?x=/ok",
    "/x/../admin?y", "/;/../admin", "/..%5cadmin",
]  # fmt: skip


@pytest.mark.parametrize("path", PATHS)
def test_47_paths_against_a_rule_that_denies_one(desk: Desk, site: Server, path: str) -> None:
    desk.policy({"ruleKey": "no-admin", "verdict": "deny", "match": {"hosts": [HOST], "pathPrefix": "/admin"}})
    answer = send(desk, f"GET {path} HTTP/1.1\nHost: {HOST}\n\n")
    assert answer.status in (400, 403), answer.head
    assert answer.code in ("egress_denied", "path_ambiguous", "target_invalid", "request_malformed"), answer.body
    assert site.requests == []


def test_47_fragments_and_plain_paths(desk: Desk, site: Server) -> None:
    desk.policy({"ruleKey": "no-admin", "verdict": "deny", "match": {"hosts": [HOST], "pathPrefix": "/admin"}})
    assert send(desk, f"GET /ok#/admin HTTP/1.1\nHost: {HOST}\n\n").status == 400
    for path in ("/ok?x=/admin", "/ok/%20a", "/a.b/..c/%C3%A9", "/public/;v=1"):
        assert send(desk, f"GET {path} HTTP/1.1\nHost: {HOST}\n\n").status == 200, path
    assert site.requests[0].split(b" ")[1] == b"/ok?x=/admin"


def test_47_without_path_rules_strange_paths_pass_unchanged(desk: Desk, site: Server) -> None:
    for path in ("/a%2Fb", "/x//y", "/%2e%2e/z", "/npm/@scope%2fname"):
        assert send(desk, f"GET {path} HTTP/1.1\nHost: {HOST}\n\n").status == 200
    assert [request.split(b" ")[1].decode() for request in site.requests] == [
        "/a%2Fb", "/x//y", "/%2e%2e/z", "/npm/@scope%2fname",
    ]  # fmt: skip


def test_49_methods_are_compared_whatever_the_rule_writes(desk: Desk, site: Server) -> None:
    desk.policy({"ruleKey": "no-post", "verdict": "deny", "match": {"hosts": [HOST], "methods": ["post"]}})
    assert send(desk, f"POST / HTTP/1.1\nHost: {HOST}\nContent-Length: 0\n\n").code == "egress_denied"
    assert send(desk, f"GET / HTTP/1.1\nHost: {HOST}\nX-HTTP-Method-Override: POST\n\n").status == 200
    assert len(site.requests) == 1
