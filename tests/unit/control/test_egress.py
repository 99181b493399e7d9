"""Control's side of the way out: what the gateway is told and when, the audit, approvals, secrets, connections."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from fake_gateway import FakeGateway
from kennel.adapters.sql.event_log import SqlEventLog
from kennel.adapters.vault.sealer import seal_secret
from kennel.control.egress import Egress
from kennel.domain.egress_state import LOG
from kennel.domain.principal import Principal
from kennel.wire import gateway as wire
from kennel.wire.egress import Pin, Record, Refresh
from kennel.wire.errors import KennelError, error

pytestmark = pytest.mark.anyio

APPROVER = """-----BEGIN PUBLIC KEY-----
MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE3x2XHgqb0JmTfEjbb5Kqj5f3eR4r
sN1VXvUOQqVZkLqjYx0oQ0m1XoQe4kqfG0mYz1yqC3hJ3sQm3oY1i7z5Yw==
-----END PUBLIC KEY-----
"""
"""Has the form of one; nobody signs here."""
WHO = Principal("k-owner", "acme", frozenset({"policy", "secrets"}))
PIN = Pin(["https://api.example.com"])
CANARY = "sk-canary-4e1f"
REFRESH = Refresh("oauth-client-credentials", "https://api.example.com/token")


@pytest.fixture
def gateway(tmp_path: Path) -> FakeGateway:
    return FakeGateway(tmp_path)


@pytest.fixture
async def egress(log: SqlEventLog, gateway: FakeGateway) -> AsyncIterator[Egress]:
    async def projects() -> list[str]:
        return ["acme", "other"]

    made = Egress(log, gateway, seal_secret, "allow", projects)
    made.start()
    await gateway.arrives("one")
    yield made
    await made.close()


async def refused(code: str, awaitable: Any) -> KennelError:
    with pytest.raises(KennelError) as caught:
        await awaitable
    assert caught.value.code == code
    return caught.value


def hold(name: str = "hold-0000000000000001", count: int = 2, **words: Any) -> wire.HoldRequested:
    requests = [wire.HeldRequest("GET", f"https://a.example.com/{n}", [("x", "y")], **words) for n in range(count)]
    return wire.HoldRequested(name, "acme", "/sandboxes/box", "ask", "", requests, 2**50)


async def test_a_sandbox_is_bound_after_rules_and_secrets(egress: Egress, gateway: FakeGateway) -> None:
    await egress.secrets.put(WHO, "acme", "/secrets/a", "x", PIN)
    gateway.told.clear()
    await egress.bind("sandbox00001", "acme", "/sandboxes/box")
    assert [type(told) for told in gateway.told] == [wire.SetPolicy, wire.PutSecret, wire.Bind]
    await egress.bind("sandbox00002", "acme", "/sandboxes/two")
    assert [type(told) for told in gateway.told[3:]] == [wire.Bind]
    await gateway.arrives("two")
    assert [type(told) for told in gateway.told] == [wire.SetPolicy, wire.PutSecret, wire.Bind, wire.Bind]
    egress.unbind("sandbox00001")
    await gateway.arrives("three")
    assert [told.sandbox for told in gateway.of(wire.Bind)] == ["sandbox00002"]


async def test_a_sandbox_that_wakes_without_a_gateway_is_bound_when_it_comes(
    egress: Egress, gateway: FakeGateway
) -> None:
    gateway.here = False
    await egress.bind("sandbox00001", "acme", "/sandboxes/box")
    await gateway.arrives("two")
    assert [told.path for told in gateway.of(wire.Bind)] == ["/sandboxes/box"]


async def test_rules_are_checked_kept_and_told(egress: Egress, gateway: FakeGateway) -> None:
    assert await egress.rules("acme") == {"rules": [], "default": "allow", "version": 0}
    await refused("VALIDATION_FAILED", egress.set_rules(WHO, "acme", {"rules": [{"verdict": "deny"}]}))
    assert (await egress.rules("acme"))["version"] == 0
    await egress.bind("sandbox00001", "acme", "/sandboxes/box")
    rule = {"ruleKey": "r", "verdict": "deny", "match": {"hosts": ["a.example.com"]}}
    kept = await egress.set_rules(
        WHO, "acme", {"rules": [rule], "default": "deny", "approvers": [APPROVER], "version": 9}
    )
    assert (kept["rules"], kept["default"], kept["approvers"]) == ([rule], "deny", [APPROVER])
    assert gateway.of(wire.SetPolicy)[-1].policy == kept
    assert (await egress.rules("other"))["rules"] == []


async def test_audit_records_land_once_and_are_acknowledged(
    egress: Egress, gateway: FakeGateway, log: SqlEventLog
) -> None:
    rows = [
        Record(kind="decision", project="acme", host="a.example.com", verdict="allow", secret_path="/secrets/a"),
        Record(kind="decision", project="acme", host="b.example.com", verdict="deny", secret_path="/secrets/a"),
        Record(kind="note", host="nobody"),
    ]
    await egress.secrets.put(WHO, "acme", "/secrets/a", "x", PIN)
    for _ in range(2):
        await gateway.says(wire.Records("ledger", 7, rows))
    assert [told.through for told in gateway.of(wire.Acknowledge)] == [9, 9]
    kept = [event.payload for event in await log.read("acme", LOG) if event.type == "egress/recorded"]
    assert [(row["host"], row["verdict"]) for row in kept] == [("a.example.com", "allow"), ("b.example.com", "deny")]
    assert [e.payload["host"] for e in await log.read("_kennel", LOG) if e.type == "egress/recorded"] == ["nobody"]
    assert (await egress.secrets.get("acme", "/secrets/a")).used_count == 1


async def test_replay_reads_back_from_the_newest(egress: Egress, gateway: FakeGateway) -> None:
    def decision(n: int) -> Record:
        url = f"https://h{n}.example.com/"
        return Record(
            kind="decision", project="acme", host=f"h{n}.example.com", port=443, method="GET", url=url, verdict="allow"
        )

    rows = [row for n in range(700) for row in (decision(n), Record(kind="outcome", project="acme"))]
    await gateway.says(wire.Records("ledger", 1, rows))
    policy = {"rules": [{"ruleKey": "r", "verdict": "deny", "match": {"hosts": ["h699.example.com"]}}]}
    found = await egress.replay("acme", policy, 600)
    assert (found.considered, found.deny, found.differing) == (600, 1, 1)
    assert found.changed[0].url == "https://h699.example.com/"
    policy["rules"][0]["match"] = {"hosts": ["h99.example.com"]}
    assert (await egress.replay("acme", policy, 600)).differing == 0
    assert (await egress.replay("acme", policy, 10_000)).differing == 1
    assert (await egress.replay("other", policy, 10)).considered == 0
    await refused("VALIDATION_FAILED", egress.replay("acme", {"rules": [{}]}, 10))


async def test_hosts_come_busiest_first(egress: Egress, gateway: FakeGateway) -> None:
    counted = {"requests": 1, "denied": 0, "bytesOut": 1, "bytesIn": 2}
    gateway.answers[wire.Counters] = lambda ask: {"b": counted, "a": counted, "c": {**counted, "requests": 9}}
    assert [row["host"] for row in await egress.hosts("acme")] == ["c", "a", "b"]
    gateway.here = False
    await refused("GATEWAY_UNAVAILABLE", egress.hosts("acme"))


async def test_material_is_sealed_and_nowhere_else(egress: Egress, gateway: FakeGateway, log: SqlEventLog) -> None:
    view = await egress.secrets.put(WHO, "acme", "/secrets/a", {"k": CANARY}, PIN)
    assert view.pin.origins == ["https://api.example.com:443"]
    sealed = gateway.of(wire.PutSecret)[-1].secret
    assert json.loads(gateway.vault.open("acme", sealed)) == {"k": CANARY}
    written = repr([event for event in await log.read("acme", "/secrets")])
    assert CANARY not in written + repr(gateway.told) + repr(view)
    await refused("SECRET_NOT_FOUND", egress.secrets.get("other", "/secrets/a"))
    gateway.here = False
    await refused("GATEWAY_UNAVAILABLE", egress.secrets.put(WHO, "acme", "/secrets/b", "x", PIN))


@pytest.mark.parametrize("path", ["/secrets", "/secrets/", "/other/a", "/secrets/a b", "/secrets/../a", "/secrets/a?b"])
async def test_paths_of_secrets_are_checked(egress: Egress, path: str) -> None:
    await refused("VALIDATION_FAILED", egress.secrets.put(WHO, "acme", path, "x", PIN))


@pytest.mark.parametrize(
    ("material", "refresh"),
    [
        ("text", REFRESH),
        ({"clientId": "c"}, REFRESH),
        ({"clientId": "c", "clientSecret": ""}, REFRESH),
        ({"clientId": "c", "clientSecret": "s"}, Refresh(REFRESH.strategy, "https://elsewhere.example.com/token")),
        ({"clientId": "c", "clientSecret": "s"}, Refresh(REFRESH.strategy, "http://api.example.com/token")),
        ({"clientId": "c", "clientSecret": "s"}, Refresh(REFRESH.strategy, "https://a@api.example.com/token")),
        ({"clientId": "c", "clientSecret": "s"}, Refresh(REFRESH.strategy, "https://api.example.com/a b")),
    ],
)
async def test_a_strategy_needs_its_fields_and_an_endpoint_inside_the_pin(
    egress: Egress, material: Any, refresh: Refresh
) -> None:
    await refused("VALIDATION_FAILED", egress.secrets.put(WHO, "acme", "/secrets/a", material, PIN, refresh))


async def test_rotated_material_returns_sealed_unless_it_was_replaced(egress: Egress, gateway: FakeGateway) -> None:
    material = {"clientId": "c", "clientSecret": CANARY}
    await egress.secrets.put(WHO, "acme", "/secrets/a", material, PIN, REFRESH)
    first = gateway.of(wire.PutSecret)[-1].secret
    fresh = gateway.vault.reseal("acme", first, json.dumps({**material, "accessToken": "new"}))
    for _ in range(2):
        await gateway.says(wire.SecretRotated("acme", fresh))
        assert gateway.of(wire.PutSecret)[-1].secret == fresh
    view = await egress.secrets.get("acme", "/secrets/a")
    assert (view.refresh, view.rotated_at is not None) == ("oauth-client-credentials", True)
    await egress.secrets.put(WHO, "acme", "/secrets/a", material, PIN, REFRESH)
    stored = gateway.of(wire.PutSecret)[-1].secret
    await gateway.says(wire.SecretRotated("acme", fresh))
    assert gateway.of(wire.PutSecret)[-1].secret == stored
    await egress.secrets.remove(WHO, "acme", "/secrets/a")
    gateway.told.clear()
    await gateway.says(wire.SecretRotated("acme", fresh))
    assert [type(told) for told in gateway.told] == [wire.DropSecret]


async def test_a_gateway_that_returns_gets_the_rotated_box(egress: Egress, gateway: FakeGateway) -> None:
    await egress.bind("sandbox00001", "acme", "/sandboxes/box")
    await egress.secrets.put(WHO, "acme", "/secrets/a", {"clientId": "c", "clientSecret": "s"}, PIN, REFRESH)
    fresh = gateway.vault.reseal("acme", gateway.of(wire.PutSecret)[-1].secret, '{"accessToken": "new"}')
    await gateway.says(wire.SecretRotated("acme", fresh))
    await gateway.arrives("two")
    assert [told.secret for told in gateway.of(wire.PutSecret)] == [fresh]


async def test_a_decision_is_the_gateways_to_accept(egress: Egress, gateway: FakeGateway) -> None:
    await gateway.says(hold())
    [row] = await egress.approvals.list("acme", status="open")
    assert (row.sandbox, len(row.requests), row.instance) == ("/sandboxes/box", 2, "one")
    answered = await egress.approvals.decide(WHO, "acme", row.id, [True, False], reason="so")
    assert (answered.status, answered.verdicts, answered.decided_by) == ("mixed", [True, False], "k-owner")
    assert gateway.of(wire.Decide)[0].verdicts == [True, False]
    await refused("RESOURCE_BUSY", egress.approvals.decide(WHO, "acme", row.id, True))
    await gateway.says(wire.HoldSettled(row.id, "acme", 0, 204))
    await gateway.says(wire.HoldSettled(row.id, "acme", 1, 0, "approval_rejected"))
    assert (await egress.approvals.get("acme", row.id)).outcomes == {0: "204", 1: "approval_rejected"}


async def test_two_decisions_at_once_are_one(egress: Egress, gateway: FakeGateway) -> None:
    """The second one must not write `withdrawn` before the first is on the log."""
    await gateway.says(hold(count=1))
    open_ = ["hold-0000000000000001"]

    def decide(_: wire.Decide) -> None:
        if not open_:
            raise error("NOT_FOUND", "nothing waits")
        open_.clear()

    gateway.answers[wire.Decide] = decide
    calls = [egress.approvals.decide(WHO, "acme", "hold-0000000000000001", verdict) for verdict in (True, False, False)]
    done = await asyncio.gather(*calls, return_exceptions=True)
    assert [isinstance(one, KennelError) and one.code for one in done] == [False, "RESOURCE_BUSY", "RESOURCE_BUSY"]
    assert (await egress.approvals.get("acme", "hold-0000000000000001")).status == "approved"
    assert len(gateway.of(wire.Decide)) == 1


async def test_a_hold_of_an_earlier_gateway_is_withdrawn(egress: Egress, gateway: FakeGateway) -> None:
    await gateway.says(hold())
    await gateway.arrives("one")  # control was away, the gateway was not
    assert len(await egress.approvals.list("acme", status="open")) == 1
    await gateway.arrives("two")
    [row] = await egress.approvals.list("acme")
    assert row.status == "withdrawn"
    await refused("RESOURCE_BUSY", egress.approvals.decide(WHO, "acme", row.id, True))


async def test_a_question_is_bounded_on_the_log(egress: Egress, gateway: FakeGateway) -> None:
    await gateway.says(hold(count=50, body="A" * 60_000))
    [row] = await egress.approvals.list("acme")
    assert len(json.dumps(row.requests)) < 140_000
    assert [request["url"] for request in row.requests][:2] == ["https://a.example.com/0", "https://a.example.com/1"]


async def test_connections_are_secrets_and_the_first_is_planted(egress: Egress, gateway: FakeGateway) -> None:
    connections = egress.connections
    assert await connections.planted("acme", {}) == {}
    await connections.put(WHO, "acme", "install-9", token=CANARY)
    made = await connections.put(WHO, "acme", "install-10", app_id="1", installation_id="2", private_key=APPROVER)
    assert (made.kind, made.secret) == ("app", "/secrets/integrations/github/install-10")
    assert [(view.name, view.kind) for view in await connections.list("acme")] == [
        ("install-10", "app"), ("install-9", "token"),
    ]  # fmt: skip
    planted = await connections.planted("acme", {})
    assert planted["GH_TOKEN"] == 'getSecret("/secrets/integrations/github/install-10", { field: "accessToken" })'
    await connections.remove(WHO, "acme", "install-10")
    assert "install-9" in (await connections.planted("acme", {}))["GH_TOKEN"]
    await refused("NOT_FOUND", connections.get("acme", "install-10"))
    await refused("NOT_FOUND", connections.remove(WHO, "acme", "install-10"))
    assert CANARY not in repr(gateway.told) + repr(await connections.list("acme"))
    assert await connections.planted("other", {}) == {}
