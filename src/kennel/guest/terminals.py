"""Owns the terminals of a sandbox, by id: opening, finding, closing, how many are remembered.

Begun by the operations `terminal.*`. Invariant: a terminal ends with its program, by `close` or with the sandbox, never
with the connection that shows it.
"""

from __future__ import annotations

import os

from . import framing, launch, pty
from .accounts import Accounts
from .attachment import Attachment
from .loop import Loop
from .pool import Pool
from .refusal import Refusal
from .terminal import Terminal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .channel import Channel, Operation

MOST_RUNNING = 64
MOST_FINISHED = 25
MOST_ATTACHED = 64
_MOST_ID = 128


class TerminalOperations:
    """The verbs, by name."""

    def __init__(self, loop: Loop, pool: Pool, accounts: Accounts, runtime: str) -> None:
        self._loop = loop
        self._pool = pool
        self._accounts = accounts
        self._runtime = runtime
        self._terminals: dict[str, Terminal] = {}

    def begin(self, verb: str, channel: Channel, args: dict[str, Any]) -> Operation | None:
        """Begins one operation."""
        asked = args.get("runtime")
        if asked is not None and asked != self._runtime:
            raise Refusal("STALE_TERMINAL_HANDLE", "that terminal ran before the sandbox's last start")
        begun: Operation | None = getattr(self, f"_{verb}")(channel, args)
        return begun

    def _open(self, channel: Channel, args: dict[str, Any]) -> None:
        """Starts a program on a new terminal; one that runs under this id already is left as it is."""
        name = launch.text_of(args, "terminal") or f"t-{os.urandom(6).hex()}"
        if len(name) > _MOST_ID:
            raise Refusal("INVALID_COMMAND", f"a terminal's id has at most {_MOST_ID} characters")
        columns, rows = pty.size_of(args.get("cols", 80), args.get("rows", 24))
        known = self._terminals.get(name)
        if known is not None and known.running:
            channel.end(framing.RESULT, {"runtime": self._runtime, "fresh": False, **known.facts()})
            return
        if sum(terminal.running for terminal in self._terminals.values()) >= MOST_RUNNING:
            raise Refusal("RESOURCE_BUSY", f"{MOST_RUNNING} terminals are open")
        account = self._accounts.find(launch.text_of(args, "user"))
        job = self._job(args)
        master, slave = pty.open_pair(account, columns, rows)
        try:
            terminal = Terminal(self._loop, self._pool, name, master, job, self._over)
            terminal.size = (columns, rows)
            terminal.start(channel, job, slave)
        except BaseException:
            os.close(master)
            raise
        finally:
            os.close(slave)
        self._terminals.pop(name, None)
        self._terminals[name] = terminal

    def _job(self, args: dict[str, Any]) -> launch.Job:
        env = {"TERM": "xterm-256color", **launch.env_of(args)}
        argv = args.get("argv")
        if argv is None:
            argv = [launch.bash() or launch.SH]
        asked = {"argv": argv, "env": env, "cwd": args.get("cwd"), "user": args.get("user")}
        return launch.job_for(asked, self._accounts, _no_spill)

    def _attach(self, channel: Channel, args: dict[str, Any]) -> Attachment:
        terminal = self._find(args)
        if len(terminal.attachments) >= MOST_ATTACHED:
            raise Refusal("RESOURCE_BUSY", f"{MOST_ATTACHED} connections show this terminal")
        return Attachment(channel, terminal, args)

    def _resize(self, channel: Channel, args: dict[str, Any]) -> None:
        terminal = self._find(args)
        terminal.resize(*pty.size_of(args.get("cols"), args.get("rows")))
        channel.end(framing.RESULT, {})

    def _list(self, channel: Channel, args: dict[str, Any]) -> None:
        facts = [terminal.facts() for terminal in self._terminals.values()]
        channel.end(framing.RESULT, {"runtime": self._runtime, "terminals": facts})

    def _close(self, channel: Channel, args: dict[str, Any]) -> None:
        terminal = self._find(args)
        terminal.hang_up()
        channel.end(framing.RESULT, terminal.facts())

    def _find(self, args: dict[str, Any]) -> Terminal:
        name = launch.text_of(args, "terminal") or ""
        terminal = self._terminals.get(name)
        if terminal is None:
            raise Refusal("TERMINAL_NOT_FOUND", f"there is no terminal {name[:_MOST_ID]!r}", terminalId=name[:_MOST_ID])
        return terminal

    def _over(self, terminal: Terminal) -> None:
        over = [one for one in self._terminals.values() if not one.running]
        for old in over[: max(0, len(over) - MOST_FINISHED)]:
            del self._terminals[old.name]


def _no_spill(script: bytes, account: object) -> str:
    raise Refusal("INVALID_COMMAND", "a terminal runs a program, not a script")
