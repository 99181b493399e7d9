"""Owns sessions: shells that keep their directory, variables and functions from call to call.

Begun by the `session.*` operations, which outlive the connection that asked. Invariant: the calls of one session run
one after another in the order they came; a shell that ends is replaced, at once and in its last directory with its last
exported variables (`replace`), or after one call has heard SESSION_TERMINATED.
"""

from __future__ import annotations

import os

from . import exports, framing, launch
from .accounts import Account, Accounts
from .felling import Felling
from .foreground import LAST_WORD
from .loop import Loop, Timer
from .pool import Pool
from .refusal import Refusal
from .shell import Shell
from .typed import Typed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from .channel import Channel

MOST_SESSIONS = 4096
_MOST_WAITING = 1024
_MOST_ID = 256


class Session:
    """One shell after another under one id."""

    def __init__(self, loop: Loop, pool: Pool, account: Account, cwd: str, env: dict[str, str], replace: bool) -> None:
        self._loop = loop
        self._pool = pool
        self._account = account
        self._first = (cwd, env)
        self._replace = replace
        self._exports: bytes | None = None
        self._code = 0
        self._shell: Shell | None = None
        self._trees: dict[Shell, Felling | None] = {}
        self._queue: list[Typed] = []
        self._current: Typed | None = None
        self._terminated: int | None = None
        self._opening: Channel | None = None
        self._closing: Callable[[], None] | None = None
        self._last_word: Timer | None = None
        self.cwd = cwd
        self.closed = False
        self.on_stillborn: Callable[[], None] = lambda: None

    # --- shells

    def open(self, channel: Channel) -> None:
        """Starts the first shell; the channel hears when it runs. Refusal when it cannot be tried."""
        self._start(self.cwd)
        self._opening = channel

    def _start(self, cwd: str) -> None:
        bash = launch.bash()
        if bash is None:
            raise Refusal("NOT_SUPPORTED", "a session needs bash, which this image does not have")
        shell = Shell(self._loop, self._pool, self, bash, self._account, cwd, self.env())
        self._trees[shell] = None
        self._shell = shell
        self.cwd = cwd

    def env(self) -> dict[str, str]:
        """What a new shell gets beside the minimal environment: what the last one had exported."""
        if self._exports is None:
            return self._first[1]
        return exports.parse(self._exports.decode("utf-8", "surrogateescape"))

    def shell_started(self, shell: Shell) -> None:
        """A shell is ready."""
        opening, self._opening = self._opening, None
        if opening is not None:
            opening.end(framing.RESULT, {})
        self._next()

    def shell_failed(self, shell: Shell, refusal: Refusal) -> None:
        """A shell could not be started; a successor whose directory is gone starts in another one."""
        self._shell = None
        if self._opening is not None:
            opening, self._opening = self._opening, None
            self.closed = True
            self.on_stillborn()
            opening.refuse(refusal)
        elif refusal.code == "INVALID_PROCESS_CWD" and self.cwd != "/":
            self._try("/" if self.cwd == self._first[0] else self._first[0])
        else:
            self._refuse_all(refusal)

    def shell_opened(self) -> None:
        """The current command's input is open."""
        if self._current is not None:
            self._current.opened()

    def shell_reported(self, code: int, cwd: bytes, exported: bytes) -> None:
        """The current command is over."""
        current = self._current
        self._code = code
        self._exports = exported
        if current is None or current.cwd is None:
            self.cwd = cwd.decode("utf-8", "surrogateescape") or self.cwd
        if current is not None:
            current.reported(code)

    def shell_ended(self, shell: Shell, status: int) -> None:
        """Bash ended: `exit`, `exec`, a signal, or ours because it was stuck."""
        if shell is not self._shell:
            return
        self._shell = None
        self._code = 0
        current = self._current
        if not self._replace and not (current is not None and current.given_up):
            self._terminated = 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
        if current is not None:
            current.shell_ended(status)

    def shell_empty(self, shell: Shell) -> None:
        """Nothing that was started from that shell is left."""
        felling = self._trees.pop(shell, None)
        if felling is not None:
            felling.done()
        if not self._trees:
            self._give_word()

    # --- commands

    def add(self, typed: Typed) -> None:
        """Queues a command."""
        if len(self._queue) >= _MOST_WAITING:
            raise Refusal("RESOURCE_BUSY", f"{_MOST_WAITING} calls wait for this session")
        self._queue.append(typed)
        self._loop.soon(self._next)

    def left(self, typed: Typed) -> None:
        """Its peer did not want to wait."""
        if typed in self._queue:
            self._queue.remove(typed)

    def ended(self, typed: Typed) -> None:
        """The current command has answered."""
        if typed is self._current:
            self._current = None
            self._loop.soon(self._next)

    def _next(self) -> None:
        while self._queue and self._current is None and not self.closed:
            if self._terminated is not None:
                code, self._terminated = self._terminated, None
                self._exports, self.cwd = None, self._first[0]
                self._queue.pop(0).refuse(Refusal("SESSION_TERMINATED", f"the shell exited: {code}", exitCode=code))
                continue
            if self._shell is None:
                self._try(self.cwd)
                return
            if not self._shell.pid:
                return
            typed = self._current = self._queue.pop(0)
            try:
                typed.begin(self._shell, self._code)
            except Refusal as refusal:
                self._current = None
                typed.refuse(refusal)

    def _try(self, cwd: str) -> None:
        try:
            self._start(cwd)
        except Refusal as refusal:
            self._refuse_all(refusal)

    def _refuse_all(self, refusal: Refusal) -> None:
        queue, self._queue = self._queue, []
        for typed in queue:
            typed.refuse(refusal)

    def close(self, closed: Callable[[], None]) -> None:
        """Kills all of it; `closed` is called when nothing is left, or LAST_WORD has passed."""
        self.closed = True
        gone = Refusal("SESSION_DESTROYED", "the session was closed")
        self._refuse_all(gone)
        if self._current is not None:
            self._current.refuse(gone)
        if self._opening is not None:
            opening, self._opening = self._opening, None
            opening.refuse(gone)
        self._closing = closed
        self._last_word = self._loop.later(LAST_WORD, self._give_word)
        for shell in self._trees:
            felling = self._trees[shell] = Felling(self._loop, (shell.keeper.pid,), leader=shell.pid)
            felling.kill()
        if not self._trees:
            self._give_word()

    def _give_word(self) -> None:
        closing, self._closing = self._closing, None
        if closing is not None:
            if self._last_word is not None:
                self._last_word.cancel()
            closing()


