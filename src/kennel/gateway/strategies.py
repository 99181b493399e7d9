"""Owns how new material is asked for: one request and one reading of its answer for each strategy.

Called by the refresher. Invariant: nothing here sends anything; an answer that does not hold what its strategy
promises is a Refused without a word of the answer in it.
"""

from __future__ import annotations

import base64
import datetime
import json
import time
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

import msgspec
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from kennel.domain.denial import Refused
from kennel.wire.egress import Refresh

EARLY_MS = 60_000
"""Milliseconds before its end from which an access token is not used any more."""
_MAX_TOKEN = 16 * 1024


class Asking(msgspec.Struct, frozen=True):
    """A request for new material; `target` starts with a slash."""

    target: str
    headers: list[tuple[bytes, bytes]]
    body: bytes


def stale(material: dict[str, Any], field: str | None, now: float) -> bool:
    """Whether the named field is not there yet, or an access token is about to end. `now` is Unix seconds."""
    if field == "accessToken" and isinstance(ends := material.get("expiresAt"), int):
        return ends - EARLY_MS <= now * 1000
    return field is not None and "." not in field and not material.get(field)


def ask(refresh: Refresh, material: dict[str, Any]) -> Asking:
    """The request of this strategy; Refused when the material cannot make one."""
    parts = urlsplit(refresh.endpoint)
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    if refresh.strategy == "github-app-installation":
        path = f"{parts.path.rstrip('/')}/app/installations/{quote(_text(material, 'installationId'), safe='')}"
        claims = [(b"authorization", b"Bearer " + _app_token(material)), (b"accept", b"application/vnd.github+json")]
        return Asking(f"{path}/access_tokens", [*claims, *_COMMON], b"")
    form = {"grant_type": "client_credentials"}
    if refresh.strategy == "oauth-refresh-token":
        form = {"grant_type": "refresh_token", "refresh_token": _text(material, "refreshToken")}
    if refresh.scope:
        form["scope"] = refresh.scope
    headers = [(b"content-type", b"application/x-www-form-urlencoded"), (b"accept", b"application/json"), *_COMMON]
    if material.get("clientSecret"):
        pair = f"{quote(_text(material, 'clientId'), safe='')}:{quote(_text(material, 'clientSecret'), safe='')}"
        headers.append((b"authorization", b"Basic " + base64.b64encode(pair.encode())))
    else:
        form["client_id"] = _text(material, "clientId")
    return Asking(target, headers, urlencode(form).encode())


def adopt(refresh: Refresh, material: dict[str, Any], status: int, body: bytes, now: float) -> dict[str, Any]:
    """The material with what the answer brought; Refused when it brought nothing."""
    if status not in (200, 201):
        raise _failed(f"its endpoint answered {status}")
    try:
        said = json.loads(body)
    except (ValueError, RecursionError):
        raise _failed("its endpoint's answer is not JSON") from None
    github = refresh.strategy == "github-app-installation"
    token = said.get("token" if github else "access_token") if isinstance(said, dict) else None
    if not isinstance(token, str) or not 0 < len(token) <= _MAX_TOKEN:
        raise _failed("its endpoint's answer holds no token")
    fresh = {**material, "accessToken": token}
    fresh.pop("expiresAt", None)
    ends = _github_end(said) if github else _oauth_end(said, now)
    if ends is not None:
        fresh["expiresAt"] = ends
    rotated = said.get("refresh_token")
    if refresh.strategy == "oauth-refresh-token" and isinstance(rotated, str) and 0 < len(rotated) <= _MAX_TOKEN:
        fresh["refreshToken"] = rotated
    return fresh


_COMMON = [(b"user-agent", b"kennel"), (b"accept-encoding", b"identity")]


def _text(material: dict[str, Any], name: str) -> str:
    value = material.get(name)
    if not isinstance(value, str) or not value:
        raise _failed(f"its material has no field {name}")
    return value


def _oauth_end(said: dict[str, Any], now: float) -> int | None:
    seconds = said.get("expires_in")
    if isinstance(seconds, int | float) and not isinstance(seconds, bool) and 0 < seconds < 10**9:
        return int((now + seconds) * 1000)
    return None


def _github_end(said: dict[str, Any]) -> int | None:
    try:
        ends = datetime.datetime.fromisoformat(str(said.get("expires_at")))
    except ValueError:
        return None
    return int(ends.timestamp() * 1000) if ends.tzinfo is not None else None


def _app_token(material: dict[str, Any]) -> bytes:
    """The app's own token (RS256), good for nine minutes; GitHub refuses more than ten."""
    now = int(time.time())
    claims = {"iat": now - 60, "exp": now + 540, "iss": _text(material, "appId")}
    try:
        key = load_pem_private_key(_text(material, "privateKey").encode(), None)
    except (ValueError, TypeError):
        raise _failed("its private key cannot be read") from None
    if not isinstance(key, rsa.RSAPrivateKey):
        raise _failed("its private key is not RSA")
    signed = b".".join(_base64url(json.dumps(part).encode()) for part in ({"alg": "RS256", "typ": "JWT"}, claims))
    return signed + b"." + _base64url(key.sign(signed, padding.PKCS1v15(), SHA256()))


def _base64url(data: bytes) -> bytes:
    return base64.urlsafe_b64encode(data).rstrip(b"=")


def _failed(why: str) -> Refused:
    return Refused("secret_refresh_failed", f"the secret could not be refreshed: {why}")
