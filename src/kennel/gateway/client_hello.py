"""Owns reading a TLS ClientHello before TLS is spoken: the server name and the protocols a client offers.

Called by the entrance on peeked bytes. Invariant: no I/O, linear in its input, never past its bounds; two server names,
a wrong length or anything that is no ClientHello is an error, never a guess.
"""

from __future__ import annotations

from dataclasses import dataclass

MAX_HELLO = 16 * 1024
MAX_PEEK = MAX_HELLO + 512 * 5
_HANDSHAKE, _CLIENT_HELLO = 22, 1
_SERVER_NAME, _ALPN = 0, 16


class NotTls(ValueError):
    """Bytes that are no acceptable ClientHello."""


@dataclass(frozen=True, slots=True)
class ClientHello:
    """The name asked for (as sent, ASCII) and the ALPN protocols offered, both None when absent."""

    server_name: str | None
    protocols: tuple[bytes, ...] | None


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def left(self) -> int:
        return len(self._data) - self._at

    def take(self, size: int) -> bytes:
        if size > self.left():
            raise NotTls("a length runs past the end")
        self._at += size
        return self._data[self._at - size : self._at]

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size), "big")

    def block(self, size: int) -> _Reader:
        return _Reader(self.take(self.number(size)))


def parse(peeked: bytes) -> ClientHello | None:
    """The hello at the start of a stream, None while it is incomplete; NotTls otherwise."""
    message = _handshake(peeked)
    if message is None:
        return None
    body = _Reader(message)
    if body.number(2) < 0x0300:
        raise NotTls("an SSL version before 3.0")
    body.take(32)
    body.block(1)
    suites = body.block(2)
    compressions = body.block(1)
    if suites.left() < 2 or suites.left() % 2 or compressions.left() < 1:
        raise NotTls("no cipher suites")
    name, protocols = _extensions(body.block(2)) if body.left() else (None, None)
    if body.left():
        raise NotTls("bytes after the extensions")
    return ClientHello(name, protocols)


def _handshake(peeked: bytes) -> bytes | None:
    """The ClientHello message joined from its records, None while bytes are missing."""
    message, at = b"", 0
    while True:
        if at < len(peeked) and peeked[at] != _HANDSHAKE:
            raise NotTls("no handshake record")
        if at + 1 < len(peeked) and peeked[at + 1] != 3:
            raise NotTls("no TLS version")
        if len(peeked) < at + 5:
            return None
        size = int.from_bytes(peeked[at + 3 : at + 5], "big")
        if not 0 < size <= 16 * 1024:
            raise NotTls("an empty or oversized record")
        message += peeked[at + 5 : at + 5 + size]
        if message and message[0] != _CLIENT_HELLO:
            raise NotTls("no ClientHello")
        if len(message) >= 4:
            length = int.from_bytes(message[1:4], "big")
            if length > MAX_HELLO:
                raise NotTls("an oversized ClientHello")
            if len(message) >= 4 + length:
                return message[4 : 4 + length]
        if len(peeked) < at + 5 + size:
            return None
        at += 5 + size


def _extensions(block: _Reader) -> tuple[str | None, tuple[bytes, ...] | None]:
    name: str | None = None
    protocols: tuple[bytes, ...] | None = None
    seen: set[int] = set()
    while block.left():
        kind, content = block.number(2), block.block(2)
        if kind in seen:
            raise NotTls("an extension twice")
        seen.add(kind)
        if kind == _SERVER_NAME:
            name = _server_name(content)
        elif kind == _ALPN:
            protocols = _protocols(content)
    return name, protocols


def _server_name(content: _Reader) -> str:
    entries = content.block(2)
    kind, name = entries.number(1), entries.take(entries.number(2))
    if kind != 0 or entries.left() or content.left():
        raise NotTls("not exactly one server name")
    if not name or not name.isascii() or b"\0" in name:
        raise NotTls("a server name that is no ASCII name")
    return name.decode("ascii")


def _protocols(content: _Reader) -> tuple[bytes, ...]:
    offered, found = content.block(2), []
    while offered.left():
        found.append(offered.take(offered.number(1)))
    if content.left() or not found or not all(found):
        raise NotTls("a malformed list of protocols")
    return tuple(found)


def alert(description: int) -> bytes:
    """A fatal alert as a client understands it before any key is agreed on."""
    return bytes((21, 3, 3, 0, 2, 2, description))


NO_APPLICATION_PROTOCOL, UNRECOGNIZED_NAME, DECODE_ERROR, ACCESS_DENIED = 120, 112, 50, 49
