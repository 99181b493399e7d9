"""Owns a host's answer on its way back: its head written anew, its body framed anew, the request's secret hidden in it.

Made by the exchange when it sends. Invariant: after a secret was sent, nothing goes back that was not searched for it,
or the answer is refused; bodies stream, so an event reaches the sandbox when it comes.
"""

from __future__ import annotations

import zlib
from typing import Protocol

from kennel.domain.denial import Refused
from kennel.domain.redaction import Redactor
from kennel.gateway.dispatch import Dispatch
from kennel.gateway.message_head import response_fields, response_head, websocket_response
from kennel.gateway.request_reader import Incoming

Header = tuple[bytes, bytes]
_MAX_INFLATED = 256 * 1024


class Asking(Protocol):
    """The request that is answered."""

    incoming: Incoming

    def write(self, data: bytes) -> None: ...
    def on_failure(self, code: str, detail: str) -> None: ...


class Answer:
    """The response of one exchange."""

    __slots__ = (
        "_chunked",
        "_exchange",
        "_inflate",
        "_out",
        "_redactor",
        "begun",
        "close",
        "dispatch",
        "fault",
        "status",
    )

    def __init__(self, exchange: Asking, dispatch: Dispatch) -> None:
        self._exchange = exchange
        self.dispatch = dispatch
        self.status = 0
        self.begun = False
        self.close = False
        self.fault: Refused | None = None
        self._chunked = False
        self._out: list[bytes] = []
        self._redactor = Redactor(dispatch.forms, dispatch.instead) if dispatch.forms else None
        self._inflate: zlib._Decompress | None = None

    def head(self, status: int, reason: bytes, headers: list[Header]) -> bool:
        """Writes the head; False when this answer cannot be passed on."""
        incoming = self._exchange.incoming
        if status == 101:
            return self._switch(reason, headers)
        try:
            fields, framing = self._framed(status, headers)
            if incoming.version == "1.0" or not incoming.keep_alive or not incoming.complete or self.close:
                self.close = True
                framing += b"connection: close\r\n"
            if self._redactor is not None:
                fields, reason = self._hidden(fields), self._redactor.whole(reason)
            head = response_head(status, reason, fields, framing)
        except (ValueError, zlib.error):
            return False
        self.status, self.begun = status, True
        self._out.append(head)
        return True

    def _framed(self, status: int, headers: list[Header]) -> tuple[list[Header], bytes]:
        """The fields and the line that frames the body; ValueError for an encoding that hides the secret."""
        incoming = self._exchange.incoming
        fields = response_fields(headers)
        length = None
        for name, value in headers:
            if name == b"content-length":
                length = value
        if incoming.method == "HEAD" or status in (204, 304):
            return fields, b"content-length: %b\r\n" % length if length is not None and status != 204 else b""
        if self._redactor is not None:
            fields = self._decoded(fields)
            length = None
        if length is not None:
            return fields, b"content-length: %b\r\n" % length
        if incoming.version == "1.0":
            self.close = True
            return fields, b""
        self._chunked = True
        return fields, b"transfer-encoding: chunked\r\n"

    def _decoded(self, fields: list[Header]) -> list[Header]:
        codings = [value.strip().lower() for name, value in fields if name == b"content-encoding"]
        if not codings or codings == [b"identity"]:
            return fields
        if codings not in ([b"gzip"], [b"x-gzip"], [b"deflate"]):
            self.fault = Refused("response_encoding_refused", "the answer is encoded in a way that cannot be searched")
            raise ValueError(self.fault.detail)
        self._inflate = zlib.decompressobj(47)
        return [header for header in fields if header[0] not in (b"content-encoding", b"etag")]

    def _hidden(self, fields: list[Header]) -> list[Header]:
        redactor = self._redactor
        if redactor is None:
            return fields
        # Field names arrive in lower case, so a value in one is looked for in lower case; such a field has no use.
        shown = [field for field in fields if not any(form.lower() in field[0] for form in self.dispatch.forms)]
        return [(name, redactor.whole(value)) for name, value in shown]

    def _switch(self, reason: bytes, headers: list[Header]) -> bool:
        incoming = self._exchange.incoming
        if incoming.websocket is None:
            return False
        fields = websocket_response(headers, incoming.websocket, incoming.headers, self.dispatch.secret_protocol)
        if fields is None:
            return False
        if self._redactor is not None:
            reason = self._redactor.whole(reason)
        self._out.append(response_head(101, reason, self._hidden(fields), b""))
        self.status, self.begun = 101, True
        return True

    def data(self, data: bytes) -> None:
        """A piece of the body."""
        if self._inflate is None:
            self._put(self._redactor.feed(data) if self._redactor is not None else data)
            return
        # Inflated in bounded steps: a small piece may stand for a very large text.
        try:
            while data:
                plain = self._inflate.decompress(data, _MAX_INFLATED)
                data = self._inflate.unconsumed_tail
                if self._redactor is not None:
                    self._put(self._redactor.feed(plain))
                self.flush()
        except zlib.error:
            self._exchange.on_failure("response_encoding_refused", "the answer's encoding is broken")

    def _put(self, data: bytes) -> None:
        if data:
            self._out.append(b"%x\r\n%b\r\n" % (len(data), data) if self._chunked else data)

    def end(self) -> None:
        """The body is whole."""
        if self._redactor is not None:
            self._put(self._redactor.end())
        if self._chunked:
            self._out.append(b"0\r\n\r\n")
        self.flush()

    def flush(self) -> None:
        """Writes what gathered in one piece."""
        if self._out:
            out, self._out = self._out, []
            self._exchange.write(out[0] if len(out) == 1 else b"".join(out))
