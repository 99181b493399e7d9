"""Owns the dry run: what a request would meet, found by the same judgement and without sending anything.

Called by process for control's `try`. Invariant: no look-up, no connection, no record, no use of a secret's value.
"""

from __future__ import annotations

from urllib.parse import urlsplit

from kennel.domain.denial import Refused
from kennel.domain.egress_host import parse_authority
from kennel.domain.names import name_of
from kennel.domain.request_target import parse_target
from kennel.gateway import judge
from kennel.gateway.context import Context
from kennel.gateway.names import Names
from kennel.gateway.registry import Sandbox
from kennel.wire.errors import error
from kennel.wire.gateway import Finding, Try

_PORTS = {"http": 80, "https": 443}


def find(context: Context, request: Try) -> Finding:
    """The verdict, its code and rule, the secret and the lane; VALIDATION_FAILED when the URL is none."""
    parts = urlsplit(request.url)
    authority = parse_authority(parts.netloc)
    if parts.scheme not in _PORTS or authority is None:
        raise error("VALIDATION_FAILED", "a URL needs http or https and a plain host")
    raw = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    target = parse_target(raw.encode("utf-8", "replace"))
    if isinstance(target, str):
        return Finding("deny", "target_invalid", target)
    path = request.path if request.path.startswith("/") else f"/sandboxes/{request.path}"
    name_of(path)
    sandbox = Sandbox("trial", Names(1), path, context.registry.projects.get(request.project))
    place = judge.Place(sandbox, parts.scheme, authority.host, authority.port or _PORTS[parts.scheme])
    headers = [(name.lower().encode("latin-1"), value.encode("utf-8")) for name, value in request.headers]
    try:
        project, policy = sandbox.require()
        method = request.method.upper()
        found = judge.survey_request(policy, place, method, target, headers)
        judged = policy.judge(judge.subject_of(place, method, target, found.subjects))
        judge.refuse_denied(judged)
        judge.require_secret(context, project, place, method, target, found)
    except Refused as refused:
        return Finding("deny", refused.code, refused.detail, refused.rule_key)
    rule = judged.rule.rule_key if judged.rule is not None else None
    secret = found.subjects[0] if found.subjects else None
    lane = judge.lane_of(context, place, method, headers, found, websocket=False)
    return Finding(judged.verdict, "", "", rule, secret, lane)
