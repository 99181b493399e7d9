"""Owns keeping a service's memory to itself: no core file, no look by another process of its user.

Called by the services through which secrets pass. Invariant: root can still look, nobody else can; it costs nothing.
"""

from __future__ import annotations

import ctypes
import resource

_PR_SET_DUMPABLE = 4


def close_memory() -> None:
    """From here on until the process ends or becomes another program."""
    ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
