"""Targets: one form goes out, and the path that rules see is the one a server would serve."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kennel.domain.request_target import Target, parse_target


@pytest.mark.parametrize(
    ("raw", "path", "ambiguous"),
    [
        (b"/", "/", False), (b"/a/b?c=d", "/a/b", False), (b"/a/../b", "/b", True), (b"/a/./b/..", "/a/", True),
        (b"/%61/b", "/a/b", False), (b"/%2e%2e/a", "/a", True), (b"/a%2fb", "/a/b", True), (b"/a//b", "/a//b", True),
        (b"/a\\b", "/a\\b", True), (b"/a%5cb", "/a\\b", True), (b"/a%00", "/a\0", True), (b"/a%zz", "/a%zz", True),
        (b"/a;v=1/b", "/a;v=1/b", False), (b"/..;/a", "/..;/a", True), (b"/%c0%ae/a", "/\xc0\xae/a", True),
        (b"/%252e%252e/a", "/%2e%2e/a", True), (b"/../../x", "/x", True), (b"/%C3%A9", "/\u00e9", False),
        (b"/a%0d", "/a\r", True),
    ],
)  # fmt: skip
def test_paths(raw: bytes, path: str, ambiguous: bool) -> None:
    target = parse_target(raw)
    assert isinstance(target, Target)
    assert (target.path, target.ambiguous is not None, target.raw.encode()) == (path, ambiguous, raw)


@pytest.mark.parametrize(
    "raw", [b"", b"*", b"a", b"http://x/", b"//", b"/a b", b"/\x80", b"/a#b", b"/" + b"a" * 9000, b"/a\0"]
)
def test_what_is_no_target(raw: bytes) -> None:
    assert isinstance(parse_target(raw), str) or raw == b"//"


@given(st.binary(max_size=60))
def test_any_bytes_are_a_target_or_a_reason_and_targets_keep_their_bytes(raw: bytes) -> None:
    target = parse_target(b"/" + raw)
    if isinstance(target, Target):
        assert target.raw.encode() == b"/" + raw
        assert "/../" not in target.path
        assert target.path.startswith("/")
