"""What the log promises when things go wrong: tampering, a sick ancestor, a second process, a kill, a lost database."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import signal
import sys

import pytest
import sqlalchemy as sa

from kennel.adapters.sql.engine import BUSY_MS, LOCK
from kennel.adapters.sql.event_log import SqlEventLog, open_log
from kennel.domain.chain import GENESIS, Link, canonical, digest
from kennel.domain.event import Event, NewEvent, Source, fact
from kennel.domain.principal import SYSTEM
from kennel.wire.errors import KennelError

pytestmark = pytest.mark.anyio

P = "default"


def new(**payload: object) -> NewEvent:
    return NewEvent(type="note/made", payload=payload)


def tamper(log: SqlEventLog, statement: str, **values: object) -> int:
    """Changes the tables behind the log's back; returns the rows hit."""
    with log.engine.begin() as connection:
        return connection.execute(sa.text(statement), values).rowcount


async def test_a_changed_event_is_found(log):
    await log.append(P, "/a", [new(i=i) for i in range(5)])
    await log.append(P, "/b", [new()])
    for column, value in [("payload", '{"i":7}'), ("metadata", '{"x":1}'), ("type", "note/x"), ("created_at", "2001"),
                          ("source", '{"platform":true}'), ("idempotency_key", "k")]:  # fmt: skip
        assert await log.verify(P, "/a") == []
        with log.engine.connect() as connection:
            old = connection.execute(
                sa.text(f'SELECT {column} FROM events WHERE path = :p AND "offset" = 4'), {"p": "/a"}
            ).scalar()
        change = f'UPDATE events SET {column} = :v WHERE path = :p AND "offset" = 4'
        assert tamper(log, change, v=value, p="/a") == 1
        faults = await log.verify(P, "/a")
        assert [f.offset for f in faults] == [4], column
        tamper(log, change, v=old, p="/a")
    assert await log.verify(P, "/b") == []


async def test_a_rewritten_event_breaks_its_successor(log):
    """Whoever also fixes the changed event's own hash must fix every later one and the head."""
    await log.append(P, "/a", [new(i=i) for i in range(3)])
    before, event = (await log.read(P, "/a"))[1:3]
    forged = canonical({"i": 99}).decode()
    link = Link(P, "/a", event.offset, event.type, None, event.created_at, forged, "{}", "{}")
    tamper(
        log, 'UPDATE events SET payload = :v, hash = :h WHERE path = :p AND "offset" = 3',
        v=forged, h=digest(before.hash, link), p="/a",
    )  # fmt: skip
    assert [f.offset for f in await log.verify(P, "/a")] == [4]


async def test_a_removed_event_and_a_cut_tail_are_found(log):
    for path in ("/hole", "/tail"):
        await log.append(P, path, [new(i=i) for i in range(5)])
    tamper(log, 'DELETE FROM events WHERE path = :p AND "offset" = 3', p="/hole")
    assert 3 in [f.offset for f in await log.verify(P, "/hole")]
    tamper(log, 'DELETE FROM events WHERE path = :p AND "offset" >= 5', p="/tail")
    assert [f.offset for f in await log.verify(P, "/tail")] == [6]


