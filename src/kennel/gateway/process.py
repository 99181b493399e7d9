"""Owns the gateway's process: its hardening, its parts put together, and what it does with each message.

Called by assemble with the options. Invariant: not dumpable, no core files; when it ends every socket of every sandbox
is closed, so nothing passes; without a policy, or without control's consent where that is needed, nothing passes.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import logging
import resource
import secrets
import signal
import socket
import time
from pathlib import Path
from typing import Any

import msgspec

from kennel.domain.ai_lane import AiGateway
from kennel.domain.denial import Refused
from kennel.domain.destination import Openings
from kennel.domain.policy import parse_policy
from kennel.domain.preview import Base
from kennel.domain.secret_pin import normal_pin
from kennel.domain.stream_path import check_project_name
from kennel.gateway.authority import Authority
from kennel.gateway.channel import Channel, Peer
from kennel.gateway.context import Context, platform_keys
from kennel.gateway.dialler import Dialler
from kennel.gateway.entrance import Entrance
from kennel.gateway.journal import Journal
from kennel.gateway.options import Options
from kennel.gateway.preview_door import PreviewDoor
from kennel.gateway.previews import Previews
from kennel.gateway.registry import Registry, Sandbox
from kennel.gateway.resolver import Resolver
from kennel.gateway.rotations import Rotations
from kennel.gateway.trial import find
from kennel.gateway.vault import Vault
from kennel.gateway.waiting import Holds
from kennel.wire import gateway as wire
from kennel.wire.egress import SealedSecret
from kennel.wire.errors import error

_PR_SET_DUMPABLE = 4
_SWEEP = 1.0

log = logging.getLogger("kennel.gateway")


def run(options: Options) -> None:
    """Serves until SIGTERM or SIGINT."""
    harden()
    import uvloop

    uvloop.run(_serve(options))


def harden() -> None:
    """No memory of this process reaches a file or another process of its user; many descriptors."""
    ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


async def _serve(options: Options) -> None:
    gateway = Gateway(options)
    # What is here now stays: the collector need not look at it again, and young objects mostly die by themselves.
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 100)
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    sweeper = loop.create_task(gateway.sweep())
    try:
        done, _ = await asyncio.wait({sweeper, loop.create_task(stopped.wait())}, return_when=asyncio.FIRST_COMPLETED)
        if sweeper in done:
            sweeper.result()
    finally:
        sweeper.cancel()
        gateway.close()


class Gateway:
    """All parts of one gateway, and the meaning of every message."""

    def __init__(self, options: Options) -> None:
        data = Path(options.data)
        self.instance = secrets.token_hex(8)
        journal = Journal(data / "journal", options.journal_bytes, options.acknowledge_timeout)
        resolver = Resolver(options.resolver)
        openings = Openings.parse(options.openings)
        ai = AiGateway.parse(options.ai_base_url, options.ai_key, options.ai_cache_ttl) if options.ai_base_url else None
        self.context = Context(
            options=options,
            registry=Registry(self._open, options.max_names, options.bytes_per_second),
            journal=journal,
            authority=Authority(data),
            vault=Vault(data / "keys"),
            rotations=Rotations(data / "rotations"),
            resolver=resolver,
            dialler=Dialler(resolver, openings, options.extra_roots, options.connect_timeout),
            ai=ai,
            platform=platform_keys(options),
            holds=Holds(journal, self._tell),
            tell=self._tell,
        )
        self._control: Peer | None = None
        self._supplier: Peer | None = None
        self.previews = Previews(self._tell)
        self._visitors = self._open_previews(options)
        self._channel = Channel(
            socket.socket(fileno=options.listener), options.node_uid, options.control_uid, self._handle
        )
        self._channel.control_gone = self._control_left
        self._channel.node_gone = self._node_left

    def _open_previews(self, options: Options) -> PreviewDoor | None:
        if options.preview_listener is None:
            return None
        listener = socket.socket(fileno=options.preview_listener)
        return PreviewDoor(self.context, listener, Base.parse(options.preview_base), self.previews)

    def close(self) -> None:
        self._channel.close()
        if self._visitors is not None:
            self._visitors.close()
        self.context.registry.close()
        self.context.journal.close()

    async def sweep(self) -> None:
        """Closes what is overdue, once a second, for as long as the gateway runs."""
        while True:
            await asyncio.sleep(_SWEEP)
            now = time.monotonic()
            for sandbox in list(self.context.registry.sandboxes.values()):
                for live in list(sandbox.live):
                    live.overdue(now)
            self.context.sweep_idle(now)
            if self._visitors is not None:
                self._visitors.sweep(now)

    def _open(self, sandbox: Sandbox, listeners: list[socket.socket]) -> Entrance:
        return Entrance(self.context, sandbox, listeners)

    def _tell(self, notice: wire.Notice) -> bool:
        """Says something to control; whether it is there."""
        if self._control is not None:
            self._control.send(wire.encode(notice))
        return self._control is not None

    def _control_left(self, peer: Peer) -> None:
        if peer is self._control:
            self._control = None
            self.context.journal.disconnect()
            self.previews.control_left()

    def _node_left(self, peer: Peer) -> None:
        if peer is self._supplier:
            self._supplier = None
            if self._visitors is not None:
                self._visitors.stocks.supplied_by(None)

    def _handle(self, peer: Peer, request: Any, listeners: list[socket.socket]) -> Any:
        return getattr(self, _VERBS[type(request)])(peer, request, listeners)

    def attach(self, _: Peer, request: wire.Attach, listeners: list[socket.socket]) -> None:
        self.context.registry.attach(request.sandbox, listeners)

    def detach(self, _: Peer, request: wire.Detach, __: list[socket.socket]) -> None:
        self.context.registry.detach(request.sandbox)

    def supply(self, peer: Peer, _: wire.Supply, __: list[socket.socket]) -> None:
        self._supplier = peer
        if self._visitors is not None:
            self._visitors.stocks.supplied_by(lambda need: peer.send(wire.encode(need)))

    def sockets(self, _: Peer, request: wire.Sockets, sockets: list[socket.socket]) -> None:
        if self._visitors is None:
            for one in sockets:
                one.close()
            return
        self._visitors.stocks.arrived(self.context.registry.sandboxes.get(request.sandbox), request, sockets)

    def authority(self, _: Peer, __: wire.Authority, ___: list[socket.socket]) -> str:
        return self.context.authority.pem

    def hello(self, peer: Peer, request: wire.Hello, _: list[socket.socket]) -> Any:
        if request.protocol != wire.PROTOCOL:
            raise error("NOT_SUPPORTED", f"this gateway speaks protocol {wire.PROTOCOL}, not {request.protocol}")
        earlier, self._control = self._control, None
        if earlier is not None and earlier is not peer:
            earlier.close("another control came")
            self.context.journal.disconnect()
        self._control = peer
        self.previews.begin()
        # After the answer: control reads facts first, then what it missed.
        asyncio.get_running_loop().call_soon(self._catch_up, peer)
        facts = wire.Facts(
            wire.PROTOCOL, self.instance, self.context.authority.pem, sorted(self.context.registry.sandboxes),
            self.context.journal.acknowledged,
        )  # fmt: skip
        return msgspec.to_builtins(facts)

    def _catch_up(self, peer: Peer) -> None:
        if peer is self._control:
            self.context.journal.connect(peer.send)
            self.context.holds.resend()
            for rotated in self.context.rotations.all():
                self._tell(rotated)

    def bind(self, _: Peer, request: wire.Bind, __: list[socket.socket]) -> None:
        check_project_name(request.project)
        self.context.registry.bind(request.sandbox, request.project, request.path)

    def unbind(self, _: Peer, request: wire.Unbind, __: list[socket.socket]) -> None:
        self.context.registry.unbind(request.sandbox)

    def set_policy(self, _: Peer, request: wire.SetPolicy, __: list[socket.socket]) -> None:
        check_project_name(request.project)
        self.context.registry.set_policy(request.project, parse_policy(request.policy))

    def drop_project(self, _: Peer, request: wire.DropProject, __: list[socket.socket]) -> None:
        self.context.registry.drop_project(request.project)

    def put_secret(self, _: Peer, request: wire.PutSecret, __: list[socket.socket]) -> None:
        check_project_name(request.project)
        secret: SealedSecret = self.context.rotations.in_force(request.project, request.secret)
        if normal_pin(secret.pin) != secret.pin:
            raise error("VALIDATION_FAILED", "the pin is not in its normal form")
        try:
            self.context.vault.open(request.project, secret)
        except Refused as broken:
            raise error("VALIDATION_FAILED", broken.detail) from None
        self.context.registry.project(request.project).secrets[secret.path] = secret

    def drop_secret(self, _: Peer, request: wire.DropSecret, __: list[socket.socket]) -> None:
        project = self.context.registry.projects.get(request.project)
        if project is not None:
            project.secrets.pop(request.path, None)
        self.context.rotations.drop(request.project, request.path)

    def set_previews(self, _: Peer, request: wire.SetPreviews, __: list[socket.socket]) -> None:
        self.previews.set(request.sandbox, request.previews, request.revoked)

    def previews_told(self, _: Peer, request: wire.PreviewsTold, __: list[socket.socket]) -> None:
        # Control may have begun before this gateway was born, and named some of it to the one before.
        if request.instance == self.instance:
            self.previews.all_told()

    def woken(self, _: Peer, request: wire.Woken, __: list[socket.socket]) -> None:
        self.previews.woken(request.sandbox, request.code, request.message)

    def project_key(self, _: Peer, request: wire.ProjectKey, __: list[socket.socket]) -> Any:
        return msgspec.to_builtins(self.context.vault.public_key(request.project))

    def decide(self, _: Peer, request: wire.Decide, __: list[socket.socket]) -> None:
        self.context.holds.decide(request)

    def acknowledge(self, peer: Peer, request: wire.Acknowledge, __: list[socket.socket]) -> None:
        if peer is self._control:
            self.context.journal.acknowledge(request.through)

    def try_(self, _: Peer, request: wire.Try, __: list[socket.socket]) -> Any:
        return msgspec.to_builtins(find(self.context, request))

    def counters(self, _: Peer, request: wire.Counters, __: list[socket.socket]) -> Any:
        project = self.context.registry.projects.get(request.project)
        rows = project.tallies if project is not None else {}
        return {
            host: {"requests": t.requests, "denied": t.denied, "bytesOut": t.bytes_out, "bytesIn": t.bytes_in}
            for host, t in rows.items()
        }


_VERBS: dict[type, str] = {
    wire.Attach: "attach", wire.Detach: "detach", wire.Authority: "authority", wire.Hello: "hello",
    wire.Supply: "supply", wire.Sockets: "sockets", wire.SetPreviews: "set_previews",
    wire.PreviewsTold: "previews_told", wire.Woken: "woken", wire.Bind: "bind", wire.Unbind: "unbind",
    wire.SetPolicy: "set_policy", wire.DropProject: "drop_project", wire.PutSecret: "put_secret",
    wire.DropSecret: "drop_secret", wire.ProjectKey: "project_key", wire.Decide: "decide",
    wire.Acknowledge: "acknowledge", wire.Try: "try_", wire.Counters: "counters",
}  # fmt: skip
