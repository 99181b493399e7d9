"""The image writer against Debian's own reader of the format (fsck.erofs), without a mount."""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import subprocess
from pathlib import Path

import pytest

from kennel.node.packing.build import Build, Rules
from kennel.node.packing.exclusion import Exclusion
from kennel.node.packing.image import BLOCK, SUPER, SUPER_AT, Image, xattr_body

pytestmark = pytest.mark.skipif(shutil.which("fsck.erofs") is None, reason="needs erofs-utils")


def _build(tree: Path, image: Path, *paths: bytes) -> Build:
    out = os.open(image, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    root = os.open(tree, os.O_RDONLY)
    try:
        made = Image(out)
        build = Build([root], 1, made, Rules(True, Exclusion(paths), 1 << 40, 10**6), lambda tally: None)
        size = made.finish(build.run())
        assert os.fstat(out).st_size == size
        return build
    finally:
        os.close(out)
        os.close(root)


def _extract(image: Path, target: Path) -> None:
    words = ["fsck.erofs", f"--extract={target}", "--preserve-perms", str(image)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def _contents(root: Path) -> dict[str, object]:
    found: dict[str, object] = {}
    for path in sorted(root.rglob("*")):
        info = path.lstat()
        if path.is_symlink():
            found[str(path.relative_to(root))] = os.readlink(path)
        elif path.is_dir():
            found[str(path.relative_to(root))] = stat.S_IMODE(info.st_mode)
        else:
            text = hashlib.sha256(path.read_bytes()).hexdigest()
            found[str(path.relative_to(root))] = (stat.S_IMODE(info.st_mode), text, info.st_nlink)
    return found


@pytest.mark.parametrize("size", [0, 1, 4031, 4032, 4033, 4095, 4096, 4097, 8191, 16384, 16385, 65536, 65537, 300_001])
def test_files_of_every_kind_of_size(tmp_path: Path, size: int) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "file").write_bytes(os.urandom(size))
    assert _build(tree, tmp_path / "image").tally.bytes == size
    _extract(tmp_path / "image", tmp_path / "out")
    assert _contents(tmp_path / "out") == _contents(tree)


def test_directories_larger_than_a_block_and_links(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    for folder, count, width in (("one", 40, 90), ("many", 700, 200), ("long", 20, 250), ("sub/sub/sub", 3, 1)):
        (tree / folder).mkdir(parents=True)
        for number in range(count):
            (tree / folder / str(number).rjust(width, "n")).write_text(str(number))
    os.link(tree / "one" / "0".rjust(90, "n"), tree / "linked")
    os.symlink("x" * 4000, tree / "long-link")
    (tree / "closed").mkdir()
    (tree / "closed").chmod(0o700)
    build = _build(tree, tmp_path / "image")
    assert build.tally.entries == len(list(tree.rglob("*")))
    _extract(tmp_path / "image", tmp_path / "out")
    found, expected = _contents(tmp_path / "out"), _contents(tree)
    # This reader does not make hard links; the counts are compared on the kernel, in the flow tests.
    assert {k: v[:2] if isinstance(v, tuple) else v for k, v in found.items()} == {
        k: v[:2] if isinstance(v, tuple) else v for k, v in expected.items()
    }


def test_equal_trees_make_equal_images(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name / "d").mkdir(parents=True)
        for number in sorted(range(50), reverse=name == "two"):
            path = tmp_path / name / "d" / str(number)
            path.write_text(str(number))
            os.utime(path, ns=(1, 10**18 + number))
        for path in (tmp_path / name / "d", tmp_path / name):
            os.utime(path, ns=(5, 5))
        _build(tmp_path / name, tmp_path / f"{name}.image")
    assert (tmp_path / "one.image").read_bytes() == (tmp_path / "two.image").read_bytes()


def test_the_superblock_says_how_long_the_image_is(tmp_path: Path) -> None:
    (tmp_path / "tree").mkdir()
    _build(tmp_path / "tree", tmp_path / "image")
    data = (tmp_path / "image").read_bytes()
    fields = SUPER.unpack_from(data, SUPER_AT)
    assert fields[9] * BLOCK == len(data)


def test_left_out_paths_are_not_in_the_image(tmp_path: Path) -> None:
    for name in ("a/b/c", "a/d", "b"):
        (tmp_path / "tree" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "tree" / name).write_text(name)
    build = _build(tmp_path / "tree", tmp_path / "image", b"a/b", b"a/b/c", b"nothing/here")
    _extract(tmp_path / "image", tmp_path / "out")
    assert set(_contents(tmp_path / "out")) == {"a", "a/d", "b"}
    assert (build.tally.left_out, build.tally.left_out_bytes) == (2, 5)


def test_attributes_are_padded_to_four_bytes() -> None:
    assert xattr_body([]) == b""
    body = xattr_body([("user.abc", b"12345"), ("system.posix_acl_access", b"x"), ("trusted.overlay.opaque", b"y")])
    assert len(body) == 12 + (4 + 8) + (4 + 4) + (4 + 16)
    assert body[12:16] == bytes([3, 1, 5, 0])
    assert body[24:28] == bytes([0, 2, 1, 0])
    assert body[32:36] == bytes([14, 4, 1, 0])
