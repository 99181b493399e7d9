"""Owns who comes before others for the CPU: a guest in its own sandbox, and the pass that a frozen sandbox waits for.

Called by unit after a container has started, and by packer. Invariant: of a sandbox only PID 1 gets it; the guest's
children give it up before they run anything (a fork bomb in a quarter of a CPU died 5 to 9 s after its limit so, and
lived on for 45 s without); a pass has it for three seconds at most.
"""

from __future__ import annotations

import logging
import os
import resource
from contextlib import suppress
from pathlib import Path

log = logging.getLogger("kennel.node")

NICE = -5
URGENT = -15
_ALL_OF_IT = 40
"""RLIMIT_NICE 40 lets a process raise itself to nice -20."""


def hurry(job: int, nice: int = URGENT) -> None:
    """Prefers the process that the one behind the pidfd `job` waits for, if that can be; with 0 no longer."""
    with suppress(OSError, ValueError):
        rows = dict(line.split(":", 1) for line in Path(f"/proc/self/fdinfo/{job}").read_text().splitlines())
        parent = int(rows["Pid"])
        for child in Path(f"/proc/{parent}/task/{parent}/children").read_text().split():
            os.setpriority(os.PRIO_PROCESS, int(child), nice)


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
