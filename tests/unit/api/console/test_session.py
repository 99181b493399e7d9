"""Sessions end by idleness, by age, by number and by hand."""

from __future__ import annotations

import pytest

from kennel.api.console.session import IDLE_SECONDS, MAX_AGE_SECONDS, Sessions


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_a_session_is_found_by_its_cookie_alone() -> None:
    sessions = Sessions()
    cookie, session = sessions.open("key_1")
    assert sessions.find(cookie) is session
    assert sessions.find(cookie[:-1]) is None
    assert sessions.find("") is None
    assert sessions.find("\udcff") is None
    assert cookie not in repr(vars(sessions))


@pytest.mark.parametrize(("step", "times", "lives"), [
    (IDLE_SECONDS - 1, 1, True), (IDLE_SECONDS + 1, 1, False), (IDLE_SECONDS - 1, 13, True),
    (IDLE_SECONDS - 1, 15, False),
])  # fmt: skip
def test_idleness_and_age(step: float, times: int, lives: bool) -> None:
    clock = Clock()
    sessions = Sessions(clock=clock)
    cookie, _ = sessions.open("key_1")
    for _ in range(times):
        clock.now += step
        found = sessions.find(cookie)
    assert (found is not None) is lives
    assert len(sessions) == int(lives)
    assert 13 * IDLE_SECONDS < MAX_AGE_SECONDS < 15 * IDLE_SECONDS


def test_the_longest_unused_goes_first() -> None:
    sessions = Sessions(most=2)
    first, second = sessions.open("a")[0], sessions.open("b")[0]
    sessions.find(first)
    sessions.open("c")
    assert sessions.find(first) is not None
    assert sessions.find(second) is None


def test_notices_are_told_once_and_bounded() -> None:
    _, session = Sessions().open("a")
    for number in range(10):
        session.tell(str(number))
    assert session.take_notices() == ["6", "7", "8", "9"]
    assert session.take_notices() == []
