"""Lines: found however output is cut into pieces, once, within bounded memory."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kennel.guest.line_watch import WINDOW, LineWatch
from kennel.guest.refusal import Refusal

OUTPUT = b"one\ntwo needle three\r\nfour needle\n"


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(0, len(OUTPUT)), max_size=6), st.sampled_from([("needle", None), (None, "need.e")]))
def test_cuts_change_nothing(cuts: list[int], wanted: tuple[str | None, str | None]) -> None:
    watch = LineWatch(*wanted)
    places = [0, *sorted(cuts), len(OUTPUT)]
    for start, stop in itertools.pairwise(places):
        line = watch.feed(OUTPUT[start:stop])
        if line is not None:
            assert "two needle three".startswith(line)
            assert "needle" in line
            assert start + watch.taken <= OUTPUT.index(b"four")
            return
    raise AssertionError("not found")


def test_a_line_without_an_end_is_bounded() -> None:
    for watch in (LineWatch("never", None), LineWatch(None, "never")):
        for _ in range(100):
            assert watch.feed(b"x" * 10_000) is None
        assert len(watch._held) <= WINDOW


def test_the_end_counts_as_the_end_of_a_line() -> None:
    watch = LineWatch(None, "ready$")
    assert watch.feed(b"all ready") is None
    assert watch.end() == "all ready"


def test_characters_are_put_together_again() -> None:
    watch = LineWatch(None, "^.é.$")
    data = "xéy\n".encode()
    assert [watch.feed(bytes([byte])) for byte in data][-1] == "xéy"


@pytest.mark.parametrize("wanted", [(None, None), ("a", "b"), ("", None), ("a\nb", None)])
def test_one_thing_is_looked_for(wanted: tuple[str | None, str | None]) -> None:
    with pytest.raises(Refusal):
        LineWatch(*wanted)
