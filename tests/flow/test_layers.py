"""Layers on the real kernel: what was packed, merged and mounted again is what was there."""

from __future__ import annotations

import errno
import mmap
import os
import random
import shutil
import stat
import struct
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))
from ground import USER, Ground, make_ground, tree
from kennel.node import cgroup
from kennel.node.freezer import Freezer
from kennel.node.pack import LeftOut, Upper
from kennel.node.stack import Image, mount_stack, recorded
from kennel.wire.errors import KennelError

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
                if failure.errno != errno.EXDEV or root != trees[0][0]:
                    raise
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


# What is left out --------------------------------------------------------------------------------------------------


def _fill(root: Path, files: dict[str, str], base: int) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        while path != root:
            os.chown(path, base + USER, base + USER)
            path = path.parent


def _names(root: Path) -> set[str]:
    return {str(path.relative_to(root)) for path in root.rglob("*") if not path.is_dir() or path.is_symlink()}


def test_left_out_paths_are_gone_after_a_wake_also_from_lower_layers(ground: Ground) -> None:
    base = ground.base(0)
    name, seen = ground.wake([])
    _fill(seen, {"keep": "1", "old/build/x": "1", "old/src": "1", "both/cache/y": "1", "deep/a/b/c/gone": "1"}, base)
    os.chmod(seen / "deep" / "a", 0o711)
    ground.rest(name)
    first = ground.pack(name)
    stack = [first.digest]

    name, seen = ground.wake(stack)
    _fill(
        seen, {"both/cache/z": "22", "new/node_modules/m/index.js": "333", "new/main": "1", "only/upper": "4444"}, base
    )
    ground.rest(name)
    out = LeftOut(
        [b"old/build", b"both/cache", b"deep/a/b/c/gone", b"only", b"not/there", b"keep/below"], ["node_modules"]
    )
    made = ground.pack(name, stack, left_out=out)
    # both/cache and z; node_modules, m, index.js; only and upper.
    assert (made.left_out, made.left_out_bytes) == (7, 9)

    name, seen = ground.wake([made.digest, *stack], 1)
    assert _names(seen) == {"keep", "old/src", "new/main"}
    assert sorted(os.listdir(seen / "deep/a/b/c")) == []
    assert stat.S_IMODE(os.stat(seen / "deep/a").st_mode) == 0o711
    assert sorted(os.listdir(seen / "both")) == []
    ground.rest(name)
    whole = ground.packing.compact([made.digest, *stack], bottom=True)
    assert _names(ground.layers.mounted(whole.digest)) == {"keep", "old/src", "new/main"}


def test_a_left_out_path_in_a_renamed_directory_is_found_in_the_layers_below(ground: Ground) -> None:
    name, seen = ground.wake([])
    _fill(seen, {"a/build/x": "1", "a/src": "1"}, ground.base(0))
    ground.rest(name)
    stack = [ground.pack(name).digest]
    name, seen = ground.wake(stack)
    os.rename(seen / "a", seen / "b")
    ground.rest(name)
    stack.insert(0, ground.pack(name, stack, left_out=LeftOut([b"b/build"])).digest)
    name, seen = ground.wake(stack)
    assert _names(seen) == {"b/src"}
    ground.rest(name)


# The live pack -----------------------------------------------------------------------------------------------------


class Brake:
    """Stands for the freezer: runs what a sandbox does before it stops, and checks that it was let go."""

    def __init__(self, before: Callable[[], None] = lambda: None, inside: Callable[[], None] = lambda: None) -> None:
        self.before, self.inside, self.frozen, self.thaws = before, inside, False, 0

    def freeze(self) -> None:
        self.before()
        self.frozen = True
        self.inside()

    def thaw(self) -> None:
        self.thaws += 1
        self.frozen = False


