"""Owns the gateway while it lets nothing through: a process without privilege that refuses by not being reachable.

Called by assemble. Invariant: a sandbox's network namespace has no link that leaves it and no listener in it, so every
connection and every look-up fails inside, whether this process runs or not.
"""

from __future__ import annotations

import ctypes
import logging
import signal

_PR_SET_DUMPABLE = 4

log = logging.getLogger("kennel.gateway")


def serve() -> None:
    """Holds the gateway's place until it is told to end."""
    ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
    log.info("no egress: sandboxes have no network but their own loopback")
    signal.sigwait({signal.SIGTERM, signal.SIGINT})
