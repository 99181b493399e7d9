"""Owns the list of what a snapshot leaves out, made inside the sandbox while it still runs.

Called by workspaces before a sandbox stops or is packed. Invariant: git runs inside, never on the host; the list is
bounded and checked; no git inside, or a guest that hangs, means that only names are left out.
"""

from __future__ import annotations

import inspect
import json
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

from kennel.control import lister
from kennel.domain import exclusion
from kennel.domain.command import Command
from kennel.domain.container import INTERPRETER
from kennel.ports.guest import Guest
from kennel.wire.errors import KennelError

log = logging.getLogger("kennel.leftovers")

SECONDS = 20.0

_LISTER = inspect.getsource(lister)
_PYTHON = (*INTERPRETER, "-c")


@dataclass(frozen=True, slots=True)
class Leftovers:
    """What to leave out: names wherever they stand, and paths as a NUL-separated list; and what made the list."""

    names: tuple[str, ...] = ()
    listing: bytes = b""
    by: Literal["nothing", "names", "git"] = "nothing"

    @contextmanager
    def file(self) -> Iterator[int | None]:
        """The list as a file to send along; None when there is no list."""
        if not self.listing:
            yield None
            return
        descriptor = os.memfd_create("left-out", os.MFD_CLOEXEC)
        try:
            view = memoryview(self.listing)
            while view:
                view = view[os.write(descriptor, view) :]
            yield descriptor
        finally:
            os.close(descriptor)


async def find(guest: Guest | None, asked: dict[str, Any], *, live: bool, root: str = "/workspace") -> Leftovers:
    """What of `root` is left out now, by `leave_out.wanted`; without a guest, or when it fails, only names."""
    names = exclusion.DEFAULT_NAMES if asked["nodeModules"] else ()
    plain = Leftovers(names, by="names" if names else "nothing")
    if guest is None or not (asked["gitignore"] or asked["patterns"]):
        return plain
    argv = (*_PYTHON, _LISTER, root, json.dumps(asked), str(exclusion.MAX_BYTES), str(SECONDS - 2))
    env, most = {"GIT_OPTIONAL_LOCKS": "0"}, exclusion.MAX_BYTES
    command = Command(argv=argv, cwd="/", env=env, timeout_ms=round(SECONDS * 1000), max_bytes=most)
    try:
        outcome = await guest.exec(command)
        if outcome.exit_code not in (0, 3) or outcome.stdout_truncated:
            log.info("the list of what git ignores was not made: exit code %d", outcome.exit_code)
            return plain
        paths = exclusion.parse(outcome.stdout)
        if live and len(paths) > exclusion.MAX_LIVE_PATHS:
            return plain
    except KennelError as failure:
        log.info("the list of what git ignores was not made: %s", failure)
        return plain
    by: Literal["nothing", "names", "git"] = "git" if outcome.exit_code == 0 and asked["gitignore"] else plain.by
    return Leftovers(names, exclusion.join(paths), by)
