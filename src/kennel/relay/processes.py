"""Owns the background processes of a guest as control sees them, with every answer checked.

Made by link: ports' GuestProcesses. Invariant: what a guest claims about a process is of the right type and size before
anybody sees it; a claim that is not ends its link.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, Protocol, TypeVar, cast

from kennel.domain.command import Command
from kennel.domain.process import LogPiece, ProcessEnd, ProcessExit, ProcessFacts, ProcessState
from kennel.guest import framing
from kennel.guest.framing import FrameError
from kennel.relay import answers
from kennel.relay.feed import Feed
from kennel.relay.run import words
from kennel.relay.transfer import Transfer

T = TypeVar("T")
MOST_PROCESSES = 1024
_MOST = 1 << 62
_MOST_TEXT = 16 * 1024
_STATES = ("running", "exited", "error")


class Caller(Protocol):
    """What this needs of its link."""

    @property
    def runtime(self) -> str: ...
    async def ask(self, op: str, args: dict[str, Any]) -> dict[str, Any]: ...
    def feed(self, op: str, args: dict[str, Any]) -> Feed: ...
    def transfer(self, op: str, args: dict[str, Any]) -> Transfer: ...
    def checked(self, read: Callable[[], T]) -> T: ...


def number(body: dict[str, Any], name: str, most: int = _MOST) -> int:
    """A whole number from 0 in an answer."""
    value = body.get(name)
    if type(value) is not int or not 0 <= value <= most:
        raise FrameError(f"an answer with an impossible {name}")
    return value


def text(body: dict[str, Any], name: str) -> str:
    """A short text in an answer."""
    value = body.get(name)
    if type(value) is not str or len(value) > _MOST_TEXT:
        raise FrameError(f"an answer with an impossible {name}")
    return answers.clean(value)


def state(body: dict[str, Any]) -> ProcessState:
    """One of the three states."""
    found = body.get("state")
    if found not in _STATES:
        raise FrameError("a process in no state")
    return cast(ProcessState, found)


def exit_of(body: dict[str, Any]) -> ProcessExit | None:
    """How it ended, if it has."""
    found = body.get("exit")
    if found is None:
        return None
    if type(found) is not dict or type(found.get("timed_out", False)) is not bool:
        raise FrameError("an exit that is none")
    signal = None if found.get("signal") is None else answers.signal_name(number(found, "signal", 64))
    return ProcessExit(number(found, "code", 255), signal, found.get("timed_out", False))


def facts(body: dict[str, Any], runtime: str) -> ProcessFacts:
    """A process in an answer; FrameError when it is none."""
    failure, over = body.get("error"), body.get("over")
    if failure is not None and type(failure) is not dict:
        raise FrameError("an error that is none")
    found = ProcessFacts(
        id=text(body, "id"),
        command=text(body, "command"),
        cwd=text(body, "cwd"),
        state=state(body),
        pid=number(body, "pid", 1 << 31),
        began=number(body, "began", 1 << 45),
        over=None if over is None else number(body, "over", 1 << 45),
        exit=exit_of(body),
        error=None if failure is None else (text(failure, "code"), text(failure, "message")),
        keep_awake=body.get("awake") is True,
        first=number(body, "first"),
        last=number(body, "last"),
        runtime=runtime,
    )
    if (found.state == "exited") is (found.exit is None) or found.first > found.last:
        raise FrameError("a process that contradicts itself")
    return found


def given(**args: Any) -> dict[str, Any]:
    """Arguments without those that are None."""
    return {name: value for name, value in args.items() if value is not None}


class RemoteLog:
    """ports' Log: pieces over as many calls as gaps make necessary."""

    def __init__(self, guest: RemoteProcesses, args: dict[str, Any], feed: Feed) -> None:
        self._guest = guest
        self._args = args
        self._feed = feed
        self._at = 0
        self._missed = 0
        self.facts: ProcessFacts

    async def begin(self, since: int) -> None:
        """Reads what the guest says first."""
        head = await self._feed.head()
        self.facts = self._guest.checked_facts(head)
        self._at = self._guest.checked(lambda: number(head, "at"))
        self._missed += max(0, self._at - since)

    async def __aiter__(self) -> AsyncIterator[LogPiece]:
        while True:
            if self._missed:
                missed, self._missed = self._missed, 0
                yield LogPiece(self._at, None, missed=missed)
            while (found := await self._feed.piece()) is not None:
                kind, data = found
                yield LogPiece(self._at, "stdout" if kind == framing.STDOUT else "stderr", data)
                self._at += len(data)
            result = await self._feed.result()
            if result.get("gap") is not True:
                record = result.get("record")
                self.facts = self._guest.checked_facts(record if type(record) is dict else {})
                return
            self._feed = self._guest.follow(self._args | {"since": self._at})
            await self.begin(self._at)

    async def close(self) -> None:
        """Reads no more."""
        await self._feed.close()


