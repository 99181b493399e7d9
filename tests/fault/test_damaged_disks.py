"""A sandbox's disk image that was damaged: a typed error, a way out, and nobody else notices."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from installation import Installation
from kennel import Kennel, KennelError
from kennel.node import loop

pytestmark = pytest.mark.root
_BLOCK = 4096


def _no_superblock(image: Path) -> None:
    with open(image, "r+b") as stream:
        stream.write(bytes(64 * _BLOCK))


def _cut(image: Path) -> None:
    os.truncate(image, image.stat().st_size // 2)


def _empty(image: Path) -> None:
    os.truncate(image, 0)


def _noise(seed: int) -> Callable[[Path], None]:
    """Garbage over what the file system has written: inode tables, directories, journal, files."""

    def damage(image: Path) -> None:
        dice = random.Random(seed)
        with open(image, "r+b") as stream:
            places, at = [], 0
            while True:
                try:
                    at = os.lseek(stream.fileno(), at, os.SEEK_DATA)
                except OSError:
                    break
                end = os.lseek(stream.fileno(), at, os.SEEK_HOLE)
                places += range(max(at, 2 * _BLOCK), end, _BLOCK)
                at = end
            for place in dice.sample(places, max(1, len(places) // 3)):
                stream.seek(place + dice.randrange(_BLOCK - 64))
                stream.write(dice.randbytes(64))

    return damage


def _live_through(installation: Installation, itx: Kennel, name: str, damage: Callable[[Path], None]) -> str:
    """One damaged disk; what came of the start."""
    bystander = itx.sandboxes.get(f"/sandboxes/beside-{name}").create()
    box = itx.sandboxes.get(f"/sandboxes/damaged-{name}").create()
    assert box.exec("for i in $(seq 300); do mkdir d$i; echo $i > d$i/f; done; sync").exit_code == 0
    good = box.snapshot("good")
    assert box.exec("for i in $(seq 300); do echo more > d$i/g; done; sync").exit_code == 0
    box.kill()
    node = installation.pid("node")
    image = installation.data / "node/sandboxes" / box.info().sandbox_id / "disk.img"
    # A container of another test that starts just now may hold a copy of the mount: what is damaged then is not read.
    assert loop.wait_released(str(image), 60)
    damage(image)
    begun = time.monotonic()
    came = _try(lambda: box.exec("find . | wc -l; cat d*/f > /dev/null; echo 1 > new; sync", timeout=30))
    came += " " + _try(lambda: box.snapshot())
    came += " " + _try(lambda: box.sleep())
    assert time.monotonic() - begun < 60, "it hung"
    assert box.info().status in ("stopped", "running")
    # The way out, whatever became of the disk.
    box.rollback(good)
    assert box.exec("ls -d d*/f | wc -l; ls d*/g 2>/dev/null | wc -l").stdout == "300\n0\n"
    assert bystander.exec("echo here").stdout == "here\n"
    assert installation.pid("node") == node
    box.destroy()
    bystander.destroy()
    return came


def _try(ask: Callable[[], Any]) -> str:
    try:
        ask()
    except KennelError as failure:
        if failure.code in ("INTERNAL_ERROR", "NODE_UNAVAILABLE", "SANDBOX_LOST"):
            raise
        return failure.code
    return "fine"


def test_a_disk_that_is_none_fails_the_start_and_can_be_rolled_back(itx: Kennel, installation: Installation) -> None:
    came = _live_through(installation, itx, "superblock", _no_superblock)
    assert came.split()[0] == "SNAPSHOT_MISSING", came


@pytest.mark.full
@pytest.mark.timeout(900)
@pytest.mark.parametrize("damage", [_cut, _empty, *map(_noise, range(8))])
def test_disks_damaged_in_many_ways(itx: Kennel, installation: Installation, damage: Callable[[Path], None]) -> None:
    name = str(abs(hash(damage)) % 10**9)
    print(_live_through(installation, itx, name, damage), flush=True)
