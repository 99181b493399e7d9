"""The door: tickets and closers never meet."""

from __future__ import annotations

import asyncio
import random

import pytest

from kennel.control.door import Door

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def test_a_closer_waits_for_tickets_and_gives_up_after_its_time() -> None:
    door = Door()
    with door.ticket():
        async with door.shut():
            assert door.closed
            assert not await door.drained(0.01)
    async with door.shut():
        assert await door.drained(0.01)
    assert not door.closed


async def test_no_ticket_is_given_while_the_door_is_closed() -> None:
    door, open_door, seen = Door(), True, 0

    async def work() -> None:
        nonlocal seen
        while door.closed:
            async with door.shut():
                pass
        with door.ticket():
            assert open_door
            await asyncio.sleep(random.random() / 500)
            assert open_door
            seen += 1

    async def close() -> None:
        nonlocal open_door
        async with door.shut():
            assert await door.drained(5)
            open_door = False
            await asyncio.sleep(random.random() / 500)
            open_door = True

    async def later(act: object) -> None:
        await asyncio.sleep(random.random() / 20)
        await act()  # type: ignore[operator]

    await asyncio.gather(*(later(close if n % 10 == 0 else work) for n in range(1000)))
    assert seen == 900
    assert door.tickets == 0


async def test_activity_is_the_end_of_work_too() -> None:
    door = Door()
    begun = door.last_activity
    with door.ticket():
        await asyncio.sleep(0.01)
        during = door.last_activity
    assert begun <= during < door.last_activity
