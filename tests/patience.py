"""Owns how long a test waits for what is promised within a time, on a machine that does other things as well.

Invariant: on an idle machine it is the promise itself; each busy neighbour of a core adds as much again, since it takes
half of the core.
"""

from __future__ import annotations

import os


def within(seconds: float) -> float:
    """`seconds`, stretched by the load of the last minute over the cores there are."""
    return seconds * (1 + os.getloadavg()[0] / (os.cpu_count() or 1))
