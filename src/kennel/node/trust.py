"""Owns what every sandbox trusts: the machine's roots and the gateway's authority, in files shown read-only inside.

Called by assemble (to make them), gateway_link (when the authority is known) and unit (which variables name them).
Invariant: what the gateway sends is written only if it is certificates and nothing else; a file is replaced whole, so
that a program in a running sandbox reads the old roots or the new.
"""

from __future__ import annotations

import base64
import hashlib
import json
import logging
import os
import re
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

from kennel.domain.ca_trust import JAVA_PASSWORD, trust_variables
from kennel.domain.container import RUNTIME_MOUNT

if TYPE_CHECKING:
    from cryptography import x509

FOLDER = "trust"
"""Beside the guest in its read-only folder, so that every image has it at one path."""
_SYSTEM = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem")
_MOST = 64 * 1024
_CERTIFICATES = re.compile(
    r"(?:-----BEGIN CERTIFICATE-----\n(?:[A-Za-z0-9+/=]{1,76}\n){1,200}-----END CERTIFICATE-----\n?)+"
)

_ONE = re.compile("-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL)

log = logging.getLogger("kennel.node.trust")


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
        named = trust_variables(
            bundle=f"{inside}/roots.pem", authority=f"{inside}/authority.pem", java=f"{inside}/roots.p12",
            hashed=f"{inside}/hashed",
        )  # fmt: skip
        return tuple(f"{name}={value}" for name, value in named.items())

    def _known(self) -> str:
        path = self._folder / "authority.pem"
        return path.read_text() if path.exists() else ""

    def _write(self, authority: str) -> None:
        roots = next((Path(name).read_text() for name in _SYSTEM if Path(name).exists()), "")
        whole, known = f"{roots.rstrip()}\n{authority}", self._folder / "roots.pem"
        made = all((self._folder / name).exists() for name in ("roots.p12", "chromium.json"))
        if made and known.exists() and known.read_text() == whole:
            return
        self._put("authority.pem", authority.encode())
        self._put("roots.p12", _java_store(whole))
        self._put("chromium.json", _chromium_policy(authority))
        self._put_hashed(authority)
        # Last: while it differs, all of this is done again.
        self._put("roots.pem", whole.encode())

    def _put(self, name: str, content: bytes) -> None:
        fresh = self._folder / f"{name}.new"
        fresh.write_bytes(content)
        fresh.chmod(0o444)
        os.replace(fresh, self._folder / name)

    def _put_hashed(self, authority: str) -> None:
        folder = self._folder / "hashed"
        folder.mkdir(exist_ok=True)
        folder.chmod(0o755)
        wanted = {f"{name}.{number}" for number, name in enumerate(_hashes(authority))}
        for stale in [entry for entry in folder.iterdir() if entry.name not in wanted]:
            stale.unlink()
        for name in wanted:
            if not (folder / name).is_symlink():
                (folder / name).symlink_to("../authority.pem")


def _java_store(pem: str) -> bytes:
    """Every root in the store that Java reads. Imported here: 60 ms that most starts of node do not need."""
    from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, pkcs12

    rows = [pkcs12.PKCS12Certificate(one, f"root{number}".encode()) for number, one in enumerate(_parsed(pem))]
    return pkcs12.serialize_java_truststore(rows, BestAvailableEncryption(JAVA_PASSWORD.encode())) if rows else b""


def _chromium_policy(pem: str) -> bytes:
    """What a browser of Chromium's kind is told to trust beside its own roots."""
    from cryptography.hazmat.primitives.serialization import Encoding

    told = [base64.b64encode(one.public_bytes(Encoding.DER)).decode() for one in _parsed(pem)]
    return json.dumps({"CACertificates": told}).encode()


def _parsed(pem: str) -> list[x509.Certificate]:
    """The certificates of a bundle. One that cannot be read is left out: machines carry strange old roots."""
    from cryptography import x509
    from cryptography.utils import CryptographyDeprecationWarning

    found = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CryptographyDeprecationWarning)
        for text in _ONE.findall(pem):
            try:
                found.append(x509.load_pem_x509_certificate(text.encode()))
            except ValueError as failure:
                log.warning("one of the machine's roots is left out of Java's store: %s", failure)
    return found


def _hashes(pem: str) -> list[str]:
    """Under which names OpenSSL looks for these certificates: SHA-1 of their subjects in canonical form."""
    return [_hash([(a.oid.dotted_string, str(a.value)) for a in one.subject]) for one in _parsed(pem)]


def _hash(subject: list[tuple[str, str]]) -> str:
    canonical = b""
    for oid, value in subject:
        text = " ".join(value.split()).lower().encode()
        canonical += _der(0x31, _der(0x30, _der(0x06, _oid(oid)) + _der(0x0C, text)))
    return f"{int.from_bytes(hashlib.sha1(canonical, usedforsecurity=False).digest()[:4], 'little'):08x}"


def _oid(dotted: str) -> bytes:
    first, second, *rest = map(int, dotted.split("."))
    out = bytearray()
    for number in (40 * first + second, *rest):
        digits = [number & 0x7F]
        while number := number >> 7:
            digits.append(0x80 | number & 0x7F)
        out += bytes(reversed(digits))
    return bytes(out)


def _der(tag: int, content: bytes) -> bytes:
    if len(content) > 127:
        raise ValueError("a part of the authority's name is too long")
    return bytes((tag, len(content))) + content
