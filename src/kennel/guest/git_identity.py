"""Owns who commits in a sandbox when nobody has said: a system-wide git configuration, put there at each start.

Called by service in a real sandbox. Invariant: a configuration that is there already stays; the user's and a
repository's own come before it, as git has it.
"""

from __future__ import annotations

import os

CONFIG = "/etc/gitconfig"
TEXT = b"[user]\n\tname = Kennel\n\temail = kennel@localhost\n[init]\n\tdefaultBranch = main\n"


def plant(path: str = CONFIG) -> None:
    """Writes it unless there is one, or the image does not let anybody write there."""
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
    except OSError:
        return
    try:
        os.write(fd, TEXT)
    finally:
        os.close(fd)
