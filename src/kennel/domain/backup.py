"""Owns backups as programs for the hosted service know them: of which directories, and the fold of the archives.

Called by control/backups.py and upkeep. Invariant: a backup of /workspace is a snapshot and not in here; one of another
directory is a blob of its own name, which only its sandbox's stream knows.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

import msgspec

from kennel.domain.event import Event, trusted
from kennel.wire.errors import KennelError, error

WORKSPACE = "/workspace"
ROOTS = (WORKSPACE, "/home", "/app", "/tmp", "/var/tmp")
FOLDER = "backups"
MAX_NAME = 256
SAVED, RESTORED = "sandbox/directory-saved", "sandbox/directory-restored"
TYPES = (SAVED, "sandbox/snapshot-deleted", "sandbox/destroyed")


class Archive(msgspec.Struct, frozen=True):
    """One saved directory; `size` is the bytes of its archive before they are compressed, times are ISO 8601."""

    id: str
    dir: str
    name: str | None
    created_at: str
    expires_at: str | None
    size: int
    left_out: int

    @property
    def blob(self) -> str:
        """Where it is in the store."""
        return f"{FOLDER}/{self.id}"

    def expired(self, now: datetime) -> bool:
        """Whether its time is over."""
        return self.expires_at is not None and datetime.fromisoformat(self.expires_at) <= now


def checked_dir(dir_: str) -> str:
    """The directory without a trailing slash; INVALID_BACKUP_CONFIG unless it may be backed up."""
    bare = dir_.rstrip("/")
    parts = bare.split("/")[1:]
    inside = any(bare == root or bare.startswith(root + "/") for root in ROOTS)
    if not inside or any(part in ("", ".", "..") for part in parts) or "\0" in bare or len(bare.encode()) > 4095:
        raise _invalid(f"dir is absolute, without '..', and in one of {', '.join(ROOTS)}")
    return bare


def checked_name(name: str | None) -> str | None:
    """The name; INVALID_BACKUP_CONFIG for one that is too long or holds what cannot be shown."""
    if name is not None and not (0 < len(name) <= MAX_NAME and name.isprintable()):
        raise _invalid(f"a name has 1 to {MAX_NAME} characters, none of them a control character")
    return name


def _invalid(message: str) -> KennelError:
    return error("INVALID_BACKUP_CONFIG", message, admitted="no")


def fold(events: Iterable[Event]) -> dict[str, Archive]:
    """A sandbox's saved directories by id, the oldest first; also those whose time is over."""
    found: dict[str, Archive] = {}
    for event in events:
        if not trusted(event):
            continue
        payload = event.payload
        if event.type == SAVED:
            ttl = payload.get("ttlSeconds")
            ends = None if ttl is None else datetime.fromisoformat(event.created_at) + timedelta(seconds=ttl)
            id_ = payload["backupId"]
            found[id_] = Archive(
                id=id_,
                dir=payload["dir"],
                name=payload.get("name"),
                created_at=event.created_at,
                expires_at=None if ends is None else ends.isoformat(),
                size=payload["bytes"],
                left_out=payload.get("leftOut", 0),
            )
        elif event.type == "sandbox/snapshot-deleted":
            found.pop(payload["backupId"], None)
        elif event.type == "sandbox/destroyed":
            found.clear()
    return found
