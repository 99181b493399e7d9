"""Owns one visitor's connection to previews, and the connection to a server in a sandbox that it keeps for itself.

Made by the preview door. Invariant: what it holds of a sandbox is registered with the sandbox and with the preview, so
that either can cut it; another preview on the same connection begins with a connection of its own.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from kennel.gateway.client_link import ClientLink
from kennel.gateway.previews import Preview
from kennel.gateway.registry import Sandbox
from kennel.gateway.request_reader import Incoming
from kennel.gateway.upstream import Upstream
from kennel.gateway.visit import Visit

if TYPE_CHECKING:
    from kennel.gateway.preview_door import PreviewDoor

_REUSE = 4.0
"""Seconds for which an idle connection is used again: servers of Node close theirs after five."""
_RESTED = 0.5
"""Seconds after which a connection that is not used may have to make room."""


class PreviewLink(ClientLink[Visit]):
    """One connection; `visitor` is the address it comes from."""

    def __init__(self, door: PreviewDoor, visitor: str) -> None:
        super().__init__(door.context.options)
        self.door: Final = door
        self.visitor: Final = visitor
        self.upstream: Upstream | None = None
        self._rested = time.monotonic()
        self._preview: Preview | None = None
        self._sandbox: Sandbox | None = None

    def _serve(self, incoming: Incoming) -> Visit:
        return Visit(self, incoming)

    def _arrived(self) -> bool:
        return self.door.enter(self)

    def _left(self) -> None:
        self.let_go()
        self.door.leave(self)

    def idle(self, now: float) -> bool:
        """Whether nothing was asked on it for a while."""
        return self.exchange is None and not self._reader.partial and now - self._rested > _RESTED

    def done(self, *, keep: bool) -> None:
        self._rested = time.monotonic()
        super().done(keep=keep)

    # Called by visits.

    def look_at(self, preview: Preview) -> None:
        """What is asked for from now on; what was held of another preview is let go."""
        if self._preview is not preview:
            self.let_go()
            self._preview = preview
            preview.links.add(self)

    def stand_in(self, sandbox: Sandbox) -> None:
        """The sandbox that serves it, before a socket of it is held."""
        if self._sandbox is not sandbox:
            self._drop_upstream()
            if self._sandbox is not None:
                self._sandbox.visits.discard(self)
            self._sandbox = sandbox
            sandbox.visits.add(self)

    def at_hand(self) -> Upstream | None:
        """The connection of the last request, if it can be trusted with another."""
        upstream = self.upstream
        if upstream is not None and (not upstream.usable or time.monotonic() - upstream.idle_since > _REUSE):
            self._drop_upstream()
        return self.upstream

    def keep(self, upstream: Upstream | None) -> None:
        """Keeps a connection for the next request, or forgets the one there was."""
        self.upstream = upstream

    def _drop_upstream(self) -> None:
        upstream, self.upstream = self.upstream, None
        if upstream is not None:
            upstream.abort()

    def let_go(self) -> None:
        """Holds nothing of any sandbox."""
        self._drop_upstream()
        if self._sandbox is not None:
            self._sandbox.visits.discard(self)
            self._sandbox = None
        if self._preview is not None:
            self._preview.links.discard(self)
            self._preview = None

    def overdue(self, now: float) -> None:
        """Closes a connection whose time is over; an idle one keeps no server waiting."""
        if self.exchange is None and self.upstream is not None and now - self.upstream.idle_since > _REUSE:
            self.let_go()
        super().overdue(now)

    # Called by previews, the registry and the door.

    def cut(self, why: str) -> None:
        """Ends what goes on now: with a reason where none of an answer went out yet."""
        self.let_go()
        if self.exchange is not None:
            self.exchange.cut(why)
