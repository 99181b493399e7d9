"""A pet's life on the real runtime: created, woken, slept, killed, destroyed; names, limits, residue."""

from __future__ import annotations

import threading
import time
import uuid

import pytest

from installation import Installation
from kennel import Kennel, KennelError
from patience import within


def fresh(itx: Kennel, **options: object):  # type: ignore[no-untyped-def]
    """A new sandbox of an unused name."""
    return itx.sandboxes.get(f"/sandboxes/t-{uuid.uuid4().hex[:12]}").create(**options)


def test_the_life_of_a_pet_is_on_its_stream(itx: Kennel, installation: Installation) -> None:
    box = fresh(itx, env={"GREETING": "hello"}, labels={"kind": "test"})
    assert (box.info().status, box.info().running) == ("created", False)
    result = box.exec("echo $GREETING; pwd; echo kept > file")
    assert (result.stdout, result.stderr, result.exit_code, result.success) == ("hello\n/workspace\n", "", 0, True)
    assert box.info().running
    box.sleep()
    assert (box.info().status, box.info().running) == ("stopped", False)
    assert box.exec("cat file").stdout == "kept\n"
    box.kill()
    assert box.info().status == "stopped"
    box.start()
    box.destroy()
    box.destroy()
    with pytest.raises(KennelError) as caught:
        box.exec("true")
    assert (caught.value.code, caught.value.status) == ("SANDBOX_DESTROYED", 410)
    told = [event["type"] for event in installation.events(box.path) if "exec-" not in event["type"]]
    assert told == [
        "stream/created",
        "sandbox/created",
        "sandbox/configured",
        "sandbox/started",
        "sandbox/sleep-requested",
        "sandbox/backup-created",
        "sandbox/stopped",
        "sandbox/started",
        "sandbox/workspace-restored",
        "sandbox/kill-requested",
        "sandbox/stopped",
        "sandbox/start-requested",
        "sandbox/started",
        "sandbox/destroy-requested",
        "sandbox/stopped",
        "sandbox/destroyed",
    ]


def test_a_name_is_claimed_once_and_retired_for_ever(itx: Kennel) -> None:
    box = fresh(itx)
    for code in ("SANDBOX_EXISTS", "SANDBOX_DESTROYED"):
        with pytest.raises(KennelError) as caught:
            itx.sandboxes.get(box.path).create()
        assert caught.value.code == code
        box.destroy()


def test_looking_at_what_was_never_created_creates_nothing(itx: Kennel, installation: Installation) -> None:
    handle = itx.sandboxes.get("/sandboxes/never-created")
    for look in (handle.info, lambda: handle.exec("true"), handle.start, handle.sleep, handle.destroy):
        with pytest.raises(KennelError) as caught:
            look()
        assert (caught.value.code, caught.value.status) == ("SANDBOX_NOT_FOUND", 404)
    assert installation.events("/sandboxes/never-created") == []


@pytest.mark.parametrize("name", ["-x", "x-", "X", "a.b", "a_b", "a/b", "..", "%2e", "x" * 64, "", "ü", "a b"])
def test_names_that_are_none(itx: Kennel, installation: Installation, name: str) -> None:
    import httpx2

    answer = httpx2.post(
        f"{installation.url}/v1/projects/default/sandboxes",
        json={"path": f"/sandboxes/{name}"},
        headers={"authorization": f"Bearer {installation.key}"},
    )
    assert answer.status_code == 400
    assert answer.json()["code"] in ("INVALID_PATH", "NAME_TOO_LONG", "VALIDATION_FAILED")


def test_racing_creates_make_one(itx: Kennel, installation: Installation) -> None:
    path, answers = f"/sandboxes/race-{uuid.uuid4().hex[:8]}", []
    gate = threading.Barrier(20)

    def race() -> None:
        with installation.client() as mine:
            gate.wait()
            try:
                mine.sandboxes.get(path).create()
                answers.append("201")
            except KennelError as refused:
                answers.append(refused.code)

    threads = [threading.Thread(target=race) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(answers) == ["201"] + ["SANDBOX_EXISTS"] * 19
    itx.sandboxes.get(path).destroy()


def test_concurrent_wakes_are_one(itx: Kennel, installation: Installation) -> None:
    box = fresh(itx)
    results: list[str] = []

    def wake() -> None:
        with installation.client() as mine:
            results.append(mine.sandboxes.get(box.path).exec("hostname").stdout)

    threads = [threading.Thread(target=wake) for _ in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [box.path.removeprefix("/sandboxes/") + "\n"] * 10
    assert [event["type"] for event in installation.events(box.path)].count("sandbox/started") == 1
    box.destroy()


def test_it_falls_asleep_when_idle_and_not_while_it_works(itx: Kennel, installation: Installation) -> None:
    box = fresh(itx, sleep_after=1)
    assert box.exec("sleep 2.5; echo done").stdout == "done\n"
    deadline = time.monotonic() + 10
    while box.info().running:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    stopped = [event for event in installation.events(box.path) if event["type"] == "sandbox/stopped"]
    assert [event["payload"]["reason"] for event in stopped] == ["idle"]
    box.destroy()


def test_environment_is_durable_and_null_unsets(itx: Kennel) -> None:
    box = fresh(itx, env={"A": "1", "B": "2"})
    box.set_env_vars({"A": None, "C": "with space"})
    assert box.exec("echo ${A-unset} $B $C", env={"B": "call"}).stdout == "unset call with space\n"
    box.sleep()
    assert box.exec("echo ${A-unset} $B $C").stdout == "unset 2 with space\n"
    box.destroy()


def test_a_hundred_lives_leave_nothing(installation: Installation, itx: Kennel) -> None:
    def census() -> list[str]:
        return sorted(path.name for path in (installation.data / "node/sandboxes").iterdir())

    def everything() -> tuple[int, int]:
        return len(installation.residue()), len(census())

    def settled() -> tuple[int, int]:
        """What is there once the pool has its one container and nothing moves for a while."""
        last, since, deadline = everything(), time.monotonic(), time.monotonic() + 60
        while time.monotonic() < deadline and (last[1] == 0 or time.monotonic() - since < within(1)):
            time.sleep(0.1)
            if everything() != last:
                last, since = everything(), time.monotonic()
        return last

    before = settled()
    for _ in range(100):
        box = fresh(itx)
        box.exec("true") if _ % 4 == 0 else None
        box.destroy()
    # Not equal: what earlier tests left asleep may be merged or fall asleep meanwhile (seen: 46 then 40).
    assert all(now <= then for now, then in zip(settled(), before, strict=True)), installation.residue()
