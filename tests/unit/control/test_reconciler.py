"""Log and machine are made to agree: what was cut off is finished, strangers go, who is at work is left alone."""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from fake_node import FakeNode, PlainFiles, open_guest
from kennel.adapters.sql.event_log import SqlEventLog
from kennel.control import reconciler as module
from kennel.control.catalogue import Catalogue
from kennel.control.fleet import Fleet
from kennel.control.pool import Pool
from kennel.control.projection import Projections
from kennel.control.reconciler import Reconciler
from kennel.control.recorder import Recorder
from kennel.control.sandboxes import Sandboxes
from kennel.domain.create_options import CreateOptions
from kennel.domain.event import fact
from kennel.domain.principal import SYSTEM
from kennel.wire.errors import KennelError, error
from kennel.wire.node import Unit

pytestmark = pytest.mark.anyio
P, A = "default", "/sandboxes/a"
AWAY = error("NODE_UNAVAILABLE", "node went away", admitted="unknown")


async def no_points(*_: Any) -> None:
    return None


class Control:
    """One control process over a log and a machine."""

    def __init__(self, log: SqlEventLog, node: FakeNode, pool: int = 0) -> None:
        self.log, self.node = log, node
        self.projections = Projections(log)
        self.catalogue = Catalogue(log, self.projections)
        self.fleet = Fleet(node, open_guest, self.projections, PlainFiles(node))  # type: ignore[arg-type]
        self.pool = Pool(self.fleet, pool)
        self.recorder = Recorder(log)
        self.sandboxes = Sandboxes(self.catalogue, self.projections, self.fleet, self.pool, self.recorder, no_points)
        self.reconciler = Reconciler(self.projects, self.catalogue, self.fleet, self.pool, self.sandboxes)

    async def projects(self) -> list[str]:
        return [P]

    async def create(self, path: str = A, request_id: str | None = None) -> str:
        return (await self.sandboxes.create(SYSTEM, P, path, CreateOptions(), request_id)).sandbox_id

    async def start(self, path: str = A) -> None:
        await self.sandboxes.start(SYSTEM, P, path)

    async def agree(self) -> None:
        await self.reconciler.agree()

    async def told(self, path: str = A) -> list[str]:
        events = await self.log.read(P, path)
        words = [f"{event.type.removeprefix('sandbox/')} {event.payload.get('reason', '')}" for event in events]
        return [word.strip() for word in words]

    async def close(self) -> None:
        """As by SIGKILL: nothing is put to sleep or written."""
        await self.reconciler.close()
        for pet in self.fleet.awake():
            await self.fleet.let_go(pet, error("OPERATION_INTERRUPTED", "the process ended"))
        await self.fleet.close()


@pytest.fixture
async def node(anyio_backend: str) -> AsyncIterator[FakeNode]:
    made = FakeNode()
    yield made
    made.close()


@pytest.fixture
async def make(log: SqlEventLog, node: FakeNode) -> AsyncIterator[Callable[..., Control]]:
    """Makes control processes, one after the other, over one log and one machine."""
    made: list[Control] = []

    def one(**words: Any) -> Control:
        made.append(Control(log, node, **words))
        return made[-1]

    yield one
    for control in made:
        await control.close()
        await control.pool.close()


async def until(condition: Callable[[], bool | Awaitable[bool]]) -> None:
    async with asyncio.timeout(5):
        while True:
            found = condition()
            if found if isinstance(found, bool) else await found:
                return
            await asyncio.sleep(0.005)


async def test_a_creation_cut_off_is_finished_with_the_options_of_its_claim(make, node) -> None:
    first = make()
    node.refusals["build"] = AWAY
    with pytest.raises(KennelError):
        await first.create(request_id="r1")
    del node.refusals["build"]
    await first.close()
    second = make()
    await second.agree()
    view = await second.sandboxes.get(P, A)
    assert (view.status, list(node.units)) == ("created", [view.sandbox_id])
    assert await second.create(request_id="r1") == view.sandbox_id


