# Generated from sdk/_async by tools/make_sync.py; change it there.
"""Owns an answer that is read while it is still being written.

Called by this half's following of streams and exports. Invariant: its connection is given back exactly once, by whoever
reads; `hang_up` only wakes the reader.
"""

from __future__ import annotations

from contextlib import AbstractContextManager

import httpcore2

from kennel.sdk.failures import BROKEN, hang_up, lost


class Reply:
    """The body of one good answer, piece by piece."""

    def __init__(
        self, exchange: AbstractContextManager[httpcore2.Response], response: httpcore2.Response, url: str
    ) -> None:
        self._exchange, self._response, self._url = exchange, response, url
        self._pieces = response.iter_stream()
        self._open = True

    @property
    def headers(self) -> list[tuple[bytes, bytes]]:
        """The answer's headers."""
        return list(self._response.headers)

    def read(self) -> bytes | None:
        """The next piece; None at the proper end, CONNECTION_LOST at any other."""
        try:
            return next(self._pieces, None)
        except BROKEN as failure:
            raise lost(failure, self._url) from failure

    def hang_up(self) -> None:
        """Ends the connection under the reader, from any thread or task."""
        hang_up(self._response)

    def close(self) -> None:
        """Gives the connection back."""
        if self._open:
            self._open = False
            self._exchange.__exit__(None, None, None)