async def test_the_chain_can_be_checked_from_an_export_alone(log):
    """The page docs/events.md says how; this does only what it says."""
    words = {"é": [1, 2.5, "\u0001\u2028/"], "a": None}
    source = Source(key_id="key_1")
    await log.append(P, "/a", [NewEvent(type="note/made", payload=words, idempotency_key="k", source=source)])
    await log.append(P, "/a", [fact(SYSTEM, "sandbox/started")])
    previous = GENESIS
    for event in await log.read(P, "/a"):
        source = {k: v for k, v in (("platform", event.source.platform), ("keyId", event.source.key_id)) if v}
        words = [previous, event.project, event.path, event.offset, event.type, event.idempotency_key,
                 event.created_at, event.payload, event.metadata, source]  # fmt: skip
        text = json.dumps(words, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        assert hashlib.sha256(text.encode()).hexdigest() == event.hash
        previous = event.hash


async def test_a_sick_ancestor_loses_a_newborn_until_the_child_is_written_again(log):
    await log.append(P, "/a", [new()])
    root = await log.head(P, "/")
    tamper(log, "UPDATE streams SET head = head - 1 WHERE path = '/'")
    await reopen_heads(log)
    [born] = await log.append(P, "/a/b", [new()])
    assert born.offset == 2
    assert await told(log, "/a", "/a/b") == 1
    assert await told(log, "/", "/a/b") == 0
    await log.append(P, "/a/b", [new()])
    assert await told(log, "/", "/a/b") == 0
    tamper(log, "UPDATE streams SET head = head + 1 WHERE path = '/'")
    await reopen_heads(log)
    await log.append(P, "/a/b", [new()])
    assert await told(log, "/", "/a/b") == 1
    assert await log.head(P, "/") == root + 1
    await log.append(P, "/a/b", [new()])
    assert await told(log, "/", "/a/b") == await told(log, "/a", "/a/b") == 1
    assert await log.verify(P, "/") == []


async def test_debts_are_paid_at_the_next_start(log, log_url):
    await log.append(P, "/a", [new()])
    tamper(log, "UPDATE streams SET head = head - 1 WHERE path = '/'")
    await reopen_heads(log)
    await log.append(P, "/b", [new()])
    assert await told(log, "/", "/b") == 0
    tamper(log, "UPDATE streams SET head = head + 1 WHERE path = '/'")
    await log.close()
    again = await open_log(log_url)
    try:
        await again.append(P, "/elsewhere", [new()])
        assert await told(again, "/", "/b") == 1
    finally:
        await again.close()


async def test_a_sick_stream_is_refused_and_its_neighbours_are_not(log):
    await log.append(P, "/sick", [new()])
    tamper(log, "UPDATE streams SET head = head - 1 WHERE path = '/sick'")
    await reopen_heads(log)
    answers = await asyncio.gather(
        *(log.append(P, "/sick" if i == 3 else f"/well{i}", [new()]) for i in range(8)), return_exceptions=True
    )
    assert [a.code if isinstance(a, KennelError) else "ok" for a in answers] == ["ok"] * 3 + ["LOG_CORRUPT"] + [
        "ok"
    ] * 4


async def told(log: SqlEventLog, ancestor: str, child: str) -> int:
    events = await log.read(P, ancestor, types=["stream/child-stream-created"])
    return sum(e.payload["childPath"] == child for e in events)


async def reopen_heads(log: SqlEventLog) -> None:
    """Makes the writer forget what it remembers of heads, as another process's append does."""
    other = await open_log(log.engine.url.render_as_string(hide_password=False))
    await other.append("elsewhere", "/x", [new()])
    await other.close()


async def test_two_processes_see_each_other_and_share_one_order(log, log_url):
    other = await open_log(log_url)
    try:
        heard: list[Event] = []
        await log.append(P, "/a", [new()])
        log.listen(P, "/a", heard.append)

        async def write(which: SqlEventLog, name: str) -> None:
            for i in range(50):
                await which.append(P, "/a", [new(by=name, i=i)])

        await asyncio.gather(write(log, "x"), write(other, "y"))
        async with asyncio.timeout(10):
            while len(heard) < 100:
                await asyncio.sleep(0.01)
        assert [e.offset for e in heard] == list(range(3, 103))
        assert [e for e in await log.read(P, "/a", after=2)] == heard
        positions = [e.position for e in heard]
        assert positions == sorted(positions)
        assert await other.verify(P, "/a") == []
    finally:
        await other.close()


async def test_a_silent_process_hears_of_another_within_seconds(log, log_url):
    await log.append(P, "/a", [new()])
    follower = log.follow(P, "/a", after=2)
    waiting = asyncio.create_task(anext(follower))
    await asyncio.sleep(0.05)
    other = await open_log(log_url)
    try:
        await other.append(P, "/a", [new(x=1)])
        event = await asyncio.wait_for(waiting, 5)
        assert isinstance(event, Event)
        assert event.payload == {"x": 1}
    finally:
        await other.close()


_WRITER = """
import asyncio, sys
from kennel.adapters.sql.engine import BUSY_MS, LOCK
from kennel.adapters.sql.event_log import open_log
from kennel.domain.event import NewEvent

async def main():
    log = await open_log(sys.argv[1])
    async def write(w):
        i = 0
        while True:
            i += 1
            await log.append("default", f"/w{w}", [NewEvent(type="note/made", payload={"i": i})])
            print(w, i, flush=True)
    await asyncio.gather(*(write(w) for w in range(4)))

asyncio.run(main())
"""


async def test_what_was_acknowledged_survives_sigkill(log, log_url):
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", _WRITER, log_url, stdout=asyncio.subprocess.PIPE
    )
    acknowledged: dict[str, int] = {}
    assert process.stdout is not None
    for _ in range(200):
        words = (await asyncio.wait_for(process.stdout.readline(), 20)).split()
        acknowledged[words[0].decode()] = int(words[1])
    os.kill(process.pid, signal.SIGKILL)
    for line in (await process.stdout.read()).splitlines():
        words = line.split()
        if len(words) == 2:
            acknowledged[words[0].decode()] = int(words[1])
    await process.wait()
    for writer, last in acknowledged.items():
        events = await log.read(P, f"/w{writer}", after=1)
        assert [e.payload["i"] for e in events][:last] == list(range(1, min(last, 500) + 1))
        assert await log.verify(P, f"/w{writer}") == []


