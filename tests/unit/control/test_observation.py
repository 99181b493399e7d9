from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kennel.control.catalogue import Catalogue
from kennel.control.observation import Observation
from kennel.control.projection import Projections
from kennel.domain.create_options import CreateOptions
from kennel.domain.event import fact
from kennel.domain.principal import SYSTEM
from kennel.wire.errors import KennelError

pytestmark = pytest.mark.anyio

PATH = "/sandboxes/main"


@pytest.fixture
async def claimed(log: Any) -> tuple[Observation, Projections]:
    projections = Projections(log)
    names = Catalogue(log, projections)
    await names.claim(SYSTEM, "default", PATH, CreateOptions(), "r", "sb1", image_digest="sha256:1")
    return Observation(names, projections), projections


async def test_a_typo_is_refused_and_makes_no_stream(log: Any, claimed: Any) -> None:
    looks, _ = claimed
    for look in (looks.snapshot, looks.subscribe, lambda *at: looks.wait_until_processed(*at, 1, 1.0)):
        with pytest.raises(KennelError) as caught:
            await look("default", "/sandboxes/typo")
        assert caught.value.code == "SANDBOX_NOT_FOUND"
    assert await log.head("default", "/sandboxes/typo") is None


async def test_a_claim_is_enough_and_the_end_no_obstacle(log: Any, claimed: Any) -> None:
    looks, projections = claimed
    assert (await looks.snapshot("default", PATH)).state.status is None
    assert await log.head("default", PATH) is None
    updates = await looks.subscribe("default", PATH)
    assert (await anext(updates)).state["status"] is None
    waiting = asyncio.ensure_future(looks.wait_until_processed("default", PATH, 2, 5.0))
    await asyncio.sleep(0)
    await projections.append_and_fold("default", PATH, [fact(SYSTEM, "sandbox/destroyed")])
    assert ((await waiting).offset, (await waiting).state.status) == (2, "destroyed")
    assert (await anext(updates)).operations == [{"op": "replace", "path": "/status", "value": "destroyed"}]
    looks.close()
    assert [update.kind async for update in updates] == ["gap"]
    assert (await looks.snapshot("default", PATH)).state.status == "destroyed"
