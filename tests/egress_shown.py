"""Owns the fuzzer of what goes back: a host that got a secret and shows it in whatever way an answer can be written.

One of the readers of egress_fuzzers. Invariant: of an answer to a request with a secret nothing is written to the
sandbox that holds the value, however the answer is cut, framed or encoded.
"""

from __future__ import annotations

import gzip
import random
import zlib

from kennel.domain.redaction import forms
from kennel.gateway.answer import Answer
from kennel.gateway.dispatch import Dispatch
from kennel.gateway.request_reader import Incoming, RequestReader
from kennel.gateway.upstream import Upstream

VALUE = "Canary-/Zx81+k9=value"
SPELLINGS = [form for form in forms(VALUE) if len(form) > 12]
RAW, INSTEAD = VALUE.encode(), b'getSecret("/s")'
WORDS = [
    *SPELLINGS, RAW[:9], RAW[9:], RAW + b"\r\n", b"Content-Encoding: gzip\r\n", b"Content-Encoding: br\r\n", b"\r\n",
    b"Transfer-Encoding: chunked\r\n", b"Content-Length: 5\r\n", b"0\r\n\r\n", b"5\r\n", b"1\r\n",
    b"X-" + RAW + b": 1\r\n",
    b"HTTP/1.1 103 \r\n\r\n", gzip.compress(RAW, mtime=0), b"Connection: close\r\n", b"HTTP/1.1 200 " + RAW + b"\r\n",
]  # fmt: skip


def shown() -> list[bytes]:
    """Answers that hold the value in head and body, in each framing and each encoding that is read."""
    body = b"you sent " + RAW + b" and " + SPELLINGS[0]
    length = b"HTTP/1.1 200 OK\r\nX-Echo: " + RAW + b"\r\nContent-Length: %d\r\n\r\n"
    chunks = b"".join(b"3\r\n%b\r\n" % body[at : at + 3] for at in range(0, len(body) // 3 * 3, 3)) + b"0\r\n\r\n"
    made = [length % len(body) + body, b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks]
    made.append(b"HTTP/1.0 500 " + RAW + b"\r\n\r\n" + body)
    for coding, packed in (("gzip", gzip.compress(body, mtime=0)), ("deflate", zlib.compress(body))):
        head = f"HTTP/1.1 200 OK\r\nContent-Encoding: {coding}\r\nContent-Length: {len(packed)}\r\n\r\n"
        made.append(head.encode() + packed)
    return made


class _Sandbox:
    """The exchange of one request: what it would be sent is kept."""

    def __init__(self, version: bytes) -> None:
        reader = RequestReader()
        reader.feed(b"GET / HTTP/" + version + b"\r\nHost: a.example.com\r\n\r\n")
        self.incoming: Incoming = reader.arrived[0]
        self.sent: list[bytes] = []
        self.said = ""
        self.answer = Answer(self, Dispatch(("https", "a.example.com", 443), b"", forms=forms(VALUE), instead=INSTEAD))

    def write(self, data: bytes) -> None:
        self.sent.append(data)

    def on_interim(self, status: int) -> None:
        """Ends here, as in the gateway."""

    def on_head(self, status: int, reason: bytes, headers: list[tuple[bytes, bytes]]) -> bool:
        return not self.said and self.answer.head(status, reason, headers)

    def on_data(self, data: bytes) -> None:
        if not self.said:
            self.answer.data(data)

    def on_end(self) -> None:
        if not self.said:
            self.answer.end()
            self.said = "end"

    def on_switch(self, leftover: bytes) -> None:
        raise AssertionError("nobody asked for a switch")

    def on_failure(self, code: str, detail: str) -> None:
        assert VALUE not in detail
        self.said = self.said or code

    def flush(self) -> None:
        if not self.said:
            self.answer.flush()

    def pause_client(self, paused: bool) -> None:
        raise AssertionError("nothing is written to the host here")


def hidden(data: bytes, dice: random.Random) -> str:
    """What a sandbox reads of this answer, its chunks joined, holds the value in no form that can be seen."""
    sandbox, upstream = _Sandbox(dice.choice((b"1.1", b"1.1", b"1.0"))), Upstream()
    upstream.begin(sandbox, b"", bodiless=False)
    cuts = sorted(dice.randrange(len(data) + 1) for _ in range(dice.randrange(8)))
    for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True):
        if end > start:
            upstream.data_received(data[start:end])
    upstream.connection_lost(None)
    head, _, body = b"".join(sandbox.sent).partition(b"\r\n\r\n")
    if b"\r\ntransfer-encoding: chunked" in head:
        body = _joined(body)
    names = b"\n".join(line.partition(b":")[0] for line in head.split(b"\r\n")[1:])
    for spelling in SPELLINGS:
        assert spelling not in head, (spelling, head)
        assert spelling not in body, (spelling, body)
        assert spelling.lower() not in names, "names of fields are written in lower case"
    return f"{sandbox.answer.status} {sandbox.said} {INSTEAD in body}"


def _joined(body: bytes) -> bytes:
    whole = b""
    while body:
        size, _, body = body.partition(b"\r\n")
        whole, body = whole + body[: int(size, 16)], body[int(size, 16) + 2 :]
    return whole
