"""Owns `kennel bench log`: appends, followers and replay of the event log, beside the bare driver in the same run.

Called by the bench command as `measure()`, or with the URL of an empty PostgreSQL database. Invariant: the floor has
the same durability: one insert per commit, flushed, into a table with the same columns and keys.
"""

from __future__ import annotations

import asyncio
import sqlite3
import tempfile
import time
from collections.abc import Callable

from kennel.adapters.sql.event_log import SqlEventLog, open_log
from kennel.bench.figures import Report
from kennel.domain.event import NewEvent

SECONDS = 2.0
WRITERS = 16
REPLAYED = 50_000
DDL = (
    "CREATE TABLE floor (position BIGINT PRIMARY KEY, project TEXT, path TEXT, at BIGINT, type TEXT, payload TEXT,"
    " metadata TEXT, idempotency_key TEXT, source TEXT, created_at TEXT, hash TEXT, UNIQUE (project, path, at))"
)
FLOOR = "bare driver, one insert per commit"


def _row(n: int) -> tuple[object, ...]:
    return (n, "default", "/bench", n, "note/made", '{"i":1}', "{}", None, "{}", "2026-01-01T00:00:00.000Z", "0" * 64)


def _samples(step: Callable[[int], None]) -> list[float]:
    """Milliseconds of each step, for SECONDS."""
    found: list[float] = []
    end = time.perf_counter() + SECONDS
    while (begun := time.perf_counter()) < end:
        step(len(found))
        found.append((time.perf_counter() - begun) * 1000)
    return found


def _floor_sqlite(folder: str) -> list[float]:
    connection = sqlite3.connect(f"{folder}/floor.db", isolation_level=None)
    try:
        for pragma in ("journal_mode=WAL", "synchronous=FULL"):
            connection.execute(f"PRAGMA {pragma}")
        connection.execute(DDL)

        def step(n: int) -> None:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("INSERT INTO floor VALUES (?,?,?,?,?,?,?,?,?,?,?)", _row(n))
            connection.execute("COMMIT")

        return _samples(step)
    finally:
        connection.close()


def _floor_postgres(url: str) -> list[float]:
    import psycopg

    with psycopg.connect(url) as connection:
        connection.execute("DROP TABLE IF EXISTS floor")
        connection.execute(DDL)
        connection.commit()

        def step(n: int) -> None:
            connection.execute("INSERT INTO floor VALUES (%s,%s,%s,%s,%s,%s,%s,%s,%s,%s,%s)", _row(n))
            connection.commit()

        return _samples(step)


async def _append_alone(log: SqlEventLog) -> list[float]:
    found: list[float] = []
    end = time.perf_counter() + SECONDS
    while (begun := time.perf_counter()) < end:
        await log.append("bench", "/alone", [NewEvent(type="note/made", payload={"i": len(found)})])
        found.append((time.perf_counter() - begun) * 1000)
    return found


async def _append_together(log: SqlEventLog) -> float:
    """Appends a second by WRITERS, each with a stream and an idempotency key of its own."""
    begun, counts = time.perf_counter(), [0] * WRITERS

    async def write(w: int) -> None:
        while time.perf_counter() - begun < SECONDS:
            event = NewEvent(type="note/made", payload={"i": counts[w]}, idempotency_key=str(counts[w]))
            await log.append("bench", f"/together/{w}", [event])
            counts[w] += 1

    await asyncio.gather(*(write(w) for w in range(WRITERS)))
    return sum(counts) / (time.perf_counter() - begun)


async def _follow(log: SqlEventLog) -> list[float]:
    """Milliseconds from the call of an append until a follower holds its event."""
    await log.append("bench", "/follow", [NewEvent(type="note/made")])
    follower, found = aiter(log.follow("bench", "/follow", after=1)), []
    await anext(follower)
    for _ in range(300):
        waiting = asyncio.ensure_future(anext(follower))
        await asyncio.sleep(0)
        begun = time.perf_counter()
        await log.append("bench", "/follow", [NewEvent(type="note/made")])
        await waiting
        found.append((time.perf_counter() - begun) * 1000)
    return found


async def _replay(log: SqlEventLog) -> float:
    """Events a second read back from one stream."""
    batch = [NewEvent(type="note/made", payload={"a": 1, "b": "c"})] * 500
    for _ in range(REPLAYED // len(batch)):
        await log.append("bench", "/replay", batch)
    begun, after = time.perf_counter(), 0
    while page := await log.read("bench", "/replay", after=after):
        after = page[-1].offset
    return after / (time.perf_counter() - begun)


async def _measure(report: Report, url: str) -> None:
    log = await open_log(url)
    try:
        report.add("append, one writer", await _append_alone(log), FLOOR, "one event, durable and folded")
        report.add("append until a follower has it", await _follow(log), FLOOR)
        report.facts[f"appends a second, {WRITERS} writers"] = round(await _append_together(log))
        report.facts["replayed events a second"] = round(await _replay(log))
    finally:
        await log.close()


def measure(url: str | None = None) -> Report:
    """The log's figures over SQLite in a folder of its own, or over the PostgreSQL database at `url`."""
    report = Report(f"event log, {'PostgreSQL' if url else 'SQLite'}")
    with tempfile.TemporaryDirectory(prefix="kennel-bench-log-") as folder:
        floor = report.add(FLOOR, _floor_postgres(url) if url else _floor_sqlite(folder))
        report.facts["bare inserts a second"] = round(1000 * len(floor.samples) / sum(floor.samples))
        asyncio.run(_measure(report, url or f"sqlite:///{folder}/log.db"))
        alone = report.row("append, one writer").samples
        report.facts["appends a second, one writer"] = round(1000 * len(alone) / sum(alone))
    return report
