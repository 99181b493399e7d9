"""The crash matrix: control and node are killed at each step of each verb, and log and machine must agree afterwards.

The steps are those the services note of themselves while a verb runs undisturbed, so a new one is in the matrix by
itself. A third of them is tried, chosen by KENNEL_CRASH_SEED (printed when something fails), all with `--full`.
"""

from __future__ import annotations

import os
import queue
import random
import secrets
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager

import pytest

import crash_files as files
import crash_scenes as lives
from crash_scenes import AUDIT, Scene
from crashes import PATIENCE, Boundary, Restless, boundaries, wait_for_agreement
from installation import make_installation
from kennel import KennelError

WORKERS = 2
SEED = int(os.environ.get("KENNEL_CRASH_SEED") or secrets.randbelow(10**6))
SCENES: dict[str, type[Scene]] = {
    "create": lives.Creating,
    "first exec": lives.FirstExec,
    "exec of a sleeping pet": lives.Executing,
    "start": lives.Starting,
    "sleep": lives.Sleeping,
    "kill": lives.Killing,
    "destroy": lives.Destroying,
    "destroy while it runs": lives.DestroyingAwake,
    "first exec in a room": lives.RoomFirstExec,
    "cleanup of a room": lives.RoomCleaning,
}
LONG_SCENES: dict[str, type[Scene]] = {
    "sleep of a whole disk": files.SleepingWhole,
    "wake from the store": files.Fetching,
}
"""In the long form only: much the same steps as a sleep, three times over, and as a start."""
FILE_SCENES: dict[str, type[Scene]] = {
    "snapshot while it runs": files.Snapshotting,
    "roll back": files.RollingBack,
    "points": files.Pointing,
    "start after a kill": files.StartingAfterKill,
    "start on another image": files.StartingOnAnotherImage,
    "start with much below": files.StartingHeavy,
    "fork": files.Forking,
    "import": files.Importing,
    "backup of a directory": files.SavingDirectory,
    "restore of a directory": files.RestoringDirectory,
    "deleting a backup": files.DeletingDirectory,
}
UPKEEP: dict[str, tuple[type[Scene], dict[str, str]]] = {
    "merge": (files.Compacting, {"stack_depth": "1"}),
    "collection": (files.Collecting, {"collect_every": "1.5"}),
    "collection of archives": (files.CollectingArchives, {"collect_every": "1.5"}),
    "expiry": (files.Expiring, {"snapshot_ttl": "1"}),
}
"""Each on an installation that does this much sooner than others."""
KINDS = SCENES | LONG_SCENES | FILE_SCENES | {word: kind for word, (kind, _) in UPKEEP.items()}
_numbers = iter(range(10**6))


@contextmanager
def scene(name: str, installation: Restless) -> Iterator[Scene]:
    with installation.client(timeout=PATIENCE) as itx:
        made = KINDS[name](itx, installation, f"c{next(_numbers)}")
        made.prepare()
        yield made


def recorded(name: str, installation: Restless) -> list[Boundary]:
    """The boundaries of a verb that nobody disturbs."""
    with scene(name, installation) as made:
        marks = {service: installation.mark(service) for service in ("control", "node")}
        made.act()
        time.sleep(0.2)
        found = [b for service, at in marks.items() for b in boundaries(service, installation.steps(service, at))]
        wait_for_agreement(installation, made.itx)
        made.check()
        made.finish()
    assert found
    return found


