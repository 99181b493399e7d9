"""Live state: a snapshot, then only what changed, whatever the reader's speed."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from kennel.control.live_state import LiveState
from kennel.control.projection import Projections
from kennel.domain.difference import patched
from kennel.domain.event import fact
from kennel.domain.principal import SYSTEM

pytestmark = pytest.mark.anyio
P, A = "default", "/sandboxes/a"
CONFIG = {
    "instanceType": "basic", "image": "host", "imageDigest": "sha256:1", "isolation": "container",
    "persist": "workspace", "sandboxId": "sb1",
}  # fmt: skip
BIRTH = fact(SYSTEM, "sandbox/created", {"config": CONFIG}, key="created")


async def test_a_snapshot_then_minimal_diffs(log):
    projections = Projections(log)
    live = LiveState(projections)
    await projections.append_and_fold(P, A, [BIRTH])
    updates = live.subscribe(P, A)
    first = await anext(updates)
    assert (first.kind, first.revision, first.state["status"]) == ("snapshot", 2, "created")
    assert first == await live.get(P, A)
    waiting = asyncio.create_task(anext(updates))
    await asyncio.sleep(0)
    await projections.append_and_fold(P, A, [fact(SYSTEM, "sandbox/start-requested")])
    await projections.append_and_fold(P, A, [fact(SYSTEM, "sandbox/started")])
    diff = await waiting
    assert (diff.kind, diff.previous, diff.revision) == ("diff", 2, 4)
    assert diff.operations == [
        {"op": "replace", "path": "/running", "value": True},
        {"op": "replace", "path": "/status", "value": "running"},
    ]
    await updates.aclose()
    assert not (await projections.fold(P, A)).in_use


async def test_a_slow_reader_ends_at_the_same_state(log):
    projections = Projections(log)
    live = LiveState(projections)
    await projections.append_and_fold(P, A, [BIRTH])
    updates = live.subscribe(P, A)
    mine = (await anext(updates)).state
    for n in range(300):
        await log.append(P, A, [fact(SYSTEM, "sandbox/configured", {"env": {f"V{n % 7}": str(n)}})])
    diff = await anext(updates)
    mine = patched(mine, diff.operations)
    assert mine == msgspec.to_builtins(await projections.get(P, A))
    assert len(diff.operations) == 7
    await updates.aclose()


async def test_diffs_lead_along_every_change(log):
    projections = Projections(log)
    live = LiveState(projections)
    updates = live.subscribe(P, A)
    mine, revision = (await anext(updates)).state, 0

    async def follow():
        nonlocal mine, revision
        async for update in updates:
            if update.kind == "gap":
                return
            assert update.previous == revision
            mine, revision = patched(mine, update.operations), update.revision

    task = asyncio.create_task(follow())
    await asyncio.sleep(0)
    await projections.append_and_fold(P, A, [BIRTH])
    for n in range(20):
        await projections.append_and_fold(P, A, [fact(SYSTEM, "sandbox/started" if n % 2 else "sandbox/stopped")])
    state = await projections.append_and_fold(P, A, [fact(SYSTEM, "sandbox/destroyed")])
    await asyncio.sleep(0.01)
    live.close()
    await asyncio.wait_for(task, 5)
    assert mine == msgspec.to_builtins(state)
    assert await log.head(P, A) is not None


async def test_looking_at_nothing_makes_nothing(log):
    live = LiveState(Projections(log))
    updates = live.subscribe(P, A)
    assert (await anext(updates)).state["status"] is None
    await updates.aclose()
    assert await log.head(P, A) is None
