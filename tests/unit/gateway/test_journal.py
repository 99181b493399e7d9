"""The journal: in order, once each, across restarts, a cut line, absences and a full disk of records."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from kennel.domain.denial import Refused
from kennel.gateway.journal import Journal
from kennel.wire.egress import Record


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Log:
    """Control's side: takes frames, acknowledges when told."""

    def __init__(self, journal: Journal, *, acknowledge: bool = True) -> None:
        self.journal, self.acknowledge = journal, acknowledge
        self.rows: list[tuple[int, str]] = []

    def __call__(self, frame: bytes) -> None:
        body: dict[str, Any] = json.loads(frame[4:])
        first, records = body["first"], body["records"]
        self.rows += [(first + at, record["url"]) for at, record in enumerate(records)]
        if self.acknowledge:
            through = first + len(records) - 1
            asyncio.get_running_loop().call_soon(self.journal.acknowledge, through)


def record(number: int) -> Record:
    return Record(kind="decision", url=f"u{number}")


def wanted(*numbers: int) -> list[tuple[int, str]]:
    return [(number, f"u{number}") for number in numbers]


@pytest.mark.anyio
async def test_everything_arrives_once_and_in_order(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j", 10**8, 1.0)
    for number in range(1, 4):
        assert journal.write(record(number)) == number
    journal.note(record(4))
    log = Log(journal)
    journal.connect(log)
    await journal.commit(record(5))
    await asyncio.sleep(0.15)
    assert log.rows == wanted(1, 2, 3, 4, 5)
    assert journal.acknowledged == 5
    journal.close()


@pytest.mark.anyio
async def test_what_was_not_acknowledged_is_sent_again_after_a_crash(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j", 10**8, 1.0)
    log = Log(journal)
    journal.connect(log)
    await journal.commit(record(1))
    await asyncio.sleep(0.1)
    log.acknowledge = False
    journal.write(record(2))
    journal.write(record(3))
    await asyncio.sleep(0.1)
    ledger = journal.ledger
    # No close: the process was killed, in the middle of a line.
    newest = max((tmp_path / "j").glob("*.jsonl"))
    with newest.open("ab") as file:
        file.write(b'{"kind":"deci')
    again = Journal(tmp_path / "j", 10**8, 1.0)
    assert (again.ledger, again.acknowledged, again.last) == (ledger, 1, 3)
    second = Log(again)
    again.connect(second)
    await again.commit(record(4))
    assert second.rows == wanted(2, 3, 4)
    again.close()


@pytest.mark.anyio
async def test_without_the_log_nothing_is_committed(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j", 10**8, 0.1)
    with pytest.raises(Refused, match="audit_unavailable"):
        await journal.commit(record(1))
    journal.connect(Log(journal, acknowledge=False))
    with pytest.raises(Refused, match="audit_unavailable"):
        await journal.commit(record(2))
    waiting = asyncio.ensure_future(journal.commit(record(3)))
    await asyncio.sleep(0)
    journal.disconnect()
    with pytest.raises(Refused, match="audit_unavailable"):
        await waiting
    journal.acknowledge(99)
    assert journal.acknowledged == 0
    journal.close()


@pytest.mark.anyio
async def test_files_are_bounded_and_go_when_they_were_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kennel.gateway.journal._SEGMENT", 500)
    journal = Journal(tmp_path / "j", 3000, 1.0)
    number = 0
    while not journal.full:
        number += 1
        journal.write(record(number))
    assert len(list((tmp_path / "j").glob("*.jsonl"))) > 3
    waiting = asyncio.ensure_future(journal.room())
    await asyncio.sleep(0.05)
    assert not waiting.done()
    log = Log(journal)
    journal.connect(log)
    await asyncio.wait_for(waiting, 2)
    while journal.acknowledged < number:
        await asyncio.sleep(0.01)
    assert log.rows == wanted(*range(1, number + 1))
    assert len(list((tmp_path / "j").glob("*.jsonl"))) <= 2
    journal.close()
