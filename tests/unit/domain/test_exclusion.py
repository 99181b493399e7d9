import pytest
from hypothesis import given
from hypothesis import strategies as st

from kennel.domain import exclusion
from kennel.wire.errors import InvalidRequest

parts = st.sampled_from([b"a", b"b", b"node_modules", b"..", b".", b"", b"\xff", b"new\nline", b"x" * 255, b"x" * 256])
paths = st.lists(parts, max_size=6).map(b"/".join)


@given(st.lists(paths, max_size=60))
def test_what_comes_out_is_inside_sorted_and_not_nested(listed: list[bytes]) -> None:
    found = exclusion.parse(exclusion.join(listed))
    for path in found:
        assert exclusion.valid(path)
        assert not path.startswith(b"/")
        assert not {b"..", b".", b""} & set(path.split(b"/"))
    assert all(not b.startswith(a + b"/") for a in found for b in found)
    # Whatever valid path was listed is covered.
    for path in listed:
        if exclusion.valid(path):
            assert any(path == kept or path.startswith(kept + b"/") for kept in found)


def test_names_that_sort_between_a_directory_and_its_contents_do_not_part_them() -> None:
    assert exclusion.checked([b"a", b"a-b", b"a/x", b"a.c/y"]) == [b"a", b"a-b", b"a.c/y"]


def test_git_marks_directories_with_a_slash() -> None:
    assert exclusion.checked([b"build/", b"/", b"//"]) == [b"build"]


def test_lists_are_bounded() -> None:
    with pytest.raises(InvalidRequest, match="more than 3"):
        exclusion.checked([b"a", b"b", b"c", b"d"], most=3)
    with pytest.raises(InvalidRequest, match="longer"):
        exclusion.parse(b"x" * (exclusion.MAX_BYTES + 1))


def test_too_many_elements_are_no_path() -> None:
    assert exclusion.valid(b"/".join([b"a"] * 256))
    assert not exclusion.valid(b"/".join([b"a"] * 257))
