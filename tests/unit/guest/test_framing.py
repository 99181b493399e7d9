"""Frames: whole ones come out as they went in, however they are cut; everything outside of the limits is refused."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kennel.guest import framing
from kennel.guest.framing import Allowance, Decoder, FrameError, Window

PLAIN = sorted(framing.FROM_GUEST - framing.CONTROL - {framing.PART})


def frames() -> st.SearchStrategy[tuple[int, int, bytes]]:
    """Frames a guest may send, of every size up to the limit."""

    def one(kind: int) -> st.SearchStrategy[tuple[int, int, bytes]]:
        channel = st.just(0) if kind in (framing.PING, framing.PONG) else st.integers(1, 2**32 - 1)
        size = {framing.OPENED: (0, 0), framing.CREDIT: (4, 4), framing.PING: (0, 16), framing.PONG: (0, 16)}
        low, high = size.get(kind, (0, 2000))
        return st.tuples(st.just(kind), channel, st.binary(min_size=low, max_size=high))

    return st.sampled_from(PLAIN).flatmap(one)


@given(st.lists(frames(), max_size=20), st.lists(st.integers(1, 700), min_size=1))
@settings(max_examples=80, deadline=None)
def test_any_cut_of_the_bytes_gives_the_same_frames(sent: list[tuple[int, int, bytes]], cuts: list[int]) -> None:
    data = b"".join(framing.frame(*one) for one in sent)
    decoder, got, at = Decoder(framing.FROM_GUEST), [], 0
    while at < len(data):
        count = cuts[at % len(cuts)]
        got += decoder.feed(data[at : at + count])
        at += count
    assert got == sent


def test_full_frames_pass_and_memory_stays_at_a_few_of_them() -> None:
    decoder, payload = Decoder(framing.FROM_GUEST), bytes(range(256)) * 1024
    data = framing.frame(framing.STDOUT, 7, payload) * 8
    for at in range(0, len(data), 100_000):
        for frame in decoder.feed(data[at : at + 100_000]):
            assert frame == (framing.STDOUT, 7, payload)
    assert len(decoder._buffer) <= 3 * framing.MAX_PAYLOAD


@pytest.mark.parametrize(
    ("kinds", "data"),
    [
        (framing.FROM_HOST, framing.frame(framing.STDOUT, 1)),
        (framing.FROM_GUEST, framing.frame(framing.OPEN, 1)),
        (framing.FROM_GUEST, framing.HEADER.pack(0, 1, 0)),
        (framing.FROM_GUEST, framing.HEADER.pack(0, 1, 255)),
        (framing.FROM_GUEST, framing.HEADER.pack(framing.MAX_PAYLOAD + 1, 1, framing.STDOUT)),
        (framing.FROM_GUEST, framing.HEADER.pack(2**32 - 1, 1, framing.EXIT)),
        (framing.FROM_GUEST, framing.frame(framing.STDOUT, 0, b"x")),
        (framing.FROM_GUEST, framing.frame(framing.PING, 1, b"x")),
        (framing.FROM_GUEST, framing.frame(framing.PONG, 0, bytes(17))),
        (framing.FROM_GUEST, framing.frame(framing.HELLO, 0, bytes(5000))),
        (framing.FROM_GUEST, framing.frame(framing.CREDIT, 1, b"abc")),
        (framing.FROM_GUEST, framing.frame(framing.OPENED, 1, b"x")),
        (framing.FROM_HOST, framing.frame(framing.EOF, 1, b"x")),
        (framing.FROM_HOST, framing.frame(framing.SIGNAL, 1, b"")),
        (framing.FROM_HOST, framing.frame(framing.CLOSE, 1, b"x")),
        (framing.FROM_HOST, framing.frame(framing.PART, 1, b"{") + framing.frame(framing.DATA, 1, b"x")),
        (framing.FROM_HOST, framing.frame(framing.PART, 1, b"{") + framing.frame(framing.OPEN, 2, b"}")),
        (framing.FROM_HOST, framing.frame(framing.PART, 1, bytes(framing.MAX_PAYLOAD)) * 17),
    ],
)
def test_what_is_outside_of_the_limits_ends_the_decoder(kinds: frozenset[int], data: bytes) -> None:
    decoder = Decoder(kinds)
    with pytest.raises(FrameError):
        decoder.feed(data)
    with pytest.raises(FrameError):
        decoder.feed(framing.frame(framing.PING, 0, b"x"))


@pytest.mark.parametrize("kinds", [framing.FROM_HOST, framing.FROM_GUEST])
@given(st.lists(st.binary(max_size=3000), max_size=5))
@settings(max_examples=150, deadline=None)
def test_noise_is_frames_or_a_frame_error(kinds: frozenset[int], pieces: list[bytes]) -> None:
    decoder = Decoder(kinds)
    try:
        for piece in pieces:
            for kind, channel, payload in decoder.feed(piece):
                assert kind in kinds
                assert (channel == 0) == (kind in (framing.HELLO, framing.PING, framing.PONG))
                assert len(payload) <= framing.MAX_CONTROL
    except FrameError:
        pass
    assert len(decoder._buffer) <= 3 * framing.MAX_PAYLOAD


@given(st.binary(max_size=40), st.integers(0, 8), st.integers(0, 255))
@settings(max_examples=150, deadline=None)
def test_a_changed_byte_is_another_frame_or_a_frame_error(payload: bytes, at: int, value: int) -> None:
    data = bytearray(framing.frame(framing.STDERR, 3, payload))
    data[at] = value
    try:
        got = Decoder(framing.FROM_GUEST).feed(bytes(data))
    except FrameError:
        return
    assert len(got) <= len(data) // framing.HEADER.size


@pytest.mark.parametrize("size", [0, 10, framing.MAX_PAYLOAD - 20, framing.MAX_PAYLOAD, 3_000_000])
def test_a_control_payload_of_any_size_up_to_the_limit_arrives_whole(size: int) -> None:
    value = {"op": "exec", "command": "x" * size}
    got = Decoder(framing.FROM_HOST).feed(framing.control(framing.OPEN, 5, value) + framing.frame(framing.EOF, 5))
    assert [(kind, channel) for kind, channel, _ in got] == [(framing.OPEN, 5), (framing.EOF, 5)]
    assert framing.read_control(got[0][2]) == value


def test_a_control_payload_over_the_limit_cannot_be_made() -> None:
    with pytest.raises(FrameError):
        framing.control(framing.OPEN, 5, {"command": "x" * framing.MAX_CONTROL})


@pytest.mark.parametrize(
    ("theirs", "version"),
    [
        ({"min": 1, "max": 1}, 1),
        ({"min": 1, "max": 9}, 1),
        ({"min": 2, "max": 9}, None),
        ({"min": 0, "max": 0}, None),
        ({"min": 1, "max": 0}, None),
        ({"min": True, "max": True}, None),
        ({"min": "1", "max": "1"}, None),
        ({"min": 1}, None),
        ({}, None),
    ],
)
def test_the_version_is_the_highest_that_both_speak(theirs: dict[str, object], version: int | None) -> None:
    if version is None:
        with pytest.raises(FrameError):
            framing.agree(theirs)
    else:
        assert framing.agree(theirs) == version


def test_credit_runs_out_and_comes_back() -> None:
    window, allowance = Window(), Allowance()
    sent = 0
    while window.room >= 60_000:
        window.take(60_000)
        allowance.received(60_000)
        sent += 1
    with pytest.raises(FrameError):
        allowance.received(60_000)
    allowance = Allowance()
    for _ in range(sent):
        allowance.received(60_000)
    for _ in range(sent):
        if grant := allowance.consumed(60_000):
            window.grant(grant)
    assert window.room >= 60_000
    allowance.received(60_000)


def test_empty_frames_and_frames_of_one_byte_are_not_free() -> None:
    with pytest.raises(FrameError):
        Allowance().received(0)
    allowance = Allowance()
    for _ in range(framing.INITIAL_WINDOW // (1 + framing.FRAME_COST)):
        allowance.received(1)
    with pytest.raises(FrameError):
        allowance.received(1)


@pytest.mark.parametrize("grants", [[0], [framing.MAX_WINDOW], [2**32 - 1], [9_000_000, 9_000_000]])
def test_credit_out_of_the_window_is_refused(grants: list[int]) -> None:
    window = Window()
    for grant in grants[:-1]:
        window.grant(grant)
    with pytest.raises(FrameError):
        window.grant(grants[-1])
