"""Owns the operations `archive.pack`, `unpack`, `save` and `restore`: the guest's own interpreter runs their programs.

Begun like a command, because it is one: its output or its input is the archive, its end an EXIT. Invariant: the image
needs no tar; the program has the rights of the caller's user and of nobody else.
"""

from __future__ import annotations

import os

from .accounts import Accounts
from .exec import Exec, ExecOperation
from .loop import Loop
from .paths import flag_of, path_of, text
from .pool import Pool

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .channel import Channel

_MAIN = b"/__main__.py"


class Restoring(Exec):
    """A directory on its way back: asked before it is killed, so that it takes away what it had unpacked."""

    def _fell(self, grace: bool) -> None:
        super()._fell(True)


class ArchiveOperations:
    """All four verbs."""

    def __init__(self, loop: Loop, pool: Pool, accounts: Accounts) -> None:
        self._exec = ExecOperation(loop, pool, accounts)

    def begin(self, verb: str, channel: Channel, args: dict[str, Any]) -> Exec:
        """Starts packing or saving `path` to output, or unpacking or restoring input into it."""
        file = "backup.py" if verb in ("save", "restore") else "archive.py"
        words = [*interpreter(), os.path.join(os.path.dirname(__file__), file), verb, text(path_of(args))]
        if file == "backup.py":
            words.append(str(args.get("options", "{}")))
        elif flag_of(args, "gzip"):
            words.append("gzip")
        job = {"argv": words, "cwd": "/", "user": args.get("user"), "stdin": verb != "pack"}
        return self._exec.begin(channel, job, Restoring if verb == "restore" else Exec)


def interpreter() -> list[str]:
    """The words before the guest's own file in the command line that started it."""
    with open("/proc/self/cmdline", "rb") as file:
        words = file.read(64 * 1024).split(b"\0")
    end = next(at for at, word in enumerate(words) if word.endswith(_MAIN))
    return [os.fsdecode(word) for word in words[:end]]
