"""Owns one running sandbox as control sees it: the guest's connection, and the watch over its container's life.

Called by fleet. Invariant: when the container's PID 1 ends, every pending call of its guest ends in the same turn of
the event loop with a typed error, and the loss is told once to whoever asked to know.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable
from contextlib import suppress

from kennel.ports.guest import Guest
from kennel.wire.errors import KennelError, error


class Live:
    """A sandbox that runs; `lost` is called once if it ends without `release` having been called."""

    def __init__(self, sandbox: str, guest: Guest, pidfd: int, lost: Callable[[Live], None]) -> None:
        self.sandbox = sandbox
        self.guest = guest
        self.oom_kills = 0
        self.watch: asyncio.Task[None] | None = None
        self.watch_wanted = False
        self._pidfd = pidfd
        self._lost = lost
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(pidfd, self._ended)

    @property
    def usable(self) -> bool:
        """Whether the guest can be asked for something now."""
        return self._pidfd >= 0 and not self.guest.closed

    def _ended(self) -> None:
        self._forget()
        self.guest.abort(error("SANDBOX_LOST", "the sandbox ended during the call", retry_after_ms=100))
        self._lost(self)

    def _forget(self) -> None:
        if self._pidfd >= 0:
            self._loop.remove_reader(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = -1

    async def release(self, reason: KennelError) -> None:
        """Lets go of the guest: pending calls raise `reason`, and the container's end is no loss any more."""
        self._forget()
        self.guest.abort(reason)
        with suppress(KennelError, OSError):
            await self.guest.close()


def dispose(connection: socket.socket, pidfd: int) -> None:
    """Closes what a connect answered, when nothing came of it."""
    connection.close()
    os.close(pidfd)
