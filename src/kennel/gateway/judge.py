"""Owns the judgement of one request, before anything of it leaves: authority, form, references, policy, pins, lane.

Called by the exchange and by dry runs. Invariant: it looks nothing up and sends nothing; policy and audit see the
placeholder form; the origin that a pin is compared with is the verified one.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field

from kennel.domain import ai_lane
from kennel.domain.denial import Refused
from kennel.domain.egress_host import parse_authority, written
from kennel.domain.placeholder import Reference
from kennel.domain.policy import CompiledPolicy, Judgement, Subject
from kennel.domain.request_target import Target
from kennel.domain.secret_pin import require_allowed, value_of
from kennel.domain.substitution import Survey, survey
from kennel.gateway import strategies
from kennel.gateway.context import Context
from kennel.gateway.registry import Project, Sandbox
from kennel.gateway.request_reader import Header, Incoming
from kennel.wire.egress import Pin, Record, SealedSecret

_DEFAULT = {"http": 80, "https": 443}


@dataclass(slots=True)
class Place:
    """Where a connection goes, as the entrance established it; `fault` answers every request on it."""

    sandbox: Sandbox
    scheme: str
    host: str
    port: int
    fault: Refused | None = None
    origin: tuple[str, str, int] = field(init=False)
    authority: str = field(init=False)
    plain: bytes = field(init=False)
    """The Host field as nearly every client writes it."""

    def __post_init__(self) -> None:
        self.origin = self.scheme, self.host, self.port
        self.authority = written(self.host, self.port, self.scheme)
        self.plain = self.authority.encode("ascii", "replace")

    def url(self, target: Target | None) -> str:
        return f"{self.scheme}://{self.authority}{target.raw if target else ''}"


_OVERRIDES = frozenset((b"x-http-method-override", b"x-http-method", b"x-method-override"))


def describe(context: Context, place: Place, incoming: Incoming, record: Record) -> None:
    """Puts on a record what is asked for. A field that names another method is reported: some hosts obey it."""
    record.request, record.sandbox = context.number(), place.sandbox.path or place.sandbox.id
    record.host, record.port = place.host, place.port
    record.method, record.url = incoming.method, place.url(incoming.target)[:4096]
    if place.sandbox.project is not None:
        record.project = place.sandbox.project.name
    for name, value in incoming.headers:
        if name in _OVERRIDES:
            shown = value[:32].decode("ascii", "backslashreplace")
            record.detail = f"the field {name.decode()} asks the host for the method {shown}"


def require_authority(place: Place, host: bytes) -> None:
    """Refused unless the Host field names exactly the host and port that this connection goes to."""
    if host == place.plain:
        return
    authority = parse_authority(host.decode("latin-1"))
    if authority is None:
        raise Refused("host_invalid", "the Host field is no plain host name")
    if authority.host != place.host:
        raise Refused("name_mismatch", f"Host names {authority.host}, the connection goes to {place.host}")
    if (authority.port or _DEFAULT[place.scheme]) != place.port:
        raise Refused("host_invalid", f"Host names another port than {place.port}")


def subject_of(place: Place, method: str, target: Target, secrets: tuple[str, ...]) -> Subject:
    """What policy looks at."""
    return Subject(place.sandbox.path, place.host, place.port, method, target.path, target.ambiguous, secrets)


def survey_request(policy: CompiledPolicy, place: Place, method: str, target: Target, headers: list[Header]) -> Survey:
    """The references in a request's head. A malformed one does not get around a denial: that comes first."""
    try:
        found = survey(headers, target.raw_path, target.raw_query)
        found.require_one()
        return found
    except Refused:
        refuse_denied(policy.judge(subject_of(place, method, target, ())))
        raise


def refuse_denied(judged: Judgement) -> None:
    """Raises what a denial says; nothing for other verdicts."""
    if judged.verdict == "deny":
        raise Refused(judged.code, judged.detail, judged.rule.rule_key if judged.rule else None)


class Values:
    """The value behind a request's one reference: opened when first needed, for this request only."""

    __slots__ = ("_context", "_material", "_project", "given", "secret")

    def __init__(self, context: Context, project: Project, secret: SealedSecret | None) -> None:
        self._context, self._project = context, project
        self._material: str | None = None
        self.secret = secret
        self.given: dict[str, str] = {}

    def __call__(self, reference: Reference) -> str:
        """The value; what was given is remembered for redaction."""
        if reference.platform is not None:
            value = self._context.platform[reference.platform][0]
        else:
            value = value_of(self._open(), reference)
        self.given[value] = reference.subject
        return value

    def stale(self, reference: Reference) -> bool:
        """Whether new material has to be got before this value can be used."""
        if self.secret is None or self.secret.refresh is None:
            return False
        return strategies.stale(json.loads(self._open()), reference.field, time.time())

    def _open(self) -> str:
        assert self.secret is not None
        if self._material is None:
            self._material = self._context.vault.open(self._project.name, self.secret)
        return self._material


def require_secret(
    context: Context, project: Project, place: Place, method: str, target: Target, found: Survey
) -> Values | None:
    """The values of a request's references, None when it has none; Refused when pin or project do not allow them."""
    if not found.references:
        return None
    reference = found.references[0]
    secret: SealedSecret | None = None
    if reference.platform is not None:
        known = context.platform.get(reference.platform)
        if known is None:
            raise Refused("secret_not_found", f"there is no platform key {reference.platform}")
        pin: Pin = known[1]
    else:
        secret = project.secrets.get(reference.path or "")
        if secret is None:
            raise Refused("secret_not_found", f"there is no secret {reference.path}")
        pin = secret.pin
    require_allowed(pin, reference.subject, place.origin, method, target.path, target.ambiguous is not None)
    _require_headers(pin, reference.subject, found)
    return Values(context, project, secret)


def _require_headers(pin: Pin, subject: str, found: Survey) -> None:
    if pin.headers is None:
        return
    allowed = {f"header {name}" for name in pin.headers} | ({"basic"} if "authorization" in pin.headers else set())
    strange = [place for place in found.places if place not in allowed]
    if strange:
        raise Refused("secret_not_allowed_for_request", f"{subject} may not stand in {strange[0]}")


def lane_of(context: Context, place: Place, method: str, headers: list[Header], found: Survey, websocket: bool) -> str:
    """`secret`, `ai` (if the body parses) or `plain`."""
    if found.references or found.template:
        return "secret"
    if context.ai is not None and ai_lane.candidate(place.host, method, headers, None, websocket):
        return "ai"
    return "plain"