def test_a_live_pack_has_the_moment_of_the_freeze(ground: Ground) -> None:
    name, seen = ground.wake([])
    base = ground.base(0)
    _fill(seen, {f"d{n}/f{n}": f"old {n}" for n in range(50)}, base)
    _fill(seen, {"big": "b" * 300_000, "gone": "1", "moved/x": "1", "mapped": "m" * 8192}, base)
    os.link(seen / "d0/f0", seen / "linked")
    with open(seen / "mapped", "r+b") as stream, mmap.mmap(stream.fileno(), 0) as mapped:
        mapped[0:1] = b"1"  # the page is writable and dirty before the pack begins
        time.sleep(0.1)  # older than the pack's slack, so that it is written in the first pass

        def change() -> None:
            (seen / "d1/f1").write_text("new")
            (seen / "gone").unlink()
            os.rename(seen / "moved", seen / "there")
            os.chmod(seen / "d2/f2", 0o600)
            os.setxattr(seen / "d3/f3", "user.new", b"1")
            mapped[4096:4097] = b"2"
            _fill(seen, {"fresh": "fresh"}, base)

        brake = Brake(before=change)
        made = ground.packing.pack(ground.upper(name), freezer=brake)  # type: ignore[arg-type]
        assert (brake.thaws > 0, brake.frozen) == (True, False)
        assert tree(ground.layers.mounted(made.digest), 0) == tree(seen, base)
    ground.rest(name)


_WRITER = """
import mmap, os, sys
os.chdir(sys.argv[1])
with open("mapped", "w+b") as stream:
    stream.write(bytes(1 << 20))
    stream.flush()
    mapped = mmap.mmap(stream.fileno(), 0)
number = 0
while True:
    number += 1
    for at in range(0, 1 << 20, 1 << 16):
        mapped[at : at + 8] = number.to_bytes(8, "little")
    with open("written", "wb") as stream:
        stream.write(number.to_bytes(8, "little") * 20_000)
    os.rename("written", "renamed")
    os.mkdir(f"d{number}")
    if number > 1:
        os.rmdir(f"d{number - 1}")
"""


def test_a_live_pack_of_a_writing_process_is_one_moment(ground: Ground) -> None:
    tree_of_groups = cgroup.find()
    root = tree_of_groups.unified or tree_of_groups.v1.get("freezer")
    if root is None:
        pytest.skip("no freezer here")
    group = f"kennel-live-{os.getpid()}"
    (root / group).mkdir()
    name, seen = ground.wake([])
    writer = subprocess.Popen([sys.executable, "-c", _WRITER, str(seen)])
    try:
        (root / group / "cgroup.procs").write_text(str(writer.pid))
        while not (seen / "d3").exists() and not (seen / "renamed").exists():
            time.sleep(0.01)
        for _ in range(8):
            freezer = Freezer(tree_of_groups, group)
            made = ground.packing.pack(ground.upper(name), freezer=freezer)
            assert 0 < freezer.frozen_seconds < 5
            layer = ground.layers.mounted(made.digest)
            mapped = (layer / "mapped").read_bytes()
            numbers = [int.from_bytes(mapped[at : at + 8], "little") for at in range(0, 1 << 20, 1 << 16)]
            assert numbers == sorted(numbers, reverse=True)
            assert numbers[0] - numbers[-1] <= 1
            data = (layer / "renamed").read_bytes()
            whole = int.from_bytes(data[:8], "little")
            assert data == data[:8] * 20_000
            assert whole <= numbers[-1] <= whole + 1
            folders = sorted(int(path.name[1:]) for path in layer.glob("d*"))
            assert folders in ([whole], [whole - 1, whole], [whole - 1])
        assert writer.poll() is None
    finally:
        writer.kill()
        writer.wait()
        (root / group).rmdir()
        ground.rest(name)


