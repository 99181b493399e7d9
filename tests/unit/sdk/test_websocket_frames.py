"""WebSocket frames: what another implementation makes of ours, and ours of its; what a server must not send."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from websockets.frames import Frame, Opcode
from websockets.server import ServerProtocol

from kennel.sdk import websocket_frames as frames
from kennel.wire.errors import KennelError


def server() -> ServerProtocol:
    from websockets.protocol import OPEN

    return ServerProtocol(state=OPEN, max_size=None)


@settings(deadline=None)
@given(st.binary(max_size=200) | st.integers(120, 70_000).map(bytes))
def test_what_is_sent_is_understood(payload: bytes) -> None:
    far = server()
    far.receive_data(frames.frame(frames.BINARY, payload))
    [got] = far.events_received()
    assert isinstance(got, Frame)
    assert (got.opcode, bytes(got.data)) == (Opcode.BINARY, payload)


@settings(deadline=None)
@given(st.lists(st.binary(max_size=300), min_size=1, max_size=5), st.integers(1, 50))
def test_what_comes_is_put_together_however_it_is_cut(messages: list[bytes], size: int) -> None:
    far = server()
    for message in messages:
        far.send_binary(message[:1], fin=False)
        far.send_ping(b"x")
        far.send_continuation(message[1:], fin=True)
    data = b"".join(far.data_to_send())
    near, got = frames.Frames(), []
    for at in range(0, len(data), size):
        got += near.feed(data[at : at + size])
    assert [one.payload for one in got if one.opcode == frames.BINARY] == messages
    assert [one.payload for one in got if one.opcode == frames.PING] == [b"x"] * len(messages)


@pytest.mark.parametrize(
    "data",
    [
        b"\xc2\x01x",
        b"\x82\x81maskx",
        b"\x80\x01x",
        b"\x83\x00",
        b"\t\x00",
        b"\x8b\x00",
        b"\x89~\x00~" + bytes(126),
        b"\x82\x7f" + (frames.MAX_MESSAGE + 1).to_bytes(8, "big"),
    ],
)
def test_what_no_server_sends_is_refused(data: bytes) -> None:
    with pytest.raises(KennelError) as caught:
        frames.Frames().feed(data)
    assert caught.value.code == "PROTOCOL_VIOLATION"


def test_the_handshakes_answer_belongs_to_its_key() -> None:
    key = "dGhlIHNhbXBsZSBub25jZQ=="
    assert frames.accepts(key, b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo=")
    assert not frames.accepts(key, b"s3pPLMBiTxaQ9kYGzzhZRbK+xOp=")
    assert not frames.accepts(key, None)
