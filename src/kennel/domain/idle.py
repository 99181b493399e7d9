"""Owns when a pet may fall asleep by itself: reading `sleepAfter`, and the rule of expiry.

Called by the API before anything is stored, and by control's idle timer. Invariant: a value that is not a positive
time is refused before it reaches the log.
"""

from __future__ import annotations

import re

from kennel.wire.errors import error

DEFAULT_SECONDS = 600.0
_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0}
_TEXT = re.compile(r"([0-9]{1,9})([smh])")
_LONGEST = 10 * 365 * 86400.0


def seconds(sleep_after: str | int | float | None) -> float:
    """Seconds of idleness before sleep: a positive number of seconds or `30s`, `5m`, `2h`; None is 10 minutes.

    Raises VALIDATION_FAILED for anything else.
    """
    if sleep_after is None:
        return DEFAULT_SECONDS
    value = -1.0
    if isinstance(sleep_after, str):
        match = _TEXT.fullmatch(sleep_after)
        if match:
            value = int(match[1]) * _UNITS[match[2]]
    elif not isinstance(sleep_after, bool):
        value = float(sleep_after)
    if not 0 < value <= _LONGEST:
        message = "sleepAfter is a positive number of seconds, or like '30s', '5m', '2h'"
        raise error("VALIDATION_FAILED", "invalid request", details={"sleepAfter": [message]}, admitted="no")
    return value


def expired(now: float, last_activity: float, tickets: int, sleep_after: float, keep_alive: bool) -> bool:
    """Whether a live pet may be put to sleep: nothing is in progress and the last activity is long enough ago."""
    return not keep_alive and tickets == 0 and now - last_activity >= sleep_after
