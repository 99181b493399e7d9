from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kennel.domain import names
from kennel.wire.errors import KennelError

GOOD = ["a", "0", "a-b", "a--b", "x" * 63, "room-1"]
ROOM_MADE = ["sandbox-x.2", "a.b.c", "room." + "a" * 52, "room." + "a" * 52 + ".12"]
BAD = [
    "",
    "-",
    "-a",
    "a-",
    "A",
    "a_b",
    "a b",
    "a/b",
    "..",
    ".",
    "a\n",
    "é",
    "a\0",
    ".a",
    "a.",
    "a..b",
    "a.b.c.d",
    "a.B",
]


@pytest.mark.parametrize("name", GOOD)
def test_good_names_can_be_claimed_and_known(name: str) -> None:
    path = names.path_of(name)
    assert path == f"/sandboxes/{name}"
    assert names.claimable_name(path) == names.name_of(path) == name


@pytest.mark.parametrize("name", ROOM_MADE)
def test_room_made_names_are_known_but_cannot_be_claimed(name: str) -> None:
    assert names.name_of(names.path_of(name)) == name
    with pytest.raises(KennelError) as caught:
        names.claimable_name(names.path_of(name))
    assert caught.value.code in ("INVALID_PATH", "NAME_TOO_LONG")


@pytest.mark.parametrize("name", BAD)
def test_bad_names_are_neither(name: str) -> None:
    for parse in (names.claimable_name, names.name_of):
        with pytest.raises(KennelError) as caught:
            parse(names.path_of(name))
        assert caught.value.code == "INVALID_PATH"
        assert "path" in caught.value.details


@pytest.mark.parametrize("path", ["", "a", "/a", "sandboxes/a", "/sandboxes", "//sandboxes/a", "/Sandboxes/a"])
def test_other_places_hold_no_sandbox(path: str) -> None:
    with pytest.raises(KennelError, match="INVALID_PATH"):
        names.name_of(path)


def test_a_long_name_is_called_so() -> None:
    with pytest.raises(KennelError, match="NAME_TOO_LONG"):
        names.claimable_name(names.path_of("a" * 64))


@given(st.text(max_size=80))
def test_the_parser_agrees_with_the_rule_in_words(name: str) -> None:
    wanted = (
        1 <= len(name) <= 63
        and set(name) <= set("abcdefghijklmnopqrstuvwxyz0123456789-")
        and not name.startswith("-")
        and not name.endswith("-")
    )
    try:
        names.claimable_name(names.path_of(name))
        allowed = True
    except KennelError:
        allowed = False
    assert allowed == wanted


def test_the_patterns_shown_in_the_api_are_the_rules() -> None:
    for name in GOOD + ROOM_MADE:
        assert re.fullmatch(names.KNOWN_NAME, name)
    for name in BAD:
        assert not re.fullmatch(names.KNOWN_NAME, name)
