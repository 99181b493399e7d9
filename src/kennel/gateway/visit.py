"""Owns one request of a visitor, from its head to the end of the answer of a server in a sandbox.

Made by a preview link for every request. Invariant: the address decides where it goes and nothing else of it does;
nothing of Kennel's crosses; every failure of ours is JSON, and an answer that began is never mended, only cut.
"""

from __future__ import annotations

import asyncio
import logging
import time
from http import HTTPStatus
from typing import TYPE_CHECKING

import msgspec

from kennel.domain import preview as rules
from kennel.domain.denial import Refused
from kennel.gateway.answer import Answer
from kennel.gateway.client_link import SERVER
from kennel.gateway.dispatch import Dispatch, framing_of
from kennel.gateway.message_head import forwarded, request_head, response_head, websocket_request
from kennel.gateway.previews import Preview
from kennel.gateway.registry import Sandbox
from kennel.gateway.request_reader import Header, Incoming
from kennel.gateway.upstream import Upstream
from kennel.wire.errors import KennelError, error

if TYPE_CHECKING:
    from kennel.gateway.preview_link import PreviewLink

_REPEATABLE = frozenset(("GET", "HEAD", "OPTIONS", "PUT", "DELETE", "PROPFIND"))
_CODES = {
    "request_too_large": "PAYLOAD_TOO_LARGE",
    "request_timeout": "WAIT_TIMEOUT",
    "upstream_malformed": "SERVICE_NOT_RESPONDING",
    "upstream_closed": "SERVICE_NOT_RESPONDING",
    "upstream_timeout": "SERVICE_NOT_RESPONDING",
}
"""What the parts of the gateway call a fault, as this API's code; the others are VALIDATION_FAILED."""

log = logging.getLogger("kennel.gateway.previews")


