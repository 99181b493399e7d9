"""Owns the reasons why something did not leave: each code's HTTP status and what the person can do about it.

Called by the gateway at every layer and by the tests. Invariant: one shape for all layers, never a secret's value in
it, and `retry` is false: the same request meets the same answer until somebody changes a rule.
"""

from __future__ import annotations

import msgspec

from kennel.wire.egress import Denial

_RULES = "ask whoever owns the project to change its egress rules ('kennel egress rules'); do not retry"
_REQUEST = "the request itself is wrong; change it before sending it again"
_GATEWAY = "this host cannot be reached this way; do not retry with the same request"
_SECRET = "see how the secret is pinned: 'kennel secret list'; do not retry unchanged"
_WAIT = "the installation cannot record requests at the moment; try again later"

_ROWS: dict[str, tuple[int, str]] = {
    # Policy.
    "egress_denied": (403, _RULES),
    "not_bound": (403, "the sandbox belongs to no project yet; do not retry"),
    "no_policy": (403, "no policy is known for this project; do not retry"),
    "port_closed": (403, "port 25 is closed for everybody; send mail through an HTTPS service"),
    "address_not_allowed": (403, "use the host's name, or ask for a rule that names this address"),
    "approval_rejected": (403, "a person rejected this request; do not retry"),
    "approval_expired": (403, "nobody decided in time; ask a person before trying again"),
    "approval_withdrawn": (403, "the decision was interrupted; ask a person before trying again"),
    "approvals_full": (403, "too many requests of this sandbox wait for a decision; wait for those first"),
    "path_ambiguous": (403, "write the path without encoded slashes, '//', backslashes or dot segments"),
    "method_unknown": (403, _REQUEST),
    # Authority and form.
    "name_mismatch": (403, "the name looked up, the TLS server name and the Host field must be one"),
    "host_missing": (403, "send exactly one Host field"),
    "host_invalid": (403, "Host must be a plain host name, or host:port with the port connected to"),
    "sni_missing": (403, "use a client that sends the TLS server name"),
    "name_unknown": (403, "connect by a name looked up in this sandbox within the last hour"),
    "name_invalid": (403, _REQUEST),
    "target_invalid": (400, _REQUEST),
    "method_refused": (403, "CONNECT and TRACE never leave"),
    "expectation_refused": (417, _REQUEST),
    "request_malformed": (400, _REQUEST),
    "request_too_large": (431, _REQUEST),
    "request_timeout": (408, _REQUEST),
    "upgrade_refused": (403, "only 'Upgrade: websocket' with its key and version 13 is passed on"),
    "http2_only": (403, "offer http/1.1 in ALPN: HTTP/2-only and gRPC clients are not passed on"),
    "protocol_refused": (403, "only HTTP and TLS pass, unless a rule of mode tcp names this host and port"),
    # The way to the host.
    "name_not_found": (502, "the name has no address; check its spelling"),
    "destination_refused": (403, _GATEWAY),
    "connect_failed": (502, "the host did not take the connection; a later try may work"),
    "tls_failed": (502, "the host's certificate or TLS version is not acceptable; do not retry"),
    "upstream_malformed": (502, _GATEWAY),
    "upstream_closed": (502, "the host closed the connection before answering; a later try may work"),
    "upstream_timeout": (504, "the host did not answer in time"),
    "response_encoding_refused": (502, "a response to a request with a secret must not be encoded"),
    # Secrets.
    "secret_not_found": (400, _SECRET),
    "secret_reference_required": (400, "name a secret in the body, or leave the template header out"),
    "secret_reference_malformed": (400, 'write getSecret("/secrets/NAME") or with { field: "a.b" }, nothing else'),
    "secret_reference_foreign": (400, "one request may name one secret"),
    "secret_reference_invalid_path": (400, "a secret lives at /secrets/NAME"),
    "secret_reference_field_not_found": (400, _SECRET),
    "secret_reference_outside_url_path": (400, "a secret may stand in the path, query values, headers, Basic auth"),
    "secret_reference_forbidden_header": (400, "this header is stored or shown by hosts; use another"),
    "secret_reference_too_many": (400, _REQUEST),
    "secret_material_not_a_string": (400, "name a field that holds a string"),
    "secret_material_unfit": (400, "the value holds characters that cannot stand in this place"),
    "secret_json_template_invalid_mode": (400, "the only mode is 'json'"),
    "secret_json_template_invalid_content_type": (400, "send application/json"),
    "secret_json_template_invalid_body": (400, _REQUEST),
    "secret_json_template_body_too_large": (400, "a body with secrets has at most 1 MiB"),
    "secret_not_allowed_for_origin": (403, _SECRET),
    "secret_not_allowed_for_request": (403, _SECRET),
    "secret_fetch_failed": (502, _SECRET),
    "secret_refresh_failed": (502, "its owner has to store the secret anew if this goes on: 'kennel secret set'"),
    # The gateway itself.
    "audit_unavailable": (503, _WAIT),
    "lane_unavailable": (502, "the AI gateway does not answer"),
    "gateway_failed": (502, "the gateway failed on this request; the operator's log says why"),
}

CODES = frozenset(_ROWS)


class Refused(Exception):
    """A request that does not leave, with its code and words."""

    def __init__(self, code: str, detail: str, rule_key: str | None = None) -> None:
        super().__init__(f"{code}: {detail}")
        self.code = code
        self.detail = detail
        self.rule_key = rule_key

    @property
    def status(self) -> int:
        return status_of(self.code)

    def body(self) -> bytes:
        """The JSON that the sandbox gets."""
        return msgspec.json.encode(denial(self.code, self.detail, self.rule_key)) + b"\n"


def status_of(code: str) -> int:
    """The HTTP status of a code."""
    return _ROWS[code][0]


def denial(code: str, detail: str, rule_key: str | None = None) -> Denial:
    """The one shape of a reason."""
    return Denial(code, code, detail, rule_key, _ROWS[code][1])
