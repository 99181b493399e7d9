"""Owns where a program's credentials for a bucket come from.

Called by both halves of the SDK. Invariant: an access key and its secret come from the same place; MISSING_CREDENTIALS
when no place has both.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from kennel.wire.errors import error

_FIELDS = {
    "access_key_id": "accessKeyId", "secret_access_key": "secretAccessKey", "session_token": "sessionToken",
    "accessKeyId": "accessKeyId", "secretAccessKey": "secretAccessKey", "sessionToken": "sessionToken",
}  # fmt: skip


def found(given: Mapping[str, str] | None, environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """As the wire has them: what was given, else AWS_ACCESS_KEY_ID and its like, else R2_ACCESS_KEY_ID and its like."""
    if given is not None:
        unknown = sorted(set(given) - _FIELDS.keys())
        if unknown:
            raise error("INVALID_MOUNT_CONFIG", f"credentials have no field {unknown[0]!r}", admitted="no")
        return {_FIELDS[name]: value for name, value in given.items() if value}
    for store in ("AWS", "R2"):
        key, secret = environment.get(f"{store}_ACCESS_KEY_ID"), environment.get(f"{store}_SECRET_ACCESS_KEY")
        if key and secret:
            token = environment.get(f"{store}_SESSION_TOKEN")
            return {"accessKeyId": key, "secretAccessKey": secret, **({"sessionToken": token} if token else {})}
    hint = "give credentials, or set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
    raise error("MISSING_CREDENTIALS", "a bucket is mounted with credentials", hint=hint, admitted="no")