class Visit:
    """One request and its answer. Implements `upstream.Reply`, `client_link.Serving` and `answer.Asking`."""

    held = False
    wanted_body = 0

    def __init__(self, link: PreviewLink, incoming: Incoming) -> None:
        self.link = link
        self.door = link.door
        self.incoming = incoming
        self.tunnelled = False
        self._preview: Preview | None = None
        self._upstream: Upstream | None = None
        self._answer: Answer | None = None
        self._task: asyncio.Task[None] | None = None
        self._over = False
        self._retried = False

    # The way in.

    def start(self) -> None:
        """Finds out where it goes; what has a connection at hand is sent before this returns."""
        try:
            if self.incoming.fault is not None:
                raise _said(self.incoming.fault)
            self._preview = preview = self._find()
            self.link.look_at(preview)
            sandbox = self._sandbox(preview)
            if sandbox is not None:
                self.link.stand_in(sandbox)
                upstream = self.link.at_hand()
                if upstream is not None:
                    self._send(upstream)
                    return
        except KennelError as refused:
            self.refuse_with(refused)
            return
        self._task = asyncio.get_running_loop().create_task(self._guarded(preview, sandbox))
        self.door.context.spawn(self._task)

    def _find(self) -> Preview:
        named = self.door.base.label_of(self.incoming.host)
        found = self.door.previews.find(*named) if named is not None else None
        if found is None:
            if not self.door.previews.told:
                raise error("GATEWAY_UNAVAILABLE", "previews are not known yet", retry_after_ms=500)
            raise error("INVALID_TOKEN", "there is no preview at this address")
        if found.void:
            raise error("STALE_PREVIEW_URL", "this preview was revoked")
        return found

    def _sandbox(self, preview: Preview) -> Sandbox | None:
        """The sandbox, which runs; None when it sleeps and may be woken."""
        found = self.door.context.registry.sandboxes.get(preview.sandbox)
        if found is not None and found.project is not None:
            if len(found.visits) > self.door.context.options.max_connections:
                raise error("QUOTA_EXCEEDED", "too many connections to this sandbox", retry_after_ms=1000)
            return found
        if not preview.wake:
            raise error("STALE_PREVIEW_URL", "the sandbox is asleep", hint="wake it, or expose the port with wake")
        return None

    async def _guarded(self, preview: Preview, sandbox: Sandbox | None) -> None:
        try:
            await self._connect(preview, sandbox)
        except KennelError as refused:
            self.refuse_with(refused)
        except Exception:
            log.exception("a visit failed in the gateway")
            self.refuse_with(error("INTERNAL_ERROR", "the gateway failed on this request"))

    async def _connect(self, preview: Preview, sandbox: Sandbox | None) -> None:
        if sandbox is None:
            await self.door.previews.wake(preview.sandbox)
            sandbox = self._sandbox(preview)
            if sandbox is None:
                raise error("STALE_PREVIEW_URL", "the sandbox fell asleep again")
        self.link.stand_in(sandbox)
        upstream = await self.door.reach(sandbox, preview.port)
        if self._over or preview.void:
            upstream.abort()
            return
        self._send(upstream)

    def _send(self, upstream: Upstream) -> None:
        incoming = self.incoming
        try:
            head = self._head()
        except ValueError:
            upstream.abort()
            self.refuse_with(error("VALIDATION_FAILED", "a request with line breaks inside its fields"))
            return
        self._upstream = upstream
        self.link.keep(upstream)
        self._answer = Answer(self, Dispatch(("http", "", 0), head))
        upstream.begin(self, head, bodiless=incoming.method == "HEAD")
        self._heard()
        if not (incoming.chunked or incoming.length):
            return
        if incoming.expects and not incoming.complete and not incoming.body:
            self.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        kept = incoming.drain()
        incoming.sink = self._pass_on
        if kept:
            self._pass_on(kept)
        if incoming.complete:
            self._body_complete()
        else:
            incoming.waiter = self._body_complete
        self.link.body_taken()

    def _head(self) -> bytes:
        incoming = self.incoming
        assert incoming.target is not None
        headers = rules.inward(forwarded(incoming.headers))
        if incoming.websocket is not None:
            headers = websocket_request(headers, incoming.websocket)
        headers += [
            (b"x-forwarded-for", self.link.visitor.encode()),
            (b"x-forwarded-host", incoming.host),
            (b"x-forwarded-proto", self.door.base.scheme.encode()),
        ]
        host = incoming.host.decode("latin-1")
        return request_head(incoming.method, incoming.target.raw, host, headers, framing_of(incoming))

    def _pass_on(self, data: bytes) -> None:
        if self._upstream is not None:
            self._heard()
            self._upstream.write(b"%x\r\n%b\r\n" % (len(data), data) if self.incoming.chunked else data)

    def _body_complete(self) -> None:
        if self.incoming.complete and self.incoming.chunked and self._upstream is not None:
            self._upstream.write(b"0\r\n\r\n")

    def _heard(self) -> None:
        """Bytes passed: the sandbox is in use, and the connection has its time again."""
        options = self.door.context.options
        begun = self._answer is not None and self._answer.begun
        self.link.deadline = time.monotonic() + (options.websocket_idle if begun else options.response_timeout)
        if self._preview is not None:
            self.door.previews.moved(self._preview.sandbox)

    # The way back (upstream.Reply).

    def on_interim(self, status: int) -> None:
        """Interim answers end here: the one a visitor can ask for was given already."""

    def on_head(self, status: int, reason: bytes, headers: list[Header]) -> bool:
        assert self._answer is not None
        return self._answer.head(status, reason, rules.outward(headers))

    def on_data(self, data: bytes) -> None:
        if self.tunnelled:
            self._heard()
            self.write(data)
        elif self._answer is not None:
            self._answer.data(data)

    def write(self, data: bytes) -> None:
        self.link.write(data)

    def flush(self) -> None:
        if self._answer is not None:
            self._heard()
            self._answer.flush()

    def on_end(self) -> None:
        """The answer is whole: the connection may be used again if both sides ended cleanly."""
        answer, upstream, incoming = self._answer, self._upstream, self.incoming
        if self._over or answer is None or upstream is None:
            return
        self._over = True
        answer.end()
        upstream.release()
        upstream.idle_since = time.monotonic()
        if not incoming.complete or not upstream.usable:
            upstream.abort()
            self.link.keep(None)
        incoming.sink = _nowhere
        self.link.done(keep=incoming.keep_alive and incoming.complete and not answer.close)

    def on_switch(self, leftover: bytes) -> None:
        """The server took the upgrade: from here on bytes only pass."""
        self.tunnelled = True
        self.flush()
        if leftover:
            self.on_data(leftover)
        early = self.link.leftover()
        if early:
            self.on_client_data(early)

    def on_failure(self, code: str, detail: str) -> None:
        """The server failed: said to the visitor if nothing of an answer went out, else the connection is cut."""
        if self._over:
            return
        upstream, self._upstream = self._upstream, None
        self.link.keep(None)
        if self.tunnelled or (self._answer is not None and self._answer.begun):
            self._end(clean=self.tunnelled)
            return
        incoming = self.incoming
        stale = code == "upstream_closed" and upstream is not None and not upstream.fresh and not self._retried
        if stale and incoming.method in _REPEATABLE and incoming.complete and not incoming.size and self._preview:
            # A server may close an idle connection while a request is on its way to it.
            self._retried = True
            self.start()
            return
        self.refuse_with(error(_CODES.get(code, "SERVICE_NOT_RESPONDING"), detail, admitted="unknown"))

    def pause_client(self, paused: bool) -> None:
        self.link.hold_reading(SERVER, paused)

    # What the link tells.

    def pause_server(self, paused: bool) -> None:
        if self._upstream is not None:
            self._upstream.pause(paused)

    def on_client_data(self, data: bytes) -> None:
        """Bytes of a WebSocket."""
        self._heard()
        if self._upstream is not None:
            self._upstream.write(data)

    def on_client_end(self) -> None:
        upstream = self._upstream
        if upstream is not None and upstream.transport is not None and upstream.transport.can_write_eof():
            upstream.transport.write_eof()

    def on_client_gone(self) -> None:
        """The visitor left: nothing of this request goes on."""
        self._stop()

    def on_broken_body(self, refused: Refused) -> None:
        """The body cannot be read on; what went out of it stays cut."""
        self._give_up(_said(refused))

    def overdue(self) -> None:
        """No byte for too long."""
        slow = "upstream_timeout" if self.incoming.complete else "request_timeout"
        self._give_up(_said(Refused(slow, "nothing was heard for too long")))

    def cut(self, why: str) -> None:
        """The preview or its sandbox is gone."""
        self._give_up(error("STALE_PREVIEW_URL", why))

    # Ends.

    def _give_up(self, reason: KennelError) -> None:
        if self._over:
            return
        begun = self._answer is not None and self._answer.begun
        self._stop(over=False)
        if begun or self.tunnelled:
            self._end(clean=False)
        else:
            self.refuse_with(reason)

    def _stop(self, *, over: bool = True) -> None:
        """Lets go of the server; the task that waits for one ends."""
        self._over = self._over or over
        if self._task is not None and self._task is not asyncio.current_task():
            self._task.cancel()
        upstream, self._upstream = self._upstream, None
        if upstream is not None:
            self.link.keep(None)
            upstream.abort()

    def _end(self, *, clean: bool) -> None:
        self._over = True
        transport = self.link.transport
        if transport is not None:
            if clean:
                transport.close()
            else:
                transport.abort()

    def refuse(self, refused: Refused) -> None:
        """Bytes that are no request."""
        self.refuse_with(_said(refused))

    def refuse_with(self, reason: KennelError) -> None:
        """Answers with a reason, as JSON."""
        if self._over:
            return
        self._over = True
        incoming, status = self.incoming, HTTPStatus(reason.status)
        body = msgspec.json.encode(reason.to_wire()) + b"\n" if incoming.method != "HEAD" else b""
        # Behind a request that could not be read, nothing is taken for another one.
        keep = incoming.keep_alive and incoming.complete and incoming.fault is None
        framing = b"content-length: %d\r\nconnection: %s\r\n" % (len(body), b"keep-alive" if keep else b"close")
        fields = [(b"content-type", b"application/json"), (b"cache-control", b"no-store"), (b"x-kennel-preview", b"no")]
        self.write(response_head(status.value, status.phrase.encode(), fields, framing) + body)
        incoming.drain()
        incoming.sink = _nowhere
        self.link.done(keep=keep)


def _said(refused: Refused) -> KennelError:
    return error(_CODES.get(refused.code, "VALIDATION_FAILED"), refused.detail)


def _nowhere(_: bytes) -> None:
    """Where bytes go that nobody wants any more."""