async def test_a_creation_that_can_never_finish_frees_its_name(make, node) -> None:
    first = make()
    node.refusals["build"] = AWAY
    with pytest.raises(KennelError):
        await first.create()
    node.refusals["build"] = error("NO_CAPACITY", "full", admitted="no")
    second = make()
    await second.agree()
    with pytest.raises(KennelError) as caught:
        await second.sandboxes.get(P, A)
    assert caught.value.code == "SANDBOX_NOT_FOUND"
    del node.refusals["build"]
    await second.create()


async def test_a_creation_in_progress_is_left_to_its_maker(make, node) -> None:
    control = make()
    reached, go = node.hold("build")
    task = asyncio.create_task(control.create())
    await reached.wait()
    await control.agree()
    assert node.calls["build"] == 1
    go.set()
    await task
    assert (await control.told()).count("created") == 1


async def test_a_creation_whose_maker_has_not_begun_is_left_to_it_too(make, node) -> None:
    control = make()
    claim, taken, gate = control.catalogue.claim, asyncio.Event(), asyncio.Event()

    async def dawdle(*words: Any, **more: Any) -> Any:
        claimed = await claim(*words, **more)
        taken.set()
        await gate.wait()
        return claimed

    control.catalogue.claim = dawdle
    task = asyncio.create_task(control.create())
    await taken.wait()
    await control.agree()
    assert [c.path for c in await control.catalogue.claims(P)] == [A]
    assert node.calls["build"] == 0
    gate.set()
    await task


async def test_a_given_up_creation_is_not_taken_up_by_who_waited_for_it(make, node) -> None:
    control = make()
    build, gate = node.build, asyncio.Event()

    async def full(*words: Any) -> None:
        await gate.wait()
        node.build = build
        raise error("NO_CAPACITY", "full", admitted="no")

    node.build = full
    first = asyncio.create_task(control.create(request_id="r"))
    second = asyncio.create_task(control.create(request_id="r"))
    await asyncio.sleep(0.1)
    gate.set()
    codes = []
    for task in (first, second):
        with pytest.raises(KennelError) as caught:
            await task
        codes.append(caught.value.code)
    assert sorted(codes) == ["NO_CAPACITY", "RESOURCE_BUSY"]
    with pytest.raises(KennelError) as caught:
        await control.log.read(P, A)
    assert caught.value.code == "STREAM_NOT_FOUND"


async def test_strangers_go_and_the_pools_own_stay(make, node) -> None:
    node.units["stranger1"] = Unit("stranger1", record=True)
    control = make(pool=1)
    control.pool.start()
    await until(lambda: len(control.pool.sandboxes) == 1 and node.calls["connect"] == 1)
    [waiting] = control.pool.sandboxes
    await control.agree()
    assert list(node.units) == [waiting]
    assert node.units[waiting].running


async def test_a_container_taken_from_the_pool_is_not_removed_before_its_claim_is_written(make, node) -> None:
    control = make(pool=1)
    control.pool.start()
    await until(lambda: bool(control.pool._waiting))
    [waiting] = control.pool.sandboxes
    claim, gate = control.catalogue.claim, asyncio.Event()

    async def slow(*words: Any, **more: Any) -> Any:
        await gate.wait()
        return await claim(*words, **more)

    control.catalogue.claim = slow
    task = asyncio.create_task(control.create())
    await asyncio.sleep(0.02)
    control.pool._size = 0
    await control.agree()
    assert node.units[waiting].running
    gate.set()
    assert await task == waiting


async def test_a_claim_that_may_have_landed_keeps_its_container_out_of_the_pool(make, node) -> None:
    control = make(pool=1)
    control.pool.start()
    await until(lambda: bool(control.pool._waiting))
    [waiting] = control.pool.sandboxes
    claim = control.catalogue.claim

    async def cut_off(*words: Any, **more: Any) -> Any:
        await claim(*words, **more)
        raise asyncio.CancelledError

    control.catalogue.claim = cut_off
    with pytest.raises(asyncio.CancelledError):
        await control.create()
    control.catalogue.claim = claim
    assert waiting not in control.pool.sandboxes
    await control.agree()
    view = await control.sandboxes.get(P, A)
    assert (view.status, view.sandbox_id, view.running) == ("created", waiting, False)
    await control.agree()
    assert not node.units[waiting].running


