"""Owns the way in: accepts from one sandbox's listeners, finds out where a connection goes, and hands it on.

Called by the registry for every attached sandbox. Invariant: the sandbox is known by the listener alone; the address it
chose is never dialled; one sandbox's flood waits at its own door; a listener that breaks ends its own sandbox only.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import ipaddress
import logging
import socket
import ssl
import struct
import time

from kennel.domain.denial import Refused
from kennel.domain.egress_host import literal, normal_host
from kennel.domain.policy import Subject
from kennel.gateway import client_hello
from kennel.gateway.bucket import Bucket
from kennel.gateway.client_hello import ClientHello, NotTls
from kennel.gateway.context import Context
from kennel.gateway.conversation import Conversation
from kennel.gateway.dns_service import DnsService, serve_stream
from kennel.gateway.judge import Place
from kennel.gateway.names import synthetic
from kennel.gateway.registry import Sandbox
from kennel.gateway.tls_link import TlsLink
from kennel.gateway.tunnel import splice
from kennel.wire.egress import Record

_ORIGINAL_DST = 80
_SOL_IP, _SOL_IPV6 = 0, 41
_AT_ONCE = 16
_METHOD_BYTES = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZ-")
_PASSING = frozenset((errno.ECONNABORTED, errno.EINTR, errno.EPROTO, errno.ENETDOWN, errno.EHOSTUNREACH))
_SCARCE = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM))

log = logging.getLogger("kennel.gateway.entrance")


class Entrance:
    """The listeners of one sandbox."""

    def __init__(self, context: Context, sandbox: Sandbox, listeners: list[socket.socket]) -> None:
        self._context, self._sandbox = context, sandbox
        self._streams, datagrams = listeners[:2], listeners[2:]
        self._own = {listener.getsockname()[:2] for listener in self._streams}
        options = context.options
        self._bucket = Bucket(options.connections_per_second, options.connection_burst, time.monotonic())
        self._open = 0
        self._resting = False
        self._closed = False
        self._links: set[socket.socket] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._dns = DnsService(context, sandbox, datagrams)
        self._listen(True)

    def close(self) -> None:
        """Lets go of every socket of the namespace."""
        self._closed = True
        self._listen(False)
        self._dns.close()
        for listener in self._streams:
            listener.close()
        for task in list(self._tasks):
            task.cancel()
        for link in list(self._links):
            _let_go(link)
        self._context.drop_idle(self._sandbox)

    def _listen(self, on: bool) -> None:
        loop = asyncio.get_running_loop()
        for listener in self._streams:
            if on:
                loop.add_reader(listener.fileno(), self._accept, listener)
            else:
                loop.remove_reader(listener.fileno())

    def _rest(self, seconds: float) -> None:
        """Stops accepting for a while: who connects waits in the kernel's queue."""
        if not self._resting and not self._closed:
            self._resting = True
            self._listen(False)
            asyncio.get_running_loop().call_later(seconds, self._wake)

    def _wake(self) -> None:
        if self._closed or not self._resting:
            return
        if self._open + len(self._sandbox.live) >= self._context.options.max_connections:
            asyncio.get_running_loop().call_later(0.1, self._wake)
            return
        self._resting = False
        self._listen(True)

    def _accept(self, listener: socket.socket) -> None:
        for _ in range(_AT_ONCE):
            if self._closed or self._resting:
                return
            if self._open + len(self._sandbox.live) >= self._context.options.max_connections:
                self._rest(0.1)
                return
            if not self._bucket.take(time.monotonic()):
                self._rest(max(0.005, self._bucket.wait()))
                return
            try:
                link, _ = listener.accept()
            except BlockingIOError:
                return
            except OSError as failure:
                self._accept_failed(failure)
                return
            link.setblocking(False)
            self._begin(link)

    def _accept_failed(self, failure: OSError) -> None:
        if failure.errno in _PASSING:
            return
        if failure.errno in _SCARCE:
            self._rest(0.5)
            return
        # A listener that the sandbox broke would fail for ever: this sandbox loses its network, nobody spins.
        log.error("the listener of sandbox %s is broken: %s", self._sandbox.id, failure)
        self._context.registry.detach(self._sandbox.id)

    def _begin(self, link: socket.socket) -> None:
        self._open += 1
        self._links.add(link)
        task = asyncio.get_running_loop().create_task(self._guarded(link))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _guarded(self, link: socket.socket) -> None:
        try:
            await self._admit(link)
        except (Refused, OSError, TimeoutError) as failure:
            log.debug("a connection of %s ended at the door: %s", self._sandbox.id, failure)
            _reset(link)
        except Exception:
            log.exception("a connection of %s failed at the door", self._sandbox.id)
            _reset(link)
        finally:
            self._open -= 1
            self._links.discard(link)

    async def _admit(self, link: socket.socket) -> None:
        address, port = _original(link)
        if (address, port) in self._own:
            self._refused("connect", address, port, Refused("protocol_refused", "the gateway's own port"))
            raise Refused("protocol_refused", "the gateway's own port")
        if port == 53:
            await serve_stream(self._context, self._sandbox, link)
            return
        number = synthetic(address)
        host = address if number is None else self._sandbox.names.name_of(number)
        fault = None if host is not None else Refused("name_unknown", f"no name was looked up for {address}")
        host = host or address
        subject = Subject(self._sandbox.path, host, port)
        mode = self._mode(subject) if fault is None else "http"
        if mode == "tcp":
            await self._splice(subject, "tcp", link)
            return
        kind, hello = await self._sniff(link)
        if kind == "tls" and hello is not None:
            await self._tls(link, host, port, hello, fault, subject)
        elif kind == "http":
            await self._talk(link, Place(self._sandbox, "http", host, port, fault), None)
        else:
            refused = Refused("protocol_refused", f"{host}:{port} is not spoken to in HTTP or TLS")
            self._refused("connect", host, port, refused)
            raise refused

    def _mode(self, subject: Subject) -> str:
        project, policy = self._sandbox.project, None
        if project is not None:
            policy = project.policy
        return policy.mode(subject) if policy is not None else "http"

    async def _tls(
        self, link: socket.socket, host: str, port: int, hello: ClientHello, fault: Refused | None, subject: Subject
    ) -> None:
        named = normal_host(hello.server_name) if hello.server_name is not None else None
        if hello.server_name is not None and named is None:
            fault = fault or Refused("name_invalid", "the TLS server name is no plain host name")
        elif named is None and literal(host) is None:
            fault = fault or Refused("sni_missing", f"TLS to {host} without a server name")
        elif named is not None and named != host:
            fault = fault or Refused("name_mismatch", f"the TLS server name is {named}, the connection goes to {host}")
        if fault is None and self._mode(subject) == "passthrough":
            await self._splice(subject, "passthrough", link)
            return
        if hello.protocols is not None and b"http/1.1" not in hello.protocols:
            refused = fault or Refused("http2_only", f"{host}: the client does not offer http/1.1")
            self._refused("tls", host, port, refused)
            with contextlib.suppress(OSError):
                link.send(client_hello.alert(client_hello.NO_APPLICATION_PROTOCOL))
            await asyncio.sleep(0.05)
            link.close()
            return
        context = self._context.authority.context(named or host)
        await self._talk(link, Place(self._sandbox, "https", host, port, fault), context)

    async def _talk(self, link: socket.socket, place: Place, tls: ssl.SSLContext | None) -> None:
        conversation = Conversation(self._context, place)
        loop = asyncio.get_running_loop()
        try:
            if tls is None:
                await loop.connect_accepted_socket(lambda: conversation, link)
            else:
                secure = TlsLink(tls, conversation, server_side=True)
                await loop.connect_accepted_socket(lambda: secure, link)
                try:
                    async with asyncio.timeout(self._context.options.hello_timeout):
                        await secure.ready
                except BaseException:
                    secure.abort()
                    raise
        except (ssl.SSLError, ConnectionError, TimeoutError) as failure:
            words = getattr(failure, "reason", None) or str(failure) or type(failure).__name__
            self._note("tls", place.host, place.port, f"the sandbox's TLS handshake failed: {words}")
            raise

    async def _splice(self, subject: Subject, mode: str, link: socket.socket) -> None:
        try:
            await splice(self._context, self._sandbox, subject, "tcp" if mode == "tcp" else "passthrough", link)
        except Refused as refused:
            self._refused("tunnel", subject.host, subject.port, refused)
            raise

    async def _sniff(self, link: socket.socket) -> tuple[str, ClientHello | None]:
        """`tls` with its hello, `http`, or `other`: by the first bytes, which stay in the kernel."""
        async with asyncio.timeout(self._context.options.hello_timeout):
            least = 1
            while True:
                peeked = await _peek(link, least)
                if not peeked or len(peeked) < least:
                    return "other", None
                if peeked[0] in _METHOD_BYTES:
                    return "http", None
                try:
                    hello = client_hello.parse(peeked)
                except NotTls:
                    return "other", None
                if hello is not None:
                    return "tls", hello
                least = len(peeked) + 1
                if least > client_hello.MAX_PEEK:
                    return "other", None

    def _refused(self, layer: str, host: str, port: int, refused: Refused) -> None:
        self._context.journal.write(self._record("decision", layer, host, port, refused.code, refused.detail))

    def _note(self, layer: str, host: str, port: int, detail: str) -> None:
        self._context.journal.note(self._record("note", layer, host, port, "", detail))

    def _record(self, kind: str, layer: str, host: str, port: int, code: str, detail: str) -> Record:
        project = self._sandbox.project
        return Record(
            kind="decision" if kind == "decision" else "note",
            layer=layer,  # type: ignore[arg-type]
            request=self._context.number(),
            project=project.name if project is not None else "",
            sandbox=self._sandbox.path or self._sandbox.id,
            host=host,
            port=port,
            verdict="deny" if code else None,
            code=code,
            detail=detail,
        )


