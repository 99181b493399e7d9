"""Owns connections that are not opened: passthrough TLS and raw TCP, two sockets spliced, bytes counted.

Made by the entrance when a rule says so. Invariant: the rule is asked again when the policy changes; no secret is ever
put into such a connection; each side stops reading when the other does not keep up.
"""

from __future__ import annotations

import asyncio
import socket
import time
from dataclasses import dataclass
from typing import cast

from kennel.domain.denial import Refused
from kennel.domain.policy import Subject
from kennel.gateway.context import Context
from kennel.gateway.registry import Sandbox
from kennel.wire.egress import Mode, Record

_BUFFER = 256 * 1024
_SLOW, _RATE, _EARLY = 1, 2, 4
"""Why reading from a side rests: the other does not keep up, the sandbox's rate is used up, nobody is there yet."""


class _End(asyncio.Protocol):
    """One side of a splice."""

    def __init__(self, tunnel: Tunnel | None = None) -> None:
        self.tunnel = tunnel
        self.other: _End | None = None
        self.transport: asyncio.Transport | None = None
        self.received = 0
        self._early: list[bytes] = []
        self._held = 0
        self.ended = False

    def hold(self, reason: int, on: bool) -> None:
        """Stops or resumes reading; it goes on when no reason is left."""
        before, self._held = self._held, self._held | reason if on else self._held & ~reason
        if self.transport is None or self.transport.is_closing() or bool(before) is bool(self._held):
            return
        if self._held:
            self.transport.pause_reading()
        else:
            self.transport.resume_reading()

    def join(self, other: _End) -> None:
        self.other = other
        for data in self._early:
            self._pass(data)
        self._early.clear()
        self.hold(_EARLY, False)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's are no subclass of it
        self.transport.set_write_buffer_limits(high=_BUFFER)

    def data_received(self, data: bytes) -> None:
        self.received += len(data)
        if self.other is None:
            self._early.append(data)
            if self.received >= _BUFFER:
                self.hold(_EARLY, True)
        else:
            self._pass(data)

    def _pass(self, data: bytes) -> None:
        if self.tunnel is not None:
            self.tunnel.heard()
            if (rest := self.tunnel.sandbox.charge(len(data))) > 0:
                self.hold(_RATE, True)
                asyncio.get_running_loop().call_later(rest, self.hold, _RATE, False)
        if self.other is not None and self.other.transport is not None:
            self.other.transport.write(data)

    def eof_received(self) -> bool:
        other = self.other
        self.ended = True
        if other is None or other.transport is None or other.ended:
            return False
        if other.transport.can_write_eof():
            other.transport.write_eof()
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.close()
        if self.tunnel is not None:
            self.tunnel.ended()

    def pause_writing(self) -> None:
        if self.other is not None:
            self.other.hold(_SLOW, True)

    def resume_writing(self) -> None:
        if self.other is not None:
            self.other.hold(_SLOW, False)


@dataclass(slots=True, eq=False)
class Tunnel:
    """A splice of one sandbox; `mode` is what its rule allowed."""

    context: Context
    sandbox: Sandbox
    subject: Subject
    mode: Mode
    record: Record
    near: _End
    far: _End
    deadline: float = 0.0
    started: float = 0.0
    over: bool = False
    why: str = ""

    def heard(self) -> None:
        self.deadline = time.monotonic() + self.context.options.splice_idle

    def cut(self, why: str) -> None:
        """Ends both sides now."""
        self.why = self.why or why
        for end in (self.near, self.far):
            if end.transport is not None:
                end.transport.abort()

    def review(self) -> None:
        """After a change of policy: stays only if the same mode is still allowed."""
        try:
            _, policy = self.sandbox.require()
        except Refused as refused:
            self.cut(refused.code)
            return
        if policy.mode(self.subject) != self.mode or policy.judge(self.subject).verdict != "allow":
            self.cut("the policy changed")

    def overdue(self, now: float) -> None:
        if now >= self.deadline:
            self.cut("idle for too long")

    def ended(self) -> None:
        """One side is gone: the outcome is written once."""
        if self.over:
            return
        self.over = True
        self.sandbox.live.discard(self)
        record = self.record
        outcome = Record(
            kind="outcome", layer="tunnel", request=record.request, project=record.project, sandbox=record.sandbox,
            host=record.host, port=record.port, detail=self.why, bytes_out=self.near.received,
            bytes_in=self.far.received, duration_ms=int((time.monotonic() - self.started) * 1000),
        )  # fmt: skip
        self.context.journal.note(outcome)
        if self.sandbox.project is not None:
            tally = self.sandbox.project.tally(record.host)
            tally.requests += 1
            tally.bytes_out += self.near.received
            tally.bytes_in += self.far.received


async def splice(context: Context, sandbox: Sandbox, subject: Subject, mode: Mode, link: socket.socket) -> None:
    """Records the decision, dials, and joins both sides; Refused when the way out fails. Takes the socket over."""
    project, policy = sandbox.require()
    judged = policy.judge(subject)
    if judged.verdict != "allow":
        raise Refused(judged.code or "egress_denied", judged.detail or "a tunnel cannot wait for a decision")
    record = Record(
        kind="decision", layer="tunnel", request=context.number(), project=project.name, sandbox=sandbox.path,
        host=subject.host, port=subject.port, verdict="allow", lane=mode, policy=policy.policy.version,
        rule_key=judged.rule.rule_key if judged.rule else None,
    )  # fmt: skip
    if context.journal.full:
        await context.journal.room()
    context.journal.write(record)
    far_transport, far = await context.dialler.connect(_End, subject.host, subject.port, tls=False)
    try:
        near = _End()
        await asyncio.get_running_loop().connect_accepted_socket(lambda: near, link)
    except BaseException:
        far_transport.abort()
        raise
    now = time.monotonic()
    tunnel = Tunnel(context, sandbox, subject, mode, record, near, far, now + context.options.splice_idle, now)
    near.tunnel = far.tunnel = tunnel
    sandbox.live.add(tunnel)
    near.join(far)
    far.join(near)
    if sandbox.gone:
        tunnel.cut("the sandbox is gone")
