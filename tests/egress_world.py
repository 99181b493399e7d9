"""Owns the small internet that egress tests run in: namespaces, public-looking addresses, a resolver, servers, a CA.

Used by tests/flow and tests/attack. Invariant: nothing here can reach the machine's real network: the gateway under
test stands in a namespace whose only link leads to a namespace of the test.
"""

from __future__ import annotations

import datetime
import ipaddress
import json
import os
import socket
import ssl
import struct
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from kennel.gateway import dns_message as dns
from kennel.node import interception, netns
from kennel.settings import GATEWAY_UID

GATEWAY_4, WORLD_4 = "45.45.0.2", "45.45.0.1"
GATEWAY_6, WORLD_6 = "2a0a:1::2", "2a0a:1::1"
RESOLVER = "45.45.0.1:53"
SITE, SITE_6 = "93.184.216.34", "2606:2800:220:1::34"
OTHER = "93.184.216.99"
# Addresses that nobody may be led to; servers stand on them all the same, so that a leak would be seen.
FORBIDDEN = ("10.0.0.5", "169.254.169.254", "192.168.7.7", "172.16.3.3", "100.64.1.1")


# What a gateway may never send, whatever a test asks of it; counted by the kernel where its sockets are, so that no
# thread has to listen. The exceptions: its resolver, and the two that tests open in an installation's settings.
WATCH = f"""
table inet watch {{
  counter inward {{ }}
  counter datagrams {{ }}
  counter mail {{ }}
  counter others {{ }}
  chain out {{
    type filter hook output priority 0; policy accept;
    meta skuid {GATEWAY_UID} jump sent
  }}
  chain sent {{
    ip daddr {WORLD_4} udp dport 53 return
    meta l4proto udp counter name datagrams
    meta l4proto != {{ tcp, udp }} counter name others
    tcp flags & (syn | ack) != syn return
    ip daddr 10.0.0.5 tcp dport {{ 8080, 9000 }} return
    tcp dport 25 counter name mail
    ip daddr {{ 0.0.0.0/8, 10.0.0.0/8, 100.64.0.0/10, 127.0.0.0/8, 169.254.0.0/16, 172.16.0.0/12, 192.0.0.0/24,
      192.0.2.0/24, 192.88.99.0/24, 192.168.0.0/16, 198.18.0.0/15, 198.51.100.0/24, 203.0.113.0/24, 224.0.0.0/3,
      {GATEWAY_4} }} counter name inward
    ip6 daddr {{ ::/3, 2001::/23, 2001:db8::/32, 2002::/16, fc00::/7, fe80::/10, ff00::/8,
      {GATEWAY_6} }} counter name inward
  }}
}}
"""


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


def within(handle: Path, *words: str) -> None:
    subprocess.run(["nsenter", f"--net={handle}", *words], check=True, capture_output=True)


class Authority:
    """A certificate authority of the test's own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Test root")])
        now = datetime.datetime.now(datetime.UTC)
        self._certificate = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(name)
            .public_key(self._key.public_key())
            .serial_number(1)
            .not_valid_before(now - datetime.timedelta(days=1))
            .not_valid_after(now + datetime.timedelta(days=9))
            .add_extension(x509.BasicConstraints(True, None), True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(self._key.public_key()), False)
            .sign(self._key, hashes.SHA256())
        )
        self.roots = folder / "roots.pem"
        self.roots.write_bytes(self._certificate.public_bytes(serialization.Encoding.PEM))
        self._made = 0

    def context(self, *names: str, minimum: ssl.TLSVersion = ssl.TLSVersion.TLSv1_2) -> ssl.SSLContext:
        """A server's context for these names."""
        key = ec.generate_private_key(ec.SECP256R1())
        now = datetime.datetime.now(datetime.UTC)
        general = []
        for name in names:
            try:
                general.append(x509.IPAddress(ipaddress.ip_address(name)))
            except ValueError:
                general.append(x509.DNSName(name))
        self._made += 1
        leaf = (
            x509.CertificateBuilder()
            .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[0][:60])]))
            .issuer_name(self._certificate.subject)
            .public_key(key.public_key())
            .serial_number(self._made + 1)
            .not_valid_before(now - datetime.timedelta(days=1))
            .not_valid_after(now + datetime.timedelta(days=5))
            .add_extension(x509.SubjectAlternativeName(general), False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), False)
            .sign(self._key, hashes.SHA256())
        )
        file = self._folder / f"leaf{self._made}.pem"
        pem = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        file.write_bytes(pem + leaf.public_bytes(serialization.Encoding.PEM))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = minimum
        context.load_cert_chain(file)
        return context


