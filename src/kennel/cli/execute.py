"""Owns `kennel exec`: one command in a sandbox, with this process's stdin, stdout, stderr and exit code.

Called by `__main__`. Invariants: not one byte is added, lost or changed between the two ends, and each passes when it
comes; Ctrl-C goes to the command, a second one leaves it, and leaving ends it.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from kennel.cli.flags import DEFAULTS, Flags, Name, Words, misuse, pairs
from kennel.cli.output import show_json
from kennel.wire.errors import KennelError, error

if TYPE_CHECKING:
    from kennel import ExecEvent, Interaction

MAX_STDIN = 16 * 1024 * 1024
_PIECE = 128 * 1024


def execute(
    name: Name,
    /,
    *argv: Annotated[str, Parameter(help="The program and its arguments, after `--`.")],
    cwd: Annotated[str | None, Parameter(help="Directory to run in; /workspace unless set.")] = None,
    env: Annotated[Words, Parameter(help="NAME=VALUE for this command; again for more.")] = (),
    user: Annotated[str | None, Parameter(help="A name, a uid, or uid:gid of the sandbox.")] = None,
    timeout: Annotated[float | None, Parameter(help="Seconds, then it is killed and the exit code is 124.")] = None,
    session: Annotated[str | None, Parameter(help="A session whose directory and variables last.")] = None,
    stdin: Annotated[bool, Parameter(help="Pass this process's stdin on, unless it is a terminal.")] = True,
    flags: Flags = DEFAULTS,
) -> int:
    """Run a command in a sandbox: kennel exec NAME -- ARGV…

    Output and input pass as they come. No shell is involved: for one, say `kennel exec NAME -- bash -c 'TEXT'`. The
    exit code is the command's own.
    """
    if not argv:
        raise misuse("there is no command to run", hint="kennel exec NAME -- uname -a")
    words: dict[str, Any] = {
        "argv": None if session else argv,
        "cwd": cwd,
        "env": pairs(env, "--env") or None,
        "timeout": timeout,
        "user": user,
        "session_id": session,
    }
    text = _shell_text(argv) if session else None
    with flags.client() as itx:
        box = itx.sandboxes.get(name)
        if flags.json:
            result = box.exec(text, **words, stdin=(_given() if stdin else b"") or None)
            show_json(result)
            return result.exit_code
        given = stdin and _passed_on()
        with box.interact(text, **words) as command:
            return _converse(command, given)


def _shell_text(argv: tuple[str, ...]) -> str:
    """One line of shell that runs these words; a session is a shell and takes nothing else."""
    import shlex

    return shlex.join(argv)


def _passed_on() -> bool:
    """Whether there is a stdin that no person is sitting at; OSError for one that cannot be read."""
    if sys.stdin is None or sys.stdin.closed or sys.stdin.isatty():
        return False
    os.read(sys.stdin.fileno(), 0)
    return True


def _given() -> bytes:
    """All of stdin, unless a person is sitting at it; BODY_TOO_LARGE past MAX_STDIN."""
    if not _passed_on():
        return b""
    data = sys.stdin.buffer.read(MAX_STDIN + 1)
    if len(data) > MAX_STDIN:
        hint = "leave out --json, or write it to a file in the sandbox first"
        raise error("BODY_TOO_LARGE", f"stdin is over {MAX_STDIN} bytes", hint=hint, admitted="no")
    return data


def _converse(command: Interaction, stdin: bool) -> int:
    """Both directions until the command ends; its exit code."""
    pump = Pump(command, stdin)
    before = signal.signal(signal.SIGINT, _interrupter(command))
    try:
        for event in command:
            pump.started.set()
            _show(event)
    except KennelError:
        if pump.failure is not None:
            raise pump.failure from None
        raise
    finally:
        signal.signal(signal.SIGINT, before)
    return command.exit.exit_code if command.exit is not None else 1


def _show(event: ExecEvent) -> None:
    if isinstance(event.data, bytes) and event.type in ("stdout", "stderr"):
        stream = sys.stdout if event.type == "stdout" else sys.stderr
        stream.buffer.write(event.data)
        stream.flush()


class Pump:
    """Passes stdin on as it comes, and its end; `failure` is why it could not be read."""

    def __init__(self, command: Interaction, stdin: bool) -> None:
        self._command = command
        self._stdin = stdin
        self.started = threading.Event()
        self.failure: OSError | None = None
        threading.Thread(target=self._run, daemon=True, name="stdin").start()

    def _run(self) -> None:
        self.started.wait()
        try:
            while self._stdin and (data := self._read()):
                self._command.write(data)
            if self.failure is None:
                self._command.close_stdin()
        except KennelError:
            return  # the command has ended: its own end is what counts

    def _read(self) -> bytes:
        try:
            return os.read(sys.stdin.fileno(), _PIECE)
        except OSError as failure:
            self.failure = failure
            self._command.hang_up()
            return b""


def _interrupter(command: Interaction) -> Any:
    """Ctrl-C for the command; the second time for us."""
    told = False

    def interrupt(number: int, frame: object) -> None:
        nonlocal told
        if told:
            raise KeyboardInterrupt
        told = True
        # Not from here: whoever was interrupted may be the one who is writing.
        threading.Thread(target=_signal, args=(command,), daemon=True, name="interrupt").start()

    return interrupt


def _signal(command: Interaction) -> None:
    try:
        command.signal("SIGINT")
    except KennelError:
        return  # it has ended
