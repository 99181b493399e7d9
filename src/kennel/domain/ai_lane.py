"""Owns the rewriting of model calls: JSON POST and PUT to api.openai.com, sent to the installation's own gateway.

Called by the gateway when no explicit secret is in the request. Invariant: headers are built, not copied; what the
sandbox says of its credentials or its metadata never reaches the model's side.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from urllib.parse import urlsplit

import msgspec

from kennel.domain.egress_host import parse_authority

HOST = "api.openai.com"
MAX_BODY = 32 * 1024 * 1024
SOURCE = "project-egress"
_JSON_TYPE = re.compile(rb"application/json\s*(?:;.*)?", re.IGNORECASE)
_PASSED = (b"accept",)

Header = tuple[bytes, bytes]


@dataclass(frozen=True, slots=True)
class AiGateway:
    """The OpenAI-compatible base URL of the installation, its key, and how long answers are cached (seconds)."""

    scheme: str
    host: str
    port: int
    prefix: str
    key: str
    cache_ttl: int | None = None

    @classmethod
    def parse(cls, base_url: str, key: str, cache_ttl: int | None = None) -> AiGateway:
        """From the settings; ValueError when the URL is not http or https with a host."""
        parts = urlsplit(base_url)
        authority = parse_authority(parts.netloc)
        if parts.scheme not in ("http", "https") or authority is None or parts.query or parts.fragment:
            raise ValueError(f"{base_url!r} is no http or https base URL")
        port = authority.port or (443 if parts.scheme == "https" else 80)
        return cls(parts.scheme, authority.host, port, parts.path.rstrip("/"), key, cache_ttl)


def candidate(host: str, method: str, headers: list[Header], length: int | None, websocket: bool) -> bool:
    """Whether a request's head fits the lane; its body has to parse as well."""
    if host != HOST or method not in ("POST", "PUT") or websocket:
        return False
    kinds = [value for name, value in headers if name == b"content-type"]
    plain = not any(name == b"content-encoding" for name, _ in headers)
    return len(kinds) == 1 and bool(_JSON_TYPE.fullmatch(kinds[0].strip())) and plain and (length or 0) <= MAX_BODY


def parses(body: bytes) -> bool:
    """Whether the body is a JSON object."""
    try:
        # Values stay raw: a body of 32 MiB is checked in tens of milliseconds and builds nothing.
        msgspec.json.decode(body, type=dict[str, msgspec.Raw])
        return True
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return False


def target(gateway: AiGateway, raw_path: str, raw_query: str | None) -> str | None:
    """The path and query at the gateway, or None when nothing is left of the path without `/v1`."""
    rest = raw_path.removeprefix("/v1")
    if rest in ("", "/") or not rest.startswith("/"):
        return None
    return f"{gateway.prefix}{rest}" + (f"?{raw_query}" if raw_query is not None else "")


def build_headers(gateway: AiGateway, headers: list[Header], body: bytes, project: str, sandbox: str) -> list[Header]:
    """The headers that go out, without host and framing."""
    metadata = json.dumps({"projectId": project, "source": SOURCE, "caller": sandbox}, separators=(",", ":"))
    built: list[Header] = [
        (b"authorization", b"Bearer " + gateway.key.encode()),
        (b"content-type", b"application/json"),
        (b"cf-aig-collect-log", b"true"),
        (b"cf-aig-collect-log-payload", b"true"),
        (b"cf-aig-metadata", metadata.encode()),
    ]
    if gateway.cache_ttl is None:
        built.append((b"cf-aig-skip-cache", b"true"))
    else:
        built.append((b"cf-aig-cache-ttl", str(gateway.cache_ttl).encode()))
        built.append((b"cf-aig-cache-key", hashlib.sha256(body).hexdigest().encode()))
    built += [header for header in headers if header[0].startswith(b"openai-") or header[0] in _PASSED]
    return built
