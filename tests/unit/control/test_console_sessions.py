"""The console's sessions on the log: another process finds them, and what is over stays over."""

from __future__ import annotations

import pytest

from kennel.control.console_sessions import ConsoleSessions
from kennel.domain.console_session import MAX_AGE_SECONDS, MAX_SESSIONS, Book, Kept, add
from kennel.domain.principal import Principal
from kennel.ports.event_log import EventLog

pytestmark = pytest.mark.anyio

ANA = Principal("key_1", None, frozenset({"read"}))


async def test_a_session_outlasts_the_process_until_it_is_closed(log: EventLog) -> None:
    first = ConsoleSessions(log)
    await first.open(ANA, "aa" * 32)
    await first.open(ANA, "bb" * 32)
    await first.close(ANA, "bb" * 32)
    await first.close(ANA, "cc" * 32)
    second = ConsoleSessions(log)
    found = await second.find("aa" * 32)
    assert found is not None
    assert found.holder == "key_1"
    assert await second.find("bb" * 32) is None
    await second.close(ANA, "aa" * 32)
    assert await first.find("aa" * 32) is None


def test_the_book_is_bounded_in_number_and_age() -> None:
    book: Book = {}
    for number in range(MAX_SESSIONS + 5):
        add(book, str(number), Kept("k", number / 1000))
    assert len(book) == MAX_SESSIONS
    assert "4" not in book
    add(book, "late", Kept("k", MAX_AGE_SECONDS + 100))
    assert list(book) == ["late"]
