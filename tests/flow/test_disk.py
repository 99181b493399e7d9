"""What a sandbox writes where: what lasts past a stop and what does not, on which image, and how much."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from inside import run
from installation import PACKAGE, Installation, make_installation, see_own_packages
from kennel import Kennel, KennelError

pytestmark = pytest.mark.root

MIB = 1 << 20
WRITE = "echo 1 > /etc/mine; touch /usr/local/bin/tool; useradd -m eve 2>/dev/null; echo 1 > one"
LOOK = "ls /etc/mine /usr/local/bin/tool 2>/dev/null; cat one"


def free(box: Any) -> int:
    return int(run(box, "stat -f -c '%a %S' /workspace | awk '{printf \"%.0f\", $1 * $2}'"))


def place(installation: Installation, box: Any) -> Path:
    return installation.data / "node" / "sandboxes" / str(box.info().sandbox_id)


def await_true(what: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.parametrize("persist", ["workspace", "disk"])
def test_what_is_outside_the_workspace_lasts_past_a_kill_only_where_the_disk_does(
    itx: Kennel, installation: Installation, persist: str
) -> None:
    box = itx.sandboxes.get(f"/sandboxes/killed-{persist}").create(persist=persist)
    expected = "/etc/mine\n/usr/local/bin/tool\n1\n" if persist == "disk" else "1\n"
    run(box, WRITE)
    for _ in range(2):
        box.kill()
        assert run(box, LOOK) == expected
    box.sleep()
    assert run(box, LOOK) == expected
    box.destroy()


@pytest.mark.full
def test_a_stop_of_kennel_is_a_stop_of_its_sandboxes(own_installation: Installation) -> None:
    with own_installation.client() as itx:
        short, long = (itx.sandboxes.get(name).create(persist=each) for name, each in _PAIR)
        run(short, WRITE)
        run(long, WRITE)
    own_installation.down()
    own_installation.up()
    with own_installation.client() as itx:
        short, long = (itx.sandboxes.get(name) for name, _ in _PAIR)
        assert run(short, LOOK) == "1\n"
        assert run(long, LOOK) == "/etc/mine\n/usr/local/bin/tool\n1\n"


_PAIR = (("/sandboxes/short", "workspace"), ("/sandboxes/long", "disk"))


def test_what_does_not_last_gives_its_room_back_whatever_it_is(itx: Kennel, installation: Installation) -> None:
    box = itx.sandboxes.get("/sandboxes/discarded").create()
    before = free(box)
    run(
        box,
        "head -c 100000000 /dev/urandom > /var/big; mkdir /var/many; cd /var/many; seq 5000 | xargs touch; "
        "mkdir -m 0 closed; mkdir -m 1777 /var/sticky; useradd eve 2>/dev/null; ln -s /etc /var/sticky/link; "
        "python3 -c \"import os\nfor _ in range(3000): os.mkdir('d'); os.chdir('d')\nopen('end', 'w')\"; "
        "chmod 500 /var/many; echo kept > /workspace/kept",
    )
    assert free(box) < before - 90 * MIB
    box.kill()
    assert run(box, "cat kept; ls /var/big /var/many /var/sticky 2>/dev/null; true") == "kept\n"
    home = place(installation, box) / "disk" / "discarded"
    await_true(lambda: list(home.iterdir()) == [])
    assert free(box) > before - 10 * MIB
    box.destroy()


@pytest.mark.full
def test_a_stop_in_the_middle_of_the_deleting_leaves_the_rest_to_the_next_start(
    itx: Kennel, installation: Installation
) -> None:
    box = itx.sandboxes.get("/sandboxes/half-deleted").create()
    run(box, "mkdir /var/many; cd /var/many; seq 60000 | xargs touch")
    box.kill()
    box.start()
    box.kill()
    assert not (place(installation, box) / "disk" / "discarded").exists(), "the disk is still mounted"
    box.start()
    home = place(installation, box) / "disk" / "discarded"
    await_true(lambda: list(home.iterdir()) == [])
    box.destroy()


@pytest.fixture
def upgradable() -> Iterator[Installation]:
    yield from make_installation(warm_pool="0")


@pytest.mark.full
def test_what_was_made_on_another_image_is_set_aside_and_the_workspace_stays(upgradable: Installation) -> None:
    paths = ("/sandboxes/was-packed", "/sandboxes/was-killed", "/sandboxes/never-ran")
    with upgradable.client() as itx:
        packed, killed, new = (itx.sandboxes.get(path).create(persist="disk") for path in paths)
        for box in (packed, killed):
            run(box, WRITE)
        packed.sleep()
        first = packed.snapshots()[0]
    upgradable.down()
    # The machine of the next start has one package more: a mount of its own, seen by nobody else.
    status = see_own_packages(upgradable)
    status.write_text(status.read_text() + PACKAGE)
    upgradable.up()
    with upgradable.client() as itx:
        packed, killed, new = (itx.sandboxes.get(path) for path in paths)
        for box in (packed, killed):
            for _ in range(2):
                assert run(box, LOOK) == "1\n"
                box.kill()
            [said] = [event["payload"] for event in upgradable.events(box.path) if "set-aside" in event["type"]]
            assert said["madeOn"] == box.info().image_digest != said["imageDigest"]
        run(new, "echo 1 > /etc/mine")
        run(packed, "echo again > /etc/mine")
        for box in (packed, new):
            box.sleep()
            assert run(box, "ls /etc/mine") == "/etc/mine\n"
        packed.rollback(first)
        assert run(packed, LOOK) == "1\n"
        told = [event["type"] for event in upgradable.events(packed.path)]
        assert told.count("sandbox/root-set-aside") == 2
        assert "sandbox/root-set-aside" not in [event["type"] for event in upgradable.events(new.path)]


def test_layers_count_against_the_quota(itx: Kennel, installation: Installation) -> None:
    box = itx.sandboxes.get("/sandboxes/counted").create(instance_type="lite")
    before = free(box)
    run(box, "head -c 150000000 /dev/zero | tr '\\0' x > big")
    box.sleep()
    after = free(box)
    assert before - after == pytest.approx(150_000_000, abs=8 * MIB)
    run(box, "echo more > more")
    box.kill()
    assert free(box) == pytest.approx(after, abs=8 * MIB)
    box.destroy()


@pytest.mark.full
def test_files_that_do_not_fit_a_type_are_refused_and_the_hint_works(itx: Kennel, installation: Installation) -> None:
    box = itx.sandboxes.get("/sandboxes/too-big").create(instance_type="basic")
    run(box, "head -c 2200000000 /dev/zero | tr '\\0' x > big")
    first = box.snapshot()
    with pytest.raises(KennelError) as caught:
        box.fork("/sandboxes/too-small", first, instance_type="lite")
    assert (caught.value.code, caught.value.details["fits"]) == ("DISK_TOO_SMALL", "basic")
    assert "basic" in (caught.value.hint or "")
    with pytest.raises(KennelError) as absent:
        itx.sandboxes.get("/sandboxes/too-small").info()
    assert absent.value.code == "SANDBOX_NOT_FOUND"
    twin = box.fork("/sandboxes/large-enough", first, instance_type="standard-1")
    assert run(twin, "stat -c %s big") == "2200000000\n"
    assert twin.info().instance_type == "standard-1"
    filled = box.exec("head -c 3000000000 /dev/zero | tr '\\0' x > more")
    assert filled.exit_code != 0
    assert "No space left" in filled.stderr
    for each in (box, twin):
        each.destroy()


@pytest.mark.full
@pytest.mark.timeout(600)
def test_a_full_sandbox_starts_and_one_that_is_too_full_says_what_can_be_done(
    itx: Kennel, installation: Installation
) -> None:
    box = itx.sandboxes.get("/sandboxes/overfull").create(instance_type="basic")
    run(box, "echo small > file")
    small = box.snapshot("small")
    for number in range(5):
        filled = box.exec(f"dd if=/dev/zero of=fill{number} bs=256k; ls -s fill{number}", timeout=300)
        assert "No space left" in filled.stderr
        box.sleep()
        assert int(run(box, "df --output=size . | tail -1")) > 0, "it starts however often it was filled"
    # A link or a name costs a disk nothing but the inode that it has anyway, and a layer some 200 bytes.
    code = (
        "import os\nos.unlink('fill4')\nos.mkdir('n')\nos.chdir('n')\n"
        "for n in range(150000):\n os.symlink(f'{n:06}' + 'x' * 52, str(n))"
    )
    box.exec(argv=["python3", "-c", code], timeout=300)
    big = box.snapshot("big")
    box.sleep()
    known = box.info()
    with pytest.raises(KennelError) as caught:
        box.start()
    _says_which_would_do(caught.value)
    with pytest.raises(KennelError) as caught:
        box.exec("true")
    assert (caught.value.code, caught.value.admitted) == ("DISK_TOO_SMALL", "no")
    now = box.info()
    assert (now.status, now.last_backup_id) == ("stopped", known.last_backup_id)
    box.rollback(small)
    assert run(box, "cat file; ls") == "small\nfile\n"
    run(box, "echo later > later")
    with pytest.raises(KennelError) as caught:
        box.rollback(big)
    _says_which_would_do(caught.value)
    assert box.info().running
    assert run(box, "cat file later") == "small\nlater\n"
    twin = box.fork("/sandboxes/large-enough-now", big, instance_type="standard-1")
    assert run(twin, "cat file; ls n | wc -l; rm fill0; ls").startswith("small\n")
    for each in (box, twin):
        each.destroy()


def _says_which_would_do(failure: KennelError) -> None:
    assert (failure.code, failure.status, failure.admitted) == ("DISK_TOO_SMALL", 409, "no")
    assert failure.details["fits"] == "standard-1"
    assert "standard-1" in (failure.hint or "")
    assert "roll back" in (failure.hint or "")
