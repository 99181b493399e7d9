"""Trees of real processes: found whole, spared where told, in bounded steps."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kennel.guest import tree


@pytest.fixture
def shell() -> Iterator[subprocess.Popen[bytes]]:
    """sh with two sleeping children in its group, one in a session of its own."""
    text = "sleep 60 & sleep 60 & setsid sleep 60 & echo up; wait"
    made = subprocess.Popen(["sh", "-c", text], stdout=subprocess.PIPE, start_new_session=True)
    assert made.stdout is not None
    made.stdout.readline()
    until = time.monotonic() + 2
    while sorted(map(name, tree.children(made.pid))) != ["sleep"] * 3 and time.monotonic() < until:
        time.sleep(0.005)
    yield made
    tree.signal_below((made.pid,), signal.SIGKILL)
    made.kill()
    made.wait()
    made.stdout.close()


def name(pid: int) -> str:
    return Path(f"/proc/{pid}/comm").read_text().strip()


def state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_children_and_what_is_spared(shell: subprocess.Popen[bytes]) -> None:
    found = tree.children(shell.pid)
    assert len(found) == 3
    assert shell.pid in tree.children(os.getpid())
    assert tree.top((shell.pid,), found[:1]) == found[1:]
    assert tree.children(2**22 - 1) == []


def test_children_are_found_without_lists_of_them(
    shell: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = tree.children(shell.pid)
    monkeypatch.setattr(tree, "_LISTED", False)
    assert sorted(tree.children(shell.pid)) == sorted(listed)
    assert tree.children(2**22 - 1) == []


def test_children_of_every_thread_are_found() -> None:
    text = (
        "import threading, subprocess, sys\n"
        "def go():\n p = subprocess.Popen(['sleep', '60']); print('up', flush=True); p.wait()\n"
        "threading.Thread(target=go, daemon=True).start()\nthreading.Event().wait()"
    )
    made = subprocess.Popen(["python3", "-c", text], stdout=subprocess.PIPE)
    assert made.stdout is not None
    made.stdout.readline()
    time.sleep(0.05)  # between fork and exec it still has its parent's name
    assert [name(pid) for pid in tree.children(made.pid)] == ["sleep"]
    tree.signal_below((made.pid,), signal.SIGKILL)
    made.kill()
    made.wait()
    made.stdout.close()


def test_a_walk_takes_steps_and_reaches_all(shell: subprocess.Popen[bytes]) -> None:
    walk = tree.Walk((shell.pid,), (signal.SIGSTOP,), groups=False)
    assert not walk.step(1)
    assert not walk.step(1)
    assert walk.step(5)
    assert len(walk.found) == 3
    time.sleep(0.02)
    assert {state(pid) for pid in walk.found} == {"T"}


def test_a_walk_by_groups_signals_each_group_once_and_not_the_one_struck(shell: subprocess.Popen[bytes]) -> None:
    walk = tree.Walk((shell.pid,), (signal.SIGSTOP,), struck=shell.pid)
    assert walk.step(10)
    time.sleep(0.02)
    states = {os.getpgid(pid) == shell.pid: state(pid) for pid in walk.found}
    assert states == {True: "S", False: "T"}


def test_the_spared_and_what_is_below_them_are_left_alone(shell: subprocess.Popen[bytes]) -> None:
    tree.signal_below((os.getpid(),), signal.SIGSTOP, (shell.pid,), groups=False)
    time.sleep(0.02)
    assert {state(pid) for pid in (shell.pid, *tree.children(shell.pid))} == {"S"}
