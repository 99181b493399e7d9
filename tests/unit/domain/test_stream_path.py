"""Stream paths: one spelling each, bounded, and their ancestors."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kennel.domain.stream_path import INSTALLATION, MAX_SEGMENTS, ancestors, check_path, check_project_name
from kennel.wire.errors import InvalidRequest


@pytest.mark.parametrize(
    "path", ["/", "/a", "/sandboxes/main", "/rooms/room.abc2", "/A/b-c/d_e~f", "/é/🐶", "/" + "x" * 255]
)
def test_good_paths_are_themselves(path):
    assert check_path(path) == path


@pytest.mark.parametrize(
    "path",
    ["", "a", "a/b", "/a/", "//", "/a//b", "/.", "/a/../b", "/a b", "/a\tb", "/a\nb", "/a\0", "/a?b", "/a#b", "/a%2Fb",
     "/a\\b",
     "/e\u0301", "/\ud800", "/" + "x" * 256, "/a" * (MAX_SEGMENTS + 1), "/" + "x/" * 600, None, 7, b"/a"],
)  # fmt: skip
def test_bad_paths_are_refused_with_a_code(path):
    with pytest.raises(InvalidRequest) as caught:
        check_path(path)
    assert caught.value.code == "INVALID_PATH"


@given(st.text(max_size=40))
def test_whatever_is_taken_has_one_spelling(text):
    try:
        path = check_path("/" + text)
    except InvalidRequest:
        return
    assert path == "/" + text
    assert path == "/" or all(s not in ("", ".", "..") for s in path[1:].split("/"))
    assert path.isprintable()


def test_ancestors_come_root_first():
    assert ancestors("/") == []
    assert ancestors("/a") == ["/"]
    assert ancestors("/a/b/c") == ["/", "/a", "/a/b"]


@pytest.mark.parametrize("name", ["default", "a", "a-1", "x" * 63])
def test_good_project_names(name):
    assert check_project_name(name) == name


@pytest.mark.parametrize("name", ["", "-a", "a-", "A", "a_b", "a/b", "..", "x" * 64, "a\n", INSTALLATION, None])
def test_bad_project_names_the_installations_own_among_them(name):
    with pytest.raises(InvalidRequest):
        check_project_name(name)