async def test_a_container_that_died_waiting_is_removed_and_replaced(make, node) -> None:
    control = make(pool=1)
    control.pool.start()
    await until(lambda: bool(control.pool._waiting))
    [old] = control.pool.sandboxes
    node.end(old)
    await until(lambda: not control.pool._waiting[0].usable)
    await control.agree()
    assert old not in node.units
    await until(lambda: bool(control.pool._waiting))
    assert control.pool._waiting[0].usable


async def test_one_that_waits_on_an_image_that_is_another_now_is_replaced(make, node) -> None:
    control = make(pool=2)
    control.pool.start()
    await until(lambda: len(control.pool._waiting) == 2)
    old = control.pool.sandboxes
    node.image = "sha256:2"
    made = await control.create()
    assert made not in old
    await until(lambda: len(control.pool._waiting) == 2 and not old & set(node.units))
    assert await control.create("/sandboxes/b") not in old | {made}
    assert {unit.image_digest for unit in node.units.values()} == {"sha256:2"}


async def test_the_pool_waits_for_a_node_that_is_not_there_yet(make, node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kennel.control.pool.ABSENT_SECONDS", 0.01)
    node.refusals["resolve_image"] = error("NODE_UNAVAILABLE", "not here yet")
    control = make(pool=1)
    control.pool.start()
    await until(lambda: node.calls["resolve_image"] > 2)
    del node.refusals["resolve_image"]
    await until(lambda: bool(control.pool._waiting))


async def test_the_pool_outlives_whatever_goes_wrong_in_it(make, node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kennel.control.pool.RETRY_SECONDS", 0.01)
    node.refusals["build"] = ValueError("unforeseen")
    control = make(pool=1)
    control.pool.start()
    await until(lambda: node.calls["build"] > 1)
    del node.refusals["build"]
    await until(lambda: bool(control.pool._waiting))


async def test_what_runs_is_taken_over_and_nothing_is_booted(make, node) -> None:
    first = make()
    sandbox = await first.create()
    await first.start()
    await first.close()
    second = make()
    await second.agree()
    [pet] = second.fleet.awake()
    assert (pet.sandbox, node.calls["start"]) == (sandbox, 1)
    assert (await second.told()).count("started") == 1


async def test_what_ended_since_the_census_is_told_and_not_booted(make, node) -> None:
    first = make()
    sandbox = await first.create()
    await first.start()
    await first.close()
    second = make()
    reached, go = node.hold("census")
    task = asyncio.create_task(second.agree())
    await reached.wait()
    node.end(sandbox)
    go.set()
    await task
    assert (await second.told())[-1] == "stopped lost"
    assert node.calls["start"] == 1


@pytest.mark.parametrize(
    ("asked", "reason"), [("sleep", "requested"), ("kill", "killed"), (None, "lost")], ids=["sleep", "kill", "nothing"]
)
async def test_the_reason_of_an_end_is_what_was_asked_for(make, node, asked: str | None, reason: str) -> None:
    first = make()
    sandbox = await first.create()
    await first.start()
    if asked is not None:
        await first.log.append(P, A, [fact(SYSTEM, f"sandbox/{asked}-requested")])
    await first.close()
    node.end(sandbox)
    second = make()
    await second.agree()
    assert (await second.told())[-1] == f"stopped {reason}"
    assert node.units[sandbox].at_rest()


async def test_a_loss_that_could_not_be_recorded_is_recorded_when_node_is_back(make, node) -> None:
    control = make()
    sandbox = await control.create()
    await control.start()
    node.refusals |= {"usage": AWAY, "stop": AWAY}
    node.end(sandbox)
    await until(lambda: node.calls["usage"] == 1)
    await control.fleet.close()
    assert (await control.sandboxes.get(P, A)).running
    node.refusals.clear()
    await control.agree()
    assert (await control.told())[-1] == "stopped lost"
    assert not control.fleet.awake()


async def test_traces_of_a_sandbox_that_sleeps_are_taken_down(make, node) -> None:
    control = make()
    sandbox = await control.create()
    node.units[sandbox].mounts = 2
    await control.agree()
    assert node.units[sandbox].at_rest()


async def test_a_destruction_cut_off_is_finished(make, node) -> None:
    first = make()
    await first.create()
    await first.start()
    node.refusals["remove"] = AWAY
    with pytest.raises(KennelError):
        await first.sandboxes.destroy(SYSTEM, P, A)
    node.refusals.clear()
    await first.agree()
    assert node.units == {}
    assert [e for e in await first.told() if "destroy" in e] == ["destroy-requested", "stopped destroyed", "destroyed"]


async def test_a_sandbox_whose_disk_is_gone_says_so_when_it_is_started(make, node, caplog) -> None:
    first = make()
    sandbox = await first.create()
    node.units.clear()
    await first.close()
    second = make()
    with caplog.at_level(logging.ERROR):
        await second.agree()
    assert f"the disk of {P}{A} ({sandbox}) is gone" in caplog.text
    with pytest.raises(KennelError) as caught:
        await second.start()
    assert (caught.value.code, caught.value.admitted) == ("SANDBOX_START_FAILED", "no")


async def test_one_that_cannot_be_settled_holds_up_no_other(make, node, caplog) -> None:
    control = make()
    ids = {path: await control.create(path) for path in (A, "/sandboxes/b")}
    node.units["stranger1"] = Unit("stranger1", record=True)
    for sandbox in ids.values():
        node.units[sandbox].mounts = 2
    stop = node.stop

    async def refuse(sandbox: str) -> None:
        if sandbox == ids[A]:
            raise ValueError("unforeseen")
        await stop(sandbox)

    node.stop = refuse
    node.refusals["remove"] = error("SANDBOX_START_FAILED", "still held")
    await control.agree()
    assert node.units[ids["/sandboxes/b"]].at_rest()
    assert control.reconciler.settled
    assert "taking down default/sandboxes/a" in caplog.text


async def test_a_guest_that_stalls_does_not_keep_kennel_from_serving(make, node, monkeypatch) -> None:
    monkeypatch.setattr(module, "PATIENCE_SECONDS", 0.05)
    first = make()
    await first.create()
    await first.start()
    await first.close()
    second = make()
    _, go = node.hold("connect")
    task = asyncio.create_task(second.agree())
    await until(lambda: second.reconciler.settled)
    assert not task.done()
    go.set()
    await task


async def test_it_waits_for_node_and_hurries_when_it_was_away(make, node, caplog) -> None:
    node.refusals["census"] = AWAY
    control = make()
    control.reconciler.start()
    await until(lambda: node.calls["census"] > 2)
    assert not control.reconciler.settled
    assert caplog.text.count("node went away") == 1
    node.refusals.clear()
    await until(lambda: control.reconciler.settled)
    passes = node.calls["census"]
    control.reconciler.hurry()
    await until(lambda: node.calls["census"] > passes)


async def test_its_loops_outlive_whatever_goes_wrong_in_them(make, node, monkeypatch, caplog) -> None:
    monkeypatch.setattr(module, "EVERY_SECONDS", 0.01)
    node.refusals["census"] = ValueError("unforeseen")
    control = make()
    control.reconciler.start()
    await until(lambda: node.calls["census"] > 1)
    node.refusals.clear()
    await until(lambda: control.reconciler.settled)
    assert "agree failed" in caplog.text


async def test_a_pet_is_remembered_while_it_runs_or_is_worked_with_and_no_longer(make, node) -> None:
    control = make()
    for number in range(20):
        await control.create(f"/sandboxes/p{number}")
    await control.start("/sandboxes/p7")
    gc.collect()
    assert [pet.path for pet in control.fleet._pets.values()] == ["/sandboxes/p7"]
    await control.sandboxes.kill(SYSTEM, P, "/sandboxes/p7")
    gc.collect()
    assert (len(control.fleet._pets), control.fleet.awake()) == (0, [])


async def test_a_failed_start_leaves_no_connection_behind(make, node) -> None:
    control = make()
    sandbox = await control.create()
    node.refusals["limit"] = AWAY
    with pytest.raises(KennelError):
        await control.start()
    assert control.fleet.awake() == []
    node.refusals.clear()
    await control.agree()
    assert node.units[sandbox].at_rest()
    await control.start()
    assert (await control.told()).count("started") == 1
