"""Owns the guest's place among the processes of its own sandbox: a little before them, far before them while it kills.

Called by unit after a container has started. Invariant: only PID 1 gets it; the guest's children give it up before they
run anything. (A fork bomb in a quarter of a CPU died 5 to 9 s after its limit so, and lived on for 45 s without.)
"""

from __future__ import annotations

import logging
import os
import resource

log = logging.getLogger("kennel.node")

NICE = -5
_ALL_OF_IT = 40
"""RLIMIT_NICE 40 lets a process raise itself to nice -20."""


def favour(pid: int) -> None:
    """Prefers `pid`; a node that lacks a capability for it says so and goes on."""
    try:
        os.setpriority(os.PRIO_PROCESS, pid, NICE)
        resource.prlimit(pid, resource.RLIMIT_NICE, (_ALL_OF_IT, _ALL_OF_IT))
    except ProcessLookupError:
        return  # it has ended already; whoever waits for its greeting will be told
    except PermissionError as refused:
        # Without CAP_SYS_RESOURCE the limit stays: fork bombs then take longer to end.
        log.debug("guest %d keeps its limits: %s", pid, refused)
