"""Owns what every sandbox trusts: the machine's roots and the gateway's authority, in files shown read-only inside.

Called by assemble (to make them), gateway_link (when the authority is known) and unit (which variables name them).
Invariant: what the gateway sends is written only if it is certificates and nothing else; a file is replaced whole, so
that a program in a running sandbox reads the old roots or the new.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from kennel.domain.ca_trust import trust_variables
from kennel.domain.container import RUNTIME_MOUNT

FOLDER = "trust"
"""Beside the guest in its read-only folder, so that every image has it at one path."""
_SYSTEM = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem")
_MOST = 64 * 1024
_CERTIFICATES = re.compile(
    r"(?:-----BEGIN CERTIFICATE-----\n(?:[A-Za-z0-9+/=]{1,76}\n){1,200}-----END CERTIFICATE-----\n?)+"
)


class Trust:
    """The files under the guest's folder; they hold the machine's roots alone until the gateway told its own."""

    def __init__(self, runtime: Path) -> None:
        self._folder = runtime / FOLDER
        self._folder.mkdir(exist_ok=True)
        self._folder.chmod(0o755)
        self._write(self._known())

    def learn(self, authority: str) -> None:
        """Takes the gateway's certificate in; ValueError when it is none."""
        if len(authority) > _MOST or _CERTIFICATES.fullmatch(authority) is None:
            raise ValueError("what the gateway calls its authority is no certificate")
        if authority != self._known():
            self._write(authority)

    @staticmethod
    def variables() -> tuple[str, ...]:
        """`NAME=value` of every variable that leads a program to these files."""
        inside = f"{RUNTIME_MOUNT}/{FOLDER}"
        named = trust_variables(bundle=f"{inside}/roots.pem", authority=f"{inside}/authority.pem")
        return tuple(f"{name}={value}" for name, value in named.items())

    def _known(self) -> str:
        path = self._folder / "authority.pem"
        return path.read_text() if path.exists() else ""

    def _write(self, authority: str) -> None:
        roots = next((Path(name).read_text() for name in _SYSTEM if Path(name).exists()), "")
        for name, text in (("authority.pem", authority), ("roots.pem", f"{roots.rstrip()}\n{authority}")):
            fresh = self._folder / f".{name}"
            fresh.write_text(text)
            fresh.chmod(0o444)
            os.replace(fresh, self._folder / name)
