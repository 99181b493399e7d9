"""The freezer on fake trees of both versions, and on the real one of this machine."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from pathlib import Path

import pytest

from kennel.node import cgroup, freezer
from kennel.node.cgroup import Tree
from kennel.node.freezer import Freezer, thawed_after
from kennel.wire.errors import KennelError


def _fake(tmp_path: Path, unified: bool) -> tuple[Tree, Path, Path]:
    group = tmp_path / "kennel" / "sb"
    group.mkdir(parents=True)
    switch = group / ("cgroup.freeze" if unified else "freezer.state")
    state = group / ("cgroup.events" if unified else "freezer.state")
    switch.write_text("0" if unified else "THAWED")
    return Tree({}, tmp_path) if unified else Tree({"freezer": tmp_path}, None), switch, state


@pytest.mark.parametrize("unified", [False, True])
def test_it_waits_until_all_are_frozen_and_thaws_on_every_way_out(tmp_path: Path, unified: bool) -> None:
    tree, switch, state = _fake(tmp_path, unified)
    if unified:
        state.write_text("populated 1\nfrozen 0\n")
        later = threading.Timer(0.05, lambda: state.write_text("populated 1\nfrozen 1\n"))
        later.start()
    freeze = Freezer(tree, "kennel/sb")

    def fail() -> None:
        with thawed_after(freeze):
            freeze.freeze()
            assert switch.read_text() == ("1" if unified else "FROZEN")
            raise RuntimeError("the pack failed")

    with pytest.raises(RuntimeError):
        fail()
    assert switch.read_text() == ("0" if unified else "THAWED")
    assert freeze.frozen_seconds > 0
    freeze.thaw()


def test_tasks_that_cannot_be_frozen_are_let_go(tmp_path: Path) -> None:
    tree, switch, state = _fake(tmp_path, True)
    state.write_text("populated 1\nfrozen 0\n")
    with pytest.raises(KennelError) as caught:
        Freezer(tree, "kennel/sb").freeze(0.02)
    assert caught.value.code == "RESOURCE_BUSY"
    assert switch.read_text() == "0"


def test_what_an_earlier_process_left_frozen_is_thawed(tmp_path: Path) -> None:
    tree, switch, _ = _fake(tmp_path, False)
    switch.write_text("FROZEN")
    freezer.thaw(tree, "kennel/sb")
    assert switch.read_text() == "THAWED"
    freezer.thaw(tree, "kennel/gone")
    assert not (tmp_path / "kennel/gone").exists()


@pytest.mark.root
def test_a_real_process_stands_still_and_goes_on() -> None:
    tree = cgroup.find()
    root = tree.unified or tree.v1.get("freezer")
    if os.geteuid() != 0 or root is None:
        pytest.skip("needs root and a freezer")
    group = f"kennel-freezer-{os.getpid()}"
    (root / group).mkdir()
    process = subprocess.Popen(["sh", "-c", "while :; do echo; sleep 0.005; done"], stdout=subprocess.PIPE)
    try:
        (root / group / "cgroup.procs").write_text(str(process.pid))
        assert process.stdout is not None
        os.set_blocking(process.stdout.fileno(), False)
        freeze = Freezer(tree, group)
        with thawed_after(freeze):
            freeze.freeze()
            process.stdout.read()
            time.sleep(0.1)
            assert not process.stdout.read()
        time.sleep(0.2)
        assert process.stdout.read()
    finally:
        freezer.thaw(tree, group)
        process.kill()
        process.communicate()
        deadline = time.monotonic() + 10
        while (root / group).exists():
            try:
                (root / group).rmdir()
            except OSError:
                assert time.monotonic() < deadline
                time.sleep(0.01)
