"""Owns the shapes of egress that callers, control and the gateway share: rules, policy, pins, denials, audit records.

Called by domain (judging), the gateway and control. Invariant: camelCase on the wire, unknown fields refused in what
a person writes; a record never holds a secret's value, only its path.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

Short = Annotated[str, msgspec.Meta(max_length=1024)]
Key = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9._:/-]{1,128}$")]
Verdict = Literal["allow", "deny", "hold"]
Mode = Literal["http", "passthrough", "tcp"]
MAX_RULES = 1000
MAX_APPROVAL_MS = 3_600_000


class Match(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, forbid_unknown_fields=True):
    """What a rule looks at; every matcher that is present must accept.

    `hosts`: exact names, `*.x` (sub-domains of x, not x), `*`, or literal addresses. `secret_paths` and `sandboxes`:
    exact, or a prefix that ends in `*`. `path_prefix` is compared with the decoded, dot-resolved path.
    """

    hosts: Annotated[list[Short], msgspec.Meta(min_length=1, max_length=1000)] | None = None
    ports: Annotated[list[Annotated[int, msgspec.Meta(ge=1, le=65535)]], msgspec.Meta(min_length=1)] | None = None
    methods: Annotated[list[Short], msgspec.Meta(min_length=1, max_length=50)] | None = None
    path_prefix: Annotated[str, msgspec.Meta(pattern="^/", max_length=4096)] | None = None
    secret_paths: Annotated[list[Short], msgspec.Meta(min_length=1, max_length=1000)] | None = None
    sandboxes: Annotated[list[Short], msgspec.Meta(min_length=1, max_length=1000)] | None = None


class Rule(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, forbid_unknown_fields=True):
    """One rule. `mode` other than `http` needs verdict `allow` and matchers on hosts and ports alone.

    `passthrough`: TLS is not opened (no secrets, no path rules). `tcp`: any bytes. `dns`: TXT, SRV, MX and CNAME
    questions for these names may be asked outside. Times in milliseconds; `debounce_ms` null gathers nothing.
    """

    rule_key: Key
    verdict: Verdict
    match: Match = Match()
    description: Annotated[str, msgspec.Meta(max_length=4096)] = ""
    mode: Mode = "http"
    dns: bool = False
    approval_timeout_ms: Annotated[int, msgspec.Meta(ge=1000, le=MAX_APPROVAL_MS)] = 600_000
    debounce_ms: Annotated[int, msgspec.Meta(ge=0, le=10_000)] | None = 100


class Policy(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, forbid_unknown_fields=True):
    """A project's rules in order, what happens without a match, and who may sign approvals.

    `version` is the offset of the event that set it. `audit_only` records what would have been denied or held and
    lets it pass. `approvers`: P-256 public keys (PEM); with any, an approving decision must carry a signature.
    """

    rules: Annotated[list[Rule], msgspec.Meta(max_length=MAX_RULES)] = []
    default: Literal["allow", "deny"] = "allow"
    version: int = 0
    audit_only: bool = False
    approvers: Annotated[list[Short], msgspec.Meta(max_length=32)] = []


class Pin(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, forbid_unknown_fields=True):
    """Where a secret may go: origins `scheme://host[:port]`, and if given only these methods, paths, header names."""

    origins: Annotated[list[Short], msgspec.Meta(min_length=1, max_length=32)]
    methods: Annotated[list[Short], msgspec.Meta(min_length=1, max_length=20)] | None = None
    path_prefix: Annotated[str, msgspec.Meta(pattern="^/", max_length=1024)] | None = None
    headers: Annotated[list[Short], msgspec.Meta(min_length=1, max_length=20)] | None = None


class Refresh(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, forbid_unknown_fields=True):
    """How the gateway gets new material for a secret whose material is a JSON object; what it gets is `accessToken`.

    `oauth-refresh-token`: fields `refreshToken`, `clientId`, `clientSecret` unless the client is public; a token that
    comes back rotated is kept. `oauth-client-credentials`: `clientId`, `clientSecret`. `github-app-installation`:
    `appId`, `installationId`, `privateKey` (PEM). `endpoint` is the token endpoint, or the base URL of GitHub's API;
    its origin must be one of the pin's.
    """

    strategy: Literal["oauth-refresh-token", "oauth-client-credentials", "github-app-installation"]
    endpoint: Annotated[str, msgspec.Meta(min_length=1, max_length=1024)]
    scope: Short = ""


class SealedSecret(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A secret's material as SQL keeps it: only the gateway that holds `kid`'s private key opens it.

    `box` is base64; `offset` that of the event that stored it. Project, path, pin, offset and refresh are
    authenticated with it, so a box that is moved to another name or pinned elsewhere does not open.
    """

    path: Short
    pin: Pin
    offset: int
    kid: Short
    box: str
    refresh: Refresh | None = None


class Denial(msgspec.Struct, frozen=True, rename="camel"):
    """Why a request did not leave: the same JSON at every layer. `error` is the code; `retry` is always false."""

    error: str
    code: str
    detail: str
    rule_key: str | None
    hint: str
    retry: bool = False


class Record(msgspec.Struct, rename="camel", omit_defaults=True, kw_only=True):
    """One line of the audit: a decision (before dispatch), its outcome (after), a name first asked for, or a note.

    `at` is Unix time in milliseconds; `url` the one before substitution; `verdict` what happened, `would` what an
    audit-only policy would have done; `request` joins a decision with its outcome.
    """

    kind: Literal["decision", "outcome", "name", "note"]
    at: int = 0
    request: str = ""
    project: str = ""
    sandbox: str = ""
    layer: Literal["dns", "connect", "tls", "http", "tunnel", "gateway"] = "http"
    host: str = ""
    port: int = 0
    method: str = ""
    url: str = ""
    verdict: Verdict | None = None
    would: Verdict | None = None
    code: str = ""
    detail: str = ""
    rule_key: str | None = None
    policy: int = 0
    secret_path: str | None = None
    places: list[str] = []
    lane: str = ""
    hold: str | None = None
    status: int = 0
    bytes_out: int = 0
    bytes_in: int = 0
    duration_ms: int = 0


def to_wire(shape: msgspec.Struct) -> Any:
    """Plain values of a shape, as an event's payload keeps them."""
    return msgspec.to_builtins(shape)
