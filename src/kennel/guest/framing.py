"""Owns the frames between the guest and whoever serves it: header, kinds, limits, credit, version window.

Sans-I/O, shared by both ends (the host imports it as `kennel.guest.framing`). A frame is a 9-byte header,
little-endian (payload length u32, channel u32, kind u8), then the payload. Invariant: a peer can make the decoder
hold at most one frame and one control payload in parts; everything outside the limits is a FrameError, after which
the connection is worth nothing.
"""

from __future__ import annotations

from struct import Struct

from . import codec

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

HEADER = Struct("<IIB")
MAX_PAYLOAD = 256 * 1024
MAX_CONTROL = 4 * 1024 * 1024
"""Bytes of one control payload, all its parts together; the kernel takes at most 6 MiB of arguments and environment."""

PROTOCOL_MIN = 1
PROTOCOL_MAX = 1
INITIAL_WINDOW = 512 * 1024
"""Bytes each side may send on a channel, in each direction, before the first CREDIT."""
MAX_WINDOW = 16 * 1024 * 1024
SOCKET_BUFFER = 512 * 1024
"""Bytes that may lie in the kernel each way: the default of 208 KiB is filled by one frame, and one side then waits for
the other to be given the processor."""
FRAME_COST = 128
"""What a frame of bytes uses of a window beside its bytes, so that a million frames of one byte are not free."""

HELLO = 1  # both ways, channel 0, once: {"min", "max", ...}
OPEN = 2  # host: {"op", ...} begins a channel
OPENED = 3  # guest: the work of this channel was started
DATA = 4  # host: bytes for the program's standard input
EOF = 5  # host: no more DATA
STDOUT = 6  # guest
STDERR = 7  # guest
EXIT = 8  # guest, ends a channel: {"code", ...}
RESULT = 9  # guest, ends a channel: what an operation without a program answers
ERROR = 10  # guest, ends a channel: {"code", "message", "details"?}
CREDIT = 11  # both ways: u32 bytes more
SIGNAL = 12  # host: u8, to every process of the channel
CLOSE = 13  # host: kill what runs on this channel; the guest still ends it with EXIT or ERROR
PING = 14  # both ways, channel 0: up to 16 bytes, sent back in a PONG
PONG = 15
PART = 16  # the beginning of a control payload over MAX_PAYLOAD; the frames of one payload are contiguous
HEAD = 17  # guest, at most once a channel: what an operation says before its bytes

CONTROL = frozenset((HELLO, OPEN, EXIT, RESULT, ERROR, HEAD))
FROM_HOST = frozenset((HELLO, OPEN, DATA, EOF, CREDIT, SIGNAL, CLOSE, PING, PONG, PART))
FROM_GUEST = frozenset((HELLO, OPENED, STDOUT, STDERR, EXIT, RESULT, ERROR, CREDIT, PING, PONG, PART, HEAD))
_EXACT = {OPENED: 0, EOF: 0, CREDIT: 4, SIGNAL: 1, CLOSE: 0}
_AT_MOST = {HELLO: 4096, PING: 16, PONG: 16}
_ON_ZERO = frozenset((HELLO, PING, PONG))
_FIRST_BUFFER = 32 * 1024
_U32 = Struct("<I")

Frame = tuple[int, int, bytes]
"""(kind, channel, payload)"""


class FrameError(Exception):
    """The peer broke the protocol; the message says how, for a log, never for a decision."""


class Decoder:
    """Takes bytes as they come, gives whole frames; `kinds` are those this peer may send."""

    __slots__ = ("_broken", "_buffer", "_end", "_kinds", "_part_channel", "_parts", "_start")

    def __init__(self, kinds: frozenset[int]) -> None:
        self._kinds = kinds
        self._buffer = bytearray(_FIRST_BUFFER)
        self._start = 0
        self._end = 0
        self._parts: bytearray | None = None
        self._part_channel = 0
        self._broken: FrameError | None = None

    def space(self) -> memoryview:
        """Room for the next bytes of the socket, never empty; tell `filled` how many were put there."""
        held = self._end - self._start
        if held == 0:
            self._start = self._end = 0
        need = _FIRST_BUFFER // 2
        if held >= HEADER.size:
            length = HEADER.unpack_from(self._buffer, self._start)[0]
            need = max(need, min(length, MAX_PAYLOAD) + HEADER.size - held)
        if len(self._buffer) - self._end < need:
            # Twice the frame, so that a stream of full frames moves its tail once in two reads and not in each.
            fits = held + need <= len(self._buffer)
            target = self._buffer if fits else bytearray(2 * (held + need))
            memoryview(target)[:held] = memoryview(self._buffer)[self._start : self._end]
            self._buffer, self._start, self._end = target, 0, held
        return memoryview(self._buffer)[self._end :]

    def filled(self, count: int) -> None:
        """`count` bytes were written at the start of the last `space`."""
        self._end += count

    def feed(self, data: bytes) -> list[Frame]:
        """Every frame that is whole once `data` is there; for callers without a buffer of their own."""
        frames: list[Frame] = []
        view = memoryview(data)
        while view:
            room = self.space()
            count = min(len(room), len(view))
            room[:count] = view[:count]
            self.filled(count)
            view = view[count:]
            while (frame := self.next()) is not None:
                frames.append(frame)
        return frames

    def next(self) -> Frame | None:
        """The next whole frame, or None until more bytes come. FrameError ends the connection, also when repeated."""
        if self._broken is not None:
            raise self._broken
        try:
            while True:
                frame = self._take()
                if frame is None or (frame := self._assemble(frame)) is not None:
                    return frame
        except FrameError as problem:
            self._broken = problem
            raise

    def _take(self) -> Frame | None:
        start = self._start
        held = self._end - start
        if held < 9:
            return None
        length, channel, kind = HEADER.unpack_from(self._buffer, start)
        self._check(length, channel, kind)
        if held < 9 + length:
            return None
        self._start = start + 9 + length
        with memoryview(self._buffer) as view:
            return kind, channel, bytes(view[start + 9 : start + 9 + length])

    def _check(self, length: int, channel: int, kind: int) -> None:
        if kind not in self._kinds:
            raise FrameError(f"kind {kind} from this side")
        if length > _AT_MOST.get(kind, MAX_PAYLOAD):
            raise FrameError(f"{length} bytes in a frame of kind {kind}")
        exact = _EXACT.get(kind)
        if exact is not None and length != exact:
            raise FrameError(f"{length} bytes in a frame of kind {kind}")
        if (channel == 0) is not (kind in _ON_ZERO):
            raise FrameError(f"kind {kind} on channel {channel}")

    def _assemble(self, frame: Frame) -> Frame | None:
        kind, channel, payload = frame
        parts = self._parts
        if parts is None:
            if kind != PART:
                return frame
            self._parts, self._part_channel = bytearray(payload), channel
            return None
        if channel != self._part_channel or (kind != PART and kind not in CONTROL):
            raise FrameError("a control payload in parts was interrupted")
        if len(parts) + len(payload) > MAX_CONTROL:
            raise FrameError("a control payload over the limit")
        parts += payload
        if kind == PART:
            return None
        self._parts = None
        return kind, channel, bytes(parts)


