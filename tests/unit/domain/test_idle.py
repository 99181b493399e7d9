"""`sleepAfter`: what is read as which time, and when a pet may fall asleep."""

from __future__ import annotations

from typing import Any

import pytest

from kennel.domain import idle
from kennel.wire.errors import InvalidRequest


@pytest.mark.parametrize(
    ("given", "seconds"), [(None, 600), (1, 1), (0.5, 0.5), ("30s", 30), ("5m", 300), ("2h", 7200), (86400, 86400)]
)
def test_readable(given: Any, seconds: float) -> None:
    assert idle.seconds(given) == seconds


@pytest.mark.parametrize(
    "given",
    [0, -1, "0s", "", "5", "5d", "5 m", "m", "-5m", "1.5h", "5M", "٣s", True, float("nan"), float("inf"), "9" * 400],
)
def test_refused_before_it_is_stored(given: Any) -> None:
    with pytest.raises(InvalidRequest) as caught:
        idle.seconds(given)
    assert caught.value.code == "VALIDATION_FAILED"
    assert "sleepAfter" in caught.value.details


@pytest.mark.parametrize(
    ("now", "last", "tickets", "limit", "keep", "falls"),
    [
        (100, 90, 0, 10, False, True),
        (99, 90, 0, 10, False, False),
        (100, 90, 1, 10, False, False),
        (1000, 90, 0, 10, True, False),
    ],
)
def test_expired(now: float, last: float, tickets: int, limit: float, keep: bool, falls: bool) -> None:
    assert idle.expired(now, last, tickets, limit, keep) is falls
