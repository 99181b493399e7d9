"""Owns what a policy would have done to requests that are on record: the trial of a rule before it is in force.

Called by control's egress. Invariant: nothing is sent or looked up; what the gateway refused for another reason than
its policy (a name that does not fit, a secret in the wrong place) stays refused and is not counted as a change.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from kennel.domain.policy import CompiledPolicy, Judgement, Subject
from kennel.domain.request_target import parse_target
from kennel.wire.egress import Record

SHOWN = 500
"""Changes that an answer holds; all are counted."""
BY_POLICY = frozenset(
    ("egress_denied", "address_not_allowed", "path_ambiguous", "method_unknown", "port_closed", "approval_rejected",
     "approval_expired", "approvals_full")
)  # fmt: skip
"""Codes of refusals that come from the policy in force then."""


class Replayed(msgspec.Struct, rename="camel", kw_only=True):
    """A recorded request that a policy decides otherwise."""

    offset: int
    at: int
    sandbox: str
    method: str
    url: str
    was: str
    would: str
    code: str = ""
    rule_key: str | None = None


class Replay(msgspec.Struct, rename="camel", kw_only=True):
    """How many recorded requests were looked at, what the policy says to them, and the newest that differ."""

    considered: int = 0
    allow: int = 0
    deny: int = 0
    hold: int = 0
    differing: int = 0
    changed: list[Replayed] = []


def considers(record: Record) -> bool:
    """Whether this record is a decision that policy made."""
    if record.kind != "decision" or record.verdict is None or record.layer not in ("http", "tunnel"):
        return False
    return record.verdict != "deny" or record.code in BY_POLICY


def replay(policy: CompiledPolicy, rows: Iterable[tuple[int, Record]]) -> Replay:
    """The sum over (offset, record), newest first."""
    found = Replay(changed=[])
    for offset, record in rows:
        if not considers(record):
            continue
        judged, was = policy.judge(_subject(record)), _verdict(record)
        found.considered += 1
        found.allow += judged.verdict == "allow"
        found.deny += judged.verdict == "deny"
        found.hold += judged.verdict == "hold"
        if judged.verdict != was:
            found.differing += 1
            if len(found.changed) < SHOWN:
                found.changed.append(_changed(offset, record, was, judged))
    return found


def _verdict(record: Record) -> str:
    """What policy said then: a request that a person let pass, or did not, was held."""
    return "hold" if record.hold is not None else str(record.verdict)


def _subject(record: Record) -> Subject:
    secrets = (record.secret_path,) if record.secret_path else ()
    if not record.method:
        return Subject(record.sandbox, record.host, record.port, secret_paths=secrets)
    rest = record.url.partition("://")[2]
    slash = rest.find("/")
    target = parse_target(rest[slash:].encode("latin-1", "replace") if slash >= 0 else b"/")
    path, ambiguous = ("/", target) if isinstance(target, str) else (target.path, target.ambiguous)
    return Subject(record.sandbox, record.host, record.port, record.method, path, ambiguous, secrets)


def _changed(offset: int, record: Record, was: str, judged: Judgement) -> Replayed:
    return Replayed(
        offset=offset,
        at=record.at,
        sandbox=record.sandbox,
        method=record.method,
        url=record.url or f"{record.host}:{record.port}",
        was=was,
        would=judged.verdict,
        code=judged.code,
        rule_key=judged.rule.rule_key if judged.rule is not None else None,
    )
