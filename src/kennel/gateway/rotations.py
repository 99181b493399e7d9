"""Owns material that the gateway got anew and control has not stored yet: sealed, in files, until it is on the log.

Called by the refresher (keep), the process (what is in force, what to tell control again). Invariant: from the moment
a host gave new material it survives a crash of the gateway, of control, or of both; nothing here is in the clear.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import msgspec

from kennel.gateway.vault import write_private
from kennel.wire.egress import SealedSecret
from kennel.wire.gateway import SecretRotated


class Rotations:
    """`Rotations(folder)`, one file a secret."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(mode=0o700, exist_ok=True)
        self._folder = folder
        self._pending: dict[tuple[str, str], SealedSecret] = {}
        for file in folder.glob("*.json"):
            known = msgspec.json.decode(file.read_bytes(), type=SecretRotated)
            self._pending[known.project, known.secret.path] = known.secret

    def keep(self, project: str, secret: SealedSecret) -> SecretRotated:
        """Writes it down, and gives the words for control."""
        notice = SecretRotated(project, secret)
        write_private(self._file(project, secret.path), msgspec.json.encode(notice))
        self._pending[project, secret.path] = secret
        return notice

    def in_force(self, project: str, told: SealedSecret) -> SealedSecret:
        """What counts of what control told: the newer material of the same secret, as long as control lacks it."""
        pending = self._pending.get((project, told.path))
        if pending is None:
            return told
        if pending.offset == told.offset and pending.box != told.box:
            return pending
        self.drop(project, told.path)
        return told

    def drop(self, project: str, path: str) -> None:
        """Control has it, or there is no such secret any more."""
        if self._pending.pop((project, path), None) is not None:
            self._file(project, path).unlink(missing_ok=True)

    def all(self) -> list[SecretRotated]:
        """What control has to be told again."""
        return [SecretRotated(project, secret) for (project, _), secret in self._pending.items()]

    def _file(self, project: str, path: str) -> Path:
        return self._folder / f"{hashlib.sha256(f'{project}{path}'.encode()).hexdigest()}.json"