Handler = Callable[["Heard", socket.socket], None]


class Heard:
    """One connection to a test server: all that came, request by request."""

    def __init__(self) -> None:
        self.requests: list[bytes] = []
        self.raw = b""

    def read_request(self, link: socket.socket) -> bytes | None:
        """The next whole request (head and body), or None at the end."""
        while b"\r\n\r\n" not in self.raw:
            more = link.recv(65536)
            if not more:
                return None
            self.raw += more
        head, _, rest = self.raw.partition(b"\r\n\r\n")
        fields = {n.strip().lower(): v.strip() for n, _, v in (x.partition(b":") for x in head.split(b"\r\n")[1:])}
        if b"transfer-encoding" in fields:
            while b"0\r\n\r\n" not in rest:
                rest += link.recv(65536)
            body, rest = rest.split(b"0\r\n\r\n", 1)
            body += b"0\r\n\r\n"
        else:
            length = int(fields.get(b"content-length", b"0"))
            while len(rest) < length:
                more = link.recv(65536)
                if not more:
                    return None
                rest += more
            body, rest = rest[:length], rest[length:]
        self.raw = rest
        request = head + b"\r\n\r\n" + body
        self.requests.append(request)
        return request


def reply(body: bytes = b"ok", *fields: str, status: str = "200 OK") -> bytes:
    lines = [f"HTTP/1.1 {status}", f"content-length: {len(body)}", *fields]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def answering(*replies: bytes) -> Handler:
    """A handler that answers requests with these bytes, the last for ever."""

    def handle(heard: Heard, link: socket.socket) -> None:
        for number in range(10**6):
            if heard.read_request(link) is None:
                return
            link.sendall(replies[min(number, len(replies) - 1)])

    return handle


class Server:
    """A TCP server in the world, one thread per connection."""

    def __init__(self, world: World, address: str, port: int, handler: Handler, tls: ssl.SSLContext | None) -> None:
        self.handler, self._tls = handler, tls
        self.connections: list[Heard] = []
        family = socket.AF_INET6 if ":" in address else socket.AF_INET

        def make() -> socket.socket:
            made = socket.socket(family, socket.SOCK_STREAM)
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            made.bind((address, port))
            made.listen(128)
            return made

        self._listener = interception.inside(world.outside, make)
        threading.Thread(target=self._serve, daemon=True).start()

    @property
    def requests(self) -> list[bytes]:
        return [request for heard in list(self.connections) for request in heard.requests]

    def _serve(self) -> None:
        while True:
            try:
                link, _ = self._listener.accept()
            except OSError:
                return
            heard = Heard()
            self.connections.append(heard)
            threading.Thread(target=self._talk, args=(heard, link), daemon=True).start()

    def _talk(self, heard: Heard, link: socket.socket) -> None:
        with suppress(OSError, ssl.SSLError), link:
            link.settimeout(30)
            if self._tls is not None:
                with self._tls.wrap_socket(link, server_side=True) as wrapped:
                    self.handler(heard, wrapped)
            else:
                self.handler(heard, link)

    def close(self) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()


class NameServer:
    """A resolver that answers from a table; every question is kept."""

    def __init__(self, world: World) -> None:
        self.names: dict[str, list[str] | Callable[[int], list[str]]] = {}
        self.records: dict[tuple[str, int], list[tuple[int, int, bytes]]] = {}
        self.asked: list[tuple[str, int]] = []

        def make() -> socket.socket:
            made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            made.bind((WORLD_4, 53))
            return made

        self._socket = interception.inside(world.outside, make)
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                message, asker = self._socket.recvfrom(4096)
            except OSError:
                return
            with suppress(dns.Malformed, OSError):
                question = dns.parse_question(message)
                self.asked.append((question.name, question.type))
                self._socket.sendto(self._answer(question), asker)

    def _answer(self, question: dns.Question) -> bytes:
        if (question.name, question.type) in self.records:
            return dns.answer(question, self.records[question.name, question.type])
        known = self.names.get(question.name)
        if known is None:
            return dns.answer(question, [], dns.NXDOMAIN)
        count = sum(1 for name, kind in self.asked if name == question.name and kind == dns.A)
        addresses = [ipaddress.ip_address(a) for a in (known(count) if callable(known) else known)]
        version = 4 if question.type == dns.A else 6
        return dns.answer(question, [(question.type, 1, a.packed) for a in addresses if a.version == version])

    def close(self) -> None:
        # A datagram to itself: a thread in recvfrom does not notice a close.
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


