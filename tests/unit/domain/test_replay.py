"""What a policy would have done to requests on record."""

from __future__ import annotations

from typing import Any

import pytest

from kennel.domain.policy import parse_policy
from kennel.domain.replay import SHOWN, considers, replay
from kennel.wire.egress import Record


def record(host: str = "a.example.com", path: str = "/x", **words: Any) -> Record:
    fields = {"kind": "decision", "host": host, "port": 443, "method": "GET", "verdict": "allow"}
    return Record(**{**fields, "url": f"https://{host}{path}", "sandbox": "/sandboxes/x", **words})


def rule(key: str, verdict: str, **match: Any) -> dict[str, Any]:
    return {"ruleKey": key, "verdict": verdict, "match": match}


def test_it_counts_everything_and_shows_what_differs() -> None:
    rows = [
        (9, record()),
        (8, record("b.example.com")),
        (7, record("c.example.com", verdict="deny", code="egress_denied")),
        (6, record("d.example.com", hold="hold-0", verdict="allow")),
        (5, record(kind="outcome")),
        (4, record(verdict="deny", code="name_mismatch")),
    ]
    found = replay(parse_policy({"rules": [rule("r", "deny", hosts=["a.example.com"])]}), rows)
    assert (found.considered, found.allow, found.deny, found.hold, found.differing) == (4, 3, 1, 0, 3)
    assert [(row.offset, row.was, row.would, row.rule_key) for row in found.changed] == [
        (9, "allow", "deny", "r"), (7, "deny", "allow", None), (6, "hold", "allow", None),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("path", "would"),
    [("/admin/x", "deny"), ("/a/../admin", "deny"), ("/ok", "allow"), ("/ok?/admin", "allow"), ("//admin", "deny")],
)
def test_paths_are_read_as_the_gateway_reads_them(path: str, would: str) -> None:
    found = replay(parse_policy({"rules": [rule("r", "deny", pathPrefix="/admin")]}), [(1, record(path=path))])
    assert (found.allow, found.deny) == ((1, 0) if would == "allow" else (0, 1))


def test_secrets_sandboxes_and_tunnels_count() -> None:
    policy = parse_policy(
        {"default": "deny", "rules": [
            rule("s", "hold", secretPaths=["/secrets/pay*"]),
            rule("t", "allow", hosts=["db.example.com"], ports=[5432]),
        ]}
    )  # fmt: skip
    tunnel = record("db.example.com", layer="tunnel", method="", url="", port=5432)
    found = replay(policy, [(2, record(secret_path="/secrets/payments")), (1, tunnel)])
    assert (found.hold, found.allow, found.differing) == (1, 1, 1)


def test_an_answer_is_bounded() -> None:
    policy = parse_policy({"default": "deny", "rules": []})
    found = replay(policy, [(n, record()) for n in range(SHOWN + 7)])
    assert (found.differing, len(found.changed)) == (SHOWN + 7, SHOWN)


def test_what_the_gateway_asks_for_itself_is_no_request() -> None:
    assert not considers(record(layer="gateway"))
    assert not considers(record(verdict=None))
    assert not considers(record(layer="dns"))
