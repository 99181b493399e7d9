"""Owns one background process as it is remembered: its state, its log, its input, whoever listens.

Made by processes. Invariant: it is `running` until all of it is gone, then `exited` with a code, or `error` when it was
never started; once over it never changes again; listeners hear every byte in order and the end once.
"""

from __future__ import annotations

from time import time

from . import framing
from .refusal import Refusal
from .ring import Ring

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Protocol

    from .channel import Channel
    from .program import Program

    class Listener(Protocol):
        """Follows a process: bytes are in its ring when `wrote` is called."""

        def wrote(self, kind: int, data: bytes) -> None: ...
        def ended(self) -> None: ...

    class Writer(Protocol):
        """Writes to a process's input."""

        def taken(self, count: int) -> None: ...


LOG = 1024 * 1024
MOST_LISTENERS = 256
_MOST_PENDING = 1024 * 1024
_COMMAND = 500


class Process:
    """A record, and the channel of its program: what a program would tell its caller it tells here."""

    open = True
    room = framing.MAX_PAYLOAD

    def __init__(self, name: str, args: dict[str, Any], changed: Callable[[Process], None]) -> None:
        self.name = name
        self.keep_awake = args.get("awake") is True
        self.takes_input = args.get("stdin") is True
        self.ring = Ring(LOG)
        self.state = "running"
        self.exit: dict[str, Any] | None = None
        self.program: Program | None = None
        self._command = _shown(args)[:_COMMAND]
        self._cwd = str(args.get("cwd", "/"))
        self._error: dict[str, Any] | None = None
        self._began = time()
        self._over = 0.0
        self._changed = changed
        self._starting: Channel | None = None
        self._listeners: list[Listener] = []
        self._writers: list[Writer | None] = []
        self._pending = 0

    @property
    def running(self) -> bool:
        return self.state == "running"

    def answer_to(self, channel: Channel) -> None:
        """Who hears that it runs, or why it does not."""
        self._starting = channel

    def facts(self) -> dict[str, Any]:
        """What is known of it, as it travels; times are milliseconds since 1970."""
        return {
            "id": self.name,
            "command": self._command,
            "cwd": self._cwd,
            "state": self.state,
            "pid": self.program.pid if self.program is not None else 0,
            "began": round(self._began * 1000),
            "over": round(self._over * 1000) or None,
            "exit": self.exit,
            "error": self._error,
            "awake": self.keep_awake,
            "first": self.ring.first,
            "last": self.ring.last,
        }

    def ending(self) -> dict[str, Any]:
        """How it ended, for the books; `failed` is a code when it was never started."""
        failed = None if self._error is None else self._error.get("code")
        began, over = round(self._began * 1000), round(self._over * 1000)
        return {"id": self.name, "began": began, "over": over, "exit": self.exit, "failed": failed}

    # --- what its program says

    def opened(self) -> None:
        """It runs."""
        starting, self._starting = self._starting, None
        if starting is not None:
            starting.end(framing.RESULT, self.facts())

    def output(self, kind: int, payload: bytes) -> None:
        """It wrote something."""
        self.ring.add(kind, payload)
        for listener in tuple(self._listeners):
            listener.wrote(kind, payload)

    def consumed(self, count: int) -> None:
        """It read a piece of its input, or will never."""
        self._pending -= count
        writer = self._writers.pop(0)
        if writer is not None:
            writer.taken(count)

    def end(self, kind: int, value: dict[str, Any]) -> None:
        """It is over."""
        self.opened()
        self.exit = {name: value[name] for name in ("code", "signal", "timed_out")}
        self._finish("exited")

    def refuse(self, refusal: Refusal) -> None:
        """It could not be started."""
        self._error = refusal.to_control()
        starting, self._starting = self._starting, None
        self._finish("error")
        if starting is not None:
            starting.refuse(refusal)

    def _finish(self, state: str) -> None:
        self.state = state
        self._over = time()
        listeners, self._listeners = self._listeners, []
        for listener in listeners:
            listener.ended()
        self._changed(self)

    # --- who listens, who writes

    def listen(self, listener: Listener, *, always: bool = False) -> None:
        """Hears of everything from now on; RESOURCE_BUSY unless it is `always` let in."""
        if len(self._listeners) >= MOST_LISTENERS and not always:
            raise Refusal("RESOURCE_BUSY", f"{MOST_LISTENERS} calls follow this process")
        self._listeners.append(listener)

    def leave(self, listener: Listener) -> None:
        """Hears no more."""
        if listener in self._listeners:
            self._listeners.remove(listener)

    @property
    def busy(self) -> bool:
        """More input waits than should be held."""
        return self._pending >= _MOST_PENDING

    def write(self, writer: Writer, payload: bytes) -> None:
        """Input from a writer, who hears when it was read."""
        self._writers.append(writer)
        self._pending += len(payload)
        assert self.program is not None
        self.program.data(payload)

    def forget(self, gone: Writer) -> None:
        """That writer has ended; what it wrote still goes in."""
        self._writers = [None if writer is gone else writer for writer in self._writers]


def _shown(args: dict[str, Any]) -> str:
    command, argv = args.get("command"), args.get("argv")
    if type(command) is str:
        return command
    return " ".join(str(word) for word in argv[:64]) if type(argv) is list else ""
