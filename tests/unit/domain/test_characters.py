"""Characters: pieces join to the bytes that came, and none ends inside a character."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from kennel.domain.characters import Characters


@given(st.text(max_size=40), st.lists(st.integers(0, 160), max_size=10))
def test_text_is_cut_between_characters(text: str, cuts: list[int]) -> None:
    data, cutter, pieces = text.encode(), Characters(), []
    places = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    for start, stop in itertools.pairwise(places):
        pieces.append(cutter.take(data[start:stop]).decode())
    assert "".join(pieces) == text
    assert cutter.rest() == b""


@given(st.lists(st.binary(max_size=12), max_size=12))
def test_any_bytes_come_out_as_they_went_in(pieces: list[bytes]) -> None:
    cutter = Characters()
    got = b"".join(cutter.take(piece) for piece in pieces)
    assert len(cutter.rest()) <= 3 or got == b"".join(pieces)
    assert b"".join(pieces).startswith(got)


def test_what_never_ends_is_given_at_the_end() -> None:
    cutter = Characters()
    assert cutter.take(b"a\xf0\x9f") == b"a"
    assert cutter.holds
    assert cutter.rest() == b"\xf0\x9f"
