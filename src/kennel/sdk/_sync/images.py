# Generated from sdk/_async by tools/make_sync.py; change it there.
"""Owns the list of images that a server can make sandboxes from.

Called by programs through `itx.images`. Invariant: reading only; images are built on the server's machine.
"""

from __future__ import annotations

import builtins

from kennel.sdk._sync.transport import Transport
from kennel.sdk.answers import ImageList, ImageView


class Images:
    """The images of an installation."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def list(self) -> builtins.list[ImageView]:
        """Every image that is here, by name and digest."""
        answer = self._transport.call("GET", "/v1/images", ImageList, repeat=True)
        return answer.images
