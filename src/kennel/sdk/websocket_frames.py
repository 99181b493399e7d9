"""Owns the words of WebSocket (RFC 6455) as a client speaks it: handshake, frames out, frames in; no I/O.

Called by both halves' sockets. Invariants: a message is bounded by MAX_MESSAGE while it is put together; what the
server must not send is PROTOCOL_VIOLATION; everything sent is masked.
"""

from __future__ import annotations

import base64
import hashlib
import os
from dataclasses import dataclass

from kennel.wire.errors import error

MAX_MESSAGE = 16 * 1024 * 1024
_MAGIC = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10


def new_key() -> str:
    """A handshake's key."""
    return base64.b64encode(os.urandom(16)).decode("ascii")


def accepts(key: str, answer: bytes | None) -> bool:
    """Whether the server's answer belongs to the key."""
    wanted = base64.b64encode(hashlib.sha1(key.encode("ascii") + _MAGIC, usedforsecurity=False).digest())
    return answer is not None and answer.strip() == wanted


def frame(opcode: int, payload: bytes) -> bytes:
    """One whole message as a client sends it."""
    size = len(payload)
    if size < 126:
        head = bytes((0x80 | opcode, 0x80 | size))
    elif size < 1 << 16:
        head = bytes((0x80 | opcode, 0x80 | 126)) + size.to_bytes(2, "big")
    else:
        head = bytes((0x80 | opcode, 0x80 | 127)) + size.to_bytes(8, "big")
    mask = os.urandom(4)
    return b"".join((head, mask, masked(payload, mask)))


def masked(payload: bytes, mask: bytes) -> bytes:
    """The payload under its mask; twice gives the payload. As one number: a gigabyte a second."""
    size = len(payload)
    wide = (mask * (size // 4 + 1))[:size]
    return (int.from_bytes(payload, "little") ^ int.from_bytes(wide, "little")).to_bytes(size, "little")


def close_payload(code: int) -> bytes:
    """What a CLOSE carries."""
    return code.to_bytes(2, "big")


@dataclass(frozen=True, slots=True)
class Received:
    """A whole message, or a control frame."""

    opcode: int
    payload: bytes

    @property
    def close_code(self) -> int:
        """Of a CLOSE; 1005 when it says nothing."""
        return int.from_bytes(self.payload[:2], "big") if len(self.payload) >= 2 else 1005


class Frames:
    """Bytes in, whole messages out."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._parts: list[bytes] = []
        self._opcode = 0
        self._size = 0

    def feed(self, data: bytes) -> list[Received]:
        """What these bytes complete."""
        self._buffer += data
        found: list[Received] = []
        while (taken := self._take()) is not None:
            found += taken
        return found

    def _take(self) -> list[Received] | None:
        buffer = self._buffer
        if len(buffer) < 2:
            return None
        first, second = buffer[0], buffer[1]
        opcode, size, at = first & 0x0F, second & 0x7F, 2
        if first & 0x70 or second & 0x80:
            raise error("PROTOCOL_VIOLATION", "the server's frame is none")
        if size >= 126:
            at = 4 if size == 126 else 10
            if len(buffer) < at:
                return None
            size = int.from_bytes(buffer[2:at], "big")
        if self._size + size > MAX_MESSAGE:
            raise error("PROTOCOL_VIOLATION", f"the server's message is over {MAX_MESSAGE} bytes")
        if len(buffer) < at + size:
            return None
        payload = bytes(memoryview(buffer)[at : at + size])
        del buffer[: at + size]
        return self._assemble(opcode, payload, bool(first & 0x80))

    def _assemble(self, opcode: int, payload: bytes, last: bool) -> list[Received]:
        if opcode >= CLOSE:
            if not last or len(payload) > 125 or opcode > PONG:
                raise error("PROTOCOL_VIOLATION", "the server's control frame is none")
            return [Received(opcode, payload)]
        if (opcode == CONTINUATION) is not bool(self._opcode) or opcode > BINARY:
            raise error("PROTOCOL_VIOLATION", "the server's frames are out of order")
        self._opcode = self._opcode or opcode
        self._parts.append(payload)
        self._size += len(payload)
        if not last:
            return []
        whole = Received(self._opcode, b"".join(self._parts) if len(self._parts) > 1 else payload)
        self._parts, self._opcode, self._size = [], 0, 0
        return [whole]
