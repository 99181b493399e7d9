"""How the answer of a token endpoint is read, byte by byte if need be, and given up in words."""

from __future__ import annotations

import asyncio

import pytest

from kennel.domain.denial import Refused
from kennel.gateway.refresher import _MOST, _Call
from kennel.gateway.upstream import Upstream

pytestmark = pytest.mark.anyio
OK = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n"


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def answered(*parts: bytes, ends: bool = False) -> tuple[int, bytes]:
    """What is read of these bytes; Refused as the call says it."""
    upstream, call = Upstream(), _Call()
    upstream.begin(call, b"", bodiless=False)
    for part in parts:
        upstream.data_received(part)
    if ends:
        upstream.connection_lost(None)
    async with asyncio.timeout(1):
        return await call.answer


async def test_an_answer_however_it_is_cut() -> None:
    whole = OK + b"content-length: 4\r\n\r\n{  }"
    assert await answered(whole) == (200, b"{  }")
    assert await answered(*(whole[n : n + 1] for n in range(len(whole)))) == (200, b"{  }")
    chunks = OK + b"transfer-encoding: chunked\r\n\r\n2\r\n{ \r\n2\r\n }\r\n0\r\n\r\n"
    assert await answered(chunks) == (200, b"{  }")
    assert await answered(OK + b"\r\n{}", ends=True) == (200, b"{}")
    early = b"HTTP/1.1 103 Early Hints\r\nlink: <x>\r\n\r\n"
    assert await answered(early * 3 + b"HTTP/1.1 400 Bad\r\ncontent-length: 0\r\n\r\n") == (400, b"")


@pytest.mark.parametrize(
    ("parts", "code"),
    [
        ([OK + b"content-encoding: gzip\r\ncontent-length: 2\r\n\r\nxx"], "upstream_malformed"),
        ([OK + b"content-length: 2\r\ncontent-length: 2\r\n\r\nxx"], "upstream_malformed"),
        ([OK + b"transfer-encoding: chunked\r\n\r\n10000\r\n", b"x" * 65536 + b"\r\n1\r\nx\r\n"], "upstream_malformed"),
        ([b"HTTP/1.1 101 Switching Protocols\r\nupgrade: h2c\r\nconnection: upgrade\r\n\r\n"], "upstream_malformed"),
        ([b"SSH-2.0-OpenSSH_9.2\r\n"], "upstream_malformed"),
        ([OK + b"content-length: 9\r\n\r\nhalf"], "upstream_malformed"),
        ([], "upstream_closed"),
    ],
)  # fmt: skip
async def test_what_is_no_answer_is_refused(parts: list[bytes], code: str) -> None:
    with pytest.raises(Refused) as caught:
        await answered(*parts, ends=True)
    assert caught.value.code == code
    assert "half" not in caught.value.detail


async def test_a_body_without_end_is_not_kept() -> None:
    upstream, call = Upstream(), _Call()
    upstream.begin(call, b"", bodiless=False)
    upstream.data_received(OK + b"\r\n")
    for _ in range(_MOST // 1000 + 1):
        upstream.data_received(b"x" * 1000)
    with pytest.raises(Refused, match="too long"):
        await call.answer
