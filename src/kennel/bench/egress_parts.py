"""Owns the processes of `kennel bench egress` beside the gateway: a host with its resolver, control's chair, the load.

Started by bench/egress as `python -m kennel.bench.egress_parts PART JSON`, each inside the namespace it belongs to.
Invariant: the load is the same bytes for whatever stands between it and the host.
"""

from __future__ import annotations

import asyncio
import ipaddress
import json
import os
import socket
import ssl
import sys
import time
from typing import Any

HOST, SITE = "bench.example.com", "93.184.216.34"
SMALL, LARGE = "/small", "/large"
LARGE_BYTES = 64 * 1024 * 1024


async def site(told: dict[str, Any]) -> None:
    """Answers HTTPS on the site's address, and DNS with it."""
    from kennel.gateway import dns_message as dns

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(told["chain"])
    small = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
    piece = b"x" * 262_144

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                if LARGE.encode() not in head.split(b"\r\n")[0]:
                    writer.write(small)
                    continue
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % LARGE_BYTES)
                for _ in range(LARGE_BYTES // len(piece)):
                    writer.write(piece)
                    await writer.drain()
        except (asyncio.IncompleteReadError, OSError):
            writer.close()

    class Names(asyncio.DatagramProtocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            self.transport: Any = transport

        def datagram_received(self, data: bytes, addr: Any) -> None:
            question = dns.parse_question(data)
            found = [(dns.A, 60, ipaddress.ip_address(SITE).packed)] if question.type == dns.A else []
            self.transport.sendto(dns.answer(question, found), addr)

    loop = asyncio.get_running_loop()
    await loop.create_datagram_endpoint(Names, local_addr=(told["resolver"], 53))
    server = await asyncio.start_server(talk, SITE, 443, ssl=context)
    print("ready", flush=True)
    await server.serve_forever()


async def desk(told: dict[str, Any]) -> None:
    """Says whose the sandbox is and that everything may pass; takes the audit."""
    from kennel.adapters.gateway_client.link import GatewayClient
    from kennel.wire import gateway as wire

    os.setresgid(told["uid"], told["uid"], told["uid"])
    os.setresuid(told["uid"], told["uid"], told["uid"])
    client = GatewayClient(told["socket"])

    async def arrived(_: wire.Facts) -> None:
        client.tell(wire.SetPolicy("bench", {"rules": []}))
        client.tell(wire.Bind(told["sandbox"], "bench", "/sandboxes/bench"))
        print("ready", flush=True)

    async def hear(notice: wire.Notice) -> None:
        if isinstance(notice, wire.Records):
            client.tell(wire.Acknowledge(notice.first + len(notice.records) - 1))

    client.start(arrived, hear)
    await asyncio.Event().wait()


async def load(told: dict[str, Any]) -> None:
    """Asks for `seconds` over `connections`, and prints how often it was answered, or how many bytes came."""
    context = ssl.create_default_context(cafile=told["roots"])
    # Looked up once: a sandbox's questions have a rate, and mitmproxy is asked none.
    [(*_, address)] = await asyncio.get_running_loop().getaddrinfo(
        told["address"], told["port"], family=socket.AF_INET, type=socket.SOCK_STREAM
    )
    end, count = time.monotonic() + told["seconds"], 0
    request = f"GET {told['path']} HTTP/1.1\r\nhost: {HOST}\r\n\r\n".encode()

    async def connect() -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection(
            str(address[0]), told["port"], ssl=context, server_hostname=HOST, limit=1 << 20
        )

    async def one() -> None:
        nonlocal count
        reader, writer = await connect()
        while time.monotonic() < end:
            writer.write(request)
            head = await reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200"), head
            left = LARGE_BYTES if told["path"] == LARGE else 2
            if b"chunked" in head.lower():
                raise RuntimeError("the answer's framing was changed")
            while left:
                left -= len(await reader.read(min(left, 1 << 20)))
            count += LARGE_BYTES if told["path"] == LARGE else 1
            if told["fresh"]:
                writer.transport.abort()
                reader, writer = await connect()
        writer.transport.abort()

    begun = time.monotonic()
    await asyncio.gather(*(one() for _ in range(told["connections"])))
    print(json.dumps({"count": count, "seconds": time.monotonic() - begun}))


if __name__ == "__main__":
    import uvloop

    uvloop.run({"site": site, "desk": desk, "load": load}[sys.argv[1]](json.loads(sys.argv[2])))
