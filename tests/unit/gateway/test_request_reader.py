"""Reading requests: however bytes are cut the same requests come out, and a second reader agrees with the first."""

from __future__ import annotations

import h11
from hypothesis import given, settings
from hypothesis import strategies as st

from kennel.gateway.request_reader import Incoming, RequestReader

GOOD = (
    b"GET /a?b=c HTTP/1.1\r\nHost: a.example.com\r\nX-Y: z\r\n\r\n"
    b"POST /p HTTP/1.1\r\nHost: a.example.com\r\nContent-Length: 5\r\n\r\nhello"
    b"PUT /q HTTP/1.1\r\nHost: a.example.com\r\nTransfer-Encoding: chunked\r\n\r\n3;x=y\r\nabc\r\n0\r\nT: 1\r\n\r\n"
    b"GET /last HTTP/1.1\r\nHost: a.example.com\r\nConnection: upgrade\r\nUpgrade: h2c\r\n\r\n"
    b"HEAD / HTTP/1.1\r\nHost: a.example.com\r\n\r\n"
)


def read(pieces: list[bytes]) -> tuple[list[Incoming], RequestReader]:
    reader = RequestReader()
    for piece in pieces:
        reader.feed(piece)
    return list(reader.arrived), reader


def shape(incoming: Incoming) -> tuple[object, ...]:
    return incoming.method, incoming.raw, incoming.headers, b"".join(incoming.body), incoming.complete, incoming.fault


def test_a_pipeline() -> None:
    requests, reader = read([GOOD])
    assert [r.method for r in requests] == ["GET", "POST", "PUT", "GET", "HEAD"]
    assert [b"".join(r.body) for r in requests] == [b"", b"hello", b"abc", b"", b""]
    assert all(r.complete and r.fault is None for r in requests)
    assert reader.broken is None
    assert requests[2].headers == [(b"host", b"a.example.com"), (b"transfer-encoding", b"chunked")]


@given(st.lists(st.integers(1, 40), max_size=40))
def test_cuts_change_nothing(cuts: list[int]) -> None:
    pieces, rest = [], GOOD
    for cut in cuts:
        pieces.append(rest[:cut])
        rest = rest[cut:]
    pieces.append(rest)
    whole, _ = read([GOOD])
    cut_up, reader = read([piece for piece in pieces if piece])
    assert [shape(r) for r in cut_up] == [shape(r) for r in whole]
    assert reader.broken is None


def test_an_upgrade_keeps_what_follows_aside() -> None:
    head = b"GET / HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    head += b"Sec-WebSocket-Key: MDEyMzQ1Njc4OWFiY2RlZg==\r\nSec-WebSocket-Version: 13\r\n\r\n"
    requests, reader = read([head + b"GET /smuggled", b" HTTP/1.1\r\n\r\n"])
    assert len(requests) == 1
    assert reader.switched is requests[0]
    assert requests[0].leftover == b"GET /smuggled HTTP/1.1\r\n\r\n"


def test_heads_are_bounded_however_slowly_they_come() -> None:
    _, reader = read([b"GET / HTTP/1.1\r\nHost: a\r\n"] + [b"X: " + b"a" * 97 + b"\r\n"] * 700)
    assert reader.broken is not None
    requests, _ = read([b"GET / HTTP/1.1\r\nHost: a\r\n" + b"X: a\r\n" * 150 + b"\r\n"])
    assert requests[0].fault is not None
    assert requests[0].fault.code == "request_too_large"


tokens = st.sampled_from(
    [
        b"GET ", b"POST ", b"/", b"/x", b" HTTP/1.1\r\n", b" HTTP/1.0\r\n", b"Host: a\r\n", b"Host : a\r\n", b"\r\n",
        b"\n", b"\r", b"Content-Length: 3\r\n", b"Content-Length: +3\r\n", b"Transfer-Encoding: chunked\r\n", b"abc",
        b"3\r\nabc\r\n", b"0\r\n\r\n", b"Transfer-Encoding: x\r\n", b" folded\r\n", b"\0", b"http://b/", b"\xff",
        b"Expect: 100-continue\r\n", b"Connection: upgrade\r\n", b"Upgrade: h2c\r\n", b'5;a="b\r\n',
    ]
)  # fmt: skip


@given(st.lists(tokens, max_size=25).map(b"".join))
@settings(max_examples=300)
def test_what_passes_is_read_the_same_by_another_reader(data: bytes) -> None:
    requests, _ = read([data])
    passed = []
    for request in requests:
        if request.fault is not None or not request.complete:
            break
        passed.append((request.method, request.raw, b"".join(request.body)))
    assert passed == _by_h11(data, len(passed))


def _by_h11(data: bytes, most: int) -> list[tuple[str, bytes, bytes]]:
    connection, found = h11.Connection(h11.SERVER), []
    connection.receive_data(data.lstrip(b"\r\n"))
    while len(found) < most:
        request, body = connection.next_event(), b""
        assert isinstance(request, h11.Request), (data, request)
        while isinstance(event := connection.next_event(), h11.Data):
            body += bytes(event.data)
        assert isinstance(event, h11.EndOfMessage), (data, event)
        found.append((request.method.decode(), request.target, body))
        rest = connection.trailing_data[0]
        connection = h11.Connection(h11.SERVER)
        connection.receive_data(rest.lstrip(b"\r\n"))
    return found


@given(st.binary(max_size=300))
def test_any_bytes(data: bytes) -> None:
    requests, reader = read([b"POST / HTTP/1.1\r\nHost: a\r\n" + data, data])
    for request in requests:
        assert request.fault is not None or request.target is not None
    assert reader.broken is None or reader.broken.status in (400, 403, 431)
