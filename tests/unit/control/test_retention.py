"""How the audit ages out: by segments, each vouched for before it goes."""

from __future__ import annotations

import datetime
from collections.abc import Sequence

import pytest
import sqlalchemy as sa

from kennel.adapters.sql.event_log import SqlEventLog
from kennel.control import retention
from kennel.control.retention import Retention
from kennel.domain.egress_state import LOG
from kennel.domain.event import fact
from kennel.domain.principal import SYSTEM

pytestmark = pytest.mark.anyio

DAY = 86_400.0


async def record(log: SqlEventLog, count: int) -> None:
    rows = [fact(SYSTEM, "egress/recorded", {"kind": "note", "detail": str(n)}) for n in range(count)]
    await log.append("acme", LOG, rows)


async def projects() -> Sequence[str]:
    return ["acme", "never-asked"]


def later(days: float) -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=days)


async def offsets(log: SqlEventLog) -> list[int]:
    return [event.offset for event in await log.read("acme", LOG)]


async def test_old_events_go_and_the_chain_holds(log: SqlEventLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "SEGMENT", 10)
    await record(log, 25)
    kept = Retention(log, projects, 30 * DAY)
    assert await kept.trim(later(29)) == 0
    assert await kept.trim(later(31)) == 25
    left = await log.read("acme", LOG)
    assert [event.type for event in left] == ["egress/recorded", "egress/trimmed", "egress/trimmed", "egress/trimmed"]
    assert left[0].payload["detail"] == "24"
    assert await log.verify("acme", LOG) == []
    await record(log, 3)
    assert await log.verify("acme", LOG) == []
    assert [event.offset async for event in _history(log, len(await offsets(log)))] == await offsets(log)


async def _history(log: SqlEventLog, count: int):
    following = log.follow("acme", LOG)
    for _ in range(count):
        yield await anext(following)


async def test_a_later_trim_takes_the_word_of_the_earlier_along(log: SqlEventLog) -> None:
    await record(log, 5)
    kept = Retention(log, projects, 30 * DAY)
    await kept.trim(later(31))
    await record(log, 5)
    await kept.trim(later(62))
    assert await log.verify("acme", LOG) == []
    assert len(await offsets(log)) == 2


async def test_a_crash_between_the_word_and_the_deed_costs_nothing(log: SqlEventLog) -> None:
    await record(log, 5)
    kept = Retention(log, projects, 30 * DAY)
    trim, log.trim = log.trim, None  # type: ignore[method-assign,assignment]
    with pytest.raises(TypeError):
        await kept.trim(later(31))
    log.trim = trim  # type: ignore[method-assign]
    assert await log.verify("acme", LOG) == []
    assert len(await offsets(log)) == 7
    await kept.trim(later(31))
    assert await log.verify("acme", LOG) == []


async def test_what_nobody_vouched_for_is_a_fault(log: SqlEventLog) -> None:
    await record(log, 5)
    await log.trim("acme", LOG, 3)
    faults = await log.verify("acme", LOG)
    assert faults[0].offset == 1


async def test_a_forged_word_is_a_fault(log: SqlEventLog) -> None:
    await record(log, 5)
    await Retention(log, projects, 30 * DAY).trim(later(31))
    with log.engine.begin() as connection:
        change = "UPDATE events SET payload = replace(payload, '\"through\":', '\"through\": ') WHERE type = :t"
        assert connection.execute(sa.text(change), {"t": "egress/trimmed"}).rowcount
    assert await log.verify("acme", LOG) != []


async def test_the_last_event_stays_whatever_is_asked(log: SqlEventLog) -> None:
    await record(log, 3)
    head = await log.head("acme", LOG)
    assert head is not None
    assert await log.trim("acme", LOG, 10**9) == head - 1
    await record(log, 1)
    assert (await log.read("acme", LOG))[-1].offset == head + 1
