"""Layers on the real kernel: what was packed, merged and mounted again is what was there."""

from __future__ import annotations

import errno
import io
import os
import random
import shutil
import stat
import sys
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))
from ground import USER, Ground, make_ground, tree  # noqa: E402  the folder is no package

from kennel.node import linux  # noqa: E402
from kennel.node.pack import LeftOut  # noqa: E402
from kennel.node.stack import mount_stack, recorded  # noqa: E402
from kennel.wire.errors import KennelError  # noqa: E402

pytestmark = pytest.mark.root


@pytest.fixture
def ground() -> Iterator[Ground]:
    yield from make_ground()


class Hand:
    """Makes the same random changes to several trees: the overlay, and a plain folder that is the model."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.clock = 1_700_000_000_000_000_001
        self.names = [b"a", b"b", b"c", b"d e", "ü".encode(), b"\xff\xfe", b"new\nline", b"x" * 255]

    def time(self) -> int:
        self.clock += self.random.randrange(1, 10**12)
        return self.clock

    def change(self, trees: list[tuple[bytes, int]]) -> None:
        """One operation, the same on each (root, base of ids)."""
        model = trees[-1][0]
        folders, files = _paths(model)
        operation = self.random.choice(
            [self.make_file] * 5 + [self.make_folder] * 3 + [self.rename] * 4 + [self.remove] * 3
            + [self.append, self.chmod, self.chown, self.xattr, self.link, self.symlink, self.sparse, self.refill]
        )  # fmt: skip
        operation(trees, folders, files)

    def _fresh(self, trees: list[tuple[bytes, int]], folders: list[bytes]) -> bytes | None:
        path = os.path.join(self.random.choice(folders), self.random.choice(self.names))
        return None if os.path.lexists(os.path.join(trees[-1][0], path)) or path.count(b"/") > 6 else path

    def make_file(self, trees, folders, files) -> None:  # type: ignore[no-untyped-def]
        path = self._fresh(trees, folders)
        if path is None:
            return
        data = self.random.randbytes(self.random.choice([0, 1, 100, 4000, 4096, 5000, 20_000, 70_000]))
        self._write(trees, path, data, self.random.choice([0o644, 0o600, 0o4755, 0o000, 0o1777]))

    def _write(self, trees, path, data, mode) -> None:  # type: ignore[no-untyped-def]
        time, owner = self.time(), self.random.choice([0, USER, 65535])
        for root, base in trees:
            target = os.path.join(root, path)
            with open(target, "xb") as stream:
                stream.write(data)
            os.chown(target, base + owner, base + owner)
            os.chmod(target, mode)
            os.utime(target, ns=(time, time))

    def make_folder(self, trees, folders, files) -> None:  # type: ignore[no-untyped-def]
        path = self._fresh(trees, folders)
        if path is None:
            return
        for root, base in trees:
            os.mkdir(os.path.join(root, path), 0o750)
            os.chown(os.path.join(root, path), base + USER, base)

    def rename(self, trees, folders, files) -> None:  # type: ignore[no-untyped-def]
        pool = [path for path in folders if path != b"."] * 2 + files
        target = self._fresh(trees, folders)
        if not pool or target is None:
            return
        source = self.random.choice(pool)
        if (target + b"/").startswith(source + b"/"):
            return
        self._alone(trees, source)
        for root, _ in trees:
            try:
                os.rename(os.path.join(root, source), os.path.join(root, target))
            except OSError as failure:
                # The kernel's own limit: a redirect over 256 bytes (redirect_max) is refused, on the overlay, first.
                assert failure.errno == errno.EXDEV and root == trees[0][0]
                return

    def remove(self, trees, folders, files) -> None:  # type: ignore[no-untyped-def]
        pool = [path for path in folders if path != b"."] + files * 2
        if not pool:
            return
        path = self.random.choice(pool)
        for root, _ in trees:
            target = os.path.join(root, path)
            if os.path.isdir(target) and not os.path.islink(target):
                shutil.rmtree(target)
            else:
                os.unlink(target)

    def refill(self, trees, folders, files) -> None:  # type: ignore[no-untyped-def]
        """Removes a directory and makes a new one of its name: it must hide the old one's contents."""
        pool = [path for path in folders if path != b"."]
        if not pool:
            return
        path = self.random.choice(pool)
        for root, base in trees:
            shutil.rmtree(os.path.join(root, path))
            os.mkdir(os.path.join(root, path), 0o700)
            os.chown(os.path.join(root, path), base, base)
        self._write(trees, os.path.join(path, b"only"), b"new", 0o644)

    def append(self, trees, folders, files) -> None:  # type: ignore[no-untyped-def]
        path = self._regular(trees, files)
        if path is None:
            return
        self._alone(trees, path)
        time = self.time()
        for root, _ in trees:
            with open(os.path.join(root, path), "ab") as stream:
                stream.write(b"more")
            os.utime(os.path.join(root, path), ns=(time, time))

    def chmod(self, trees, folders, files) -> None:  # type: ignore[no-untyped-def]
        path = self._regular(trees, files + folders)
        if path is None:
            return
        self._alone(trees, path)
        mode = self.random.choice([0o755, 0o2770, 0o400])
        for root, _ in trees:
            os.chmod(os.path.join(root, path), mode)

    def chown(self, trees, folders, files) -> None:  # type: ignore[no-untyped-def]
        pool = files + folders[1:]
        if not pool:
            return
        path = self.random.choice(pool)
        self._alone(trees, path)
        for root, base in trees:
            os.chown(os.path.join(root, path), base + 7, base + 65535, follow_symlinks=False)

    def xattr(self, trees, folders, files) -> None:  # type: ignore[no-untyped-def]
        path = self._regular(trees, files + folders)
        if path is None:
            return
        self._alone(trees, path)
        name, value = self.random.choice(["user.a", "user.long.name"]), self.random.randbytes(300)
        for root, _ in trees:
            os.setxattr(os.path.join(root, path), name, value)

    def link(self, trees, folders, files) -> None:  # type: ignore[no-untyped-def]
        source, target = self._regular(trees, files), self._fresh(trees, folders)
        if source is None or target is None:
            return
        self._alone(trees, source)
        for root, _ in trees:
            os.link(os.path.join(root, source), os.path.join(root, target))

    def symlink(self, trees, folders, files) -> None:  # type: ignore[no-untyped-def]
        path = self._fresh(trees, folders)
        if path is None:
            return
        target, time = self.random.choice([b"/etc/passwd", b"../" * 20 + b"etc", b"y" * 4095, b"a"]), self.time()
        for root, base in trees:
            os.symlink(target, os.path.join(root, path))
            os.chown(os.path.join(root, path), base, base, follow_symlinks=False)
            os.utime(os.path.join(root, path), ns=(time, time), follow_symlinks=False)

    def sparse(self, trees, folders, files) -> None:  # type: ignore[no-untyped-def]
        path = self._fresh(trees, folders)
        if path is None:
            return
        self._write(trees, path, b"start", 0o644)
        size, at, time = self.random.randrange(1, 3_000_000), self.random.randrange(3_000_000), self.time()
        for root, _ in trees:
            with open(os.path.join(root, path), "r+b") as stream:
                stream.truncate(size)
                stream.seek(at)
                stream.write(b"island")
            os.utime(os.path.join(root, path), ns=(time, time))

    def _regular(self, trees, pool) -> bytes | None:  # type: ignore[no-untyped-def]
        pool = [path for path in pool if path != b"." and not os.path.islink(os.path.join(trees[-1][0], path))]
        return self.random.choice(pool) if pool else None

    def _alone(self, trees, path) -> None:  # type: ignore[no-untyped-def]
        """Parts a file from its other names first: an overlay does so by itself when it copies the file up."""
        model = os.path.join(trees[-1][0], path)
        info = os.lstat(model)
        if stat.S_ISDIR(info.st_mode) or info.st_nlink == 1:
            return
        for root, base in trees:
            target, aside = os.path.join(root, path), os.path.join(root, b"aside")
            shutil.copy2(target, aside, follow_symlinks=False)
            os.chown(aside, base + USER, base + USER, follow_symlinks=False)
            os.rename(aside, target)