async def test_a_database_that_goes_away_is_a_typed_error_and_comes_back(log, log_url):
    if not log_url.startswith("postgresql"):
        pytest.skip("a SQLite file does not hang up")
    await log.append(P, "/a", [new()])
    kill = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = 'log' AND pid <> pg_backend_pid()"
    import psycopg

    with psycopg.connect(log_url, autocommit=True) as connection:
        connection.execute(kill)
    outcomes = await asyncio.gather(*(log.append(P, "/a", [new(i=i)]) for i in range(20)), return_exceptions=True)
    assert {o.code for o in outcomes if isinstance(o, KennelError)} <= {"LOG_UNAVAILABLE"}
    assert not [o for o in outcomes if isinstance(o, BaseException) and not isinstance(o, KennelError)]
    [event] = await log.append(P, "/a", [new()])
    assert (await log.read(P, "/a"))[-1] == event
    landed = [o[0].payload["i"] for o in outcomes if not isinstance(o, BaseException)]
    stored = [e.payload["i"] for e in await log.read(P, "/a", after=2) if "i" in e.payload]
    assert set(landed) <= set(stored)
    assert len(stored) == len(set(stored))
    assert await log.verify(P, "/a") == []


async def test_a_full_disk_is_a_typed_error_and_loses_nothing(log, log_url):
    if not log_url.startswith("sqlite"):
        pytest.skip("the limit is set by a pragma of SQLite's")
    await log.append(P, "/a", [new()])
    driver = log._writer._connection.connection.dbapi_connection
    pages = driver.execute("PRAGMA page_count").fetchone()[0]
    driver.execute(f"PRAGMA max_page_count={pages + 40}")
    landed, failure = 0, None
    while failure is None and landed < 100:
        try:
            await log.append(P, "/a", [new(x="y" * 20_000)])
            landed += 1
        except KennelError as fault:
            failure = fault
    assert failure is not None
    assert (failure.code, failure.admitted) == ("LOG_UNAVAILABLE", "no")
    [event] = await log.append(P, "/a", [new()])
    assert event.offset == landed + 3
    assert await log.verify(P, "/a") == []


async def test_a_fault_in_the_writer_itself_leaves_nobody_waiting(log, monkeypatch):
    from kennel.adapters.sql import ledger

    await log.append(P, "/a", [new()])
    with monkeypatch.context() as broken:
        broken.setattr(ledger, "plan", lambda *args, **words: 1 / 0)
        with pytest.raises(KennelError) as caught:
            await asyncio.wait_for(log.append(P, "/a", [new()]), 5)
        assert caught.value.code == "INTERNAL_ERROR"
    [event] = await log.append(P, "/a", [new()])
    assert event.offset == 3


async def test_a_lock_that_somebody_keeps_is_a_typed_error(log, log_url):
    await log.append(P, "/a", [new()])
    driver = log._writer._connection.connection.dbapi_connection
    if log_url.startswith("sqlite"):
        driver.execute("PRAGMA busy_timeout=50")
    else:
        driver.execute("SET lock_timeout = 50")
        driver.commit()
    with log.engine.connect() as holder, holder.begin():
        if not log_url.startswith("sqlite"):
            holder.execute(sa.text("SELECT pg_advisory_xact_lock(:l)"), {"l": LOCK})
        with pytest.raises(KennelError) as caught:
            await asyncio.wait_for(log.append(P, "/a", [new()]), 5)
        assert (caught.value.code, caught.value.admitted) == ("LOG_UNAVAILABLE", "no")
        assert len(await log.read(P, "/a")) == 2
    [event] = await log.append(P, "/a", [new()])
    assert event.offset == 3


async def test_nobody_waits_for_a_lock_for_ever(log, log_url):
    with log.engine.connect() as connection:
        if log_url.startswith("sqlite"):
            assert connection.execute(sa.text("PRAGMA busy_timeout")).scalar() == BUSY_MS
        else:
            assert connection.execute(sa.text("SHOW lock_timeout")).scalar() == f"{BUSY_MS // 1000}s"
            assert connection.execute(sa.text("SHOW idle_in_transaction_session_timeout")).scalar() == "10s"
