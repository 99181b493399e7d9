"""TLS over memory buffers: nothing is lost when a peer closes while the reader is paused."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path
from typing import cast

import pytest

from egress_world import Authority
from kennel.gateway.authority import Authority as Own
from kennel.gateway.tls_link import TlsLink


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Reader(asyncio.Protocol):
    """Pauses after every piece, and remembers how it ended."""

    def __init__(self) -> None:
        self.got = b""
        self.over: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.transport.write(b"go")

    def data_received(self, data: bytes) -> None:
        self.got += data
        self.transport.pause_reading()
        asyncio.get_running_loop().call_later(0.002, self.transport.resume_reading)

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.over.done():
            self.over.set_result(self.got)


async def dial(factory: type[Reader], context: ssl.SSLContext, port: int, name: str) -> Reader:
    app = factory()
    link = TlsLink(context, app, server_side=False, server_hostname=name)
    await asyncio.get_running_loop().create_connection(lambda: link, "127.0.0.1", port)
    await link.ready
    return app


@pytest.mark.anyio
async def test_a_slow_reader_gets_all_of_what_a_closing_peer_sent(tmp_path: Path) -> None:
    authority, body = Authority(tmp_path), b"0123456789" * 200_000
    trust = ssl.create_default_context(cafile=str(authority.roots))

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(2)
        writer.write(body)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=authority.context("a.example.com"))
    port = server.sockets[0].getsockname()[1]
    for _ in range(3):
        app = await dial(Reader, trust, port, "a.example.com")
        assert await asyncio.wait_for(app.over, 20) == body
    with pytest.raises(ssl.SSLError):
        await dial(Reader, trust, port, "b.example.com")
    server.close()


@pytest.mark.anyio
async def test_server_side_with_a_leaf_of_the_gateway(tmp_path: Path) -> None:
    own = Own(tmp_path)
    again = Own(tmp_path)
    assert own.pem == again.pem
    assert (tmp_path / "authority.pem").stat().st_mode & 0o777 == 0o600
    served: list[Reader] = []

    def accept() -> TlsLink:
        served.append(Reader())
        return TlsLink(own.context("a.example.com"), served[-1], server_side=True)

    server = await asyncio.get_running_loop().create_server(accept, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    trust = ssl.create_default_context(cadata=again.pem)
    trust.verify_flags |= ssl.VERIFY_X509_STRICT
    trust.set_alpn_protocols(["h2", "http/1.1"])
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trust, server_hostname="a.example.com")
    assert await reader.readexactly(2) == b"go"
    assert writer.get_extra_info("ssl_object").selected_alpn_protocol() == "http/1.1"
    writer.write(b"x" * 100_000)
    await writer.drain()
    writer.close()
    assert await asyncio.wait_for(served[0].over, 5) == b"x" * 100_000
    with pytest.raises(ssl.SSLError):
        await asyncio.open_connection("127.0.0.1", port, ssl=trust, server_hostname="other.example.com")
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET / HTTP/1.1\r\n\r\n")
    await asyncio.wait_for(reader.read(), 5)
    writer.close()
    server.close()