class RemoteProcesses:
    """ports' GuestProcesses."""

    def __init__(self, link: Caller) -> None:
        self._link = link
        self.checked = link.checked

    def checked_facts(self, body: dict[str, Any]) -> ProcessFacts:
        """A process in an answer."""
        return self._link.checked(lambda: facts(body, self._link.runtime))

    async def start(self, command: Command, *, process_id: str | None, stdin: bool, keep_awake: bool) -> ProcessFacts:
        """Starts it; comes back when it runs."""
        told = words(command, stdin) | given(process=process_id, awake=keep_awake or None)
        told.pop("max_bytes", None)
        return self.checked_facts(await self._link.ask("process.start", told | {"op": "process.start"}))

    async def list(self) -> list[ProcessFacts]:
        """Those that run and the last that ended."""
        body = await self._link.ask("process.list", {})

        def read() -> list[ProcessFacts]:
            found = body.get("processes")
            if type(found) is not list or len(found) > MOST_PROCESSES or any(type(one) is not dict for one in found):
                raise FrameError("a list that is none")
            return [facts(one, self._link.runtime) for one in found]

        return self._link.checked(read)

    async def get(self, process_id: str, runtime: str | None = None) -> ProcessFacts:
        """One; PROCESS_NOT_FOUND, STALE_PROCESS_HANDLE."""
        return self.checked_facts(await self._link.ask("process.get", given(process=process_id, runtime=runtime)))

    async def kill(self, process_id: str, grace_ms: int | None, runtime: str | None = None) -> ProcessFacts:
        """Ends one, and comes back when it is gone; one that has ended stays as it is."""
        args = given(process=process_id, grace_ms=grace_ms, runtime=runtime)
        return self.checked_facts(await self._link.ask("process.kill", args))

    async def kill_all(self, grace_ms: int | None) -> int:
        """Ends all; how many ran."""
        body = await self._link.ask("process.kill", given(grace_ms=grace_ms))
        return self._link.checked(lambda: number(body, "killed", MOST_PROCESSES))

    async def signal(self, process_id: str, number: int, runtime: str | None = None) -> ProcessFacts:
        """A signal to every process of it."""
        args = given(process=process_id, signal=number, runtime=runtime)
        return self.checked_facts(await self._link.ask("process.signal", args))

    def follow(self, args: dict[str, Any]) -> Feed:
        """One call that reads a log."""
        return self._link.feed("process.logs", args)

    async def log(self, process_id: str, since: int, *, follow: bool, runtime: str | None = None) -> RemoteLog:
        """Its log from a position on; with `follow` until it ends."""
        args = given(process=process_id, follow=follow or None, runtime=runtime)
        log = RemoteLog(self, args, self.follow(args | {"since": since}))
        await log.begin(since)
        return log

    async def feed(self, process_id: str, data: bytes, *, eof: bool, runtime: str | None = None) -> int:
        """Bytes for its standard input; comes back when it has read them."""
        transfer = self._link.transfer("process.stdin", given(process=process_id, eof=eof or None, runtime=runtime))
        try:
            await transfer.write(data)
            body = await transfer.finish()
        finally:
            await transfer.close()
        return self._link.checked(lambda: number(body, "count"))

    async def wait(self, process_id: str, words: dict[str, Any], runtime: str | None = None) -> dict[str, Any]:
        """What was waited for; PROCESS_EXITED_BEFORE_READY."""
        body = await self._link.ask("process.wait", given(process=process_id, runtime=runtime, **words))
        if words["for"] == "exit":
            return self.checked_facts(body).to_wire()
        if words["for"] == "port":
            return self._link.checked(lambda: _opened(body))
        return self._link.checked(lambda: _line(body))

    async def wait_for_port(self, words: dict[str, Any]) -> dict[str, Any]:
        """A port that anything opens."""
        body = await self._link.ask("process.port", given(**words))
        return self._link.checked(lambda: _opened(body))

    async def awake(self) -> None:
        """Comes back when no process asks any more for the sandbox to stay awake."""
        await self._link.ask("process.awake", {})

    async def ended(self, since: int) -> tuple[Sequence[ProcessEnd], int]:
        """The ends after number `since`, as soon as there is one, and the number of the last."""
        body = await self._link.ask("process.ended", {"since": since})
        return self._link.checked(lambda: _ends(body, since))


def _ends(body: dict[str, Any], since: int) -> tuple[Sequence[ProcessEnd], int]:
    found, last = body.get("ends"), number(body, "next", 1 << 53)
    if type(found) is not list or len(found) > MOST_PROCESSES or any(type(one) is not dict for one in found):
        raise FrameError("ends that are none")
    if last <= since:
        raise FrameError("ends that have been told")
    ends = [
        ProcessEnd(text(one, "id"), number(one, "began", 1 << 45), number(one, "over", 1 << 45), exit_of(one))
        for one in found
    ]
    return ends, last


def _opened(body: dict[str, Any]) -> dict[str, Any]:
    status = body.get("status")
    return {"port": number(body, "port", 65535), "status": None if status is None else number(body, "status", 999)}


def _line(body: dict[str, Any]) -> dict[str, Any]:
    if body.get("stream") not in ("stdout", "stderr"):
        raise FrameError("a line of no stream")
    return {"line": text(body, "line"), "stream": body["stream"], "cursor": number(body, "at")}
