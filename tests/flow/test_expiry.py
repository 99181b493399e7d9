"""Files that are kept for a time only: they expire, and what nobody needs any more leaves the disk."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from installation import Installation, make_installation
from kennel import KennelError

pytestmark = [pytest.mark.root, pytest.mark.full]

TTL, LOOK = 4.0, 1.0


@pytest.fixture
def hasty() -> Iterator[Installation]:
    """An installation that forgets within seconds."""
    yield from make_installation(warm_pool="0", snapshot_ttl=str(TTL), collect_every=str(LOOK))


@pytest.fixture
def tidy() -> Iterator[Installation]:
    """An installation that keeps files as long as others do, and looks every second for what nobody needs."""
    yield from make_installation(warm_pool="0", collect_every=str(LOOK))


def run(box: Any, script: str) -> str:
    result = box.exec(script)
    assert result.exit_code == 0, result.stderr
    return str(result.stdout)


def kinds(installation: Installation, box: Any) -> list[str]:
    return [event["type"].removeprefix("sandbox/") for event in installation.events(box.path)]


def stored(installation: Installation, *folders: str) -> set[str]:
    """The names in the store and in the machine's cache."""
    blobs = installation.data / "control" / "blobs"
    found = {path.name for folder in folders for path in (blobs / folder).glob("*")}
    return found | {path.stem for path in (installation.data / "node" / "layers").glob("*.erofs")}


def wait_until(true: Callable[[], bool], why: str, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, why
        time.sleep(0.1)


def layers(installation: Installation, box: Any, backup: str) -> list[str]:
    for event in installation.events(box.path):
        if event["type"] == "sandbox/backup-created" and event["payload"]["backupId"] == backup:
            return list(event["payload"]["layers"])
    raise AssertionError(f"no event says that {backup} was made")


def test_files_expire_after_their_time_and_what_somebody_named_stays(hasty: Installation) -> None:
    with hasty.client() as itx:
        box = itx.sandboxes.get("/sandboxes/forgotten").create()
        run(box, "echo 1 > one")
        named = box.snapshot("named")
        run(box, "echo 2 > two; head -c 100000 /dev/urandom > big")
        box.sleep()
        slept = box.info().last_backup_id
        [top, *_] = layers(hasty, box, slept)
        assert top in stored(hasty, "layers")
        time.sleep(TTL + 0.5)
        assert run(box, "ls") == ""
        assert kinds(hasty, box).count("workspace-expired") == 1
        assert "workspace-restored" not in kinds(hasty, box)
        assert [each.id for each in box.snapshots()] == [named.id]
        with pytest.raises(KennelError) as caught:
            box.rollback(slept)
        assert caught.value.code == "SNAPSHOT_NOT_FOUND"
        wait_until(lambda: top not in stored(hasty, "layers"), "a layer that nobody needs is still there")
        # Two looks at least have passed over what the named one needs.
        assert set(layers(hasty, box, named.id)) <= stored(hasty, "layers")
        box.rollback(named)
        assert run(box, "ls; cat one") == "one\n1\n"
        box.destroy()


def test_one_that_was_taken_back_in_its_sleep_is_used_by_that(hasty: Installation) -> None:
    with hasty.client() as itx:
        box = itx.sandboxes.get("/sandboxes/taken-back").create()
        run(box, "echo 1 > one")
        named = box.snapshot("named")
        box.sleep()
        # The background finds it; only then is it asleep, empty and older than files are kept.
        wait_until(lambda: "workspace-expired" in kinds(hasty, box), "it did not expire")
        assert not box.rollback(named).running
        assert run(box, "cat one") == "1\n"
        box.destroy()


def test_a_fork_that_nobody_woke_ages_from_its_own_beginning(hasty: Installation) -> None:
    with hasty.client() as itx:
        box = itx.sandboxes.get("/sandboxes/old").create()
        run(box, "echo 1 > one")
        named = box.snapshot("named")
        box.sleep()
        time.sleep(TTL - 1)
        young, left = (box.fork(path, named) for path in ("/sandboxes/young", "/sandboxes/left"))
        time.sleep(TTL - 1.5)
        assert run(young, "cat one") == "1\n"
        time.sleep(2)
        assert run(left, "ls") == ""
        assert kinds(hasty, left).count("workspace-expired") == 1
        for each in (box, young, left):
            each.destroy()


def test_a_pet_in_use_never_expires(hasty: Installation) -> None:
    with hasty.client() as itx:
        box = itx.sandboxes.get("/sandboxes/used").create()
        run(box, "echo 1 > one")
        box.sleep()
        run(box, "true")
        time.sleep(TTL + 0.5)
        assert run(box, "cat one") == "1\n"
        assert "workspace-expired" not in kinds(hasty, box)
        box.destroy()


def test_what_a_destroyed_pet_left_in_the_store_is_collected_and_a_fork_keeps_its_own(tidy: Installation) -> None:
    with tidy.client() as itx:
        box = itx.sandboxes.get("/sandboxes/origin").create(points=True)
        run(box, "echo 1 > one; mkdir -p /home/d; echo x > /home/d/x")
        twin = itx.sandboxes.get("/sandboxes/origin").fork("/sandboxes/heir")
        saved, brief = box.create_backup("/home/d"), box.create_backup("/home/d", ttl=1)
        run(box, "echo 2 > two")
        only = box.snapshot("only here")
        shared = set(layers(tidy, twin, twin.info().last_backup_id or ""))
        own = set(layers(tidy, box, only.id)) - shared
        assert own
        wait_until(lambda: brief.id not in stored(tidy, "backups"), "an expired backup is still there")
        assert saved.id in stored(tidy, "backups")
        box.destroy()
        gone = {*own, saved.id}
        wait_until(lambda: not gone & stored(tidy, "layers", "backups"), "what nobody needs is still there")
        assert shared <= stored(tidy, "layers")
        wait_until(lambda: stored(tidy, "layers", "backups") == shared, "layers of points are still there")
        assert run(twin, "cat one") == "1\n"
        twin.destroy()
