"""Attacks on the OCI runtime itself while it starts a container whose files and words are an attacker's."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from bundle import Bundle

pytestmark = pytest.mark.root


@pytest.fixture
def canary() -> Iterator[Path]:
    path = Path("/var/tmp") / f"kennel-canary-{uuid.uuid4().hex}"
    path.write_text(path.name)
    yield path
    path.unlink()


def binary(bundle: Bundle) -> Path:
    found = shutil.which(bundle.runtime)
    assert found
    return Path(found).resolve()


def test_a_program_that_is_the_runtime_cannot_write_it(bundle: Bundle) -> None:
    """CVE-2019-5736: a script whose interpreter is /proc/self/exe makes the runtime run itself inside."""
    before = hashlib.sha256(binary(bundle).read_bytes()).digest()
    bundle.put("/tmp/again", b"#!/proc/self/exe\n")
    bundle.run(["/tmp/again"])
    writer = (
        "for n in 1 2 3; do for p in /proc/[0-9]*/exe; do cp /bin/true $p; echo x > $p; done; done 2>/dev/null; exit 0"
    )
    assert bundle.run(["sh", "-c", writer]).code == 0
    assert hashlib.sha256(binary(bundle).read_bytes()).digest() == before


@pytest.mark.parametrize("descriptor", range(3, 13))
def test_a_leaked_directory_is_no_working_directory(bundle: Bundle, canary: Path, descriptor: int) -> None:
    """CVE-2024-21626: the runtime's own open directory as `process.cwd`."""
    ran = bundle.run(
        ["sh", "-c", f"cat ../../../..{canary} ../../../../../..{canary}"], cwd=f"/proc/self/fd/{descriptor}"
    )
    assert canary.name not in ran.out
    assert ran.code != 0


@pytest.mark.parametrize("name", ["proc", "dev", "sys", "dev/shm", "dev/pts"])
def test_a_mount_point_that_is_a_link_stays_inside(bundle: Bundle, tmp_path: Path, name: str) -> None:
    """CVE-2021-30465 and its kin: an image that puts a link where the runtime is going to mount."""
    outside = tmp_path / "outside"
    outside.mkdir()
    place = bundle.root / name
    kept = place.with_name(place.name + ".kept")
    made = not place.parent.exists()
    place.parent.mkdir(parents=True, exist_ok=True)
    if place.exists():
        place.rename(kept)
    place.symlink_to("../" * 20 + str(outside))
    try:
        bundle.run(["true"])
        assert list(outside.iterdir()) == []
        assert str(outside) not in Path("/proc/self/mountinfo").read_text()
    finally:
        place.unlink()
        if kept.exists():
            kept.rename(place)
        if made:
            place.parent.rmdir()


def test_devices_that_are_links_are_not_followed(bundle: Bundle, tmp_path: Path) -> None:
    """CVE-2025-31133 and 2025-52565: /dev/null or /dev/console replaced by a link while paths are masked."""
    victim = tmp_path / "victim"
    victim.write_text("whole")
    folder = bundle.root / "dev"
    (folder / "null").symlink_to(victim)
    (folder / "console").symlink_to(victim)
    try:
        ran = bundle.run(["sh", "-c", "ls -l /dev/null; cat /proc/kallsyms; echo broken > /dev/null"])
        assert ran.out.startswith("c")
        assert len(ran.out.splitlines()) == 1
        assert victim.read_text() == "whole"
    finally:
        (folder / "null").unlink()
        (folder / "console").unlink()


def test_a_bundle_leaves_nothing(bundle: Bundle) -> None:
    bundle.run(["true"])
    assert not list(Path("/sys/fs/cgroup").glob(f"**/{bundle.name}"))
    state = bundle.here / "state"
    assert not state.exists() or not os.listdir(state)
    listed = subprocess.run(
        [bundle.runtime, "--root", str(state), "list", "-q"], capture_output=True, text=True, check=True
    )
    assert listed.stdout == ""
