"""Names that stay one segment of a route, whatever they hold."""

from __future__ import annotations

from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kennel.sdk.names import new_request_id, sandbox_name, segment
from kennel.wire.errors import InvalidRequest


@pytest.mark.parametrize("path", ["main", "/sandboxes/main"])
def test_a_name_and_its_path_are_the_same_sandbox(path: str) -> None:
    assert sandbox_name(path) == "main"


@pytest.mark.parametrize("path", ["", "/", "/sandboxes/", "a/b", "/sandboxes/a/b", "/other/a", "..", ".", "a\n", "\0"])
def test_what_cannot_be_one_segment_is_refused(path: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        sandbox_name(path)
    assert caught.value.code == "INVALID_PATH"


@given(st.text(alphabet=st.characters(codec="utf-8"), min_size=1, max_size=128))
def test_a_segment_stays_one_and_reads_back(text: str) -> None:
    encoded = segment(text)
    assert encoded.isascii()
    assert not set("/?# ") & set(encoded)
    assert encoded not in (".", "..")
    assert unquote(encoded) == text


def test_request_ids_differ() -> None:
    assert len({new_request_id() for _ in range(100)}) == 100
