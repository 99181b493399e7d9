"""Owns `kennel shell`: a person's terminal joined with one in a sandbox.

Called by `__main__`. Invariants: the person's terminal is as it was afterwards, however this ends; what is typed goes
to the sandbox and nowhere else, but for the detach key; the terminal in the sandbox goes on without this.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import sys
import termios
import threading
import time
import tty
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from kennel.cli.flags import DEFAULTS, Flags, Name, misuse
from kennel.wire.errors import KennelError

if TYPE_CHECKING:
    from kennel import Sandbox, Terminal

DETACH = b"\x1d"
"""Ctrl-]"""
_TRIES = (0.2, 0.5, 1.0, 2.0, 4.0)
_PIECE = 64 * 1024
_LEFT = "\r\n[detached; `kennel shell` comes back to it]\r\n"


def shell(
    name: Name,
    /,
    *argv: Annotated[str, Parameter(help="A program instead of the shell, after `--`.")],
    id: Annotated[str, Parameter(help="The terminal: several may be open beside each other.")] = "main",
    watch: Annotated[bool, Parameter(negative=(), show_default=False, help="Look on, without keys.")] = False,
    cwd: Annotated[str | None, Parameter(help="Directory of a new terminal; /workspace unless set.")] = None,
    user: Annotated[str | None, Parameter(help="A name, a uid, or uid:gid, for a new terminal.")] = None,
    flags: Flags = DEFAULTS,
) -> int:
    """Open a terminal in a sandbox, or come back to one. Ctrl-] leaves it running.

    Whoever opens the same terminal elsewhere takes over; the one before looks on. The exit code is the program's own.
    """
    if sys.stdin is None or not sys.stdin.isatty():
        raise misuse("stdin is no terminal", hint="kennel exec NAME -- COMMAND needs none")
    with flags.client() as itx:
        options = {"mode": "watch" if watch else "drive", "argv": argv or None, "cwd": cwd, "user": user}
        return Joined(itx.sandboxes.get(name), id, options).run()


class Joined:
    """This terminal and the other one, over as many connections as it takes."""

    def __init__(self, box: Sandbox, terminal_id: str, options: dict[str, Any]) -> None:
        self._box = box
        self._id = terminal_id
        self._options = options
        self._terminal: Terminal | None = None
        self._cursor: int | None = None
        self._runtime: str | None = None
        self._detached = False
        self._wake, self._woken = os.pipe()
        self._stdin = sys.stdin.fileno()

    def run(self) -> int:
        """Until the program ends or the person leaves; the exit code."""
        self._attach()  # refused before the terminal is touched
        before = termios.tcgetattr(self._stdin)
        os.set_blocking(self._woken, False)
        saved = {number: signal.signal(number, self._leave) for number in (signal.SIGTERM, signal.SIGHUP)}
        saved[signal.SIGWINCH] = signal.signal(signal.SIGWINCH, self._resized)
        try:
            tty.setraw(self._stdin)
            threading.Thread(target=self._keys, daemon=True, name="keys").start()
            return self._show()
        finally:
            termios.tcsetattr(self._stdin, termios.TCSADRAIN, before)
            for number, handler in saved.items():
                signal.signal(number, handler)
            if self._terminal is not None:
                self._terminal.close()

    def _attach(self) -> None:
        size = shutil.get_terminal_size()
        self._terminal = self._box.terminal(
            self._id, cols=size.columns, rows=size.lines, since=self._cursor, runtime=self._runtime, **self._options
        )

    def _show(self) -> int:
        """Writes out what comes; connects again where it broke."""
        while True:
            terminal = self._terminal
            assert terminal is not None
            try:
                for data in terminal:
                    self._write(data)
            except KennelError as failure:
                self._cursor, self._runtime = terminal.cursor, terminal.runtime
                if self._detached:
                    break
                if failure.code != "CONNECTION_LOST":
                    raise
                self._return(failure)
                continue
            if terminal.exit is not None:
                return terminal.exit.code
            break
        self._write(_LEFT.encode())
        return 0

    def _return(self, failure: KennelError) -> None:
        for pause in _TRIES:
            time.sleep(pause)
            try:
                self._attach()
            except KennelError as again:
                if again.code != "CONNECTION_LOST":
                    raise
            else:
                return
        raise failure

    @staticmethod
    def _write(data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(sys.stdout.fileno(), view) :]

    def _keys(self) -> None:
        """What is typed, and new sizes, to the sandbox."""
        while True:
            ready, _, _ = select.select([self._stdin, self._wake], [], [])
            try:
                if self._wake in ready:
                    os.read(self._wake, 512)
                    size = shutil.get_terminal_size()
                    if self._terminal is not None:
                        self._terminal.resize(size.columns, size.lines)
                if self._stdin in ready and not self._typed(os.read(self._stdin, _PIECE)):
                    return
            except KennelError:
                time.sleep(0.05)  # the connection is being made again; keys typed meanwhile are lost, as on any line

    def _typed(self, data: bytes) -> bool:
        """Passes keys on; false once the person leaves."""
        terminal = self._terminal
        before, found, _ = data.partition(DETACH)
        if terminal is not None and before:
            terminal.write(before)
        if found or not data:
            self._detached = True
            if terminal is not None:
                terminal.hang_up()
            return False
        return True

    def _resized(self, number: int, frame: object) -> None:
        os.write(self._woken, b"w")

    def _leave(self, number: int, frame: object) -> None:
        raise SystemExit(128 + number)
