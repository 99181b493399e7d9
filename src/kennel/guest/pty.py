"""Owns a pseudo-terminal's two ends: the master that the guest reads and writes, the slave that a program is given.

Called by terminal. Invariant: both ends are closed on exec; a size is always within what programs expect.
"""

from __future__ import annotations

import os
from fcntl import ioctl
from struct import Struct

from .accounts import Account
from .refusal import Refusal, spawn_refusal

_TIOCSWINSZ, _TIOCSPTLCK, _TIOCGPTN = 0x5414, 0x40045431, 0x80045430
_SIZE, _NUMBER = Struct("HHHH"), Struct("I")
MOST_SIDE = 1000


def open_pair(account: Account, columns: int, rows: int) -> tuple[int, int]:
    """A new terminal's master and slave; the slave belongs to `account`. PROCESS_SPAWN_FAILED when there is none."""
    master = slave = -1
    try:
        master = os.open("/dev/ptmx", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC | os.O_NONBLOCK)
        ioctl(master, _TIOCSPTLCK, _NUMBER.pack(0))
        number = _NUMBER.unpack(ioctl(master, _TIOCGPTN, _NUMBER.pack(0)))[0]
        slave = os.open(f"/dev/pts/{number}", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
        if account.uid != os.getuid():
            os.fchown(slave, account.uid, -1)
        resize(master, columns, rows)
    except OSError as problem:
        for fd in (master, slave):
            if fd >= 0:
                os.close(fd)
        raise spawn_refusal(problem) from None
    return master, slave


def resize(master: int, columns: int, rows: int) -> None:
    """Tells the terminal, and so its programs, its size."""
    ioctl(master, _TIOCSWINSZ, _SIZE.pack(rows, columns, 0, 0))


def size_of(columns: object, rows: object) -> tuple[int, int]:
    """A size among the arguments of a call; VALIDATION_FAILED."""
    if type(columns) is not int or type(rows) is not int or not (1 <= columns <= MOST_SIDE and 1 <= rows <= MOST_SIDE):
        raise Refusal("VALIDATION_FAILED", f"cols and rows are whole numbers from 1 to {MOST_SIDE}")
    return columns, rows
