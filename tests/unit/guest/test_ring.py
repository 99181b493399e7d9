"""Rings: positions for ever, memory bounded, kinds in order."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from kennel.guest.ring import Ring


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from([6, 7]), st.binary(min_size=1, max_size=3000)), max_size=60),
    st.integers(1, 5000),
)
def test_what_is_kept_is_the_end_of_what_was_written(pieces: list[tuple[int, bytes]], step: int) -> None:
    ring = Ring(20_000)
    whole = b""
    kinds = b""
    for kind, data in pieces:
        ring.add(kind, data)
        whole += data
        kinds += bytes([kind]) * len(data)
        assert ring.cost <= 20_000
    assert ring.last == len(whole)
    at, got, seen = ring.first, b"", b""
    while (found := ring.read(at, step)) is not None:
        got += found[1]
        seen += bytes([found[0]]) * len(found[1])
        at += len(found[1])
    assert at == ring.last
    assert got == whole[ring.first :]
    assert seen == kinds[ring.first :]


def test_a_position_that_is_gone_reads_from_the_first_kept() -> None:
    ring = Ring(10_000)
    ring.add(6, bytes(30_000))
    assert ring.read(0, 5) == (6, bytes(5))
    assert 0 < ring.last - ring.first <= 10_000
    ring.shrink(0)
    assert (ring.first, ring.read(0, 5)) == (30_000, None)