def test_a_live_pack_that_fails_lets_the_sandbox_run(ground: Ground) -> None:
    name, seen = ground.wake([])
    _fill(seen, {"a": "1"}, ground.base(0))

    def grow() -> None:
        os.truncate(seen / "a", 15 << 40)

    brake = Brake(before=grow)
    with pytest.raises(KennelError) as caught:
        ground.packing.pack(ground.upper(name), freezer=brake)  # type: ignore[arg-type]
    assert caught.value.code == "PACK_TOO_LARGE"
    assert (brake.thaws > 0, brake.frozen) == (True, False)
    ground.rest(name)


def test_access_lists_keep_their_ids_from_range_to_range(ground: Ground) -> None:
    def acl(user: int) -> bytes:
        rows = [(1, 6, -1), (2, 7, user), (4, 4, -1), (16, 7, -1), (32, 0, -1)]
        return struct.pack("<I", 2) + b"".join(struct.pack("<HHi", *row) for row in rows)

    name, seen = ground.wake([])
    _fill(seen, {"d/f": "1"}, ground.base(0))
    os.setxattr(seen / "d/f", "system.posix_acl_access", acl(ground.base(0) + USER))
    os.setxattr(seen / "d", "system.posix_acl_default", acl(ground.base(0) + 7))
    ground.rest(name)
    stack = [ground.pack(name).digest]
    name, seen = ground.wake(stack, 1)
    assert os.getxattr(seen / "d/f", "system.posix_acl_access") == acl(ground.base(1) + USER)
    assert os.getxattr(seen / "d", "system.posix_acl_default") == acl(ground.base(1) + 7)
    ground.rest(name)


# Uppers and their stacks -------------------------------------------------------------------------------------------


def test_an_upper_stays_on_the_stack_it_was_mounted_on(ground: Ground) -> None:
    stacks = []
    for text in ("one", "two"):
        name, seen = ground.wake([])
        (seen / "f").write_text(text)
        ground.rest(name)
        stacks.append([ground.pack(name).digest])
    name, seen = ground.wake(stacks[0])
    (seen / "g").write_text("mine")
    ground.rest(name)
    assert recorded(ground.place / "disk" / name) == stacks[0]
    words = (ground.layers, ground.place, name, seen, stacks[1], ground.base(0))
    assert mount_stack(*words) == stacks[0]
    assert (seen / "f").read_text() == "one"
    ground.rest(name)
    with pytest.raises(KennelError, match="STACK_MISMATCH"):
        mount_stack(*words, fresh=True)
    (ground.place / "disk" / name / "stack.json").unlink()
    with pytest.raises(KennelError, match="STACK_MISMATCH"):
        mount_stack(*words)
    (ground.place / "disk" / name / "stack.json").write_text('{"layers": ["../../etc"]}')
    with pytest.raises(KennelError, match="FILESYSTEM_ERROR"):
        mount_stack(*words)


def test_a_stack_can_lie_on_an_image(ground: Ground) -> None:
    below = ground.folder / "image"
    (below / "etc").mkdir(parents=True)
    (below / "etc/hosts").write_text("localhost")
    (below / "etc/motd").write_text("hello")
    image = Image(below, "sha256:1")
    base = ground.base(0)
    name = ground.lay_out()
    seen = ground.place / name
    mount_stack(ground.layers, ground.place, name, seen, [], base, image=image)
    (seen / "etc/motd").unlink()
    _fill(seen, {"usr/new": "1"}, base)
    ground.rest(name)
    upper = Upper(ground.place / "disk" / name / "upper", base, on_image=True)
    made = ground.packing.pack(upper)
    with pytest.raises(KennelError, match="STACK_MISMATCH"):
        mount_stack(ground.layers, ground.place, name, seen, [], base, image=Image(below, "sha256:2"))
    name = ground.lay_out(1)
    seen = ground.place / name
    mount_stack(ground.layers, ground.place, name, seen, [made.digest], ground.base(1), image=image)
    assert _names(seen) == {"etc/hosts", "usr/new"}
    ground.rest(name)


