"""Owns what a sandbox wrote and nobody wants any more: set aside at once when it starts, deleted while it runs.

Called by uppers and unit. Invariant: setting aside is one rename on the sandbox's own disk, and a start that was cut
off does it again; node itself walks nothing of it; a sweep never outlives the sandbox's mounts.
"""

from __future__ import annotations

import logging
import os
import secrets
import threading
from collections.abc import Iterable
from pathlib import Path

from kennel.node import linux
from kennel.node.packer import Cancel, Packer
from kennel.steps import step
from kennel.wire.errors import KennelError

log = logging.getLogger("kennel.discarded")

_GONE, _KEPT = "discarded", "set-aside"
SWEEP_SECONDS = 3600.0
AT_ONCE = 2
"""Sweeps that run side by side; the other places of the packing process are for packs."""


def discard(mounted: Path, names: Iterable[str]) -> None:
    """Takes the uppers of these names off a mounted disk's places; they go with the next sweep."""
    _move(mounted, names, mounted / _GONE)


def set_aside(mounted: Path, names: Iterable[str]) -> None:
    """As `discard`, but they stay for as long as the disk."""
    _move(mounted, names, mounted / _KEPT)


def _move(mounted: Path, names: Iterable[str], home: Path) -> None:
    for name in names:
        if (mounted / name).is_dir():
            with step("set aside", name):
                home.mkdir(mode=0o700, exist_ok=True)
                os.rename(mounted / name, home / f"{name}-{secrets.token_hex(8)}")


class Sweeps:
    """The sweeps in progress, at most one a sandbox."""

    def __init__(self, packer: Packer) -> None:
        self._packer, self._room = packer, threading.BoundedSemaphore(AT_ONCE)
        self._going: dict[str, tuple[threading.Thread, Cancel]] = {}

    def begin(self, sandbox: str, mounted: Path) -> None:
        """Deletes in the background what was discarded on this disk, if anything was; `end` before it is unmounted."""
        home = mounted / _GONE
        if sandbox in self._going or not home.is_dir():
            return
        tree, cancel = linux.detached(str(home), read_only=False), Cancel()
        thread = threading.Thread(target=self._sweep, args=(sandbox, tree, cancel), daemon=True, name="sweep")
        self._going[sandbox] = thread, cancel
        thread.start()

    def _sweep(self, sandbox: str, tree: int, cancel: Cancel) -> None:
        try:
            while not self._room.acquire(timeout=0.1):
                if cancel.asked:
                    return
            try:
                self._packer.run({"job": "sweep"}, [tree], seconds=SWEEP_SECONDS, max_image=0, cancel=cancel)
            finally:
                self._room.release()
        except KennelError as failure:
            if not cancel.asked:
                log.warning("what %s left is not all deleted: %s", sandbox, failure)
        finally:
            os.close(tree)

    def end(self, sandbox: str) -> None:
        """Ends the sandbox's sweep, if one is going; what is left goes with the next."""
        thread, cancel = self._going.pop(sandbox, (None, None))
        if thread is not None and cancel is not None:
            cancel.ask()
            thread.join()
