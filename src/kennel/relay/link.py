"""Owns one connection to a guest: handshake, frames in and out, the calls in progress, its end.

Called by assemble and control through ports.guest. Invariant: nothing a guest sends can do more than end its own link;
when a link ends for any reason, every pending call ends in the same turn of the loop with an error that says whether
its work was admitted.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable
from typing import Any, TypeVar, cast

from kennel.domain.command import Command, Outcome
from kennel.guest import framing
from kennel.guest.framing import FrameError
from kennel.relay import answers, run
from kennel.relay.call import Call, Question
from kennel.relay.feed import Feed
from kennel.relay.files import RemoteFiles
from kennel.relay.interpreter import RemoteInterpreter
from kennel.relay.processes import RemoteProcesses
from kennel.relay.run import RunCall, words
from kennel.relay.terminals import RemoteTerminals, RemoteWire
from kennel.relay.transfer import Transfer
from kennel.wire.errors import KennelError, error

T = TypeVar("T")
MOST_SESSIONS = 4096
_LAST_CHANNEL = 2**32 - 1
_WRITE_HIGH = 1024 * 1024


class GuestLink(asyncio.BufferedProtocol):
    """The guest of one sandbox, reached over one connection: ports' Guest."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._decoder = framing.Decoder(framing.FROM_GUEST)
        self._transport: asyncio.Transport | None = None
        self._calls: dict[int, Call] = {}
        self._newest = 0
        self._pings: dict[bytes, asyncio.Future[None]] = {}
        self._reason: KennelError | None = None
        self._writable = True
        self._greeting: dict[str, Any] | None = None
        self._gone = self._loop.create_future()
        self.ready: asyncio.Future[None] = self._loop.create_future()
        """Done when the guest has greeted in a version both speak."""

    # --- what the transport calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The socket is ours."""
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=_WRITE_HIGH)
        self._transport.write(framing.hello())

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where the next bytes go."""
        return self._decoder.space()

    def buffer_updated(self, nbytes: int) -> None:
        """Bytes came."""
        self._decoder.filled(nbytes)
        try:
            while self._reason is None and (frame := self._decoder.next()) is not None:
                self._take(*frame)
        except FrameError as problem:
            self.abort(error("PROTOCOL_VIOLATION", f"the guest broke the protocol: {problem}"))

    def eof_received(self) -> None:
        """The guest closed its side: the transport closes too."""

    def connection_lost(self, exc: Exception | None) -> None:
        """The socket is gone."""
        self._end(error("SANDBOX_LOST", "the connection to the sandbox was lost", retry_after_ms=100))
        if not self._gone.done():
            self._gone.set_result(None)

    def pause_writing(self) -> None:
        """The guest reads slowly."""
        self._writable = False

    def resume_writing(self) -> None:
        """The guest reads again."""
        self._writable = True
        for call in list(self._calls.values()):
            call.writable()

    # --- frames

    def _take(self, kind: int, number: int, payload: bytes) -> None:
        if number == 0:
            self._take_own(kind, payload)
            return
        call = self._calls.get(number)
        if call is None:
            raise FrameError(f"kind {kind} on a channel that is not open")
        if call.frame(kind, payload):
            del self._calls[number]

    def _take_own(self, kind: int, payload: bytes) -> None:
        if kind == framing.HELLO:
            if self._greeting is not None:
                raise FrameError("a second hello")
            self._greeting = framing.read_control(payload)
            framing.agree(self._greeting)
            self.ready.set_result(None)
        elif kind == framing.PING:
            self.send(framing.frame(framing.PONG, 0, payload))
        else:
            waiting = self._pings.pop(payload, None)
            if waiting is None:
                raise FrameError("a pong nobody asked for")
            if not waiting.done():
                waiting.set_result(None)

    def send(self, data: bytes | memoryview) -> None:
        """Queues frames; dropped once the link has ended."""
        if self._transport is not None and self._reason is None:
            self._transport.write(data)

    @property
    def writable(self) -> bool:
        """Whether bytes for standard input may be queued now."""
        return self._writable

    # --- calls

    @property
    def closed(self) -> bool:
        """The link has ended; every new call is refused as not admitted."""
        return self._reason is not None

    async def exec(self, command: Command) -> Outcome:
        """Runs a command to its end; leaving the call kills what it runs."""
        call = self._start(command, bool(command.stdin), command.max_bytes)
        if command.stdin:
            call.feed(command.stdin, last=True)
        return await call.collected()

    async def run(self, command: Command) -> RunCall:
        """Starts a command whose output is iterated; its standard input stays open until `close_stdin`."""
        call = self._start(command, True, None)
        if command.stdin:
            call.feed(command.stdin, last=False)
        return call

    def _start(self, command: Command, stdin: bool, kept: int | None) -> RunCall:
        call = RunCall(self, self._number(), kept)
        self._open(call, words(command, stdin))
        if command.timeout_ms is not None:
            call.limit(command.timeout_ms / 1000, None if command.session_id is not None else run.UNSTARTED)
        return call

    async def _ask(self, op: str, **args: Any) -> dict[str, Any]:
        question = Question(self, self._number())
        self._open(question, {"op": op, **{name: value for name, value in args.items() if value is not None}})
        return await question.answer()

    @property
    def files(self) -> RemoteFiles:
        """The sandbox's files."""
        return RemoteFiles(self)

    async def ask(self, op: str, args: dict[str, Any]) -> dict[str, Any]:
        """The RESULT of an operation that has nothing else; its shape is for the caller to check."""
        question = Question(self, self._number())
        self._open(question, {"op": op, **args})
        return await question.answer()

    def transfer(self, op: str, args: dict[str, Any]) -> Transfer:
        """An operation with bytes, begun."""
        transfer = Transfer(self, self._number())
        self._open(transfer, {"op": op, **args})
        transfer.begun()
        return transfer

    def program(self, op: str, args: dict[str, Any], kept: int | None) -> RunCall:
        """An operation that is a program of the guest's own: output, input and an EXIT, as a command's."""
        call = RunCall(self, self._number(), kept)
        self._open(call, {"op": op, **args})
        return call

    def feed(self, op: str, args: dict[str, Any]) -> Feed:
        """An operation with bytes of two kinds, begun."""
        feed = Feed(self, self._number())
        self._open(feed, {"op": op, **args})
        feed.begun()
        return feed

    @property
    def runtime(self) -> str:
        """Names this run of the sandbox: the same over every connection, another one after every start."""
        told = (self._greeting or {}).get("boot")
        return told if type(told) is str and len(told) <= 64 and told.isalnum() and told.isascii() else ""

    @property
    def processes(self) -> RemoteProcesses:
        """The sandbox's background processes."""
        return RemoteProcesses(self)

    @property
    def terminals(self) -> RemoteTerminals:
        """The sandbox's terminals."""
        return RemoteTerminals(self)

    @property
    def interpreter(self) -> RemoteInterpreter:
        """The sandbox's code contexts."""
        return RemoteInterpreter(self)

    async def connect(self, port: int, host: str | None = None) -> RemoteWire:
        """A connection to a port of the sandbox's loopback; SERVICE_NOT_RESPONDING."""
        transfer = self.transfer("connect", {"port": port} | ({} if host is None else {"host": host}))
        await transfer.head()
        return RemoteWire(transfer)

    def checked(self, read: Callable[[], T]) -> T:
        """What `read` makes of an answer; one that it cannot be made of ends the link."""
        return self._checked(read)

    def _number(self) -> int:
        if self._reason is not None:
            raise answers.about(self._reason, "no")
        self._newest += 1
        if self._newest > _LAST_CHANNEL:
            raise error("RESOURCE_BUSY", "this connection has used up its channels", admitted="no")
        return self._newest

    def _open(self, call: Call, told: dict[str, Any]) -> None:
        try:
            opening = framing.control(framing.OPEN, call.channel, told)
        except FrameError:
            raise error("INVALID_COMMAND", "the command and its environment are too long", admitted="no") from None
        self._calls[call.channel] = call
        self.send(opening)

    async def open_session(
        self,
        session_id: str,
        *,
        cwd: str,
        env: dict[str, str],
        user: str | None,
        replace: bool = False,
    ) -> None:
        """Starts a persistent shell; SESSION_ALREADY_EXISTS, INVALID_PROCESS_CWD, NOT_SUPPORTED without bash."""
        await self._ask("session.open", session=session_id, cwd=cwd, env=env, user=user, replace=replace)

    async def close_session(self, session_id: str) -> None:
        """Ends a shell and all it runs; SESSION_NOT_FOUND."""
        await self._ask("session.close", session=session_id)

    async def list_sessions(self) -> list[str]:
        """The ids of the shells that are open."""
        listing = await self._ask("session.list")
        return self._checked(lambda: answers.texts(listing, "sessions", MOST_SESSIONS))

    async def session_state(self, session_id: str) -> dict[str, Any]:
        """`{"cwd", "env"}` of a shell as after its last command; SESSION_NOT_FOUND."""
        state = await self._ask("session.state", session=session_id)
        return self._checked(lambda: answers.state(state))

    async def plant(self, env: dict[str, str]) -> None:
        """Variables that every command from now on is given, under its own."""
        await self._ask("plant", env=env)

    def _checked(self, read: Callable[[], T]) -> T:
        try:
            return read()
        except FrameError as problem:
            failure = error("PROTOCOL_VIOLATION", f"the guest broke the protocol: {problem}", admitted="yes")
            self.abort(failure)
            raise failure from None

    async def ping(self) -> None:
        """Comes back when the guest has answered."""
        if self._reason is not None:
            raise answers.about(self._reason, "no")
        token = os.urandom(8)
        waiting = self._pings[token] = self._loop.create_future()
        self.send(framing.frame(framing.PING, 0, token))
        await waiting

    # --- the end

    def abort(self, reason: KennelError) -> None:
        """Ends the link now; every pending call raises `reason` with its own `admitted`."""
        self._end(reason)
        if self._transport is not None:
            self._transport.abort()

    def _end(self, reason: KennelError) -> None:
        if self._reason is not None:
            return
        self._reason = reason
        calls, self._calls = self._calls, {}
        pings, self._pings = self._pings, {}
        for call in calls.values():
            call.lost(reason)
        for waiting in (self.ready, *pings.values()):
            if not waiting.done():
                waiting.set_exception(answers.about(reason, "no"))
                waiting.exception()

    async def close(self) -> None:
        """Ends the link, and returns when the socket is closed; what it ran in the foreground the guest kills.

        Bytes not sent yet are dropped: a guest that does not read must not keep its host from leaving.
        """
        self.abort(error("SANDBOX_LOST", "the connection to the sandbox was closed"))
        if self._transport is not None:
            await asyncio.shield(self._gone)


async def open_guest(sock: socket.socket, ready_timeout: float) -> GuestLink:
    """The guest behind a connected Unix stream socket, once it has greeted.

    Raises SANDBOX_START_FAILED when it does not within `ready_timeout` seconds or speaks no common version; the
    socket is closed then.
    """
    sock.setblocking(False)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, framing.SOCKET_BUFFER)
    link = GuestLink()
    try:
        async with asyncio.timeout(ready_timeout):
            await asyncio.get_running_loop().create_unix_connection(lambda: link, sock=sock)
            await link.ready
    except TimeoutError:
        failure = error("SANDBOX_START_FAILED", f"the guest did not greet within {ready_timeout:g} s", admitted="no")
    except KennelError as problem:
        failure = error("SANDBOX_START_FAILED", f"the guest did not come up: {problem.message}", admitted="no")
    except OSError as problem:
        failure = error("SANDBOX_START_FAILED", f"the guest's socket failed: {problem}", admitted="no")
    except BaseException:
        link.abort(error("SANDBOX_LOST", "nobody waits for this guest any more"))
        sock.close()
        raise
    else:
        return link
    link.abort(failure)
    sock.close()
    raise failure
