"""Owns a sandbox's DNS: every name gets a synthetic address at once; nothing about a question leaves the host.

Called by the entrance (UDP listeners; TCP by `serve_stream`). Invariant: the real look-up is made by the dialler after
policy; only record types that a rule opens for a name are asked outside; questions over the rate wait.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import socket
import time

from kennel.domain.denial import Refused
from kennel.domain.egress_host import normal_name
from kennel.gateway import dns_message as dns
from kennel.gateway.bucket import Bucket
from kennel.gateway.context import Context
from kennel.gateway.names import TTL
from kennel.gateway.registry import Sandbox
from kennel.wire.egress import Record

_AT_ONCE = 32
_MAX_STREAM_QUESTIONS = 100
_MAX_OUTSIDE = 16
_LOCAL = (".local", ".internal", ".localdomain", ".home.arpa", ".onion")
_OUTSIDE = frozenset((dns.TXT, dns.SRV, dns.MX, dns.CNAME))

log = logging.getLogger("kennel.gateway.dns")


class DnsService:
    """The datagram listeners of one sandbox."""

    def __init__(self, context: Context, sandbox: Sandbox, listeners: list[socket.socket]) -> None:
        self._context, self._sandbox, self._listeners = context, sandbox, listeners
        rate = context.options.questions_per_second
        self._bucket = Bucket(rate, max(rate, 1.0), time.monotonic())
        self._resting = False
        self._closed = False
        self._outside = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._listen(True)

    def close(self) -> None:
        self._closed = True
        self._listen(False)
        for listener in self._listeners:
            listener.close()
        for task in list(self._tasks):
            task.cancel()

    def _listen(self, on: bool) -> None:
        loop = asyncio.get_running_loop()
        for listener in self._listeners:
            if on:
                loop.add_reader(listener.fileno(), self._readable, listener)
            else:
                loop.remove_reader(listener.fileno())

    def _wake(self) -> None:
        if not self._closed and self._resting:
            self._resting = False
            self._listen(True)

    def _readable(self, listener: socket.socket) -> None:
        for _ in range(_AT_ONCE):
            if not self._bucket.take(time.monotonic()):
                self._resting = True
                self._listen(False)
                asyncio.get_running_loop().call_later(max(0.005, self._bucket.wait()), self._wake)
                return
            try:
                message, asker = listener.recvfrom(4096)
            except BlockingIOError:
                return
            except OSError as failure:
                log.info("DNS of %s: %s", self._sandbox.id, failure)
                return
            self._handle(listener, message, asker)

    def _handle(self, listener: socket.socket, message: bytes, asker: tuple[str, int]) -> None:
        reply = answer_at_once(self._context, self._sandbox, message)
        if isinstance(reply, dns.Question):
            if self._outside < _MAX_OUTSIDE:
                task = asyncio.get_running_loop().create_task(self._ask_outside(listener, reply, asker))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
                return
            reply = dns.answer(reply, [], dns.SERVFAIL)
        _send(listener, reply, asker)

    async def _ask_outside(self, listener: socket.socket, question: dns.Question, asker: tuple[str, int]) -> None:
        self._outside += 1
        try:
            reply = await answer_outside(self._context, self._sandbox, question)
            if not self._closed:
                _send(listener, reply if len(reply) <= dns.MAX_UDP else dns.truncated(reply), asker)
        finally:
            self._outside -= 1


def _send(listener: socket.socket, reply: bytes | None, asker: tuple[str, int]) -> None:
    if reply is None:
        return
    try:
        listener.sendto(reply, asker)
    except OSError as failure:
        log.debug("a DNS answer was not taken: %s", failure)


def answer_at_once(context: Context, sandbox: Sandbox, message: bytes) -> bytes | dns.Question | None:
    """The answer, None when none is due, or the question when a rule sends it outside."""
    try:
        question = dns.parse_question(message)
    except dns.Malformed:
        return dns.format_error(message)
    if question.type == dns.PTR:
        return _pointer(sandbox, question)
    name = normal_name(question.name)
    if name is None or "." not in name or name.endswith(_LOCAL) or name.startswith("metadata."):
        return dns.answer(question, [], dns.NXDOMAIN)
    if question.type == dns.A:
        return _address(context, sandbox, question, name)
    if question.type in _OUTSIDE:
        project = sandbox.project
        if project is not None and project.policy is not None and project.policy.dns_types(sandbox.path, name):
            return question
    # Everything else exists and is empty: no AAAA, no HTTPS record (so no ECH), nothing that carries data out.
    return dns.answer(question, [])


def _address(context: Context, sandbox: Sandbox, question: dns.Question, name: str) -> bytes:
    given = sandbox.names.address_of(name, time.monotonic())
    if given is None:
        return dns.answer(question, [], dns.SERVFAIL)
    number, new = given
    if new:
        project = sandbox.project.name if sandbox.project is not None else ""
        context.journal.note(
            Record(kind="name", layer="dns", project=project, sandbox=sandbox.path or sandbox.id, host=name)
        )
    return dns.answer(question, [(dns.A, TTL, number.to_bytes(4, "big"))])


def _pointer(sandbox: Sandbox, question: dns.Question) -> bytes:
    labels = question.name.removesuffix(".in-addr.arpa").split(".")
    try:
        name = sandbox.names.name_of(int(ipaddress.IPv4Address(".".join(reversed(labels)))))
    except ValueError:
        name = None
    if name is None:
        return dns.answer(question, [], dns.NXDOMAIN)
    return dns.answer(question, [(dns.PTR, TTL, dns.encode_name(name))])


async def answer_outside(context: Context, sandbox: Sandbox, question: dns.Question) -> bytes:
    """Asks the real resolver what a rule opened; the decision is in the journal before the question leaves."""
    record = Record(
        kind="decision", layer="dns", request=context.number(), sandbox=sandbox.path, host=question.name,
        project=sandbox.project.name if sandbox.project is not None else "", verdict="allow", lane="dns",
        detail=f"type {question.type}",
    )  # fmt: skip
    try:
        context.journal.write(record)
        found = await context.resolver.ask(question.name, question.type)
    except (Refused, OSError) as failure:
        log.info("a question for %s failed: %s", question.name, failure)
        return dns.answer(question, [], dns.SERVFAIL)
    return dns.answer(question, found.records, found.code)


async def serve_stream(context: Context, sandbox: Sandbox, link: socket.socket) -> None:
    """DNS over TCP on an accepted connection, until it is idle for 10 s or asked enough."""
    loop = asyncio.get_running_loop()
    bucket = Bucket(context.options.questions_per_second, 20, time.monotonic())
    with link:
        for _ in range(_MAX_STREAM_QUESTIONS):
            async with asyncio.timeout(10.0):
                message = await _framed(loop, link)
                if message is None:
                    return
                if not bucket.take(time.monotonic()):
                    await asyncio.sleep(bucket.wait())
                reply = answer_at_once(context, sandbox, message)
                if isinstance(reply, dns.Question):
                    reply = await answer_outside(context, sandbox, reply)
                if reply is None:
                    return
                await loop.sock_sendall(link, len(reply).to_bytes(2, "big") + reply)


async def _framed(loop: asyncio.AbstractEventLoop, link: socket.socket) -> bytes | None:
    head = await _exactly(loop, link, 2)
    return None if head is None else await _exactly(loop, link, int.from_bytes(head, "big"))


async def _exactly(loop: asyncio.AbstractEventLoop, link: socket.socket, size: int) -> bytes | None:
    data = b""
    while len(data) < size:
        more = await loop.sock_recv(link, size - len(data))
        if not more:
            return None
        data += more
    return data
