"""Owns unconnected sockets that stand in sandboxes' namespaces: asked of node, each given to one visit.

Called by the preview door (take) and the process (what node says). Invariant: a socket is of the namespace that is
attached now, one that comes late is closed unseen; when its sandbox goes none is kept; a stock that nobody used for a
minute is let go.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable, Iterable

from kennel.gateway.registry import Sandbox
from kennel.wire import gateway as wire
from kennel.wire.errors import KennelError, error

_PATIENCE = 5.0
_AGAIN = 1.0
"""Seconds after which an unanswered question is asked once more."""
_MOST = 2 * wire.PAIRS
_KEPT = 60.0

Ask = Callable[[wire.Need], None]


class Stock:
    """The sockets of one attached sandbox."""

    def __init__(self) -> None:
        self.kept: dict[int, list[socket.socket]] = {socket.AF_INET: [], socket.AF_INET6: []}
        self.asked = 0.0
        self.used = time.monotonic()
        self.fault = ""
        self._news: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def arrive(self, sockets: list[socket.socket], fault: str) -> None:
        """Keeps what came, at most so many of each family, and wakes whoever waits."""
        self.asked, self.fault = 0.0, fault
        for one in sockets:
            kept = self.kept[one.family]
            if len(kept) < _MOST:
                kept.append(one)
            else:
                one.close()
        news, self._news = self._news, asyncio.get_running_loop().create_future()
        news.set_result(None)

    async def news(self) -> None:
        await asyncio.shield(self._news)

    def close(self) -> None:
        for kept in self.kept.values():
            for one in kept:
                one.close()
            kept.clear()
        self.arrive([], "the sandbox is gone")


class Stocks:
    """The stocks of all sandboxes, and node's ear."""

    def __init__(self) -> None:
        self._ask: Ask | None = None
        self._stocked: set[Sandbox] = set()

    def supplied_by(self, ask: Ask | None) -> None:
        """Who is asked from now on; what was not answered is asked again."""
        self._ask = ask
        for sandbox in self._stocked:
            if sandbox.stock is not None and sandbox.stock.asked:
                sandbox.stock.asked = 0.0
                self._want(sandbox, sandbox.stock)

    def arrived(self, sandbox: Sandbox | None, message: wire.Sockets, sockets: list[socket.socket]) -> None:
        """What node made."""
        if sandbox is None or sandbox.attachment != message.attachment or sandbox.stock is None:
            for one in sockets:
                one.close()
            return
        sandbox.stock.arrive(sockets, message.fault)

    async def take(self, sandbox: Sandbox, family: int) -> socket.socket:
        """A socket of this sandbox's namespace; STALE_PREVIEW_URL when it is gone, NODE_UNAVAILABLE."""
        if sandbox.gone:
            raise error("STALE_PREVIEW_URL", "the sandbox is gone")
        stock = sandbox.stock
        if stock is None:
            stock = sandbox.stock = Stock()
            self._stocked.add(sandbox)
        stock.used = time.monotonic()
        try:
            async with asyncio.timeout(_PATIENCE):
                while not (kept := stock.kept[family]):
                    self._want(sandbox, stock)
                    await stock.news()
                    if stock.fault:
                        raise error("STALE_PREVIEW_URL", stock.fault)
        except TimeoutError as late:
            if isinstance(late, KennelError):
                raise
            raise error("NODE_UNAVAILABLE", "node makes no sockets at the moment", admitted="no") from None
        if len(kept) == 1:
            self._want(sandbox, stock)
        return kept.pop()

    def _want(self, sandbox: Sandbox, stock: Stock) -> None:
        now = time.monotonic()
        if now - stock.asked > _AGAIN:
            stock.asked = now
            if self._ask is not None:
                self._ask(wire.Need(sandbox.id, sandbox.attachment))

    def sweep(self, now: float, sandboxes: Iterable[Sandbox]) -> None:
        """Lets go of stocks that nobody uses."""
        self._stocked.intersection_update(sandboxes)
        for sandbox in list(self._stocked):
            stock = sandbox.stock
            if stock is not None and now - stock.used > _KEPT and not sandbox.visits:
                sandbox.stock = None
                stock.close()
                self._stocked.discard(sandbox)
