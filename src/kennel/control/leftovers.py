"""Owns the list of what a snapshot leaves out, made inside the sandbox while it still runs.

Called by workspaces before a sandbox stops or is packed. Invariant: git runs inside, never on the host; the list is
bounded and checked; no git inside, or a guest that hangs, means that only names are left out.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

from kennel.domain import exclusion
from kennel.domain.command import Command
from kennel.domain.container import INTERPRETER
from kennel.ports.guest import Guest
from kennel.wire.errors import KennelError

log = logging.getLogger("kennel.leftovers")

SECONDS = 20.0

_LISTER = r"""
import fnmatch, json, os, shutil, subprocess, sys, time
asked, most, end = json.loads(sys.argv[1]), int(sys.argv[2]), time.monotonic() + float(sys.argv[3])
root = b"/workspace"
patterns = [os.fsencode(each) for each in asked["patterns"]]
git = shutil.which("git") if asked["gitignore"] else None
out, said = sys.stdout.buffer, 0
def say(path):
    global said
    said += len(path) + 1
    if said > most:
        sys.exit(4)
    out.write(path + b"\0")
def ignored(folder):
    here = root + b"/" + folder if folder else root
    words = [git, "-c", "safe.directory=*", "-c", "core.fsmonitor=false", "-C", here,
             "ls-files", "-z", "--others", "--ignored", "--exclude-standard", "--directory"]
    with subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as child:
        rest = b""
        while piece := child.stdout.read1(1 << 16):
            *whole, rest = (rest + piece).split(b"\0")
            for path in whole:
                say(folder + b"/" + path if folder else path)
            if time.monotonic() > end:
                child.kill()
                sys.exit(5)
pending = [b""]
while pending:
    folder = pending.pop()
    if time.monotonic() > end:
        sys.exit(5)
    try:
        entries = list(os.scandir(root + b"/" + folder if folder else root))
    except OSError:
        continue
    if git and any(entry.name == b".git" for entry in entries):
        ignored(folder)
    for entry in entries:
        path = folder + b"/" + entry.name if folder else entry.name
        # Named too, though the pack knows the name: only what is listed is deleted where it lies in a lower layer.
        if asked["nodeModules"] and entry.name == b"node_modules":
            say(path)
        elif any(fnmatch.fnmatchcase(path, each) or fnmatch.fnmatchcase(entry.name, each) for each in patterns):
            say(path)
        elif entry.is_dir(follow_symlinks=False) and entry.name not in (b".git", b"node_modules"):
            pending.append(path)
out.flush()
sys.exit(0 if git or not asked["gitignore"] else 3)
"""
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


async def find(guest: Guest | None, asked: dict[str, Any], *, live: bool) -> Leftovers:
    """What is left out now, by `leave_out.wanted`; without a guest, or when it fails, only names."""
    names = exclusion.DEFAULT_NAMES if asked["nodeModules"] else ()
    plain = Leftovers(names, by="names" if names else "nothing")
    if guest is None or not (asked["gitignore"] or asked["patterns"]):
        return plain
    argv = (*_PYTHON, _LISTER, json.dumps(asked), str(exclusion.MAX_BYTES), str(SECONDS - 2))
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
