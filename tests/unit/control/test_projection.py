"""Projections: durable and folded before the call returns, checkpoints, letting go."""

from __future__ import annotations

import asyncio

import pytest

from kennel.control.projection import Projections
from kennel.domain import sandbox
from kennel.domain.event import NewEvent, fact
from kennel.domain.principal import SYSTEM
from kennel.domain.sandbox import EMPTY
from kennel.ports.event_log import Checkpoint
from kennel.wire.errors import KennelError

pytestmark = pytest.mark.anyio
P, A = "default", "/sandboxes/a"
CONFIG = {
    "instanceType": "basic", "image": "host", "imageDigest": "sha256:1", "isolation": "container",
    "persist": "workspace", "sandboxId": "sb1",
}  # fmt: skip
BIRTH = fact(SYSTEM, "sandbox/created", {"config": CONFIG}, key="created")


async def test_completions_are_folded_before_the_call_returns(log):
    projections = Projections(log)
    state = await projections.append_and_fold(P, A, [BIRTH, fact(SYSTEM, "sandbox/started")])
    assert state.status == "running"
    assert await projections.get(P, A) == state
    assert (await projections.snapshot(P, A)).offset == await log.head(P, A) == 3
    assert await Projections(log).get(P, A) == state


async def test_an_empty_projection_makes_no_stream(log):
    assert await Projections(log).get(P, A) == EMPTY
    assert await log.head(P, A) is None


async def test_events_of_others_are_folded_too(log, second_log):
    projections = Projections(log)
    await projections.append_and_fold(P, A, [BIRTH])
    await log.append(P, A, [fact(SYSTEM, "sandbox/started")])
    assert (await projections.get(P, A)).status == "running"
    [event] = await second_log.append(P, A, [fact(SYSTEM, "sandbox/stopped")])
    assert (await projections.wait_until_processed(P, A, event.offset, 5)).state.status == "stopped"


async def test_waiting(log):
    projections = Projections(log)
    waiting = asyncio.create_task(projections.wait_until_processed(P, A, 3, 5))
    await asyncio.sleep(0.01)
    await projections.append_and_fold(P, A, [BIRTH, fact(SYSTEM, "sandbox/started")])
    assert (await waiting).state.status == "running"
    with pytest.raises(KennelError) as caught:
        await projections.wait_until_processed(P, A, 99, 0.05)
    assert caught.value.code == "WAIT_TIMEOUT"
    assert caught.value.details == {"offset": 3}


async def test_an_event_the_stream_knows_already_is_folded_once(log):
    projections = Projections(log)
    first = await projections.append_and_fold(P, A, [BIRTH])
    assert await projections.append_and_fold(P, A, [BIRTH]) == first
    assert await log.head(P, A) == 2


async def test_concurrent_appends_of_many_sandboxes(log):
    projections = Projections(log)

    async def life(n: int) -> None:
        path = f"/sandboxes/n{n}"
        await projections.append_and_fold(P, path, [BIRTH])
        for _ in range(5):
            assert (await projections.append_and_fold(P, path, [fact(SYSTEM, "sandbox/started")])).running
            assert not (await projections.append_and_fold(P, path, [fact(SYSTEM, "sandbox/stopped")])).running

    await asyncio.gather(*(life(n) for n in range(20)))


async def test_a_checkpoint_saves_the_replay_and_a_version_bump_replays(log):
    projections = Projections(log)
    state = await projections.append_and_fold(P, A, [BIRTH, fact(SYSTEM, "sandbox/started")])
    await projections.save()
    [saved] = await log.checkpoints(P, "sandbox")
    assert (saved.path, saved.offset) == (A, 3)
    reads = []
    original = log.read

    async def counting(project, path, **words):
        reads.append(words["after"])
        return await original(project, path, **words)

    log.read = counting
    assert await Projections(log).get(P, A) == state
    assert reads == [3]
    reads.clear()
    assert await Projections(log, version=sandbox.VERSION + 1).get(P, A) == state
    assert reads == [0]


async def test_a_checkpoint_that_cannot_be_read_costs_a_replay(log):
    state = await Projections(log).append_and_fold(P, A, [BIRTH])
    for text in ("", "[]", '{"status":"flying"}'):
        await log.save_checkpoints(P, "sandbox", [Checkpoint(A, 1, 2, text)])
        assert await Projections(log).get(P, A) == state


async def test_a_forged_event_folds_to_nothing(log):
    projections = Projections(log)
    state = await projections.append_and_fold(P, A, [BIRTH])
    await log.append(P, A, [NewEvent(type="note/made", payload={"config": CONFIG})])
    snapshot = await projections.snapshot(P, A)
    assert snapshot.state == state
    assert snapshot.offset == 3


async def test_the_longest_unused_are_let_go_to_a_checkpoint(log):
    projections = Projections(log, max_folds=3)
    for n in range(8):
        await projections.append_and_fold(P, f"/sandboxes/n{n}", [BIRTH])
    assert len(projections._folds) <= 4
    assert len(await log.checkpoints(P, "sandbox")) >= 4
    for n in range(8):
        assert (await projections.append_and_fold(P, f"/sandboxes/n{n}", [fact(SYSTEM, "sandbox/started")])).running
