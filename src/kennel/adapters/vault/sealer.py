"""Owns the sealing of a secret's material on control's side: to the project's public key, never to be opened there.

Called by control when a secret is stored; the gateway opens. Invariant: what comes out is useless under another
project, path, pin or offset, and to everybody without the gateway's key file.
"""

from __future__ import annotations

import base64
from typing import Any

from kennel.domain.placeholder import check_secret_path
from kennel.domain.secret_pin import associated, check_material, check_refresh, normal_pin
from kennel.gateway.sealed_box import seal
from kennel.wire.egress import Pin, Refresh, SealedSecret
from kennel.wire.errors import error
from kennel.wire.gateway import PublicKey


def seal_secret(
    key: PublicKey, project: str, path: str, pin: Pin, offset: int, material: Any, refresh: Refresh | None = None
) -> SealedSecret:
    """Seals a string or JSON object for the event at `offset`; VALIDATION_FAILED for a bad path, pin or material."""
    why = check_secret_path(path)
    if why is not None:
        raise error("VALIDATION_FAILED", f"not a secret's path: {why}", details={"path": [why]})
    text, normal = check_material(material), normal_pin(pin)
    if refresh is not None:
        check_refresh(refresh, material, normal)
    context = associated(project, path, normal, offset, key.kid, refresh)
    box = seal(base64.b64decode(key.key), text.encode(), context)
    return SealedSecret(path, normal, offset, key.kid, box, refresh)
