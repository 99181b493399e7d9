"""Owns the judgement of a request by its project's rules: in order, the first match decides, else the default.

Called by the gateway for every request and by control, through `replay`, for recorded ones. Invariant: a rule that
looks at what is not known (a path that reads two ways) never lets a request past a later or earlier deny; no rule opens
port 25.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from kennel.domain.egress_host import HostPatterns, literal
from kennel.wire.egress import Mode, Policy, Rule, Verdict
from kennel.wire.errors import error

SHUT_PORTS = frozenset({25})
_REMEMBERED = 4096
_KNOWN_METHODS = frozenset(
    (
        "GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH", "PROPFIND", "PROPPATCH", "MKCOL", "COPY", "MOVE",
        "LOCK", "UNLOCK", "REPORT", "SEARCH", "QUERY", "MERGE", "CHECKOUT", "MKACTIVITY", "MKCALENDAR", "ACL", "BIND",
        "REBIND", "UNBIND", "LINK", "UNLINK", "NOTIFY", "SUBSCRIBE", "UNSUBSCRIBE", "PURGE",
    )
)  # fmt: skip


class Subject(msgspec.Struct, frozen=True, gc=False):
    """What is judged. `path` is the decoded, dot-resolved one; None for a tunnel that has none."""

    sandbox: str
    host: str
    port: int
    method: str | None = None
    path: str | None = None
    ambiguous: str | None = None
    secret_paths: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Judgement:
    """What happens to a request, and why: `code` and `detail` are empty when it is allowed."""

    verdict: Verdict
    rule: Rule | None = None
    code: str = ""
    detail: str = ""
    would: Verdict | None = None


Matcher = Callable[[Subject], bool]


def _prefixes(patterns: list[str]) -> Callable[[str], bool]:
    exact = {p for p in patterns if not p.endswith("*")}
    starts = tuple(p.rstrip("*") for p in patterns if p.endswith("*"))
    return lambda text: text in exact or (bool(starts) and text.startswith(starts))


@dataclass(slots=True)
class _Compiled:
    rule: Rule
    hosts: HostPatterns | None
    sandboxes: Callable[[str], bool] | None = None
    connection: list[Matcher] = field(default_factory=list)
    request: list[Matcher] = field(default_factory=list)


class CompiledPolicy:
    """A policy made ready to judge; ValueError when a rule cannot be understood."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        keys = [rule.rule_key for rule in policy.rules]
        if len(set(keys)) != len(keys):
            raise ValueError("two rules have the same ruleKey")
        self._rules = [_compile(rule) for rule in policy.rules]
        self._known: dict[tuple[str, str, int], list[_Compiled]] = {}
        self._allow = Judgement("allow")

    def judge(self, subject: Subject) -> Judgement:
        """The verdict of the first rule that matches, else the default's; audit-only lets pass what rules stop."""
        found = self._judge(subject)
        if found.verdict != "allow" and self.policy.audit_only and found.code != "port_closed":
            return Judgement("allow", found.rule, would=found.verdict)
        return found

    def _judge(self, subject: Subject) -> Judgement:
        if subject.port in SHUT_PORTS:
            return Judgement("deny", code="port_closed", detail=f"port {subject.port} is closed for every host")
        for row in self._for(subject):
            if row.rule.match.path_prefix is not None and subject.ambiguous is not None:
                detail = f"the path can be read in two ways ({subject.ambiguous}) and rules here look at paths"
                return Judgement("deny", row.rule, "path_ambiguous", detail)
            if (row.rule.match.methods or row.rule.match.path_prefix) and (
                subject.method or "GET"
            ) not in _KNOWN_METHODS:
                detail = f"method {subject.method} is unknown and rules here look at methods or paths"
                return Judgement("deny", row.rule, "method_unknown", detail)
            if all(accept(subject) for accept in row.request):
                return self._verdict(row.rule, subject)
        return self._default(subject)

    def _for(self, subject: Subject) -> list[_Compiled]:
        """The rules whose hosts, ports and sandboxes fit, in order; remembered, since a client asks one host often."""
        key = (subject.sandbox, subject.host, subject.port)
        rows = self._known.get(key)
        if rows is None:
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            rows = [row for row in self._rules if all(accept(subject) for accept in row.connection)]
            self._known[key] = rows
        return rows

    def _verdict(self, rule: Rule, subject: Subject) -> Judgement:
        if rule.verdict == "allow":
            if literal(subject.host) is not None and rule.match.hosts is None:
                return _address_refused(subject)
            return Judgement("allow", rule)
        if rule.verdict == "hold":
            return Judgement("hold", rule)
        words = rule.description or f"rule {rule.rule_key} denies {subject.host}"
        return Judgement("deny", rule, "egress_denied", words)

    def _default(self, subject: Subject) -> Judgement:
        if self.policy.default == "deny":
            return Judgement("deny", code="egress_denied", detail=f"no rule allows {subject.host}:{subject.port}")
        return self._allow if literal(subject.host) is None else _address_refused(subject)

    def mode(self, subject: Subject) -> Mode:
        """How a connection is carried: `http` unless the first rule for its host and port says otherwise.

        A rule that looks at methods, paths or secrets and comes first keeps the connection opened, since it may deny.
        """
        for row in self._for(subject):
            return row.rule.mode if not row.request else "http"
        return "http"

    def dns_types(self, sandbox: str, name: str) -> bool:
        """Whether TXT, SRV, MX and CNAME questions for a name may be asked outside."""
        for row in self._rules:
            theirs = row.sandboxes is None or row.sandboxes(sandbox)
            if row.hosts is not None and theirs and row.hosts.accept(name):
                if row.rule.verdict != "allow":
                    return False
                if row.rule.dns:
                    return True
        return False