class World:
    """Two namespaces with one link between them: the gateway's, and all that lies outside."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.inner, self.outside = folder / "gateway.net", folder / "outside.net"
        netns.create(self.inner)
        netns.create(self.outside)
        within(self.outside, "ip", "link", "add", "w0", "type", "veth", "peer", "name", "g0")
        within(self.outside, "ip", "link", "set", "g0", "netns", str(self.inner))
        for handle, link, four, six in (
            (self.outside, "w0", WORLD_4, WORLD_6),
            (self.inner, "g0", GATEWAY_4, GATEWAY_6),
        ):
            within(handle, "ip", "addr", "add", f"{four}/16", "dev", link)
            within(handle, "ip", "addr", "add", f"{six}/64", "dev", link, "nodad")
            within(handle, "ip", "link", "set", link, "up")
        within(self.inner, "ip", "route", "add", "default", "via", WORLD_4)
        within(self.inner, "ip", "-6", "route", "add", "default", "via", WORLD_6)
        for address in (SITE, OTHER, *FORBIDDEN):
            within(self.outside, "ip", "addr", "add", f"{address}/32", "dev", "lo")
        within(self.outside, "ip", "addr", "add", f"{SITE_6}/128", "dev", "lo", "nodad")
        subprocess.run(
            ["nsenter", f"--net={self.inner}", "nft", "-f", "-"], input=WATCH.encode(), check=True, capture_output=True
        )
        self.authority = Authority(folder)
        self.resolver = NameServer(self)
        self.servers: list[Server] = []

    def serve(
        self, address: str = SITE, port: int = 443, handler: Handler | None = None, tls: ssl.SSLContext | None = None
    ) -> Server:
        server = Server(self, address, port, handler or answering(reply()), tls)
        self.servers.append(server)
        return server

    def site(self, *names: str, port: int = 443, handler: Handler | None = None, address: str = SITE) -> Server:
        """An HTTPS server for these names, which resolve to it."""
        for name in names:
            self.resolver.names[name] = [address]
        return self.serve(address, port, handler, self.authority.context(*names))

    def clear(self) -> None:
        """Takes down every server and forgets every name."""
        for server in self.servers:
            server.close()
        self.servers.clear()
        self.resolver.names.clear()
        self.resolver.records.clear()
        self.resolver.asked.clear()

    def strayed(self) -> dict[str, int]:
        """Packets of a gateway that may never leave it, by kind, since the world was made."""
        words = ["nsenter", f"--net={self.inner}", "nft", "-j", "list", "counters", "table", "inet", "watch"]
        rows = json.loads(subprocess.run(words, check=True, capture_output=True).stdout)["nftables"]
        found = {row["counter"]["name"]: int(row["counter"]["packets"]) for row in rows if "counter" in row}
        assert len(found) == 4
        return {name: count for name, count in found.items() if count}

    @contextmanager
    def capture(self) -> Iterator[list[bytes]]:
        """IP packets that the gateway's side sends while the block runs (without ARP and neighbour discovery)."""

        def make() -> socket.socket:
            made = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
            made.bind(("w0", 0))
            made.settimeout(0.05)
            return made

        tap = interception.inside(self.outside, make)
        packets: list[bytes] = []
        done = threading.Event()

        def listen() -> None:
            while not done.is_set():
                with suppress(TimeoutError):
                    frame, address = tap.recvfrom(65535)
                    if address[2] != socket.PACKET_OUTGOING and _is_traffic(frame):
                        packets.append(frame)

        thread = threading.Thread(target=listen)
        thread.start()
        try:
            yield packets
            time.sleep(0.15)
        finally:
            done.set()
            thread.join()
            tap.close()

    def close(self) -> None:
        self.clear()
        self.resolver.close()
        for handle in (self.inner, self.outside):
            netns.remove(handle)


def _is_traffic(frame: bytes) -> bool:
    (kind,) = struct.unpack_from(">H", frame, 12)
    if kind == 0x0800:
        return True
    return kind == 0x86DD and frame[20] != 58 and frame[20] != 0


def drop_to(uid: int) -> None:
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
