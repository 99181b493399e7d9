"""Owns the line that says how far a long snapshot, sleep or roll back is, while its command waits for the answer.

Called by the sandbox commands. Invariant: it is for a person at a terminal and nothing else: elsewhere nothing is
followed; what it cannot learn costs the command nothing.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from kennel.cli.output import printable
from kennel.wire.errors import KennelError

if TYPE_CHECKING:
    from kennel import Sandbox

_KIND = "sandbox/backup-progress"


@contextlib.contextmanager
def going(box: Sandbox, shown: bool | None = None) -> Iterator[None]:
    """Shows the progress that the sandbox's stream tells, until the block ends."""
    if not (sys.stderr.isatty() if shown is None else shown):
        yield
        return
    over = threading.Event()
    # A daemon: a stream that says nothing more must not hold up the end of the command.
    threading.Thread(target=_follow, args=(box, over), daemon=True, name="progress").start()
    try:
        yield
    finally:
        over.set()
        sys.stderr.write("\r\x1b[K")
        sys.stderr.flush()


def _follow(box: Sandbox, over: threading.Event) -> None:
    try:
        latest = box.processor.snapshot().offset
        with box.stream.events(after=latest, types=_KIND) as events:
            for event in events:
                if over.is_set():
                    return
                sys.stderr.write(f"\r\x1b[K{printable(line(event.payload))}")
                sys.stderr.flush()
    except KennelError:
        return  # a key that may not read, or a server that went: the command's own answer says which
    except Exception:
        if not over.is_set():  # else the client was closed under it
            raise


def line(payload: Mapping[str, Any]) -> str:
    """`packing: 12,345 names, 67.8 MB`, `uploading: 10.0 of 67.8 MB`."""
    done = int(payload.get("bytes", 0)) / 1e6
    total = payload.get("total")
    size = f"{done:,.1f} MB" if total is None else f"{done:,.1f} of {int(total) / 1e6:,.1f} MB"
    names = payload.get("names")
    return f"{payload.get('phase', 'working')}: " + (size if names is None else f"{int(names):,} names, {size}")
