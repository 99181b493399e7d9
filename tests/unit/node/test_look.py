"""A walk's mark: the same for the same files, another after any change of them."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from kennel.node.packing import look
from kennel.node.packing.failure import Refused


def walk(place: Path, entries: int = 1000, size: int = 1 << 20, *, sync: bool = True) -> look.Seen:
    root = os.open(place, os.O_RDONLY | os.O_DIRECTORY)
    try:
        return look.walk([root], entries, size, sync=sync)
    finally:
        os.close(root)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "d" / "e").mkdir(parents=True)
    (tmp_path / "d" / "file").write_text("one")
    (tmp_path / os.fsdecode(b"odd\n\xff")).write_text("x")
    (tmp_path / "link").symlink_to("/etc/passwd")
    return tmp_path


def _over(path: Path) -> None:
    with path.open("r+") as file:
        file.write("two")


CHANGES: list[Callable[[Path], object]] = [
    lambda top: _over(top / "d" / "file"),
    lambda top: os.utime(top / "d" / "file", ns=(1, 1)),
    lambda top: (top / "d" / "file").chmod(0o600),
    lambda top: (top / "d" / "e" / "new").touch(),
    lambda top: (top / "d" / "e").rmdir(),
    lambda top: (top / "d" / "file").rename(top / "d" / "e" / "file"),
    lambda top: (top / "d").rename(top / "moved"),
    lambda top: os.link(top / "d" / "file", top / "hard"),
    lambda top: (top / "link").unlink(),
]


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_changes_the_mark(tree: Path, change: Callable[[Path], object]) -> None:
    before = walk(tree)
    assert walk(tree).mark == before.mark
    assert (before.names, before.bytes) == (6, 4)
    time.sleep(0.01)  # a tick of the clock that stamps files
    change(tree)
    assert walk(tree).mark != before.mark


def test_what_was_changed_a_moment_ago_is_too_young_to_be_sure_of(tree: Path) -> None:
    (tree / "d" / "file").touch()
    assert walk(tree, sync=False).young
    time.sleep(0.06)
    assert not walk(tree).young


@pytest.mark.parametrize(("entries", "size"), [(5, 100), (100, 3)])
def test_too_much_is_refused(tree: Path, entries: int, size: int) -> None:
    with pytest.raises(Refused) as caught:
        walk(tree, entries, size)
    assert caught.value.code == "PACK_TOO_LARGE"


def test_a_deep_tree_is_walked(tmp_path: Path) -> None:
    here = os.open(tmp_path, os.O_RDONLY)
    for _ in range(300):
        os.mkdir("d", dir_fd=here)
        inner = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = inner
    os.close(here)
    assert walk(tmp_path).names == 301