def crash(name: str, boundary: Boundary, installation: Restless) -> bool:
    """One case; False when the verb ended without passing the boundary."""
    with scene(name, installation) as made:
        old = installation.pid(boundary.service)
        boundary.arm(installation)
        begun = time.monotonic()
        try:
            made.act()
        except KennelError as failure:
            code = failure.code
        else:
            code = ""
        assert code in ("", "CONNECTION_LOST", "NODE_UNAVAILABLE", "SANDBOX_LOST", "OPERATION_INTERRUPTED")
        assert time.monotonic() - begun < PATIENCE, "the call hung"
        time.sleep(AUDIT if boundary.point.endswith("exec-finished") else 0.0)
        missed = boundary.disarm(installation)
        while not missed and installation.pid(boundary.service) == old:
            assert time.monotonic() - begun < PATIENCE, "it did not die, or did not come back"
            time.sleep(0.01)
        wait_for_agreement(installation, made.itx)
        made.check()
        made.finish()
        wait_for_agreement(installation, made.itx)
    return not missed


def make(kind: type[Restless] = Restless, **settings: str) -> Iterator[list[Restless]]:
    with ExitStack() as stack:
        one = contextmanager(make_installation)
        yield [
            stack.enter_context(one(kind=kind, warm_pool="0", steps="true", **settings))  # type: ignore[misc]
            for _ in range(WORKERS)
        ]


def side_by_side(
    installations: list[Restless], cases: list[tuple[str, Boundary]], deadline: float
) -> tuple[list[str], int, int]:
    """Every case on whichever installation is free: what failed, how many were not reached, how many had no time."""
    waiting: queue.SimpleQueue[tuple[str, Boundary]] = queue.SimpleQueue()
    for case in cases:
        waiting.put(case)
    failures: list[str] = []
    missed: list[Boundary] = []

    def serve(installation: Restless) -> None:
        while time.monotonic() < deadline:
            try:
                name, boundary = waiting.get_nowait()
            except queue.Empty:
                return
            try:
                if not crash(name, boundary, installation) and not boundary.milliseconds:
                    missed.append(boundary)
            except (AssertionError, KennelError, OSError, pytest.fail.Exception) as failure:
                failures.append(f"{name} | {boundary} | {type(failure).__name__}: {failure}")

    threads = [threading.Thread(target=serve, args=(installation,)) for installation in installations]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return failures, len(missed), waiting.qsize()


def run_matrix(installations: list[Restless], scenes: Iterable[str], part: int, seconds: float) -> None:
    begun = time.monotonic()
    cases = [(name, boundary) for name in scenes for boundary in recorded(name, installations[0])]
    random.Random(SEED).shuffle(cases)
    chosen = cases[: len(cases) // part]
    print(f"KENNEL_CRASH_SEED={SEED}: {len(chosen)} of {len(cases)} boundaries")
    failures, missed, left = side_by_side(installations, chosen, begun + seconds)
    print(f"{time.monotonic() - begun:.0f} s, {missed} not reached, {left} left out for want of time")
    assert not failures, f"KENNEL_CRASH_SEED={SEED}\n" + "\n".join(failures)
    # Audit facts are gathered by time, so now and then they come in another batch than when they were recorded.
    assert missed <= len(chosen) // 20 + 1


@pytest.mark.timeout(300)
def test_a_third_of_the_boundaries() -> None:
    for installations in make():
        run_matrix(installations, SCENES, 3, 40.0)
        for each in installations:
            assert not files.half_made(each)


def run_whole(installations: list[Restless], scenes: Iterable[str], seconds: float) -> None:
    """Every boundary; once everybody is destroyed nothing of them may be stored anywhere."""
    run_matrix(installations, scenes, 1, seconds)
    for each in installations:
        files.check_nothing_is_left(each)


@pytest.mark.full
@pytest.mark.timeout(1800)
def test_every_boundary() -> None:
    for installations in make():
        run_whole(installations, SCENES | LONG_SCENES, 1500.0)


@pytest.mark.full
@pytest.mark.timeout(1800)
def test_every_boundary_of_work_on_files() -> None:
    for installations in make(files.Upgradable):
        run_whole(installations, FILE_SCENES, 1500.0)


@pytest.mark.full
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", UPKEEP)
def test_every_boundary_of_what_is_done_unasked(name: str) -> None:
    for installations in make(**UPKEEP[name][1]):
        run_whole(installations, [name], 600.0)
