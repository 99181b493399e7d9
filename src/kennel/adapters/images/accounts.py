"""Owns the generated account files of the host image: passwd, group, shadow, gshadow, sudoers.

Called by skeleton.py. Invariant: no password, no person and no login of the host appears; the host's *system* accounts
do (uid under 1000, no comment field, no members), because programs under /usr and the package database name them.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

USER, USER_ID = "user", 1000
"""The unprivileged account that every image of Kennel has."""

_FIRST_DYNAMIC, _FIRST_PERSON = 100, 1000
_FIXED_ACCOUNTS = """\
root:x:0:0::/root:/bin/bash
daemon:x:1:1::/usr/sbin:/usr/sbin/nologin
bin:x:2:2::/bin:/usr/sbin/nologin
sys:x:3:3::/dev:/usr/sbin/nologin
sync:x:4:65534::/bin:/bin/sync
games:x:5:60::/usr/games:/usr/sbin/nologin
man:x:6:12::/var/cache/man:/usr/sbin/nologin
lp:x:7:7::/var/spool/lpd:/usr/sbin/nologin
mail:x:8:8::/var/mail:/usr/sbin/nologin
news:x:9:9::/var/spool/news:/usr/sbin/nologin
uucp:x:10:10::/var/spool/uucp:/usr/sbin/nologin
proxy:x:13:13::/bin:/usr/sbin/nologin
www-data:x:33:33::/var/www:/usr/sbin/nologin
backup:x:34:34::/var/backups:/usr/sbin/nologin
list:x:38:38::/var/list:/usr/sbin/nologin
irc:x:39:39::/run/ircd:/usr/sbin/nologin
_apt:x:42:65534::/nonexistent:/usr/sbin/nologin
"""
_LAST_ACCOUNTS = f"""\
{USER}:x:{USER_ID}:{USER_ID}::/home/{USER}:/bin/bash
nobody:x:65534:65534::/nonexistent:/usr/sbin/nologin
"""
_FIXED_GROUPS = (
    "root:0 daemon:1 bin:2 sys:3 adm:4 tty:5 disk:6 lp:7 mail:8 news:9 uucp:10 man:12 proxy:13 kmem:15 dialout:20"
    " fax:21 voice:22 cdrom:24 floppy:25 tape:26 sudo:27 audio:29 dip:30 www-data:33 backup:34 operator:37"
    " list:38 irc:39 src:40 shadow:42 utmp:43 video:44 sasl:45 plugdev:46 staff:50 games:60 users:100"
)
SUDOERS = f"""\
Defaults env_reset
Defaults secure_path="/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
root ALL=(ALL:ALL) ALL
{USER} ALL=(ALL:ALL) NOPASSWD: ALL
"""


@dataclass(frozen=True, slots=True)
class AccountFiles:
    """The texts of the four files."""

    passwd: str
    group: str
    shadow: str
    gshadow: str


def account_files(source: Path) -> AccountFiles:
    """The account files for an image over the machine whose root is `source`."""
    passwd = _FIXED_ACCOUNTS + "".join(_system_accounts(source / "etc/passwd", _FIXED_ACCOUNTS)) + _LAST_ACCOUNTS
    fixed = "".join(f"{name}:x:{gid}:\n" for name, gid in (pair.split(":") for pair in _FIXED_GROUPS.split()))
    fixed = fixed.replace("sudo:x:27:\n", f"sudo:x:27:{USER}\n")
    group = fixed + "".join(_system_groups(source / "etc/group", fixed)) + f"{USER}:x:{USER_ID}:\nnogroup:x:65534:\n"
    return AccountFiles(
        passwd=passwd,
        group=group,
        shadow="".join(f"{name}:*:19000:0:99999:7:::\n" for name in _names(passwd)),
        gshadow="".join(f"{line.split(':')[0]}:*::{line.rsplit(':', 1)[1]}\n" for line in group.splitlines()),
    )


def _names(text: str) -> list[str]:
    return [line.split(":", 1)[0] for line in text.splitlines()]


def _rows(path: Path, fields: int, known: str) -> list[list[str]]:
    """Well-formed rows whose id is a dynamic system one and whose name is not in `known`."""
    if not path.is_file():
        return []
    rows = [line.split(":") for line in path.read_text(errors="replace").splitlines()]
    taken = {*_names(known), USER, "nobody", "nogroup"}
    return [
        row
        for row in rows
        if len(row) == fields
        and row[2].isascii()
        and row[2].isdigit()
        and _FIRST_DYNAMIC <= int(row[2]) < _FIRST_PERSON
        and row[0] not in taken
    ]


def _system_accounts(path: Path, known: str) -> list[str]:
    return [f"{name}:x:{uid}:{gid}::{home}:{shell}\n" for name, _, uid, gid, _, home, shell in _rows(path, 7, known)]


def _system_groups(path: Path, known: str) -> list[str]:
    return [f"{name}:x:{gid}:\n" for name, _, gid, _ in _rows(path, 4, known)]