def _original(link: socket.socket) -> tuple[str, int]:
    """The address the sandbox connected to, before the kernel sent it here."""
    if link.family == socket.AF_INET:
        raw = link.getsockopt(_SOL_IP, _ORIGINAL_DST, 16)
        port, packed = struct.unpack_from(">H4s", raw, 2)
        return str(ipaddress.IPv4Address(packed)), port
    raw = link.getsockopt(_SOL_IPV6, _ORIGINAL_DST, 28)
    port, _, packed = struct.unpack_from(">HI16s", raw, 2)
    address = ipaddress.IPv6Address(packed)
    return str(address.ipv4_mapped or address), port


async def _peek(link: socket.socket, least: int) -> bytes:
    """At least so many bytes without taking them, fewer only when the sandbox has ended its side."""
    try:
        peeked = link.recv(client_hello.MAX_PEEK, socket.MSG_PEEK)
        if len(peeked) >= least or not peeked:
            return peeked
    except BlockingIOError:
        pass
    loop = asyncio.get_running_loop()
    # Peeked bytes leave a socket readable for ever; the low-water mark makes the kernel wait for more than those.
    link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, least)
    ready: asyncio.Future[None] = loop.create_future()
    loop.add_reader(link.fileno(), _set, ready)
    try:
        await ready
    finally:
        if link.fileno() >= 0:
            loop.remove_reader(link.fileno())
            link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)
    return link.recv(client_hello.MAX_PEEK, socket.MSG_PEEK)


def _let_go(link: socket.socket) -> None:
    """Closes a socket that is still at the door; one that a transport has taken over ends with its task."""
    if link.fileno() >= 0:
        with contextlib.suppress(RuntimeError):
            asyncio.get_running_loop().remove_reader(link.fileno())
            link.close()


def _set(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)


def _reset(link: socket.socket) -> None:
    """Closes so that the other side sees a reset, not an orderly end."""
    if link.fileno() >= 0:
        with contextlib.suppress(OSError):
            link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        link.close()
