"""Owns the way out: look up once, check every answer, dial one checked address, speak TLS for exactly that name.

Called by exchanges and tunnels after policy. Invariant: what is dialled was checked in the same breath; the host's own
addresses and those of `domain.destination` are never dialled; the certificate is verified for the name, TLS >= 1.2.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from typing import TypeVar, cast

from kennel.domain.denial import Refused
from kennel.domain.destination import Openings, refusal
from kennel.domain.egress_host import Address
from kennel.domain.policy import SHUT_PORTS
from kennel.gateway.resolver import Resolver
from kennel.gateway.tls_link import TlsLink

P = TypeVar("P", bound=asyncio.Protocol)
_PATIENCE = 2.0
"""Seconds after which the next checked address is tried as well."""


class Dialler:
    """Makes connections to checked addresses."""

    def __init__(self, resolver: Resolver, openings: Openings, extra_roots: str | None, timeout: float) -> None:
        self._resolver, self._openings, self._timeout = resolver, openings, timeout
        # One context for all: loading the system's roots takes 17 ms.
        self.context = ssl.create_default_context()
        self.context.minimum_version = ssl.TLSVersion.TLSv1_2
        self.context.set_alpn_protocols(["http/1.1"])
        if extra_roots is not None:
            self.context.load_verify_locations(extra_roots)

    async def connect(
        self, factory: Callable[[], P], host: str, port: int, *, tls: bool, trusted: bool = False
    ) -> tuple[asyncio.Transport, P]:
        """A connection to host:port; `trusted` skips the range check (for the one configured model gateway).

        Raises Refused: `name_not_found`, `destination_refused`, `connect_failed`, `tls_failed`.
        """
        if port in SHUT_PORTS:
            raise Refused("port_closed", f"port {port} is closed for every host")
        try:
            async with asyncio.timeout(self._timeout):
                link = await self._dial(host, port, trusted)
                return await self._speak(link, factory, host, tls)
        except TimeoutError:
            raise Refused("connect_failed", f"{host}:{port} did not answer in {self._timeout:g} s") from None

    async def _dial(self, host: str, port: int, trusted: bool) -> socket.socket:
        addresses = await self._resolver.addresses(host)
        why = None if trusted else refusal(host, port, addresses, self._openings) or own_address(host, addresses)
        if why is not None:
            raise Refused("destination_refused", why)
        failure: OSError | None = None
        for address in addresses[:4]:
            try:
                return await self._one(address, port, last=address == addresses[:4][-1])
            except OSError as caught:
                failure = caught
        raise Refused("connect_failed", f"{host}:{port}: {failure.strerror if failure else 'no address'}")

    async def _one(self, address: Address, port: int, *, last: bool) -> socket.socket:
        family = socket.AF_INET6 if address.version == 6 else socket.AF_INET
        # IPPROTO_TCP by name: event loops set TCP_NODELAY only then.
        link = socket.socket(
            family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC, socket.IPPROTO_TCP
        )
        try:
            connecting = asyncio.get_running_loop().sock_connect(link, (str(address), port))
            await (connecting if last else asyncio.wait_for(connecting, _PATIENCE))
        except TimeoutError:
            link.close()
            if last:
                raise
            raise OSError(110, "timed out") from None
        except BaseException:
            link.close()
            raise
        return link

    async def _speak(
        self, link: socket.socket, factory: Callable[[], P], host: str, tls: bool
    ) -> tuple[asyncio.Transport, P]:
        loop = asyncio.get_running_loop()
        try:
            if not tls:
                return await loop.create_connection(factory, sock=link)
            app = factory()
            secure = TlsLink(self.context, app, server_side=False, server_hostname=host)
            await loop.create_connection(lambda: secure, sock=link)
            try:
                await secure.ready
            except BaseException:
                secure.abort()
                raise
            return cast(asyncio.Transport, secure), app
        except ssl.SSLError as failure:
            link.close()
            words = getattr(failure, "verify_message", "") or failure.reason or "handshake failed"
            raise Refused("tls_failed", f"{host}: {words}") from None
        except OSError as failure:
            link.close()
            raise Refused("connect_failed", f"{host}: {failure.strerror or failure}") from None
        except BaseException:
            link.close()
            raise


def own_address(host: str, addresses: list[Address]) -> str | None:
    """Why an address is this machine's own, or None: the kernel would answer it from the same address."""
    for address in addresses:
        family = socket.AF_INET6 if address.version == 6 else socket.AF_INET
        with socket.socket(family, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as probe:
            try:
                # Of a datagram socket, connect sends nothing: it only picks a route and a source.
                probe.connect((str(address), 9))
            except OSError:
                continue
            if probe.getsockname()[0] == str(address):
                return f"{host} has the address {address} (this machine's own)"
    return None
