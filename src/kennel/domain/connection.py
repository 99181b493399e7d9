"""Owns what a GitHub connection is: a secret at a fixed place, pinned to GitHub, and what it plants in sandboxes.

Called by control's connections. Invariant: what is planted is a placeholder, never a token; of several connections the
first by name is planted; a variable of the sandbox's own comes before it, and null for it takes it away.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import msgspec

from kennel.domain.egress_state import SecretView
from kennel.domain.placeholder import write
from kennel.wire.egress import Pin, Refresh
from kennel.wire.errors import error

FOLDER = "/secrets/integrations/github/"
FIELD = "accessToken"
PLANTED = ("GH_TOKEN",)
"""Names of the variables that are planted, and that null takes away."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_API = "https://api.github.com"
ORIGINS = [_API, "https://github.com", "https://uploads.github.com"]
_HEADER = "http.https://github.com/.extraheader"


class ConnectionView(msgspec.Struct, rename="camel", kw_only=True):
    """A connection: `kind` is `token` or `app`, `secret` where its material is; never the material."""

    name: str
    kind: str
    secret: str
    created_at: str
    updated_at: str
    rotated_at: str | None = None
    used_count: int = 0
    last_used_at: int | None = None


def path_of(name: str) -> str:
    """The secret of this connection; VALIDATION_FAILED when the name is none."""
    if not _NAME.fullmatch(name):
        why = "a connection's name has 1 to 64 letters, digits, '.', '_' and '-'"
        raise error("VALIDATION_FAILED", why, details={"name": [why]})
    return FOLDER + name


def material_of(
    token: str | None, app_id: str | None, installation_id: str | None, private_key: str | None
) -> tuple[dict[str, Any], Pin, Refresh | None]:
    """Material, pin and strategy: of a token, or of an app's installation; VALIDATION_FAILED for neither or both."""
    app = {"appId": app_id, "installationId": installation_id, "privateKey": private_key}
    given = [name for name, value in app.items() if value]
    if token and not given:
        return {FIELD: token}, Pin(ORIGINS), None
    if not token and len(given) == len(app):
        return dict(app), Pin(ORIGINS), Refresh("github-app-installation", _API)
    why = "a connection is a token, or an app's appId, installationId and privateKey"
    raise error("VALIDATION_FAILED", why, details={"token": [why]})


def view_of(secret: SecretView) -> ConnectionView | None:
    """The secret as a connection; None when it lies elsewhere."""
    name = secret.path.removeprefix(FOLDER)
    if name == secret.path or "/" in name:
        return None
    return ConnectionView(
        name=name,
        kind="app" if secret.refresh == "github-app-installation" else "token",
        secret=secret.path,
        created_at=secret.created_at,
        updated_at=secret.updated_at,
        rotated_at=secret.rotated_at,
        used_count=secret.used_count,
        last_used_at=secret.last_used_at,
    )


def planted(names: Iterable[str], env: Mapping[str, str], unset: Collection[str] = ()) -> dict[str, str]:
    """What a sandbox's commands find, given its own variables and what of these was taken away: `GH_TOKEN`, and git's
    header made of the one in force.

    GitHub's git endpoint takes Basic only; git is told by variables, so no file of the sandbox is written.
    """
    first = min(names, default=None)
    own = {} if first is None or "GH_TOKEN" in unset else {"GH_TOKEN": write(FOLDER + first, FIELD)}
    token = env.get("GH_TOKEN", own.get("GH_TOKEN", ""))
    if not token:
        return own
    pair = base64.b64encode(f"x-access-token:{token}".encode()).decode()
    git = {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": _HEADER, "GIT_CONFIG_VALUE_0": f"Authorization: Basic {pair}"}
    return own | git
