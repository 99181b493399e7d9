"""Words for values."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kennel.api.console import text


@pytest.mark.parametrize(("count", "said"), [
    (0, "0 B"), (1023, "1023 B"), (1024, "1 KiB"), (1536, "1.5 KiB"), (26 * 1024**2, "26 MiB"),
    (1024**3, "1 GiB"), (1024**2 - 1, "1 MiB"), (300 * 1024**3, "300 GiB"), (5 * 1024**5, "5120 TiB"),
])  # fmt: skip
def test_size(count: int, said: str) -> None:
    assert text.size(count) == said


@pytest.mark.parametrize(("iso", "said"), [
    ("2026-01-10T11:59:58Z", "just now"), ("2026-01-10T11:59:18Z", "42 seconds ago"),
    ("2026-01-10T11:59:00.000Z", "1 minute ago"), ("2026-01-10T09:00:00Z", "3 hours ago"),
    ("2026-01-09T11:00:00Z", "1 day ago"), ("2025-01-01T00:00:00Z", "2025-01-01"),
    ("2026-01-10T12:00:09Z", "just now"), ("<b>", "<b>"),
])  # fmt: skip
def test_age(iso: str, said: str) -> None:
    assert text.age(iso, datetime(2026, 1, 10, 12, tzinfo=UTC)) == said


def test_output_loses_escapes_and_shows_controls() -> None:
    raw = b"\x1b[31mred\x1b[0m \x1b]0;title\x07\x1b]8;;http://x\x1b\\link\x00\x08 tab\tend\r\n\xff<b>"
    assert text.output(raw) == "red link\u2400\u2408 tab\tend\n\ufffd<b>"


@given(st.binary(max_size=400))
def test_output_never_holds_a_control_character(raw: bytes) -> None:
    assert not any(ord(c) < 32 and c not in "\t\n" for c in text.output(raw))


@pytest.mark.parametrize(("ms", "said"), [(3.4, "3 ms"), (1400, "1.4 s"), (125_000, "2 min 5 s")])
def test_duration(ms: float, said: str) -> None:
    assert text.duration(ms) == said


@given(
    st.lists(
        st.sampled_from([b"\x1b", b"[3", b"1m", b"]0;t", b"\x07", b"\r", b"\n", b"\xc3", b"\xa9", b"<b>"]), max_size=20
    )
)
def test_output_in_pieces_is_the_output_of_all_but_what_has_only_begun(pieces: list[bytes]) -> None:
    taken = text.Output()
    said = "".join(taken.take(piece) for piece in pieces)
    whole = text.Output().take(b"".join(pieces))
    assert said == whole
