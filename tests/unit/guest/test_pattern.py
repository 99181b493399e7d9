"""Patterns: the same answers as the standard library's, in linear time; what cannot be done so is refused."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kennel.guest.pattern import Pattern
from kennel.guest.refusal import Refusal

PIECES = st.sampled_from(
    [
        "a",
        "b",
        ".",
        r"\d",
        r"\w",
        r"\s",
        "[ab]",
        "[^a]",
        "[a-c]",
        "(?:ab)",
        "(a|b)",
        "(a|)",
        "^",
        "$",
        "a{2}",
        "é",
        r"\.",
    ]
)
SIGNS = st.sampled_from(["", "", "", "*", "+", "?", "{1,2}", "{2,}", "*?"])
PATTERNS = st.lists(st.tuples(PIECES, SIGNS), min_size=1, max_size=5).map(
    lambda parts: "".join(p + ("" if p in "^$" or p.endswith("}") else s) for p, s in parts)
)


def found(pattern: str, text: str, cuts: list[int] | None = None) -> bool:
    search = Pattern(pattern).search()
    at = 0
    for cut in sorted(cuts or []):
        if search.feed(text[at : min(cut, len(text))]):
            return True
        at = min(cut, len(text))
    return search.feed(text[at:]) or search.end()


@settings(max_examples=400, deadline=None)
@given(
    st.lists(PATTERNS, min_size=1, max_size=2).map("|".join),
    st.text("ab1 é.x", max_size=12),
    st.lists(st.integers(0, 12), max_size=3),
)
def test_it_finds_what_the_standard_library_finds(pattern: str, text: str, cuts: list[int]) -> None:
    wanted = re.search(pattern.replace("$", r"\Z"), text) is not None
    assert found(pattern, text, cuts) is wanted


@pytest.mark.parametrize(
    ("pattern", "text", "wanted"),
    [
        (r"(?i)LISTENING on", "listening ON 3000", True),
        (r"port \d{4}$", "port 3000", True),
        (r"port \d{4}$", "port 30001", False),
        (r"^ready", "not ready", False),
        (r"[]]", "]", True),
        (r"[^]]", "]", False),
        (r"a{,3}", "a{,3}", True),
        (r"\x41\u00e9", "Aé", True),
        ("", "anything", True),
    ],
)
def test_known_answers(pattern: str, text: str, wanted: bool) -> None:
    assert found(pattern, text) is wanted


@pytest.mark.parametrize(
    "pattern",
    [
        "(",
        ")",
        "[",
        "a**",
        "*a",
        r"(a)\1",
        "(?=a)",
        "(?<!a)b",
        "(?P<n>a)",
        "a{501}",
        "(" * 60 + "a",
        "\\",
        "[b-a]",
        r"\q",
        "(((a{99}){99}){99})",
        "x" * 1001,
    ],
)
def test_what_cannot_be_used_is_refused(pattern: str) -> None:
    with pytest.raises(Refusal) as caught:
        Pattern(pattern)
    assert caught.value.code == "VALIDATION_FAILED"


@pytest.mark.parametrize("pattern", ["^(a+)+$", "(a|aa)+$", "(a*)*b", "(.*)(.*)(.*)(.*)x$", "(a?){50}a{50}"])
def test_no_pattern_takes_longer_than_the_text_is_long(pattern: str) -> None:
    began = time.monotonic()
    found(pattern, "a" * 20_000 + "!")
    assert time.monotonic() - began < 2
