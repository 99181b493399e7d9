"""Rules in order, the first match decides; what is unclear never gets past."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kennel.domain.policy import CompiledPolicy, Subject, parse_policy
from kennel.wire.errors import KennelError


def policy(*rules: dict[str, Any], **words: Any) -> CompiledPolicy:
    return parse_policy({"rules": list(rules), **words})


def rule(key: str, verdict: str, **words: Any) -> dict[str, Any]:
    extra = {name: words.pop(name) for name in ("mode", "dns", "description") if name in words}
    return {"ruleKey": key, "verdict": verdict, "match": words, **extra}


def subject(host: str = "a.example.com", **words: Any) -> Subject:
    return Subject(**{"sandbox": "/sandboxes/x", "host": host, "port": 443, "method": "GET", "path": "/", **words})


def test_first_match_wins_else_the_default() -> None:
    made = policy(rule("one", "allow", methods=["get"]), rule("two", "deny", hosts=["a.example.com"]), default="deny")
    assert made.judge(subject()).verdict == "allow"
    denied = made.judge(subject(method="POST"))
    assert (denied.verdict, denied.code, denied.rule.rule_key if denied.rule else None) == (
        "deny",
        "egress_denied",
        "two",
    )
    assert made.judge(subject("b.example.com", method="POST")).rule is None


@pytest.mark.parametrize(
    ("match", "good", "bad"),
    [
        ({"hosts": ["*.example.com"]}, {}, {"host": "example.com"}),
        ({"ports": [443, 8443]}, {}, {"port": 80}),
        ({"methods": ["GET", "HEAD"]}, {}, {"method": "POST"}),
        ({"pathPrefix": "/v1"}, {"path": "/v1/x"}, {"path": "/v2"}),
        ({"secretPaths": ["/secrets/a*"]}, {"secret_paths": ("/secrets/ab",)}, {"secret_paths": ("/secrets/b",)}),
        ({"secretPaths": ["/secrets/a"]}, {"secret_paths": ("/secrets/a",)}, {}),
        ({"sandboxes": ["x"]}, {}, {"sandbox": "/sandboxes/xy"}),
        ({"sandboxes": ["/sandboxes/ci-*"]}, {"sandbox": "/sandboxes/ci-1"}, {}),
    ],
)
def test_every_matcher(match: dict[str, Any], good: dict[str, Any], bad: dict[str, Any]) -> None:
    made = policy(rule("r", "hold", **match))
    assert made.judge(subject(**good)).verdict == "hold"
    assert made.judge(subject(**bad)).verdict == "allow"


def test_unclear_paths_and_methods_do_not_pass_rules_that_look_at_them() -> None:
    made = policy(rule("r", "deny", hosts=["a.example.com"], pathPrefix="/admin"))
    assert made.judge(subject(path="/x", ambiguous="it holds '%2f'")).code == "path_ambiguous"
    assert made.judge(subject("b.example.com", path="/x", ambiguous="it holds '%2f'")).verdict == "allow"
    assert made.judge(subject(method="FROB")).code == "method_unknown"


def test_literal_addresses_and_port_25() -> None:
    assert policy().judge(subject("1.2.3.4")).code == "address_not_allowed"
    assert policy(rule("r", "allow")).judge(subject("1.2.3.4")).code == "address_not_allowed"
    assert policy(rule("r", "allow", hosts=["1.2.3.4"])).judge(subject("1.2.3.4")).verdict == "allow"
    assert policy(rule("r", "allow", hosts=["*"])).judge(subject("1.2.3.4")).code == "address_not_allowed"
    assert policy(rule("r", "allow", ports=[25])).judge(subject(port=25)).code == "port_closed"
    assert policy(auditOnly=True).judge(subject(port=25)).code == "port_closed"


def test_audit_only() -> None:
    made = policy(rule("r", "deny"), auditOnly=True)
    assert (made.judge(subject()).verdict, made.judge(subject()).would) == ("allow", "deny")


def test_modes() -> None:
    tunnel = rule("t", "allow", hosts=["db.example.com"], ports=[5432], mode="tcp")
    assert policy(tunnel).mode(subject("db.example.com", port=5432)) == "tcp"
    assert policy(tunnel).mode(subject("db.example.com", port=443)) == "http"
    first = rule("f", "deny", hosts=["db.example.com"], pathPrefix="/x")
    assert policy(first, tunnel).mode(subject("db.example.com", port=5432)) == "http"
    assert policy(rule("d", "deny", ports=[5432]), tunnel).mode(subject("db.example.com", port=5432)) == "http"


def test_dns_types() -> None:
    made = policy(
        rule("no", "deny", hosts=["x.a.example.com"]), rule("yes", "allow", hosts=["*.a.example.com"], dns=True)
    )
    assert made.dns_types("/sandboxes/x", "y.a.example.com")
    assert not made.dns_types("/sandboxes/x", "x.a.example.com")
    assert not made.dns_types("/sandboxes/x", "b.example.com")


@pytest.mark.parametrize(
    "value",
    [
        [], {"rules": [{}]}, {"rules": [rule("a", "deny"), rule("a", "deny")]},
        {"rules": [rule("a", "deny", hosts=[])]},
        {"rules": [rule("a", "deny", hosts=["*bad"])]}, {"rules": [rule("a b", "deny")]}, {"default": "hold"},
        {"rules": [rule("a", "allow", hosts=["x.example.com"], mode="tcp")]}, {"rules": [], "more": 1},
        {"rules": [rule("a", "allow", hosts=["x.example.com"], ports=[1], methods=["GET"], mode="passthrough")]},
        {"rules": [rule("a", "deny", pathPrefix="x")]}, {"rules": [rule("a", "deny", ports=[0])]},
    ],
)  # fmt: skip
def test_what_is_no_policy(value: Any) -> None:
    with pytest.raises(KennelError) as caught:
        parse_policy(value)
    assert caught.value.code == "VALIDATION_FAILED"


hosts = st.sampled_from(["a.example.com", "b.example.com", "x.a.example.com"])
matches = st.fixed_dictionaries(
    {},
    optional={
        "hosts": st.lists(hosts, min_size=1),
        "methods": st.just(["GET"]),
        "pathPrefix": st.sampled_from(["/", "/a"]),
    },
)


@given(
    st.lists(st.tuples(matches, st.sampled_from(["allow", "deny", "hold"])), max_size=6),
    hosts,
    st.sampled_from(["/", "/a"]),
)
def test_a_policy_is_its_first_matching_rule(rows: list[tuple[dict[str, Any], str]], host: str, path: str) -> None:
    made = policy(*(rule(str(number), verdict, **match) for number, (match, verdict) in enumerate(rows)))
    asked = subject(host, path=path)
    wanted = "allow"
    for match, verdict in rows:
        if host in match.get("hosts", [host]) and path.startswith(match.get("pathPrefix", "/")):
            wanted = verdict
            break
    assert made.judge(asked).verdict == wanted
    assert made.judge(asked).verdict == wanted
