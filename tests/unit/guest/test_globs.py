"""Patterns of paths: what they match, and that no pattern takes long."""

from __future__ import annotations

import time

import pytest

from kennel.guest.globs import Globs, globs_of, matches
from kennel.guest.refusal import Refusal


@pytest.mark.parametrize(
    ("pattern", "path", "expected"),
    [
        ("*.py", b"a.py", True),
        ("*.py", b"deep/er/a.py", True),
        ("*.py", b"a.pyc", False),
        ("node_modules", b"a/node_modules/b/c", True),
        ("?", b"ab", False),
        ("a?c", b"abc", True),
        ("src/*.py", b"src/a.py", True),
        ("src/*.py", b"src/b/a.py", False),
        ("src/**/a.py", b"src/a.py", True),
        ("src/**/a.py", b"src/x/y/a.py", True),
        ("src/**", b"src/x/y", True),
        ("src/**", b"srcs/x", False),
        ("/build/", b"build/x", True),
        ("a/b", b"a/b/c", True),
        ("**/x", b"x", True),
        ("\udcff*", b"\xffz", True),
    ],
)
def test_matching(pattern: str, path: bytes, expected: bool) -> None:
    assert Globs([pattern]).match(path) is expected


def test_no_pattern_takes_long() -> None:
    began = time.perf_counter()
    assert not matches(b"*a" * 100 + b"b", b"a" * 255)
    assert not Globs(["**/" * 100 + "x"]).match(b"a/" * 300 + b"y")
    assert time.perf_counter() - began < 1


@pytest.mark.parametrize("value", ["*", [1], [""], ["/"], ["x" * 1025], ["x"] * 513])
def test_what_is_no_list_of_patterns_is_refused(value: object) -> None:
    with pytest.raises(Refusal):
        globs_of({"exclude": value}, "exclude", [])