def frame(kind: int, channel: int, payload: bytes = b"") -> bytes:
    """One frame as bytes; `payload` at most MAX_PAYLOAD."""
    return HEADER.pack(len(payload), channel, kind) + payload


def header(kind: int, channel: int, length: int) -> bytes:
    """Only the header, for callers that send a large payload beside it without copying."""
    return HEADER.pack(length, channel, kind)


def control(kind: int, channel: int, value: dict[str, Any]) -> bytes:
    """A control payload as one frame, or as parts and one frame. FrameError when it is over MAX_CONTROL."""
    payload = codec.encode(value)
    if len(payload) <= MAX_PAYLOAD:
        return HEADER.pack(len(payload), channel, kind) + payload
    if len(payload) > MAX_CONTROL:
        raise FrameError("a control payload over the limit")
    pieces = [payload[at : at + MAX_PAYLOAD] for at in range(0, len(payload), MAX_PAYLOAD)]
    return b"".join([*(frame(PART, channel, piece) for piece in pieces[:-1]), frame(kind, channel, pieces[-1])])


def read_control(payload: bytes) -> dict[str, Any]:
    """The dictionary of a control payload; FrameError when it is none."""
    try:
        return codec.decode(payload)
    except codec.CodecError as problem:
        raise FrameError(str(problem)) from None


def credit(channel: int, count: int) -> bytes:
    """A CREDIT frame for `count` more bytes."""
    return HEADER.pack(4, channel, CREDIT) + _U32.pack(count)


def read_credit(payload: bytes) -> int:
    """The bytes a CREDIT frame grants."""
    return int(_U32.unpack(payload)[0])


def hello(**more: Any) -> bytes:
    """The first frame of either side."""
    return control(HELLO, 0, {"min": PROTOCOL_MIN, "max": PROTOCOL_MAX, **more})


def agree(theirs: dict[str, Any]) -> int:
    """The protocol version both sides speak, from the peer's HELLO; FrameError when there is none."""
    low, high = theirs.get("min"), theirs.get("max")
    if type(low) is not int or type(high) is not int or not 0 < low <= high:
        raise FrameError("a hello without a version window")
    version = min(high, PROTOCOL_MAX)
    if version < max(low, PROTOCOL_MIN):
        raise FrameError(f"versions {low}-{high} there, {PROTOCOL_MIN}-{PROTOCOL_MAX} here")
    return version


class Window:
    """A sender's side of one channel: how many bytes may still go out."""

    __slots__ = ("left",)

    def __init__(self, size: int = INITIAL_WINDOW) -> None:
        self.left = size

    @property
    def room(self) -> int:
        """Bytes that one more frame may hold; 0 while there is no credit."""
        return max(0, self.left - FRAME_COST)

    def take(self, count: int) -> None:
        """A frame of `count` bytes (at most `room`) is sent."""
        self.left -= count + FRAME_COST

    def grant(self, count: int) -> None:
        """The peer takes `count` more; FrameError beyond MAX_WINDOW, or for a grant of nothing."""
        self.left += count
        if not count or self.left > MAX_WINDOW:
            raise FrameError("credit out of the window")


class Allowance:
    """A receiver's side of one channel: what it still lets the peer send, and when to say so again."""

    __slots__ = ("_consumed", "_left")

    def __init__(self, size: int = INITIAL_WINDOW) -> None:
        self._left = size
        self._consumed = 0

    def widen(self, count: int) -> None:
        """The peer is told of `count` bytes more."""
        self._left += count

    def received(self, count: int) -> None:
        """A frame of `count` bytes came; FrameError when it is empty or the peer had no credit for it."""
        self._left -= count + FRAME_COST
        if self._left < 0 or not count:
            raise FrameError("data without credit")

    def consumed(self, count: int) -> int:
        """A frame of `count` bytes has left our memory: the credit to grant now, 0 to wait for more."""
        self._consumed += count + FRAME_COST
        if self._consumed < INITIAL_WINDOW // 4:
            return 0
        ready, self._consumed = self._consumed, 0
        self._left += ready
        return ready