def _address_refused(subject: Subject) -> Judgement:
    detail = f"{subject.host} is a literal address; only a rule that names it can allow it"
    return Judgement("deny", code="address_not_allowed", detail=detail)


def _compile(rule: Rule) -> _Compiled:
    match = rule.match
    hosts = HostPatterns(match.hosts) if match.hosts is not None else None
    row = _Compiled(rule, hosts)
    if hosts is not None:
        row.connection.append(lambda s: hosts.accept(s.host))
    if match.sandboxes is not None:
        names = _prefixes([p if p.startswith("/") else f"/sandboxes/{p}" for p in match.sandboxes])
        row.sandboxes = names
        row.connection.append(lambda s: names(s.sandbox))
    if match.ports is not None:
        ports = frozenset(match.ports)
        row.connection.append(lambda s: s.port in ports)
    if match.methods is not None:
        methods = frozenset(m.upper() for m in match.methods)
        row.request.append(lambda s: s.method is not None and s.method.upper() in methods)
    if match.path_prefix is not None:
        prefix = match.path_prefix
        row.request.append(lambda s: s.path is not None and s.path.startswith(prefix))
    if match.secret_paths is not None:
        secrets = _prefixes(match.secret_paths)
        row.request.append(lambda s: any(secrets(p) for p in s.secret_paths))
    if rule.mode != "http" and (rule.verdict != "allow" or row.request or not match.hosts or not match.ports):
        raise ValueError(f"rule {rule.rule_key}: mode {rule.mode} needs verdict allow, hosts and ports, nothing else")
    if rule.mode == "tcp" and match.hosts is not None and any("*" in host for host in match.hosts):
        raise ValueError(f"rule {rule.rule_key}: mode tcp needs hosts without '*'")
    return row


def parse_policy(value: Any) -> CompiledPolicy:
    """A policy from plain JSON values; VALIDATION_FAILED says which part is wrong."""
    try:
        return CompiledPolicy(msgspec.convert(value, Policy))
    except (msgspec.ValidationError, ValueError) as fault:
        raise error("VALIDATION_FAILED", f"not a policy: {fault}", details={"policy": [str(fault)]}) from None
