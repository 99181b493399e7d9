"""Owns the terminals of a guest as control sees them, and connections to ports, with every answer checked.

Made by link: ports' GuestTerminals and Wire. Invariant: what a guest says beside a terminal's bytes is one of three
known notices; anything else ends its link.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from kennel.domain.process import TerminalExit, TerminalFacts
from kennel.guest import framing
from kennel.guest.framing import FrameError
from kennel.relay.feed import Feed
from kennel.relay.processes import Caller, exit_of, given, number, state, text
from kennel.relay.transfer import Transfer
from kennel.wire.errors import KennelError

MOST_TERMINALS = 128
_MOST_SIDE = 1000


def facts(body: dict[str, Any], runtime: str) -> TerminalFacts:
    """A terminal in an answer; FrameError when it is none."""
    found = TerminalFacts(
        id=text(body, "id"),
        command=text(body, "command"),
        cwd=text(body, "cwd"),
        state=state(body),
        pid=number(body, "pid", 1 << 31),
        exit=exit_of(body),
        columns=number(body, "cols", _MOST_SIDE),
        rows=number(body, "rows", _MOST_SIDE),
        first=number(body, "first"),
        last=number(body, "last"),
        attached=number(body, "attached", MOST_TERMINALS),
        runtime=runtime,
    )
    if (found.state == "exited") is (found.exit is None):
        raise FrameError("a terminal that contradicts itself")
    return found


def notice(payload: bytes) -> dict[str, Any]:
    """What the guest says beside the bytes, rebuilt field by field."""
    body = framing.read_control(payload)
    kind = body.get("type")
    if kind == "role" and body.get("role") in ("drive", "watch"):
        return {"type": "role", "role": body["role"]}
    if kind == "truncated":
        return {"type": "truncated", "bytes": number(body, "bytes")}
    if kind == "resize":
        return {"type": "resize", "cols": number(body, "cols", _MOST_SIDE), "rows": number(body, "rows", _MOST_SIDE)}
    raise FrameError("an unknown notice")


class RemoteScreen:
    """ports' Screen."""

    def __init__(self, link: Caller, feed: Feed, head: dict[str, Any]) -> None:
        self._link = link
        self._feed = feed
        self.facts = facts(head, link.runtime)
        self.at = number(head, "at")
        self.missed = number(head, "missed")
        self.drives = head.get("drives") is True

    async def __aiter__(self) -> AsyncIterator[bytes | dict[str, Any]]:
        while (found := await self._feed.piece()) is not None:
            kind, data = found
            if kind == framing.STDOUT:
                yield data
            else:
                yield self._link.checked(lambda data=data: notice(data))  # type: ignore[misc]

    async def ending(self) -> TerminalExit:
        """How it ended, once it was iterated to its end."""
        body = await self._feed.result()
        return TerminalExit(self._link.checked(lambda: exit_of(body)))

    async def write(self, data: bytes) -> None:
        """Keys."""
        await self._feed.write(data)

    async def close(self) -> None:
        """Looks no more."""
        await self._feed.close()


class RemoteTerminals:
    """ports' GuestTerminals."""

    def __init__(self, link: Caller) -> None:
        self._link = link

    def _facts(self, body: dict[str, Any]) -> TerminalFacts:
        return self._link.checked(lambda: facts(body, self._link.runtime))

    async def open(
        self, terminal_id: str | None, words: dict[str, Any], runtime: str | None = None
    ) -> tuple[TerminalFacts, bool]:
        """The terminal under this id, started unless it runs; and whether it was."""
        body = await self._link.ask("terminal.open", given(terminal=terminal_id, runtime=runtime, **words))
        return self._facts(body), body.get("fresh") is not False

    async def list(self) -> list[TerminalFacts]:
        """Those that run and the last that ended."""
        body = await self._link.ask("terminal.list", {})

        def read() -> list[TerminalFacts]:
            found = body.get("terminals")
            if type(found) is not list or len(found) > MOST_TERMINALS or any(type(one) is not dict for one in found):
                raise FrameError("a list that is none")
            return [facts(one, self._link.runtime) for one in found]

        return self._link.checked(read)

    async def attach(
        self, terminal_id: str, *, since: int | None, drive: bool, runtime: str | None = None
    ) -> RemoteScreen:
        """Shows it from a position on; TERMINAL_NOT_FOUND."""
        args = given(terminal=terminal_id, since=since, drive=drive or None, runtime=runtime)
        feed = self._link.feed("terminal.attach", args)
        head = await feed.head()
        return self._link.checked(lambda: RemoteScreen(self._link, feed, head))

    async def resize(self, terminal_id: str, columns: int, rows: int) -> None:
        """Its size, from now on."""
        await self._link.ask("terminal.resize", {"terminal": terminal_id, "cols": columns, "rows": rows})

    async def close(self, terminal_id: str) -> TerminalFacts:
        """Hangs up on what runs on it."""
        return self._facts(await self._link.ask("terminal.close", {"terminal": terminal_id}))


class RemoteWire:
    """ports' Wire."""

    def __init__(self, transfer: Transfer) -> None:
        self._transfer = transfer

    async def read(self) -> bytes:
        """What comes next; empty at the end."""
        return await anext(self._transfer, b"")

    async def write(self, data: bytes) -> None:
        """Sends bytes; nothing happens when the server has closed."""
        if not self._transfer.ended:
            try:
                await self._transfer.write(data)
            except KennelError as failure:
                if failure.code != "PROTOCOL_VIOLATION":
                    raise

    async def finish(self) -> None:
        """No more will be written."""
        self._transfer.no_more()

    async def close(self) -> None:
        """Lets go of it."""
        await self._transfer.close()
