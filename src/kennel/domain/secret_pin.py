"""Owns where a secret may go (its pin), what its material may be, and what a sealed box is bound to.

Called by the gateway before substitution and by control when a secret is stored. Invariant: a pin compares the whole
origin (scheme, host, port); a host is never matched by pattern; material is only read by the field that was named.
"""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import urlsplit

from kennel.domain.denial import Refused
from kennel.domain.egress_host import parse_authority, written
from kennel.domain.placeholder import Reference
from kennel.wire.egress import Pin, Refresh
from kennel.wire.errors import error

MAX_MATERIAL = 16 * 1024
"""Characters of a secret's material."""
_PORTS = {"https": 443, "http": 80, "wss": 443, "ws": 80}
_PLAIN = {"wss": "https", "ws": "http"}


def parse_origin(url: str) -> str:
    """`scheme://host:port` of a URL, whose path is dropped; ValueError for user-info and other schemes."""
    parts = urlsplit(url)
    if parts.scheme not in _PORTS or "@" in parts.netloc:
        raise ValueError(f"{url[:80]!r} is no http or https origin")
    authority = parse_authority(parts.netloc)
    if authority is None:
        raise ValueError(f"{url[:80]!r} names no host")
    return origin(_PLAIN.get(parts.scheme, parts.scheme), authority.host, authority.port or _PORTS[parts.scheme])


def origin(scheme: str, host: str, port: int) -> str:
    """The one spelling of an origin; its port is always written."""
    shown = written(host, port, scheme)
    return f"{scheme}://{shown}" if shown.rpartition("]")[2].count(":") else f"{scheme}://{shown}:{port}"


def normal_pin(pin: Pin) -> Pin:
    """A pin in its one spelling; VALIDATION_FAILED when an origin is none."""
    try:
        origins = sorted({parse_origin(url) for url in pin.origins})
    except ValueError as fault:
        raise error("VALIDATION_FAILED", f"not a pin: {fault}", details={"pin": [str(fault)]}) from None
    methods = sorted({m.upper() for m in pin.methods}) if pin.methods else None
    headers = sorted({h.lower() for h in pin.headers}) if pin.headers else None
    return Pin(origins, methods, pin.path_prefix, headers)


def require_allowed(
    pin: Pin, subject: str, place: tuple[str, str, int], method: str, path: str, ambiguous: bool
) -> None:
    """Refused unless this origin, method and path may have the secret. `place` is scheme, host, port."""
    here = origin(*place)
    if here not in pin.origins:
        raise Refused("secret_not_allowed_for_origin", f"{subject} may not go to {here}")
    if pin.methods is not None and method not in pin.methods:
        raise Refused("secret_not_allowed_for_request", f"{subject} may not go with {method}")
    if pin.path_prefix is not None and (ambiguous or not path.startswith(pin.path_prefix)):
        raise Refused("secret_not_allowed_for_request", f"{subject} may not go to this path")


def associated(project: str, path: str, pin: Pin, offset: int, kid: str, refresh: Refresh | None = None) -> bytes:
    """What a sealed box is bound to: another project, name, pin, event, key or strategy makes it unreadable."""
    parts = [project, path, pin.origins, pin.methods, pin.path_prefix, pin.headers, offset, kid]
    if refresh is not None:
        parts += [refresh.strategy, refresh.endpoint, refresh.scope]
    return json.dumps(["kennel.secret.v1", *parts], separators=(",", ":"), ensure_ascii=True).encode()


def check_material(material: Any) -> str:
    """The material as the text that is sealed: a string as it is, an object as JSON; VALIDATION_FAILED otherwise."""
    if isinstance(material, str | dict):
        text = json.dumps(material)
    else:
        raise error("VALIDATION_FAILED", "a secret is a string or a JSON object", details={"material": ["wrong type"]})
    if not material or len(text) > MAX_MATERIAL:
        raise error(
            "VALIDATION_FAILED", f"a secret has 1 to {MAX_MATERIAL} characters", details={"material": ["wrong size"]}
        )
    return text


_NEEDED = {
    "oauth-refresh-token": ("refreshToken", "clientId"),
    "oauth-client-credentials": ("clientId", "clientSecret"),
    "github-app-installation": ("appId", "installationId", "privateKey"),
}


def check_refresh(refresh: Refresh, material: Any, pin: Pin) -> None:
    """VALIDATION_FAILED unless the material has what the strategy needs and its endpoint lies inside the pin."""
    if not isinstance(material, dict):
        raise _refresh_fault("material", f"{refresh.strategy} needs a JSON object")
    for name in _NEEDED[refresh.strategy]:
        if not isinstance(material.get(name), str) or not material[name]:
            raise _refresh_fault("material", f"{refresh.strategy} needs the field {name}")
    try:
        where = endpoint_of(refresh)
    except ValueError as fault:
        raise _refresh_fault("refresh", str(fault)) from None
    if where not in pin.origins:
        raise _refresh_fault("refresh", f"the endpoint {where} is none of the secret's origins")


def endpoint_of(refresh: Refresh) -> str:
    """The origin of a strategy's endpoint; ValueError for a URL that is none, is not TLS, or has a fragment."""
    parts = urlsplit(refresh.endpoint)
    if parts.scheme != "https" or parts.fragment or not refresh.endpoint.isascii() or " " in refresh.endpoint:
        raise ValueError(f"{refresh.endpoint[:80]!r} is no https endpoint")
    return parse_origin(refresh.endpoint)


def _refresh_fault(field: str, why: str) -> Exception:
    return error("VALIDATION_FAILED", why, details={field: [why]})


def value_of(material: str, reference: Reference) -> str:
    """The string that a reference names inside sealed material (JSON text); Refused when there is none."""
    found: Any = json.loads(material)
    for part in reference.field.split(".") if reference.field is not None else ():
        if not isinstance(found, dict) or part not in found:
            raise Refused("secret_reference_field_not_found", f"{reference.subject} has no field {reference.field}")
        found = found[part]
    if not isinstance(found, str) or not found:
        raise Refused("secret_material_not_a_string", f"{reference.subject}: what is named is not a string")
    return found
