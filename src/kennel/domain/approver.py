"""Owns what the key of somebody who signs approvals looks like: a P-256 public key in PEM.

Called by control when rules are set. Invariant: a key that no signature could ever be checked with is refused when it
is named, not when somebody waits for an answer.
"""

from __future__ import annotations

import base64
import re

from kennel.wire.errors import error

_PEM = re.compile(r"\s*-----BEGIN PUBLIC KEY-----\s+([A-Za-z0-9+/=\s]+?)\s+-----END PUBLIC KEY-----\s*")
# A SubjectPublicKeyInfo of this one curve always begins so: the point follows whole, or as one coordinate and a sign.
_CURVE = "301306072a8648ce3d020106082a8648ce3d030107"
_WHOLE = bytes.fromhex(f"3059{_CURVE}03420004")
_SHORT = tuple(bytes.fromhex(f"3039{_CURVE}032200{sign}") for sign in ("02", "03"))


def check_approvers(keys: list[str]) -> None:
    """VALIDATION_FAILED unless each is such a key."""
    for number, pem in enumerate(keys):
        found = _PEM.fullmatch(pem)
        try:
            der = base64.b64decode("".join(found.group(1).split()), validate=True) if found else b""
        except ValueError:
            der = b""
        if not ((len(der) == 91 and der.startswith(_WHOLE)) or (len(der) == 59 and der.startswith(_SHORT))):
            raise error(
                "VALIDATION_FAILED",
                f"approver {number} is no P-256 public key in PEM",
                hint="openssl ecparam -name prime256v1 -genkey -noout | openssl ec -pubout",
            )
