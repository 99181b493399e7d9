"""Owns the listener of previews: accepts visitors, bounds how many there are, and reaches servers in sandboxes.

Made by the process, which sweeps it. Invariant: a visitor reaches only what its address names; too many connections
wait in the kernel's queue, idle ones make room first; nothing of one sandbox's visitors takes another's places but the
total, and no visitor takes a sandbox's own way out.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import time

from kennel.domain.preview import Base
from kennel.gateway.context import Context
from kennel.gateway.preview_link import PreviewLink
from kennel.gateway.previews import Previews
from kennel.gateway.registry import Sandbox
from kennel.gateway.stock import Stocks
from kennel.gateway.upstream import Upstream
from kennel.wire import gateway as wire
from kennel.wire.errors import error

_AT_ONCE = 16
_REST = 0.1
# A server on `localhost` may listen on either loopback, one on its host's name on the sandbox's own address.
_PLACES = (
    (socket.AF_INET, "127.0.0.1"),
    (socket.AF_INET6, "::1"),
    (socket.AF_INET, wire.ADDRESS),
    (socket.AF_INET6, wire.ADDRESS_6),
)

log = logging.getLogger("kennel.gateway.previews")


class PreviewDoor:
    """The way in for visitors."""

    def __init__(self, context: Context, listener: socket.socket, base: Base, previews: Previews) -> None:
        self.context, self.base, self.previews = context, base, previews
        self.stocks = Stocks()
        self._listener = listener
        self._links: set[PreviewLink] = set()
        self._arriving: set[asyncio.Task[None]] = set()
        self._resting = False
        listener.setblocking(False)
        asyncio.get_running_loop().add_reader(listener.fileno(), self._accept)

    def close(self) -> None:
        asyncio.get_running_loop().remove_reader(self._listener.fileno())
        self._listener.close()
        for task in list(self._arriving):
            task.cancel()
        for link in list(self._links):
            link.let_go()
            if link.transport is not None:
                link.transport.abort()

    def sweep(self, now: float) -> None:
        """Closes what is overdue."""
        for link in list(self._links):
            link.overdue(now)
        self.stocks.sweep(now, self.context.registry.sandboxes.values())

    # Visitors.

    def _accept(self) -> None:
        for _ in range(_AT_ONCE):
            if len(self._links) + len(self._arriving) >= self.context.options.preview_connections:
                self._make_room()
                self._rest()
                return
            try:
                visitor, address = self._listener.accept()
            except BlockingIOError:
                return
            except OSError as failure:
                if failure.errno not in (errno.ECONNABORTED, errno.EINTR):
                    log.warning("a visitor did not arrive: %s", failure)
                    self._rest()
                return
            visitor.setblocking(False)
            visitor.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            task = asyncio.get_running_loop().create_task(self._begin(visitor, str(address[0])))
            self._arriving.add(task)
            task.add_done_callback(self._arriving.discard)

    async def _begin(self, visitor: socket.socket, address: str) -> None:
        try:
            await asyncio.get_running_loop().connect_accepted_socket(lambda: PreviewLink(self, address), visitor)
        except OSError as failure:
            log.debug("a visitor left at the door: %s", failure)
            visitor.close()

    def _rest(self) -> None:
        """Stops accepting for a moment: who connects waits in the kernel's queue."""
        if not self._resting:
            self._resting = True
            loop = asyncio.get_running_loop()
            loop.remove_reader(self._listener.fileno())
            loop.call_later(_REST, self._wake)

    def _wake(self) -> None:
        self._resting = False
        if self._listener.fileno() >= 0:
            asyncio.get_running_loop().add_reader(self._listener.fileno(), self._accept)

    def _make_room(self) -> None:
        """Closes the connections that have been idle for longest."""
        now = time.monotonic()
        idle = sorted((link for link in self._links if link.idle(now)), key=lambda link: link.deadline)
        for link in idle[: max(1, len(self._links) // 16)]:
            if link.transport is not None:
                link.transport.close()

    def enter(self, link: PreviewLink) -> bool:
        """A connection is made."""
        self._links.add(link)
        return self._listener.fileno() >= 0

    def leave(self, link: PreviewLink) -> None:
        self._links.discard(link)

    # Servers.

    async def reach(self, sandbox: Sandbox, port: int) -> Upstream:
        """A connection to whatever listens on a port inside; SERVICE_NOT_RESPONDING."""
        why = "nothing listens there"
        deadline = time.monotonic() + self.context.options.connect_timeout
        for family, address in _PLACES:
            link = await self.stocks.take(sandbox, family)
            try:
                async with asyncio.timeout(max(0.0, deadline - time.monotonic())):
                    await asyncio.get_running_loop().sock_connect(link, (address, port))
                _, upstream = await asyncio.get_running_loop().create_connection(Upstream, sock=link)
            except TimeoutError:
                link.close()
                why = "it does not accept connections"
                break
            except OSError as failure:
                link.close()
                if failure.errno != errno.ECONNREFUSED:
                    why = failure.strerror or str(failure)
            except BaseException:
                link.close()
                raise
            else:
                if sandbox.gone:
                    upstream.abort()
                    raise error("STALE_PREVIEW_URL", "the sandbox is gone")
                return upstream
        raise error("SERVICE_NOT_RESPONDING", f"port {port} of the sandbox: {why}", admitted="no")
