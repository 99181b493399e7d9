"""Owns one command in a session: its named pipes, its turn, its end, which is not the end of the shell.

Begun by the `session.exec` operation, started by session when its turn comes. Invariant: it ends exactly once, when
bash reports or ends; or, given up (time, peer), when bash is back at its prompt and what the command started is dead.
What earlier commands left in the background is spared.
"""

from __future__ import annotations

import os

from . import launch
from .felling import Felling
from .foreground import LAST_WORD, Foreground, Limits
from .loop import Loop
from .refusal import Refusal, spawn_refusal
from .shell import OPENED, Shell, quote
from .tree import signal_below, top

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .channel import Channel
    from .session import Session

_STUCK = 0.55
"""Seconds after which a bash that did not come back to its prompt is killed and replaced."""


class Typed(Foreground):
    """A command of a session, waiting or in progress."""

    _count = 0

    def __init__(self, loop: Loop, session: Session, channel: Channel, args: dict[str, Any]) -> None:
        super().__init__(loop, channel, Limits(args))
        Typed._count += 1
        self._session = session
        self._text = _text(args)
        self._env = _env(args)
        self.cwd = _cwd(args)
        self._number = Typed._count
        self._shell: Shell | None = None
        self._spare: frozenset[int] = frozenset()
        self._felling: Felling | None = None
        self._felled = False
        self._early: list[bytes] = []
        self._early_end = False

    # --- its turn

    def begin(self, shell: Shell, last_code: int) -> None:
        """Has the shell carry it out. Refusal when its pipes cannot be made."""
        near: list[int] = []
        try:
            lines = self._lines(shell, last_code)
            near = self._pipes(shell)
            self._spare = frozenset({shell.pid, *top((shell.keeper.pid, shell.pid), (shell.pid,))})
        except OSError as problem:
            for fd in near:
                os.close(fd)
            shell.folder.remove(*self._names())
            raise spawn_refusal(problem) from None
        self._shell = shell
        stdin = near[2] if self._limits.stdin else -1
        self._reader = near[3] if self._limits.stdin else -1
        self._attach(stdin, near[0], near[1], held=stdin >= 0)
        shell.type(lines, "" if self.cwd is None else f"\\builtin cd -- {quote(self._session.cwd)}\n")
        self._channel.opened()
        for output in self._outputs:
            output.start()
        for payload in self._early:
            self._source.data(payload)
        if self._early_end:
            self._source.eof()
        self._early.clear()

    def _names(self) -> tuple[str, ...]:
        return tuple(f"{self._number}.{part}" for part in "sc012")

    def _lines(self, shell: Shell, last_code: int) -> str:
        folder, number = shell.folder, self._number
        text = self._text.encode("utf-8", "surrogateescape")
        command = folder.write(f"{number}.c", text + b"\n")
        outputs = f">{folder.pipe(f'{number}.1')} 2>{folder.pipe(f'{number}.2')}"
        source = " ".join([*(f"{name}={quote(value)}" for name, value in self._env.items()), f"\\builtin . {command}"])
        lines = []
        if last_code:
            # `$?` lasts between commands; under `set -e` it would end the shell.
            restore = folder.write(f"{number}.s", b"\\builtin return %d\n" % last_code)
            lines.append(f"[[ $- = *e* ]] || \\builtin . {restore}")
        if self.cwd is not None:
            source = f"\\builtin cd -- {quote(self.cwd)} && {source}"
        if self._limits.stdin:
            source = f"{{ {OPENED % shell.report}; {source}; }} <{folder.pipe(f'{number}.0')} {outputs}"
        elif self.cwd is not None:
            source = f"{{ {source}; }} </dev/null {outputs}"
        else:
            source = f"{source} </dev/null {outputs}"
        return "\n".join([*lines, source, ""])

    def _pipes(self, shell: Shell) -> list[int]:
        """Our ends: output, errors, and for input the writer and, until bash has opened its own, a reader."""
        near: list[int] = []
        wanted = [("1", os.O_RDONLY), ("2", os.O_RDONLY)]
        if self._limits.stdin:
            wanted += [("0", os.O_RDONLY), ("0", os.O_WRONLY)]
        try:
            for part, flags in wanted:
                near.append(shell.folder.open(f"{self._number}.{part}", flags))
        except OSError:
            for fd in near:
                os.close(fd)
            raise
        if self._limits.stdin:
            near[2], near[3] = near[3], near[2]
        return near

    def opened(self) -> None:
        """Bash has opened the input: from now on closing our end is the end."""
        reader, self._reader = self._reader, -1
        if reader >= 0:
            self._loop.close(reader)
            self._source.unhold()

    # --- what the peer says

    def data(self, payload: bytes) -> None:
        """Bytes for standard input, kept until its turn."""
        if self._shell is None and self._limits.stdin and not self._over:
            self._early.append(payload)
        else:
            super().data(payload)

    def eof(self) -> None:
        """The end of standard input."""
        self._early_end = True
        super().eof()

    def signal(self, number: int) -> None:
        """A signal to every process of this command, not to bash."""
        if self._shell is not None and self._shell.pid and 0 < number <= 64 and not self._final:
            signal_below(self._roots(self._shell), number, self._spare, groups=False)

    def close(self) -> None:
        """The peer no longer wants it: out of the queue, or given up."""
        if self._shell is None and not self._over:
            self.refuse(Refusal("RESOURCE_BUSY", "the call left the session's queue"))
            self._session.left(self)
        else:
            super().close()

    # --- ends

    def reported(self, code: int) -> None:
        """Bash is back at its prompt."""
        if self._status is None:
            self._status = code << 8
        if self._felling is None:
            self._finish()
        else:
            self._fall()

    def shell_ended(self, status: int) -> None:
        """The command ended the shell, or we did."""
        if self._status is None:
            self._status = status
        self._fall()

    @property
    def given_up(self) -> bool:
        """Its time ran out, or its peer left."""
        return self._felling is not None

    @staticmethod
    def _roots(shell: Shell) -> tuple[int, ...]:
        return (shell.keeper.pid, shell.pid) if shell.pid else (shell.keeper.pid,)

    def _fell(self, grace: bool) -> None:
        shell = self._shell
        if shell is None or self._final:
            return
        if self._felling is None:
            shell.give_up()
            self._felling = Felling(
                self._loop, self._roots(shell), spare=self._spare, groups=False, emptied=self._emptied
            )
            self._timers.append(self._loop.later(_STUCK, self._stuck))
            self._timers.append(self._loop.later(LAST_WORD, self._finish))
        if grace:
            self._felling.ask()
        else:
            self._felling.kill()

    def _emptied(self) -> None:
        self._felled = True
        self._fall()

    def _fall(self) -> None:
        if self._status is not None and (self._felling is None or self._felled):
            self._finish()

    def _stuck(self) -> None:
        if self._status is None and self._shell is not None:
            self._shell.kill()

    def refuse(self, refusal: Refusal) -> None:
        """It is not carried out, or its session is gone."""
        self._channel.refuse(refusal)
        self._clear()

    def _account(self) -> dict[str, Any]:
        return super()._account() | {"cwd": self._session.cwd}

    def _clear(self) -> None:
        super()._clear()
        self.opened()
        for payload in self._early:
            self._channel.consumed(len(payload))
        self._early.clear()
        if self._shell is not None:
            self._shell.folder.remove(*self._names())
            self._session.ended(self)

    _reader = -1


def _text(args: dict[str, Any]) -> str:
    command, argv = launch.text_of(args, "command"), args.get("argv")
    if (command is None) is (argv is None):
        raise Refusal("INVALID_COMMAND", "exactly one of command and argv is needed")
    return command if command is not None else " ".join(map(quote, launch.words_of(argv)))


def _env(args: dict[str, Any]) -> dict[str, str]:
    env = launch.env_of(args)
    for name in env:
        if not name.isidentifier() or not name.isascii():
            raise Refusal("INVALID_PROCESS_ENVIRONMENT", f"{name[:100]!r} cannot be a variable of a shell")
    return env


def _cwd(args: dict[str, Any]) -> str | None:
    cwd = launch.text_of(args, "cwd")
    if cwd is not None and not os.path.isdir(cwd):
        raise Refusal("INVALID_PROCESS_CWD", f"cannot work in {cwd[:200]}", cwd=cwd[:200])
    return cwd
