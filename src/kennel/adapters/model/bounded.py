"""Owns the connection to a model's server: how much it may send, and what it may not do.

Called by the chat adapter. Invariants: no answer brings more than MAX_BYTES into memory, compressed or not; the key
goes to the configured server alone: redirects are not followed, proxies of the environment not used.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx2

MAX_BYTES = 16 * 1024 * 1024
"""Of one answer: a stream spends some 200 bytes on a piece of a few characters."""


class Bounded(httpx2.AsyncBaseTransport):
    """A transport whose answers end with an error when they grow past `most` bytes."""

    def __init__(self, inner: httpx2.AsyncBaseTransport, most: int = MAX_BYTES) -> None:
        self._inner = inner
        self._most = most

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        response = await self._inner.handle_async_request(request)
        if response.headers.get("content-encoding", "identity").lower() != "identity":
            await response.aclose()
            raise httpx2.DecodingError("the answer is compressed, though that was not asked for", request=request)
        assert isinstance(response.stream, httpx2.AsyncByteStream)
        response.stream = _Counted(response.stream, self._most)
        return response

    async def aclose(self) -> None:
        await self._inner.aclose()


class _Counted(httpx2.AsyncByteStream):
    def __init__(self, inner: httpx2.AsyncByteStream, most: int) -> None:
        self._inner = inner
        self._left = most

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for part in self._inner:
            self._left -= len(part)
            if self._left < 0:
                raise httpx2.ReadError("the answer is too large")
            yield part

    async def aclose(self) -> None:
        await self._inner.aclose()


def make_client(connect_seconds: float, idle_seconds: float) -> httpx2.AsyncClient:
    """A client for one model's server; times are seconds."""
    limits = httpx2.Limits(max_connections=64, max_keepalive_connections=8)
    return httpx2.AsyncClient(
        transport=Bounded(httpx2.AsyncHTTPTransport(limits=limits, trust_env=False)),
        timeout=httpx2.Timeout(idle_seconds, connect=connect_seconds),
        headers={"accept-encoding": "identity"},
        follow_redirects=False,
        trust_env=False,
    )
