"""Owns the list of images that a server can make sandboxes from.

Called by programs through `itx.images`. Invariant: reading only; images are built on the server's machine.
"""

from __future__ import annotations

import builtins

from kennel.sdk._async.transport import AsyncTransport
from kennel.sdk.answers import ImageList, ImageView


class AsyncImages:
    """The images of an installation."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def list(self) -> builtins.list[ImageView]:
        """Every image that is here, by name and digest."""
        answer = await self._transport.call("GET", "/v1/images", ImageList, repeat=True)
        return answer.images