class SessionOperations:
    """In the registry under `session.open`, `.exec`, `.close`, `.list`, `.state`."""

    def __init__(self, loop: Loop, pool: Pool, accounts: Accounts) -> None:
        self._loop = loop
        self._pool = pool
        self._accounts = accounts
        self._sessions: dict[str, Session] = {}

    def open(self, channel: Channel, args: dict[str, Any]) -> None:
        """{session, cwd, env, user?, replace} → {} when the shell runs."""
        name = _name(args)
        if name in self._sessions:
            raise Refusal("SESSION_ALREADY_EXISTS", f"there is a session {name!r}", sessionId=name)
        if len(self._sessions) >= MOST_SESSIONS:
            raise Refusal("RESOURCE_BUSY", f"there are {MOST_SESSIONS} sessions")
        account = self._accounts.find(launch.text_of(args, "user"))
        cwd = launch.text_of(args, "cwd", "/") or "/"
        session = Session(self._loop, self._pool, account, cwd, launch.env_of(args), args.get("replace") is True)
        session.open(channel)
        session.on_stillborn = lambda: self._forget(name, session)
        self._sessions[name] = session

    def _forget(self, name: str, session: Session) -> None:
        if self._sessions.get(name) is session:
            del self._sessions[name]

    def exec(self, channel: Channel, args: dict[str, Any]) -> Typed:
        """A command in a session; as `exec`, without `user`."""
        session = self._find(args)
        typed = Typed(self._loop, session, channel, args)
        session.add(typed)
        return typed

    def close(self, channel: Channel, args: dict[str, Any]) -> None:
        """{session} → {} when all it ran is gone."""
        session = self._find(args)
        del self._sessions[_name(args)]
        session.close(lambda: channel.end(framing.RESULT, {}))

    def list(self, channel: Channel, args: dict[str, Any]) -> None:
        """→ {sessions: [id]}."""
        channel.end(framing.RESULT, {"sessions": list(self._sessions)})

    def state(self, channel: Channel, args: dict[str, Any]) -> None:
        """{session} → {cwd, env} as after its last command."""
        session = self._find(args)
        channel.end(framing.RESULT, {"cwd": session.cwd, "env": session.env()})

    def _find(self, args: dict[str, Any]) -> Session:
        name = _name(args)
        session = self._sessions.get(name)
        if session is None:
            raise Refusal("SESSION_NOT_FOUND", f"there is no session {name!r}", sessionId=name)
        return session


def _name(args: dict[str, Any]) -> str:
    name = launch.text_of(args, "session")
    if not name or len(name) > _MOST_ID:
        raise Refusal("INVALID_COMMAND", f"a session's id has 1 to {_MOST_ID} characters")
    return name
