"""What a machine may look like when Kennel comes back: after a reboot, half a removal, the loss of a disk."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from crashes import Restless, wait_for_agreement
from installation import Installation, make_installation
from kennel import KennelError


@pytest.fixture
def machine() -> Iterator[Restless]:
    for made in make_installation(kind=Restless, warm_pool="0"):
        assert isinstance(made, Restless)
        yield made


def power_cut(installation: Restless) -> None:
    """Everything ends at once, and nothing is left but what lies on disk."""
    pids = [installation.pid(service) for service in ("up", "control", "gateway", "node")]
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    installation.process.wait()
    groups = [line.removeprefix("cgroup ") for line in installation.residue() if line.startswith("cgroup ")]
    # All in them is killed: a group too high up would be this machine's own.
    assert all(Path(group).parent.name == "kennel" for group in groups)
    deadline = time.monotonic() + 10
    while any("process" in line for line in installation.residue()) or any(_tasks(Path(group)) for group in groups):
        for group in groups:
            for pid in _tasks(Path(group)):
                with contextlib.suppress(ProcessLookupError):  # PID 1 of its sandbox takes it along
                    os.kill(pid, signal.SIGKILL)
        assert time.monotonic() < deadline
        time.sleep(0.02)
    for _ in range(3):
        for line in reversed(Path("/proc/self/mountinfo").read_text().splitlines()):
            target = line.split()[4]
            if target.startswith(str(installation.data)):
                subprocess.run(["umount", "-l", target], check=False, capture_output=True)
    for group in groups:
        for folder in sorted((p for p in Path(group).rglob("*") if p.is_dir()), reverse=True):
            folder.rmdir()
        Path(group).rmdir()


def _tasks(group: Path) -> list[int]:
    return [int(pid) for listing in group.rglob("cgroup.procs") for pid in listing.read_text().split()]


def lose(installation: Restless, path: Path) -> None:
    """Deletes something below node's folder while node is not looking."""
    (shutil.rmtree if path.is_dir() else os.unlink)(path)  # type: ignore[operator]
    installation.kill("node")
    installation.kill("control")


def test_after_a_power_cut_the_pets_are_there_and_a_recycled_number_is_nobodys_death(machine: Restless) -> None:
    with machine.client() as itx:
        awake, asleep = itx.sandboxes.get("awake").create(), itx.sandboxes.get("asleep").create()
        for box in (awake, asleep):
            box.exec("echo kept > file; sync file")
        asleep.sleep()
        sandbox = awake.info().sandbox_id
    power_cut(machine)
    bystander = subprocess.Popen(["sleep", "600"])
    try:
        state = machine.data / "node/runc" / sandbox / "state.json"
        words = json.loads(state.read_text())
        words["init_process_pid"] = bystander.pid
        state.write_text(json.dumps(words))
        machine.up()
        with machine.client() as itx:
            wait_for_agreement(machine, itx)
            assert not itx.sandboxes.get("awake").info().running
            for name in ("awake", "asleep"):
                assert itx.sandboxes.get(name).exec("cat file").stdout == "kept\n"
        stopped = [event["payload"] for event in machine.events("/sandboxes/awake") if "stopped" in event["type"]]
        assert stopped == [{"reason": "lost"}]
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()


def test_what_no_claim_names_is_removed_whatever_is_left_of_it(machine: Restless) -> None:
    sandboxes = machine.data / "node/sandboxes"
    with machine.client() as itx:
        itx.sandboxes.get("whole").create()
        for name in ("halfremoved1", "onlydisk0001"):
            (sandboxes / name / "bundle").mkdir(parents=True)
        (sandboxes / "onlydisk0001/disk.img").write_bytes(b"x")
        (machine.data / "node/runc/onlystate001").mkdir()
        machine.kill("control")
        wait_for_agreement(machine, itx)
        assert [path.name for path in sandboxes.iterdir()] == [itx.sandboxes.get("whole").info().sandbox_id]
        assert list((machine.data / "node/runc").iterdir()) == []


def test_a_lost_disk_is_told_and_harms_nobody_else(machine: Restless) -> None:
    with machine.client() as itx:
        lost, other = itx.sandboxes.get("lost").create(), itx.sandboxes.get("other").create()
        for box in (lost, other):
            box.exec("echo kept > file; sync file")
            box.kill()
        lose(machine, machine.data / "node/sandboxes" / lost.info().sandbox_id)
        assert other.exec("cat file").stdout == "kept\n"
        with pytest.raises(KennelError) as caught:
            lost.exec("true")
        assert caught.value.code in ("SANDBOX_START_FAILED", "SNAPSHOT_MISSING")
        assert caught.value.admitted == "no"
        lost.destroy()
        assert lost.info().status == "destroyed"


@pytest.mark.full
def test_node_away_at_the_start_is_waited_for(machine: Restless) -> None:
    with machine.client() as itx:
        box = itx.sandboxes.get("main").create()
        box.exec("true")
        os.kill(machine.pid("node"), signal.SIGSTOP)
        os.kill(machine.pid("control"), signal.SIGKILL)
        time.sleep(0.5)
        machine.kill("node")
        wait_for_agreement(machine, itx)
        assert box.info().running
        assert box.exec("echo here").stdout == "here\n"


def test_the_loss_of_a_sandbox_while_node_is_away_is_recorded_after(machine: Restless) -> None:
    with machine.client() as itx:
        box = itx.sandboxes.get("main").create()
        box.exec("true")
        guest = int((machine.data / "node/sandboxes" / box.info().sandbox_id / "bundle/pid").read_text())
        machine.kill("node")
        os.kill(guest, signal.SIGKILL)
        wait_for_agreement(machine, itx)
        stopped = [event["payload"]["reason"] for event in machine.events(box.path) if "stopped" in event["type"]]
        assert stopped == ["lost"]


@pytest.mark.full
def test_a_restless_installation_is_an_installation(machine: Restless) -> None:
    assert isinstance(machine, Installation)
    assert machine.census() == {}
