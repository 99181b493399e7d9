"""An installation whose layers are in S3: what a machine loses comes back, and a store that is away costs nothing."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator
from typing import Any

import pytest

from installation import Installation, make_installation
from kennel import KennelError
from s3_server import Line, make_s3, s3_options

pytestmark = pytest.mark.root


@pytest.fixture(scope="module")
def line() -> Iterator[Line]:
    for address in make_s3():
        yield Line(address)


@pytest.fixture(scope="module")
def stored(line: Line) -> Iterator[Installation]:
    """An installation that reaches its store over the line."""
    yield from make_installation(
        warm_pool="0", blobs_url="s3://bucket/layers-of-one", blobs_options=json.dumps(s3_options(line.address))
    )


def run(box: Any, script: str) -> str:
    result = box.exec(script)
    assert result.exit_code == 0, result.stderr
    return str(result.stdout)


def told(installation: Installation, box: Any) -> list[str]:
    return [event["type"].removeprefix("sandbox/") for event in installation.events(box.path)]


def lose_layers(installation: Installation) -> None:
    for path in (installation.data / "node/layers").glob("*.erofs"):
        path.unlink()


def start(box: Any) -> None:
    """Starts it once node, which was just killed, is back."""
    deadline = time.monotonic() + 20
    while True:
        try:
            box.start()
            return
        except KennelError as failure:
            if failure.code != "NODE_UNAVAILABLE" or time.monotonic() > deadline:
                raise
            time.sleep(0.1)


@pytest.mark.full
def test_a_machine_without_its_disk_has_everything_from_s3(stored: Installation) -> None:
    with stored.client() as itx:
        box = itx.sandboxes.get("/sandboxes/from-s3").create()
        # Over four pieces of a blob: it goes up in parts.
        run(box, "head -c 24000000 /dev/urandom > big; echo 1 > one; sha256sum big > sums")
        box.sleep()
        run(box, "echo 2 > two")
        box.sleep()
        sandbox = box.info().sandbox_id
        assert not (stored.data / "control/blobs").exists(), "nothing is kept beside the store"
        shutil.rmtree(stored.data / "node/sandboxes" / sandbox)
        lose_layers(stored)
        stored.kill("node")
        start(box)
        assert run(box, "sha256sum -c sums; cat one two") == "big: OK\n1\n2\n"
        assert told(stored, box).count("workspace-restored") == 2
        box.destroy()


@pytest.mark.full
def test_a_store_that_is_away_while_a_pet_falls_asleep_keeps_its_disk(stored: Installation, line: Line) -> None:
    with stored.client() as itx:
        box = itx.sandboxes.get("/sandboxes/no-store").create()
        run(box, "echo 1 > one")
        disk = stored.data / "node/sandboxes" / box.info().sandbox_id / "disk.img"
        line.cut()
        try:
            box.sleep()
            with pytest.raises(KennelError) as caught:
                box.snapshot()
            assert run(box, "cat one; echo 2 > two") == "1\n"
            box.sleep()
        finally:
            line.mend()
        assert caught.value.code == "BLOBS_UNAVAILABLE"
        assert disk.exists()
        failures = [e["payload"]["error"] for e in stored.events(box.path) if e["type"] == "sandbox/backup-failed"]
        assert len(failures) == 3
        assert all(failure.startswith("BLOBS_UNAVAILABLE") for failure in failures)
        assert run(box, "cat one two") == "1\n2\n"
        box.sleep()
        assert not disk.exists()
        lose_layers(stored)
        assert run(box, "cat one two") == "1\n2\n"
        assert told(stored, box).count("backup-created") == 1
        box.destroy()


@pytest.mark.full
def test_a_store_that_is_away_at_a_wake_fails_the_start_and_nothing_else(stored: Installation, line: Line) -> None:
    with stored.client() as itx:
        box = itx.sandboxes.get("/sandboxes/no-fetch").create()
        run(box, "echo 1 > one")
        box.sleep()
        lose_layers(stored)
        good = box.info().last_backup_id
        line.cut()
        try:
            with pytest.raises(KennelError) as caught:
                box.start()
            assert caught.value.code == "BLOBS_UNAVAILABLE"
            with pytest.raises(KennelError) as caught:
                box.exec("true")
            assert (caught.value.code, caught.value.admitted) == ("BLOBS_UNAVAILABLE", "no")
        finally:
            line.mend()
        assert (box.info().status, box.info().last_backup_id) == ("stopped", good)
        assert list((stored.data / "node/layers/coming").iterdir()) == []
        assert run(box, "cat one") == "1\n"
        # It was the store that failed, not the files: nothing to record, nothing that asks for a person.
        assert "restore-failed" not in told(stored, box)
        box.destroy()


@pytest.mark.full
def test_directories_and_whole_trees_go_to_s3_and_come_back(stored: Installation, line: Line) -> None:
    with stored.client() as itx:
        box = itx.sandboxes.get("/sandboxes/saved-to-s3").create()
        # The large one goes up in parts, the small one in one piece.
        run(
            box, "mkdir -p /home/t; cd /home/t; head -c 24000000 /dev/urandom > big; sha256sum big > sums; echo 1 > one"
        )
        run(box, "mkdir d; head -c 24000000 /dev/urandom > d/big; sha256sum d/big > sums; ln -s sums link")
        big = box.create_backup("/home/t")
        run(box, "rm /home/t/big; echo 2 > /home/t/one")
        small = box.create_backup("/home/t", name="small")
        snapshot = box.snapshot()
        line.cut()
        try:
            for call in (lambda: box.create_backup("/home/t"), lambda: box.restore_backup(big)):
                with pytest.raises(KennelError) as caught:
                    call()
                assert caught.value.code == "BLOBS_UNAVAILABLE"
        finally:
            line.mend()
        assert run(box, "cat /home/t/one; ls /home/t") == "2\none\nsums\n"
        assert [each.id for each in box.list_backups()] == [snapshot.id, small.id, big.id]
        box.restore_backup(big)
        assert run(box, "cd /home/t; sha256sum -c sums; cat one; ls") == "big: OK\n1\nbig\none\nsums\n"
        box.restore_backup(small, dir="/home/small")
        assert run(box, "cat /home/small/one; ls /home/small") == "2\none\nsums\n"
        run(box, "rm -rf d link")
        box.sleep()
        lose_layers(stored)
        tree = b"".join(box.export_snapshot(snapshot))
        twin = itx.sandboxes.import_("/sandboxes/from-a-tree", tree)
        assert run(twin, "sha256sum -c sums; readlink link") == "d/big: OK\nsums\n"
        run(box, "true")
        for each in (big, small):
            box.delete_backup(each)
        with pytest.raises(KennelError) as caught:
            box.restore_backup(big)
        assert caught.value.code == "BACKUP_NOT_FOUND"
        for each in (box, twin):
            each.destroy()
