"""Owns who is who inside the sandbox: /etc/passwd and /etc/group, read as plain text.

Called by launch. Invariant: bounded work whatever those files contain (a program may have written them), and no
name service, which would load libraries of the image into the guest.
"""

from __future__ import annotations

import os

from .refusal import Refusal

PASSWD, GROUP = "/etc/passwd", "/etc/group"
_MOST_BYTES = 1024 * 1024
_MOST_GROUPS = 256
_MOST_ID = 2**32 - 2


class Account:
    """Who a command runs as."""

    __slots__ = ("gid", "groups", "home", "name", "uid")

    def __init__(self, name: str, uid: int, gid: int, home: str, groups: list[int]) -> None:
        self.name = name
        self.uid = uid
        self.gid = gid
        self.home = home
        self.groups = groups


class Accounts:
    """The account files, read again only when they have changed."""

    def __init__(self, passwd: str = PASSWD, group: str = GROUP) -> None:
        self._passwd = passwd
        self._group = group
        self._stamp: tuple[object, object] | None = None
        self._known: dict[str | None, Account] = {}

    def find(self, user: str | None) -> Account:
        """The account of a name, a uid, `uid:gid` or `name:group`; None is the guest itself. INVALID_USER otherwise."""
        stamp = (_stamp(self._passwd), _stamp(self._group))
        if stamp != self._stamp or len(self._known) > 256:
            self._stamp, self._known = stamp, {}
        known = self._known.get(user)
        if known is None:
            known = self._known[user] = self._look_up(user)
        return known

    def _look_up(self, user: str | None) -> Account:
        who, colon, group = (str(os.getuid()) if user is None else user).partition(":")
        account = self._by_name_or_id(who)
        if account is None:
            raise Refusal("INVALID_USER", f"no user {who[:100]!r} in this sandbox", user=who[:100])
        if colon:
            gid = _number(group)
            if gid is None:
                gid = next((int(row[2]) for row in _rows(self._group, 3) if row[0] == group), None)
            if gid is None:
                raise Refusal("INVALID_USER", f"no group {group[:100]!r} in this sandbox", user=(user or "")[:100])
            return Account(account.name, account.uid, gid, account.home, [gid])
        return account

    def _by_name_or_id(self, who: str) -> Account | None:
        uid = _number(who)
        for row in _rows(self._passwd, 6):
            if row[0] == who or (uid is not None and int(row[2]) == uid):
                gid = _number(row[3])
                if gid is not None:
                    return Account(row[0], int(row[2]), gid, row[5] or "/", self._groups(row[0], gid))
        return None if uid is None else Account(who, uid, uid, "/root" if uid == 0 else "/", [uid])

    def _groups(self, name: str, gid: int) -> list[int]:
        found = [gid]
        for row in _rows(self._group, 4):
            if name in row[3].split(",") and int(row[2]) not in found and len(found) < _MOST_GROUPS:
                found.append(int(row[2]))
        return found


def _rows(path: str, fields: int) -> list[list[str]]:
    """The well-formed lines of an account file: enough fields, and a number in the third."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return []
    try:
        data = os.read(fd, _MOST_BYTES)
    except OSError:
        return []
    finally:
        os.close(fd)
    rows = [line.split(":") for line in data.decode("utf-8", "surrogateescape").split("\n")]
    return [row for row in rows if len(row) >= fields and _number(row[2]) is not None]


def _number(text: str) -> int | None:
    if not text.isascii() or not text.isdigit() or len(text) > 10:
        return None
    value = int(text)
    return value if value <= _MOST_ID else None


def _stamp(path: str) -> object:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
