"""Owns the projects' private keys, and the opening of a secret at the moment of its use.

Called by the registry (public keys) and the exchange (values). Invariant: private keys are 0600 files of the gateway's
user; a value is never kept: it is opened for one request and dropped with it.
"""

from __future__ import annotations

import base64
import os
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from kennel.domain.denial import Refused
from kennel.domain.secret_pin import associated
from kennel.domain.stream_path import check_project_name
from kennel.gateway.sealed_box import SealBroken, kid_of, seal, unseal
from kennel.wire.egress import SealedSecret
from kennel.wire.gateway import PublicKey


class Vault:
    """Key pairs by project, in one folder."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(mode=0o700, exist_ok=True)
        self._folder = folder
        self._keys: dict[tuple[str, str], X25519PrivateKey] = {}
        self._current: dict[str, str] = {}
        for file in sorted(folder.glob("*.x25519"), key=lambda f: f.stat().st_mtime_ns):
            project, kid = file.name.removesuffix(".x25519").rsplit(".", 1)
            self._keys[project, kid] = X25519PrivateKey.from_private_bytes(base64.b64decode(file.read_bytes()))
            self._current[project] = kid

    def public_key(self, project: str) -> PublicKey:
        """The key to which this project's secrets are sealed; made and on disk before it is told."""
        check_project_name(project)
        if project not in self._current:
            self._make(project)
        kid = self._current[project]
        raw = self._keys[project, kid].public_key().public_bytes_raw()
        return PublicKey(kid, base64.b64encode(raw).decode())

    def _make(self, project: str) -> None:
        private = X25519PrivateKey.generate()
        kid = kid_of(private.public_key().public_bytes_raw())
        write_private(self._folder / f"{project}.{kid}.x25519", base64.b64encode(private.private_bytes_raw()))
        self._keys[project, kid] = private
        self._current[project] = kid

    def open(self, project: str, secret: SealedSecret) -> str:
        """The material's JSON text; Refused `secret_fetch_failed` when the box is not this project's, name's, pin's."""
        private = self._keys.get((project, secret.kid))
        context = associated(project, secret.path, secret.pin, secret.offset, secret.kid, secret.refresh)
        try:
            if private is None:
                raise SealBroken("no such key")
            return unseal(private, secret.box, context).decode()
        except SealBroken:
            raise Refused("secret_fetch_failed", f"{secret.path} cannot be opened here") from None

    def reseal(self, project: str, secret: SealedSecret, material: str) -> SealedSecret:
        """The same secret with new material, sealed to the project's present key."""
        key = self.public_key(project)
        context = associated(project, secret.path, secret.pin, secret.offset, key.kid, secret.refresh)
        box = seal(base64.b64decode(key.key), material.encode(), context)
        return SealedSecret(secret.path, secret.pin, secret.offset, key.kid, box, secret.refresh)


def write_private(path: Path, content: bytes) -> None:
    """A 0600 file that is whole or not there, also after a crash."""
    fresh = path.with_suffix(path.suffix + ".new")
    fresh.unlink(missing_ok=True)
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        os.write(descriptor, content)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    os.rename(fresh, path)
    parent = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(parent)
    finally:
        os.close(parent)
