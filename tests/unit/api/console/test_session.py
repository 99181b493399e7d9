"""Sessions end by idleness, by age, by number and by hand, and not with the process."""

from __future__ import annotations

from typing import Any

import pytest

from kennel.api.console.session import IDLE_SECONDS, Forgetful, Sessions
from kennel.domain.console_session import MAX_AGE_SECONDS, MAX_SESSIONS
from kennel.domain.principal import Principal

pytestmark = pytest.mark.anyio

ANA = Principal("key_1", None, frozenset({"read"}))


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


async def test_a_session_is_found_by_its_cookie_alone() -> None:
    sessions = Sessions()
    cookie, session = await sessions.open(ANA)
    assert await sessions.find(cookie) is session
    for wrong in (cookie[:-1], "", "\udcff"):
        assert await sessions.find(wrong) is None
    assert cookie not in repr(vars(sessions)) + repr(vars(sessions._book))
    assert session.form_token not in cookie


@pytest.mark.parametrize(("step", "times", "lives"), [
    (IDLE_SECONDS - 1, 1, True), (IDLE_SECONDS + 1, 1, False), (IDLE_SECONDS - 1, 13, True),
    (IDLE_SECONDS - 1, 15, False),
])  # fmt: skip
async def test_idleness_and_age(step: float, times: int, lives: bool) -> None:
    clock = Clock()
    sessions = Sessions(clock=clock)
    cookie, _ = await sessions.open(ANA)
    for _ in range(times):
        clock.now += step
        found = await sessions.find(cookie)
    assert (found is not None) is lives
    assert 13 * IDLE_SECONDS < MAX_AGE_SECONDS < 15 * IDLE_SECONDS


async def test_looking_whether_it_goes_on_is_no_use() -> None:
    clock = Clock()
    sessions = Sessions(clock=clock)
    cookie, _ = await sessions.open(ANA)
    for _ in range(3):
        clock.now += IDLE_SECONDS / 2
        found = await sessions.find(cookie, used=False)
    assert found is None


async def test_another_process_finds_it_and_what_it_ends_has_ended_here() -> None:
    clock = Clock()
    book = Forgetful(clock)
    first, second = Sessions(book, clock=clock), Sessions(book, clock=clock)
    cookie, before = await first.open(ANA)
    clock.now += MAX_AGE_SECONDS - 1
    after = await second.find(cookie)
    assert after is not None
    assert (after.key_id, after.form_token) == ("key_1", before.form_token)
    clock.now += 2
    assert await second.find(cookie) is None
    cookie, _ = await first.open(ANA)
    await second.close(cookie)
    assert await first.find(cookie) is None


async def test_the_oldest_goes_first() -> None:
    book: Any = Forgetful(Clock())
    for number in range(MAX_SESSIONS + 1):
        await book.open(ANA, str(number))
    assert await book.find("0") is None
    assert await book.find("1") is not None


async def test_notices_are_told_once_and_bounded() -> None:
    _, session = await Sessions().open(ANA)
    for number in range(10):
        session.tell(str(number))
    assert session.take_notices() == ["6", "7", "8", "9"]
    assert session.take_notices() == []