def test_a_new_upper_takes_over_how_the_root_looks(ground: Ground) -> None:
    base = ground.base(0)
    name, seen = ground.wake([])
    os.chmod(seen, 0o2711)
    os.chown(seen, base + USER, base + 7)
    os.chmod(seen, 0o2711)
    os.setxattr(seen, "user.root", b"here")
    os.utime(seen, ns=(5_000_000_007, 5_000_000_007))
    ground.rest(name)
    stack = [ground.pack(name).digest]
    name, seen = ground.wake(stack, 1)
    info = os.stat(seen)
    assert (stat.S_IMODE(info.st_mode), info.st_uid - ground.base(1), info.st_gid - ground.base(1)) == (0o2711, USER, 7)
    assert info.st_mtime_ns == 5_000_000_007
    assert os.getxattr(seen, "user.root") == b"here"
    ground.rest(name)


def test_64_layers_mount_and_merge_to_one(ground: Ground) -> None:
    stack: list[str] = []
    for number in range(64):
        upper = ground.lay_out()
        folder = ground.place / "disk" / upper / "upper"
        (folder / f"f{number}").write_text(str(number))
        (folder / "same").write_text(str(number))
        stack.insert(0, ground.pack(upper, stack).digest)
    name, seen = ground.wake(stack)
    assert len(os.listdir(seen)) == 65
    assert (seen / "same").read_text() == "63"
    expected = tree(seen, ground.base(0), links=False)
    ground.rest(name)
    whole = ground.packing.compact(stack, bottom=True)
    name, seen = ground.wake([whole.digest])
    # Files were made by the machine's root, which no range maps: both show that alike.
    assert {k: v[3] for k, v in tree(seen, 0, links=False).items()} == {k: v[3] for k, v in expected.items()}
    ground.rest(name)
    with pytest.raises(KennelError, match="at most 64"):
        ground.wake([*stack, whole.digest])


# Compare and export ------------------------------------------------------------------------------------------------


def _rows(listing: int) -> list[str]:
    try:
        with open(listing, "rb", closefd=False) as stream:
            return [row.decode() for row in stream.read().split(b"\0") if row]
    finally:
        os.close(listing)


def test_a_difference_names_what_was_added_changed_and_removed(ground: Ground) -> None:
    base = ground.base(0)
    name, seen = ground.wake([])
    _fill(seen, {"same/deep/x": "1", "gone": "1", "text": "old", "mode": "1", "kind": "1", "d/in": "1"}, base)
    os.symlink("a", seen / "link")
    ground.rest(name)
    old = [ground.pack(name).digest]
    name, seen = ground.wake(old)
    info = os.stat(seen / "text")
    (seen / "text").write_text("new")
    os.utime(seen / "text", ns=(info.st_mtime_ns, info.st_mtime_ns))
    (seen / "gone").unlink()
    os.chmod(seen / "mode", 0o600)
    (seen / "kind").unlink()
    (seen / "kind").mkdir()
    _fill(seen, {"kind/of": "1", "new/file": "1", "same/deep/x": "1"}, base)
    os.setxattr(seen / "d", "user.a", b"1")
    (seen / "link").unlink()
    os.symlink("b", seen / "link")
    ground.rest(name)
    upper = ground.upper(name, old)
    new = [ground.pack(name, old).digest, *old]
    expected = ["Cd", "Rgone", "Ckind", "Clink", "Cmode", "Anew", "Ctext", "Akind/of", "Anew/file"]
    expected.append("Csame/deep/x")  # its time moved
    for words in ({"new": new}, {"new": old, "new_upper": upper}):
        difference = ground.packing.compare(old, **words)  # type: ignore[arg-type]
        assert sorted(_rows(difference.listing)) == sorted(expected)
        assert (difference.added, difference.changed, difference.removed) == (3, 6, 1)
    back = ground.packing.compare(new, old)
    assert {"Agone", "Rnew", "Rnew/file", "Rkind/of"} <= set(_rows(back.listing))
    nothing = ground.packing.compare([], new)
    assert nothing.removed == 0
    assert "Asame/deep/x" in _rows(nothing.listing)


