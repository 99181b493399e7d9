"""Owns the real look-up of a name, made only after the policy let the request pass: one look-up per connection made.

Called by the dialler and by DNS for record types a rule opens. Invariant: a look-up ends within its time; an answer is
taken only if it matches the question's number, name and type, from the server asked.
"""

from __future__ import annotations

import asyncio
import ipaddress
import secrets
import socket

from kennel.domain.denial import Refused
from kennel.domain.egress_host import Address, literal
from kennel.gateway.dns_message import AAAA, NOERROR, NXDOMAIN, A, Answer, Malformed, parse_answer, query

_TRIES, _WAIT = 3, 2.0
_MAX_TCP = 65_535


class Resolver:
    """Asks one DNS server by `address:port`, or the system's resolver when none is set."""

    def __init__(self, server: str | None) -> None:
        self._server: tuple[str, int] | None = None
        if server is not None:
            host, _, port = server.rpartition(":")
            self._server = (str(ipaddress.ip_address(host.strip("[]"))), int(port))

    async def addresses(self, host: str) -> list[Address]:
        """Every address of a name, IPv4 first; a literal is its own. Refused `name_not_found` without any."""
        own = literal(host)
        if own is not None:
            return [own]
        found = await (self._system(host) if self._server is None else self._asked(host))
        if not found:
            raise Refused("name_not_found", f"{host} has no address")
        return found

    async def _asked(self, host: str) -> list[Address]:
        four, six = await asyncio.gather(self.ask(host, A), self.ask(host, AAAA))
        return [*four.addresses, *six.addresses]

    async def _system(self, host: str) -> list[Address]:
        loop = asyncio.get_running_loop()
        try:
            # The dot keeps search lists of the machine out of it.
            rows = await asyncio.wait_for(
                loop.getaddrinfo(host + ".", 0, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP), 10.0
            )
        except (socket.gaierror, TimeoutError, UnicodeError):
            return []
        found = dict.fromkeys(ipaddress.ip_address(str(row[4][0]).partition("%")[0]) for row in rows)
        return sorted(found, key=lambda address: address.version)

    async def ask(self, name: str, kind: int) -> Answer:
        """One question, tried a few times over UDP, then over TCP when the answer is cut."""
        server = self._server or _system_server()
        if server is None:
            raise Refused("name_not_found", "this installation has no DNS server to ask")
        for _ in range(_TRIES):
            number = secrets.randbelow(65_536)
            message = query(number, name, kind)
            answer = await self._over_udp(server, message, number, name, kind)
            if answer is not None and answer.truncated:
                answer = await self._over_tcp(server, message, number, name, kind)
            if answer is not None:
                if answer.code not in (NOERROR, NXDOMAIN):
                    raise Refused("name_not_found", f"the DNS server failed on {name} (code {answer.code})")
                return answer
        raise Refused("name_not_found", f"the DNS server did not answer for {name}")

    async def _over_udp(
        self, server: tuple[str, int], message: bytes, number: int, name: str, kind: int
    ) -> Answer | None:
        loop = asyncio.get_running_loop()
        family = socket.AF_INET6 if ":" in server[0] else socket.AF_INET
        with socket.socket(family, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC) as link:
            try:
                # Connected: the kernel drops what comes from elsewhere; a new source port for every question.
                link.connect(server)
                await loop.sock_sendall(link, message)
                async with asyncio.timeout(_WAIT):
                    while True:
                        try:
                            return parse_answer(await loop.sock_recv(link, 65_535), number, name, kind)
                        except Malformed:
                            continue
            except (OSError, TimeoutError):
                return None

    async def _over_tcp(
        self, server: tuple[str, int], message: bytes, number: int, name: str, kind: int
    ) -> Answer | None:
        try:
            async with asyncio.timeout(_WAIT * 2):
                reader, writer = await asyncio.open_connection(*server)
                try:
                    writer.write(len(message).to_bytes(2, "big") + message)
                    size = int.from_bytes(await reader.readexactly(2), "big")
                    return parse_answer(await reader.readexactly(min(size, _MAX_TCP)), number, name, kind)
                finally:
                    writer.close()
        except (OSError, TimeoutError, EOFError, Malformed):
            return None


def _system_server() -> tuple[str, int] | None:
    try:
        with open("/etc/resolv.conf", encoding="ascii", errors="replace") as file:
            for line in file:
                words = line.split()
                if len(words) > 1 and words[0] == "nameserver" and (address := literal(words[1])) is not None:
                    return str(address), 53
    except OSError:
        return None
    return None
