"""SIGKILL of every process while commands run: what goes on, what ends and how it is told, what a restart finds."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from installation import Installation
from kennel import Kennel, KennelError


@contextlib.contextmanager
def awake(itx: Kennel) -> Iterator[Any]:
    made = itx.sandboxes.get(f"/sandboxes/kill-{uuid.uuid4().hex[:8]}").create()
    made.exec("true")
    yield made
    made.destroy()


@pytest.fixture
def box(itx: Kennel) -> Iterator[Any]:
    with awake(itx) as made:
        yield made


class Call(threading.Thread):
    """One exec in a thread of its own: what came of it, and when."""

    def __init__(self, installation: Installation, path: str, command: str) -> None:
        super().__init__()
        self._installation, self._path, self._command = installation, path, command
        self.result: object = None
        self.error: KennelError | None = None
        self.ended = 0.0
        self.start()
        time.sleep(0.5)

    def run(self) -> None:
        with self._installation.client() as itx:
            try:
                self.result = itx.sandboxes.get(self._path).exec(self._command)
            except KennelError as failure:
                self.error = failure
        self.ended = time.monotonic()


def guest_pid(installation: Installation, itx: Kennel, path: str) -> int:
    """The host's pid of the sandbox's PID 1."""
    sandbox = itx.sandboxes.get(path).info().sandbox_id
    return int((installation.data / "node/sandboxes" / sandbox / "bundle/pid").read_text())


def wait_for_node(box) -> None:  # type: ignore[no-untyped-def]
    """A lifecycle verb that needs node, until it works: nothing but NODE_UNAVAILABLE may come before."""
    deadline = time.monotonic() + 10
    codes = set()
    while time.monotonic() < deadline:
        try:
            box.sleep()
        except KennelError as refused:
            codes.add(refused.code)
            time.sleep(0.1)
        else:
            break
    assert codes <= {"NODE_UNAVAILABLE"}
    assert not box.info().running


def test_killing_node_ends_nothing_that_runs(installation: Installation, itx: Kennel, box) -> None:  # type: ignore[no-untyped-def]
    call = Call(installation, box.path, "sleep 2; echo survived")
    installation.kill("node")
    assert box.exec("echo still").stdout == "still\n"
    call.join(10)
    assert call.result is not None
    assert call.result.stdout == "survived\n"  # type: ignore[attr-defined]
    wait_for_node(box)
    assert box.exec("echo awake").stdout == "awake\n"


def test_a_damaged_namespace_keeps_nobody_else_from_node(installation: Installation, itx: Kennel, box: Any) -> None:
    with awake(itx) as other:
        handle = installation.data / "node/sandboxes" / box.info().sandbox_id / "netns"
        subprocess.run(["umount", "-l", str(handle)], check=True)
        installation.kill("node")
        wait_for_node(other)
        assert box.exec("echo still").stdout == "still\n"
        box.sleep()
        assert box.exec("echo again").stdout == "again\n"


def test_a_lost_control_is_told_as_unknown_and_its_restart_finds_the_sandbox(
    installation: Installation, itx: Kennel, box
) -> None:  # type: ignore[no-untyped-def]
    box.exec("echo before > /workspace/file; (setsid sleep 1000 &)")
    pid = guest_pid(installation, itx, box.path)
    call = Call(installation, box.path, "sleep 30")
    killed = time.monotonic()
    installation.kill("control")
    call.join(5)
    assert call.error is not None
    assert (call.error.code, call.error.admitted) == ("CONNECTION_LOST", "unknown")
    assert call.ended - killed < 1.5
    with installation.client() as again:
        assert again.sandboxes.get(box.path).exec("cat /workspace/file; pgrep -c sleep").stdout == "before\n1\n"
        assert guest_pid(installation, again, box.path) == pid
        told = [event["type"] for event in installation.events(box.path) if "exec" not in event["type"]]
        assert told.count("sandbox/started") == 1


@pytest.mark.parametrize("victim", ["guest", "container"])
def test_the_death_of_a_guest_ends_its_calls_within_a_second(
    installation: Installation, itx: Kennel, box, victim: str
) -> None:  # type: ignore[no-untyped-def]
    box.exec("echo kept > /workspace/file; sync")
    call = Call(installation, box.path, "sleep 30")
    pid = guest_pid(installation, itx, box.path)
    killed = time.monotonic()
    if victim == "guest":
        os.kill(pid, signal.SIGKILL)
    else:
        for task in Path("/sys/fs/cgroup/pids/kennel").rglob(
            f"{itx.sandboxes.get(box.path).info().sandbox_id}/cgroup.procs"
        ):
            for word in task.read_text().split():
                with contextlib.suppress(ProcessLookupError):  # PID 1 takes the others with it
                    os.kill(int(word), signal.SIGKILL)
    call.join(5)
    assert call.error is not None
    assert (call.error.code, call.error.admitted) == ("SANDBOX_LOST", "yes")
    assert call.ended - killed < 1.0
    assert box.exec("cat /workspace/file").stdout == "kept\n"
    stopped = [event["payload"] for event in installation.events(box.path) if event["type"] == "sandbox/stopped"]
    assert [payload["reason"] for payload in stopped] == ["lost"]


def test_a_killed_gateway_comes_back(installation: Installation) -> None:
    installation.kill("gateway")


def test_after_the_supervisor_is_killed_everything_ends_and_the_next_up_has_all_of_it(
    own_installation: Installation,
) -> None:
    with own_installation.client() as itx:
        box = itx.sandboxes.get("/sandboxes/main").create()
        box.exec("echo kept > file")
        os.kill(own_installation.pid("up"), signal.SIGKILL)
        deadline = time.monotonic() + 15
        while any("process" in line for line in own_installation.residue()):
            assert time.monotonic() < deadline, own_installation.residue()
            time.sleep(0.1)
    own_installation.up()
    with own_installation.client() as itx:
        assert itx.sandboxes.get("/sandboxes/main").exec("cat file").stdout == "kept\n"


def test_all_services_killed_at_once(own_installation: Installation) -> None:
    with own_installation.client() as itx:
        box = itx.sandboxes.get("/sandboxes/main").create()
        box.exec("echo kept > file; sync")
        for service in ("up", "control", "gateway", "node"):
            os.kill(own_installation.pid(service), signal.SIGKILL)
    time.sleep(0.2)
    own_installation.up()
    with own_installation.client() as itx:
        box = itx.sandboxes.get("/sandboxes/main")
        assert box.exec("cat file").stdout == "kept\n"
        assert box.info().running
