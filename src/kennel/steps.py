"""Owns the names of the steps that control and node take, and dying at one of them.

Called around everything that changes what outlives the process: appends, node's verbs, mounts, files, containers.
Invariant: unless the setting `steps` is on, a step is one look at a global and changes nothing; when it is on, each
point passed is written down before it is passed, and the process is dead before anything behind its point happened.

The folder holds `steps`, a line `SECONDS POINT` for each point, and `crash-at`, where somebody may put
`COUNT MILLISECONDS POINT`: at the COUNT-th passing of POINT from then on the file goes and the process kills itself. A
point is `before STEP`, `after STEP`, or `during STEP`, which is MILLISECONDS later unless the step is over by then.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType


class _Quiet:
    """A step of a process that nobody watches."""

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, failure: BaseException | None, where: TracebackType | None
    ) -> None:
        return None


_QUIET = _Quiet()
_watch: Watch | None = None


def step(name: str | Callable[..., str], *words: object) -> AbstractContextManager[None]:
    """Marks the block as one step; `name` may be a function of `words`, which is called only when somebody watches."""
    return _QUIET if _watch is None else _watch.step(name, words)


def watch(folder: Path) -> None:
    """From now on this process notes its steps in `folder` and dies where it is told."""
    global _watch
    _watch = Watch(folder)


class Watch:
    """The watched form of steps."""

    def __init__(self, folder: Path) -> None:
        self._order = folder / "crash-at"
        self._noted = os.open(folder / "steps", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._lock = threading.Lock()
        self._seen = ("", 0)

    @contextlib.contextmanager
    def step(self, name: str | Callable[..., str], words: tuple[object, ...]) -> Iterator[None]:
        called = " ".join((name, *map(str, words))) if isinstance(name, str) else name(*words)
        self._pass(f"before {called}")
        timer = self._timer(f"during {called}")
        try:
            yield
        finally:
            if timer is not None:
                timer.cancel()
        self._pass(f"after {called}")

    def _pass(self, point: str) -> None:
        with self._lock:
            os.write(self._noted, f"{time.monotonic():.6f} {point}\n".encode())
            if self._due(point) is not None:
                self._die()

    def _timer(self, point: str) -> threading.Timer | None:
        with self._lock:
            milliseconds = self._due(point)
        if milliseconds is None:
            return None
        timer = threading.Timer(milliseconds / 1000, self._die)
        timer.start()
        return timer

    def _due(self, point: str) -> float | None:
        """The milliseconds that the order names, when `point` is the one it means and has now been passed enough."""
        try:
            order = self._order.read_text()
        except FileNotFoundError:
            return None
        count, milliseconds, wanted = order.split(" ", 2)
        if wanted != point:
            return None
        self._seen = (order, self._seen[1] + 1 if self._seen[0] == order else 1)
        return float(milliseconds) if self._seen[1] == int(count) else None

    def _die(self) -> None:
        # First the order, or the process that is started in this one's place would die of it too.
        self._order.unlink(missing_ok=True)
        os.kill(os.getpid(), signal.SIGKILL)
        signal.pause()