def _paths(root: bytes) -> tuple[list[bytes], list[bytes]]:
    folders, files = [b"."], []
    for where, inner, names in os.walk(root):
        folders += [os.path.relpath(os.path.join(where, name), root) for name in inner if not _link(where, name)]
        files += [os.path.relpath(os.path.join(where, name), root) for name in names]
        files += [os.path.relpath(os.path.join(where, name), root) for name in inner if _link(where, name)]
    return sorted(folders), sorted(files)


def _marks(layer: Path) -> list[str]:
    """Whiteouts and the overlay's own attributes in a layer."""
    found = []
    for where, folders, files in os.walk(layer):
        found += [name for name in files if stat.S_ISCHR(os.lstat(os.path.join(where, name)).st_mode)]
        for name in folders:
            path = os.path.join(where, name)
            if not os.path.islink(path):
                found += [mark for mark in os.listxattr(path) if mark.startswith("trusted.")]
    return found


def _link(where: bytes, name: bytes) -> bool:
    return os.path.islink(os.path.join(where, name))


def _live_through(ground: Ground, seed: int, generations: int, changes: int) -> None:
    hand = Hand(seed)
    model = ground.place / "disk" / "model"
    model.mkdir()
    stack: list[str] = []
    for generation in range(generations):
        ids = generation % 3
        name, seen = ground.wake(stack, ids)
        for _ in range(hand.random.randrange(changes)):
            hand.change([(os.fsencode(seen), ground.base(ids)), (os.fsencode(model), 0)])
        expected = tree(model, 0, links=False)
        assert tree(seen, ground.base(ids), links=False) == expected
        ground.rest(name)
        stack.insert(0, ground.pack(name, stack, ids).digest)
        if len(stack) > 1 and hand.random.random() < 0.5:
            first = hand.random.randrange(len(stack) - 1)
            last = hand.random.randrange(first + 2, len(stack) + 1)
            before = list(stack)
            stack[first:last] = [ground.packing.compact(stack[first:last], bottom=last == len(stack)).digest]
            difference = ground.packing.compare(before, stack)
            os.close(difference.listing)
            assert (difference.added, difference.changed, difference.removed) == (0, 0, 0)
        checked, seen = ground.wake(stack, 2)
        assert tree(seen, ground.base(2), links=False) == expected
        ground.rest(checked)
        whole = ground.packing.compact(stack, bottom=True)
        assert tree(ground.layers.mounted(whole.digest), 0) == tree(model, 0)
        assert not _marks(ground.layers.mounted(whole.digest)), "nothing lies below: no mark may be left"


@pytest.mark.parametrize("seed", range(6))
def test_generations_of_packs_and_merges_equal_a_plain_folder(ground: Ground, seed: int) -> None:
    _live_through(ground, seed, generations=8, changes=40)


@pytest.mark.full
@pytest.mark.parametrize("seed", range(100, 130))
def test_many_generations_of_packs_and_merges(ground: Ground, seed: int) -> None:
    _live_through(ground, seed, generations=20, changes=80)
