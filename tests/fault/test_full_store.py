"""A store that is really full: what was good stays good, what was begun is taken back, and room given makes it work."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from inside import run
from installation import Installation
from kennel import KennelError

pytestmark = [pytest.mark.root, pytest.mark.full]

UID = 59711


def give(installation: Installation, size: str) -> Path:
    """Gives control a store of its own of this size, or changes it; where that is to be seen."""
    pid = installation.pid("control")
    seen = Path(f"/proc/{pid}/root/data/blobs")
    how = "remount" if (seen / "layers").exists() else "mode=700"
    words = ["mount", "-t", "tmpfs", "-o", f"{how},size={size},uid={UID},gid={UID}", "kennel", "/data/blobs"]
    subprocess.run(["nsenter", f"--mount=/proc/{pid}/ns/mnt", "--root", "--target", str(pid), *words], check=True)
    (seen / "layers").mkdir(exist_ok=True)
    subprocess.run(["chown", f"{UID}:{UID}", str(seen / "layers")], check=True)
    return seen


def files(store: Path) -> dict[str, int]:
    return {str(path.relative_to(store)): path.stat().st_size for path in store.rglob("*") if path.is_file()}


def unchanged(store: Path, before: dict[str, int]) -> None:
    """What was begun is deleted a little after it was refused."""
    deadline = time.monotonic() + 10
    while files(store) != before:
        assert time.monotonic() < deadline, (before, files(store))
        time.sleep(0.02)


def told(installation: Installation, box: Any) -> list[str]:
    return [event["type"].removeprefix("sandbox/") for event in installation.events(box.path)]


def test_a_directory_that_does_not_fit_leaves_nothing_and_the_last_backup_good(own_installation: Installation) -> None:
    store = give(own_installation, "6m")
    with own_installation.client() as itx:
        box = itx.sandboxes.get("/sandboxes/saved-to-a-full-store").create()
        run(box, "mkdir -p /home/t; head -c 2000000 /dev/urandom > /home/t/some; sha256sum /home/t/some > /home/sums")
        good = box.create_backup("/home/t")
        before = files(store)
        # In one piece, and in more of them than are held back before the first goes to the store.
        for size in (4_000_000, 60_000_000):
            run(box, f"head -c {size} /dev/urandom > /home/t/more")
            with pytest.raises(KennelError) as caught:
                box.create_backup("/home/t")
            assert (caught.value.code, caught.value.status) == ("NO_SPACE", 500)
            unchanged(store, before)
        assert [each.id for each in box.list_backups()] == [good.id]
        assert told(own_installation, box).count("directory-saved") == 1
        box.restore_backup(good)
        assert run(box, "sha256sum -c /home/sums; ls /home/t") == "/home/t/some: OK\nsome\n"
        give(own_installation, "64m")
        run(box, "head -c 4000000 /dev/urandom > /home/t/more")
        assert box.restore_backup(box.create_backup("/home/t")).success
        box.destroy()


def test_files_that_do_not_fit_stay_on_their_disk_and_the_pointer_where_it_was(own_installation: Installation) -> None:
    store = give(own_installation, "6m")
    with own_installation.client() as itx:
        box = itx.sandboxes.get("/sandboxes/asleep-on-a-full-store").create()
        run(box, "echo good > file")
        good = box.snapshot()
        before = files(store)
        for size in (8_000_000, 60_000_000):
            run(box, f"head -c {size} /dev/urandom > more; sha256sum more > sums")
            with pytest.raises(KennelError) as caught:
                box.snapshot()
            assert caught.value.code == "NO_SPACE"
            box.sleep()
            assert box.info().last_backup_id == good.id
            unchanged(store, before)
            assert run(box, "cat file; sha256sum -c sums") == "good\nmore: OK\n"
        assert told(own_installation, box).count("backup-failed") == 4
        assert list((own_installation.data / "node/layers/coming").iterdir()) == []
        give(own_installation, "128m")
        box.sleep()
        assert box.info().last_backup_id != good.id
        assert run(box, "cat file; sha256sum -c sums") == "good\nmore: OK\n"
        box.rollback(good)
        assert run(box, "ls; cat file") == "file\ngood\n"
        box.destroy()
