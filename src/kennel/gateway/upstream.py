"""Owns a connection to a host: strict reading of its responses, and whether it may be used again.

Made by the dialler for an exchange; kept idle in the pool of its sandbox. Invariant: it is used again only by the same
sandbox for the same origin, after a message that ended cleanly; a byte that nobody asked for ends it.
"""

from __future__ import annotations

import asyncio
from typing import Protocol, cast

import httptools

MAX_HEAD = 64 * 1024
MAX_FIELDS = 200
MAX_INTERIM = 16
_BUFFER = 256 * 1024

Header = tuple[bytes, bytes]


class Reply(Protocol):
    """What an exchange does with the response of its host."""

    def on_interim(self, status: int) -> None: ...
    def on_head(self, status: int, reason: bytes, headers: list[Header]) -> bool: ...
    def on_data(self, data: bytes) -> None: ...
    def on_end(self) -> None: ...
    def on_switch(self, leftover: bytes) -> None: ...
    def on_failure(self, code: str, detail: str) -> None: ...
    def flush(self) -> None: ...
    def pause_client(self, paused: bool) -> None: ...


class Upstream(asyncio.Protocol):
    """One connection to one origin."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.reply: Reply | None = None
        self.idle_since = 0.0
        self.clean = True
        self.fresh = True
        self.lost = False
        self.tunnel: asyncio.Transport | None = None
        self._fields: list[Header] = []
        self._reason = b""
        self._head_done = False
        self._head_bytes = 0
        self._weight = 0
        self._interim = 0
        self._bodiless = False
        self._ended = False
        self._until_close = False

    # Called by the exchange.

    @property
    def usable(self) -> bool:
        """Whether another request may be sent here."""
        return self.clean and not self.lost and self.reply is None and self.transport is not None

    def begin(self, reply: Reply, head: bytes, *, bodiless: bool) -> None:
        """Sends a request's head; `bodiless` says that its response has no body (HEAD)."""
        self.reply, self._bodiless = reply, bodiless
        self._parser = httptools.HttpResponseParser(self)
        self._interim = 0
        self._reset()
        self.write(head)

    def write(self, data: bytes) -> None:
        if self.transport is not None:
            self.transport.write(data)

    def release(self) -> None:
        """The exchange is done with it. It reads on: an idle connection has to notice its end."""
        self.reply = None
        self.pause(False)
        self.fresh = False

    def abort(self) -> None:
        self.clean = False
        self.reply = None
        if self.transport is not None:
            self.transport.abort()

    def pause(self, paused: bool) -> None:
        """Stops or goes on reading: the sandbox does not keep up, or does again."""
        if self.transport is not None and not self.lost:
            if paused:
                self.transport.pause_reading()
            else:
                self.transport.resume_reading()

    # Called by the loop.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's are no subclass of it
        self.transport.set_write_buffer_limits(high=_BUFFER)

    def data_received(self, data: bytes) -> None:
        if self.tunnel is not None:
            if self.reply is not None:
                self.reply.on_data(data)
            return
        reply = self.reply
        if reply is None or self._ended:
            self._unasked()
            return
        if not self._head_done:
            self._head_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as switch:
            self._switch(reply, data[switch.args[0] :])
        except httptools.HttpParserError as failure:
            if self._ended:
                self.clean = False  # the answer was whole; what follows it was not asked for
            else:
                self._fail(reply, str(failure))
        if not self._head_done and self._head_bytes > MAX_HEAD:
            self._fail(reply, f"a head of more than {MAX_HEAD} bytes")
        reply.flush()
        if self._ended and self.reply is reply:
            reply.on_end()

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost, self.clean = True, False
        reply = self.reply
        if reply is None:
            return
        if self.tunnel is None and self._head_done and self._until_close and exc is None and not self._ended:
            self._ended = True
            reply.on_end()
        elif not self._ended:
            code = "upstream_malformed" if self._head_done or self._head_bytes else "upstream_closed"
            reply.on_failure(code, "the host closed the connection before its answer was whole")

    def pause_writing(self) -> None:
        if self.reply is not None:
            self.reply.pause_client(True)

    def resume_writing(self) -> None:
        if self.reply is not None:
            self.reply.pause_client(False)

    # The parser's callbacks.

    def on_message_begin(self) -> None:
        if self._ended or self._head_done:
            # A second message behind the first: never read, and the connection is not used again.
            self.clean = False

    def on_status(self, reason: bytes) -> None:
        self._reason += reason

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._head_done and len(self._fields) <= MAX_FIELDS:
            self._weight += len(name) + len(value) + 4
            self._fields.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        reply = self.reply
        if reply is None or self._ended or self._head_done:
            return
        status = self._parser.get_status_code()
        if status == 101:
            self._head_done = True
            return
        if status < 200:
            self._interim += 1
            if self._interim > MAX_INTERIM:
                self._fail(reply, "too many interim responses")
            else:
                reply.on_interim(status)
            return
        framed, why = _framing(self._fields)
        if self._weight > MAX_HEAD:
            # Counted by field too: a head that comes in one piece is over before it was seen to be too large.
            why = f"a head of more than {MAX_HEAD} bytes"
        if why is not None:
            self._fail(reply, why)
            return
        self._head_done = True
        if self._parser.get_http_version() != "1.1" or not self._parser.should_keep_alive():
            self.clean = False
        self._until_close = not framed and not self._bodiless and status not in (204, 304)
        if not reply.on_head(status, self._reason, self._fields):
            self._fail(reply, "a response that cannot be passed on")
        elif self._bodiless:
            # The parser does not know that this response has no body; it is not asked about this message again.
            self._ended = True

    def on_body(self, data: bytes) -> None:
        if self._ended:
            self.clean = False
        elif self.reply is not None:
            self.reply.on_data(data)

    def on_message_complete(self) -> None:
        if not self._head_done:
            self._reset()
        elif self._parser.get_status_code() != 101:
            # After a 101 nothing is read as HTTP any more: it ends as a tunnel, or it was not asked for.
            self._ended = True

    def _reset(self) -> None:
        self._fields, self._reason = [], b""
        self._weight = 0
        self._head_done = self._ended = self._until_close = False
        self._head_bytes = 0

    def _switch(self, reply: Reply, leftover: bytes) -> None:
        if self._parser.get_status_code() != 101:
            self._fail(reply, "a protocol switch that was not asked for")
            return
        self.clean = False
        if not reply.on_head(101, self._reason, self._fields):
            self._fail(reply, "an upgrade that does not answer the one asked for")
            return
        self.tunnel = self.transport
        reply.on_switch(leftover)

    def _fail(self, reply: Reply, why: str) -> None:
        if self.reply is not reply:
            return
        self.abort()
        self._ended = True
        reply.on_failure("upstream_malformed", f"the host's answer cannot be read: {why}")

    def _unasked(self) -> None:
        """Bytes while nobody waits for an answer: the next request must not get them."""
        self.clean = False
        if self.transport is not None and self.reply is None:
            self.transport.abort()


def _framing(fields: list[Header]) -> tuple[bool, str | None]:
    """Whether a response frames its body, and why its framing cannot be trusted, or None."""
    framing = [field for field in fields if field[0] in (b"content-length", b"transfer-encoding")]
    if len(fields) > MAX_FIELDS:
        return False, f"more than {MAX_FIELDS} fields"
    if not framing:
        return False, None
    if len(framing) > 1:
        return True, "more than one field frames the body"
    name, value = framing[0]
    if name == b"content-length":
        return True, None if value.isdigit() else "Content-Length is not one number"
    return True, None if value.lower() == b"chunked" else "the only transfer coding is 'chunked', alone"
