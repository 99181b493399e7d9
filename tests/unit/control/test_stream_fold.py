"""One stream's fold: no event lost or folded twice, whatever the order of reads and news."""

from __future__ import annotations

import asyncio

import pytest

from kennel.control.stream_fold import StreamFold
from kennel.domain.event import Event, NewEvent, Source
from kennel.wire.errors import error

pytestmark = pytest.mark.anyio


def event(offset: int) -> Event:
    return Event(
        position=offset, project="p", path="/a", offset=offset, type="note/made", payload={}, metadata={},
        idempotency_key=None, source=Source(), created_at="now", hash="",
    )  # fmt: skip


def collect(state: tuple[int, ...], one: Event) -> tuple[int, ...]:
    return (*state, one.offset)


class ScriptedLog:
    """A stream whose reads answer what was there when they began, and wait in between."""

    def __init__(self, events: int) -> None:
        self.events = [event(n + 1) for n in range(events)]
        self.listeners = []
        self.reads = 0
        self.during_read = lambda: None
        self.fail = False

    def listen(self, project, path, listener):
        self.listeners.append(listener)
        return lambda: self.listeners.remove(listener)

    def commit(self, heard: bool = True) -> None:
        self.events.append(event(len(self.events) + 1))
        if heard:
            for listener in list(self.listeners):
                listener(self.events[-1])

    async def read(self, project, path, *, after, limit):
        self.reads += 1
        if self.fail:
            raise error("LOG_UNAVAILABLE", "away")
        if not self.events:
            raise error("STREAM_NOT_FOUND", "none")
        page = [e for e in self.events if e.offset > after][:limit]
        act, self.during_read = self.during_read, lambda: None
        act()
        await asyncio.sleep(0)
        return page


def folded(log) -> StreamFold[tuple[int, ...]]:
    return StreamFold(log, "p", "/a", (), collect)


async def test_history_by_pages():
    log = ScriptedLog(1203)
    fold = folded(log)
    await fold.ready()
    assert fold.state == tuple(range(1, 1204))
    assert log.reads == 3
    await fold.ready()
    assert log.reads == 3


async def test_what_is_committed_while_history_is_read_is_not_lost():
    log = ScriptedLog(5)
    log.during_read = lambda: [log.commit(), log.commit()]
    fold = folded(log)
    await fold.ready()
    assert fold.state == (1, 2, 3, 4, 5, 6, 7)
    log.commit()
    assert fold.state[-1] == 8


async def test_a_stream_born_while_it_is_looked_for():
    log = ScriptedLog(0)
    fold = folded(log)
    await fold.ready()
    assert (fold.state, fold.offset, fold.live) == ((), 0, True)
    log.commit()
    log.commit()
    assert fold.state == (1, 2)


async def test_a_hole_in_the_news_is_read_again():
    log = ScriptedLog(2)
    fold = folded(log)
    await fold.ready()
    log.commit(heard=False)
    log.commit()
    assert not fold.live
    await fold.ready()
    assert fold.state == (1, 2, 3, 4)


async def test_many_first_looks_share_one_reading():
    log = ScriptedLog(600)
    fold = folded(log)
    await asyncio.gather(*(fold.ready() for _ in range(20)))
    assert fold.state == tuple(range(1, 601))
    assert len(log.listeners) == 1


async def test_a_failed_look_can_be_repeated():
    log = ScriptedLog(3)
    log.fail = True
    fold = folded(log)
    with pytest.raises(ConnectionError):
        await fold.ready()
    assert not fold.live
    log.fail = False
    log.commit()
    await fold.ready()
    assert fold.state == (1, 2, 3, 4)


async def test_a_closed_fold_goes_on_where_it_was():
    log = ScriptedLog(3)
    fold = folded(log)
    await fold.ready()
    fold.close()
    log.commit()
    assert fold.offset == 3
    assert log.listeners == []
    await fold.ready()
    assert fold.state == (1, 2, 3, 4)


async def test_waiters_are_woken_in_their_turn_and_cancelled_ones_forgotten():
    log = ScriptedLog(1)
    fold = folded(log)
    await fold.ready()
    order: list[int] = []

    async def wait(offset: int) -> None:
        await fold.wait_until(offset, 5)
        order.append(offset)

    tasks = [asyncio.create_task(wait(n)) for n in (4, 2, 3, 9)]
    await asyncio.sleep(0)
    for _ in range(3):
        log.commit()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    assert order == [2, 3, 4]
    tasks[3].cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert not fold.in_use


async def test_over_a_real_log(log):
    fold = StreamFold(log, "default", "/a", (), collect)
    await fold.ready()

    async def write(n: int) -> None:
        for _ in range(20):
            [landed] = await log.append("default", "/a", [NewEvent(type="note/made", payload={"n": n})])
            assert fold.offset >= landed.offset

    await asyncio.gather(*(write(n) for n in range(8)))
    assert fold.state == tuple(range(1, 162))
