from __future__ import annotations

import asyncio

import pytest

from kennel.control.line import Line

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def test_places_are_served_in_the_order_taken_however_long_each_looks_around() -> None:
    line, served, inside = Line(), [], 0

    async def caller(number: int) -> None:
        nonlocal inside
        place = line.take()
        try:
            await asyncio.sleep((20 - number) * 0.001)
            await place
            inside += 1
            assert inside == 1
            await asyncio.sleep(0)
            served.append(number)
            inside -= 1
        finally:
            line.leave(place)

    await asyncio.gather(*(caller(number) for number in range(20)))
    assert served == list(range(20))


async def test_those_who_give_up_are_passed_over() -> None:
    line = Line()
    first, second, third, fourth = (line.take() for _ in range(4))
    assert [place.done() for place in (first, second, third, fourth)] == [True, False, False, False]
    second.cancel()
    line.leave(second)
    third.cancel()
    line.leave(first)
    assert not fourth.done()
    line.leave(third)
    assert fourth.done()
    line.leave(fourth)
    assert line.take().done()
