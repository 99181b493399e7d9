"""Points: what was there before each command, and the way back to it."""

from __future__ import annotations

import time
from typing import Any

import pytest

from installation import Installation
from kennel import Kennel, KennelError
from kennel.domain.snapshot import KEPT_POINTS

pytestmark = pytest.mark.root


def run(box: Any, script: str) -> str:
    result = box.exec(script)
    assert result.exit_code == 0, result.stderr
    return str(result.stdout)


def started(installation: Installation, box: Any, command: str) -> int:
    """The offset at which the log says that the command began; facts are written a moment later."""
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        for event in installation.events(box.path):
            if event["type"] == "sandbox/exec-started" and event["payload"]["command"] == command:
                return int(event["offset"])
        time.sleep(0.02)
    raise AssertionError(f"{command} is not on the log")


def points(installation: Installation, box: Any) -> list[dict[str, Any]]:
    return [event for event in installation.events(box.path) if event["type"] == "sandbox/point-taken"]


def test_the_files_are_again_what_they_were_before_a_command(itx: Kennel, installation: Installation) -> None:
    box = itx.sandboxes.get("/sandboxes/points").create(points=True)
    run(box, "mkdir -p node_modules d; echo 1 > node_modules/m; echo 1 > d/one")
    run(box, "true")
    run(box, "rm -rf node_modules d")
    stream = box.exec("touch late", on_output=lambda *_: None)
    assert stream.exit_code == 0
    wrong, late = (started(installation, box, command) for command in ("rm -rf node_modules d", "touch late"))
    assert installation.cli("sandbox", "rollback", box.name, "--before", str(late)).returncode == 0
    assert run(box, "ls") == ""
    box.rollback(before=wrong)
    assert run(box, "ls; cat node_modules/m d/one") == "d\nnode_modules\n1\n1\n"
    # What came back is the sandbox's own from now on: it sleeps, wakes, is forked like any other.
    started(installation, box, "ls; cat node_modules/m d/one")
    newest = points(installation, box)[-1]["payload"]["backupId"]
    assert newest in [each.id for each in box.snapshots()]
    twin = box.fork("/sandboxes/points-twin", newest)
    assert run(twin, "cat d/one") == "1\n"
    box.sleep()
    assert run(box, "cat d/one") == "1\n"
    for each in (box, twin):
        each.destroy()


def test_a_command_that_changes_nothing_costs_no_point_and_old_ones_leave_no_file(
    itx: Kennel, installation: Installation
) -> None:
    box = itx.sandboxes.get("/sandboxes/points-kept").create()
    run(box, "echo 0 > f")
    assert points(installation, box) == []
    with pytest.raises(KennelError) as caught:
        box.rollback(before=started(installation, box, "echo 0 > f"))
    assert caught.value.code == "SNAPSHOT_NOT_FOUND"
    assert installation.cli("sandbox", "set", box.name, "--points").returncode == 0
    run(box, "sleep 0.1")
    for _ in range(10):
        run(box, "true")
    started(installation, box, "true")
    time.sleep(0.1)
    assert len(points(installation, box)) == 1
    for number in range(KEPT_POINTS + 3):
        run(box, f"echo {number} > f")
    last = started(installation, box, f"echo {KEPT_POINTS + 2} > f")
    made = points(installation, box)
    assert len(made) == KEPT_POINTS + 3
    assert len([each for each in box.snapshots() if each.reason == "point"]) == KEPT_POINTS
    layers = installation.data / "node" / "layers"
    deadline = time.monotonic() + 5
    while (layers / f"{made[0]['payload']['layers'][0]}.erofs").exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert (layers / f"{made[-1]['payload']['layers'][0]}.erofs").exists()
    with pytest.raises(KennelError) as caught:
        box.rollback(before=started(installation, box, "sleep 0.1"))
    assert caught.value.code == "SNAPSHOT_NOT_FOUND"
    with pytest.raises(KennelError) as caught:
        box.rollback(before=last + 10_000)
    assert caught.value.code == "VALIDATION_FAILED"
    box.rollback(before=last)
    assert run(box, "cat f") == f"{KEPT_POINTS + 1}\n"
    box.destroy()


def test_a_sandbox_with_too_much_runs_without_points(itx: Kennel, installation: Installation) -> None:
    box = itx.sandboxes.get("/sandboxes/points-vast").create(points=True)
    run(box, "truncate -s 1G vast")
    assert run(box, "echo still") == "still\n"
    started(installation, box, "echo still")
    assert len(points(installation, box)) == 1
    box.destroy()