def test_an_export_is_a_tar_of_the_whole_tree(ground: Ground, tmp_path: Path) -> None:
    hand = Hand(4)
    model = ground.place / "disk" / "model"
    model.mkdir()
    name, seen = ground.wake([])
    for _ in range(60):
        hand.change([(os.fsencode(seen), ground.base(0)), (os.fsencode(model), 0)])
    os.mkfifo(seen / "fifo")
    os.utime(seen / "fifo", ns=(1, 1))
    ground.rest(name)
    stack = [ground.pack(name).digest]
    with open(tmp_path / "out.tar", "wb") as out:
        counts = ground.packing.export(out.fileno(), stack)
    unpacked = tmp_path / "unpacked"
    unpacked.mkdir()
    with tarfile.open(tmp_path / "out.tar", encoding="utf-8", errors="surrogateescape") as archive:
        members = archive.getmembers()
        assert len(members) == counts["entries"]
    done = subprocess.run(
        ["tar", "--xattrs", "--numeric-owner", "-xpf", str(tmp_path / "out.tar"), "-C", str(unpacked)], check=False
    )
    assert done.returncode == 0
    (unpacked / "fifo").unlink()
    assert tree(unpacked, 0) == tree(model, 0)


# The cache ---------------------------------------------------------------------------------------------------------


def test_an_import_becomes_a_layer_only_if_its_bytes_are_the_layer(ground: Ground) -> None:
    name, seen = ground.wake([])
    (seen / "f").write_text("text")
    ground.rest(name)
    made = ground.pack(name)
    image = ground.layers.open(made.digest)
    data = os.pread(image, made.size, 0)
    os.close(image)
    ground.layers.trim()
    ground.layers.remove(made.digest)
    assert not ground.layers.has(made.digest)
    for wrong in (data[:-1], data[:-1] + b"\1", b""):
        descriptor = ground.layers.begin_import()
        os.write(descriptor, wrong)
        with pytest.raises(KennelError, match="LAYER_CORRUPT"):
            ground.layers.commit_import(descriptor, made.digest)
        os.close(descriptor)
    descriptor = ground.layers.begin_import()
    os.write(descriptor, data)
    ground.layers.commit_import(descriptor, made.digest)
    # Whoever filled the file still holds it: what is mounted must be another.
    os.pwrite(descriptor, b"\0" * len(data), 0)
    os.close(descriptor)
    assert ground.layers.verify(made.digest)
    assert (ground.layers.mounted(made.digest) / "f").read_text() == "text"
    assert list((ground.layers.path(made.digest).parent / "coming").iterdir()) == []


def test_a_damaged_layer_is_never_mounted(ground: Ground) -> None:
    name, seen = ground.wake([])
    (seen / "f").write_text("text")
    ground.rest(name)
    made = ground.pack(name)
    path = ground.layers.path(made.digest)
    path.chmod(0o600)
    with open(path, "r+b") as stream:
        stream.seek(made.size - 1)
        stream.write(b"\1")
    assert not ground.layers.verify(made.digest)
    assert not ground.layers.has(made.digest)
    with pytest.raises(KennelError, match="LAYER_MISSING"):
        ground.wake([made.digest])
    ground.pack(name)
    path.chmod(0o600)
    os.truncate(path, made.size - 4096)
    with pytest.raises(KennelError, match="LAYER_CORRUPT"):
        ground.wake([made.digest])
    assert not ground.layers.has(made.digest), "so that it is fetched again"


def test_equal_trees_are_one_layer_and_a_removed_layer_serves_who_has_it(ground: Ground) -> None:
    name, seen = ground.wake([])
    (seen / "f").write_text("text")
    ground.rest(name)
    one, two = ground.pack(name), ground.pack(name)
    assert one == two
    assert ground.layers.list() == {one.digest: one.size}
    name, seen = ground.wake([one.digest])
    ground.layers.remove(one.digest)
    assert (seen / "f").read_text() == "text"
    ground.rest(name)
