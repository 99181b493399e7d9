"""Owns reading requests from a sandbox: httptools for the grammar, then the rules that it does not know.

Called by the conversation with whatever bytes come. Invariant: one way to read any bytes or a refusal: one Host,
framing by exactly one of length and `chunked`, origin-form targets, bounded heads; nothing is read past a switch.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable

import httptools

from kennel.domain.denial import Refused
from kennel.domain.request_target import MAX_TARGET, Target, parse_target

MAX_HEAD = 64 * 1024
MAX_FIELDS = 100
_TOKEN = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_KEY = re.compile(rb"[A-Za-z0-9+/]{22}==")

_MATTER = frozenset(
    b"host content-length transfer-encoding expect connection upgrade sec-websocket-key sec-websocket-version".split()
)

Header = tuple[bytes, bytes]


class Incoming:
    """One request as it arrives: its head, and its body as far as it is here."""

    __slots__ = (
        "body", "chunked", "close", "complete", "expects", "fault", "headers", "host", "keep_alive", "leftover",
        "length", "matter", "method", "raw", "sink", "size", "target", "version", "waiter", "websocket", "weight",
    )  # fmt: skip

    def __init__(self) -> None:
        self.raw = b""
        self.headers: list[Header] = []
        self.weight = 0
        self.matter: list[Header] = []
        self.method = ""
        self.version = "1.1"
        self.target: Target | None = None
        self.host = b""
        self.length: int | None = None
        self.chunked = False
        self.keep_alive = False
        self.websocket: bytes | None = None
        self.expects = False
        self.fault: Refused | None = None
        self.body: deque[bytes] = deque()
        self.size = 0
        self.complete = False
        self.leftover = b""
        self.sink: Callable[[bytes], None] | None = None
        self.waiter: Callable[[], None] | None = None

    @property
    def buffered(self) -> int:
        """Bytes of the body that are here and not passed on."""
        return self.size if self.sink is None else 0

    def take(self, data: bytes) -> None:
        """A further piece of the body: passed on, or kept until somebody wants it."""
        self.size += len(data)
        if self.sink is not None:
            self.sink(data)
        else:
            self.body.append(data)
            if self.waiter is not None:
                self.waiter()

    def finish(self) -> None:
        self.complete = True
        if self.waiter is not None:
            self.waiter()

    def drain(self) -> bytes:
        """What is kept of the body; kept no more."""
        data = b"".join(self.body)
        self.body.clear()
        return data


class RequestReader:
    """Feeds bytes in; whole heads appear in `arrived`, bodies in their requests."""

    def __init__(self) -> None:
        self.arrived: deque[Incoming] = deque()
        self.switched: Incoming | None = None
        self.broken: Refused | None = None
        self._parser = httptools.HttpRequestParser(self)
        self._now: Incoming | None = None
        self._in_head = False
        self._head_bytes = 0

    @property
    def partial(self) -> bool:
        """Whether a head has begun and is not whole."""
        return self._in_head

    @property
    def body_open(self) -> bool:
        return self._now is not None and not self._in_head

    def feed(self, data: bytes) -> None:
        """Reads on; after `broken` or `switched` is set nothing is read any more."""
        if self.broken is not None:
            return
        if self.switched is not None:
            self.switched.leftover += data
            return
        was_in_head = self._in_head or self._now is None
        if was_in_head:
            self._head_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as switch:
            self._switch(data[switch.args[0] :])
        except httptools.HttpParserError as failure:
            self._break("http2_only" if data.startswith(b"PRI * HTTP/2") else "request_malformed", str(failure))
        if self._in_head and self._head_bytes > MAX_HEAD:
            self._break("request_too_large", f"a head of more than {MAX_HEAD} bytes")

    def _break(self, code: str, detail: str) -> None:
        if self.broken is None:
            self.broken = Refused(code, detail)
        self._in_head = False

    def _switch(self, leftover: bytes) -> None:
        last = self.arrived[-1] if self.arrived else self._last
        if last.websocket is not None or last.fault is not None:
            self.switched, last.leftover = last, leftover
            return
        # An upgrade that is not passed on: what follows is the next request.
        self._parser = httptools.HttpRequestParser(self)
        if leftover:
            self.feed(leftover)

    # The parser's callbacks.

    def on_message_begin(self) -> None:
        self._now = Incoming()
        self._in_head = True

    def on_url(self, url: bytes) -> None:
        if self._now is not None:
            # One byte more than may be is enough to refuse it, and is the same however the bytes were cut.
            self._now.raw = (self._now.raw + url)[: MAX_TARGET + 1]

    def on_header(self, name: bytes, value: bytes) -> None:
        # After the head, these are trailers: read, bounded by the body's chunks, and dropped.
        now = self._now
        if self._in_head and now is not None:
            header = (name.lower(), value)
            # Counted by field too: a head that comes in one piece is over before it was seen to be too large.
            now.weight += len(name) + len(value) + 4
            if now.weight > MAX_HEAD:
                now.fault = Refused("request_too_large", f"a head of more than {MAX_HEAD} bytes")
                return
            now.headers.append(header)
            if header[0] in _MATTER:
                now.matter.append(header)
            if len(now.headers) > MAX_FIELDS:
                now.headers.pop()
                now.fault = Refused("request_too_large", f"more than {MAX_FIELDS} header fields")

    def on_headers_complete(self) -> None:
        now = self._now
        if now is None:
            return
        self._in_head = False
        self._head_bytes = 0
        now.method = self._parser.get_method().decode("ascii")
        now.version = self._parser.get_http_version()
        now.keep_alive = self._parser.should_keep_alive() and now.version == "1.1"
        fault = _judge_head(now)
        now.fault = now.fault or fault
        self.arrived.append(now)

    def on_body(self, data: bytes) -> None:
        if self._now is not None:
            self._now.take(data)

    def on_message_complete(self) -> None:
        now, self._now = self._now, None
        if now is not None:
            self._last = now
            now.finish()


def _judge_head(now: Incoming) -> Refused | None:
    """Reads the fields that matter; the reason when this head may not be passed on."""
    if now.method in ("CONNECT", "TRACE"):
        return Refused("method_refused", f"{now.method} is not passed on")
    if now.version not in ("1.0", "1.1"):
        return Refused("request_malformed", f"HTTP/{now.version} is not passed on")
    target = parse_target(now.raw)
    if isinstance(target, str):
        return Refused("target_invalid", target)
    now.target = target
    hosts = [value for name, value in now.matter if name == b"host"]
    if len(hosts) != 1:
        return Refused("host_missing", f"{len(hosts)} Host fields")
    now.host = hosts[0]
    if len(now.matter) == 1:
        return None
    return _judge_framing(now) or _judge_switch(now)


def _judge_framing(now: Incoming) -> Refused | None:
    lengths = [value for name, value in now.matter if name == b"content-length"]
    codings = [value for name, value in now.matter if name == b"transfer-encoding"]
    if codings:
        if lengths or now.version == "1.0" or len(codings) > 1 or codings[0].lower() != b"chunked":
            return Refused("request_malformed", "the only transfer coding is 'chunked', alone, in HTTP/1.1")
        now.chunked = True
    elif lengths:
        if len(lengths) > 1 or not lengths[0].isdigit() or len(lengths[0]) > 18:
            return Refused("request_malformed", "Content-Length must be one number")
        now.length = int(lengths[0])
    for name, value in now.matter:
        if name == b"expect":
            if value.lower() != b"100-continue":
                return Refused("expectation_refused", "the only expectation is 100-continue")
            now.expects = now.version == "1.1" and (now.chunked or bool(now.length))
    return None


def _judge_switch(now: Incoming) -> Refused | None:
    upgrades = [value.strip().lower() for name, value in now.matter if name == b"upgrade"]
    tokens = {t.strip().lower() for name, value in now.matter if name == b"connection" for t in value.split(b",")}
    if not upgrades or b"upgrade" not in tokens or upgrades == [b"h2c"]:
        return None
    keys = [value for name, value in now.matter if name == b"sec-websocket-key"]
    versions = [value for name, value in now.matter if name == b"sec-websocket-version"]
    fits = upgrades == [b"websocket"] and len(keys) == 1 and _KEY.fullmatch(keys[0]) and versions == [b"13"]
    if not fits or now.method != "GET" or now.chunked or now.length:
        return Refused("upgrade_refused", "only a whole websocket upgrade is passed on")
    now.websocket = keys[0]
    return None
