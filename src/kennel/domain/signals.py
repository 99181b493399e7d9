"""Owns the names of signals; no I/O.

Called by whoever takes a signal from a caller. Invariant: what comes out is a number that Linux knows.
"""

from __future__ import annotations

import signal

from kennel.wire.errors import error

LAST = 64
NAMES = tuple(one.name for one in signal.Signals)


def signal_number(asked: object) -> int:
    """The number of a signal given as a number, `SIGINT` or `INT`; VALIDATION_FAILED otherwise."""
    if isinstance(asked, int) and not isinstance(asked, bool) and 1 <= asked <= LAST:
        return asked
    if isinstance(asked, str):
        word = asked.upper()
        if word.isdigit() and len(word) <= 2 and 1 <= int(word) <= LAST:
            return int(word)
        found = getattr(signal.Signals, word if word.startswith("SIG") else f"SIG{word}", None)
        if isinstance(found, signal.Signals):
            return int(found)
    message = f"a signal's name such as 'SIGTERM', or a number from 1 to {LAST}"
    raise error("VALIDATION_FAILED", "invalid request", details={"signal": [message]}, admitted="no")
