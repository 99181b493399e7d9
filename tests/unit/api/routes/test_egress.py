"""Rules, dry runs, approvals and secrets over HTTP: the real service and log, and a gateway that a test plays."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fake_gateway import FakeGateway
from kennel.adapters.sql.event_log import open_log
from kennel.adapters.vault.sealer import seal_secret
from kennel.control.egress import Egress
from kennel.domain.principal import Principal
from kennel.wire import gateway as wire

pytestmark = pytest.mark.anyio

PROJECT = "/v1/projects/default"
CANARY = "sk-canary-7b20"
PIN = {"material": CANARY, "origins": ["https://api.example.com"]}
KEYS = {
    "ruler": Principal("k-ruler", "default", frozenset({"read", "policy"})),
    "keeper": Principal("k-keeper", "default", frozenset({"secrets"})),
}


@pytest.fixture
def gateway(tmp_path: Path) -> FakeGateway:
    return FakeGateway(tmp_path)


@pytest.fixture
async def out(world: Any, gateway: FakeGateway, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Any]:
    """The application of `world` with a way out, and two keys more."""

    async def projects() -> list[str]:
        return ["default", "other"]

    known = world.keys.authenticate

    async def authenticate(token: str) -> Principal:
        return KEYS[token] if token in KEYS else await known(token)

    monkeypatch.setattr(world.keys, "authenticate", authenticate)
    log = await open_log(f"sqlite:///{tmp_path}/log.db")
    egress = Egress(log, gateway, seal_secret, "deny", projects)
    egress.start()
    await gateway.arrives("one")
    world.app.state.services = replace(world.app.state.services, egress=egress)
    yield world
    await egress.close()
    await log.close()


async def test_without_sandboxes_there_is_no_way_out(world: Any) -> None:
    async with world.client() as http:
        for path in ("/egress/rules", "/egress/hosts", "/approvals", "/secrets"):
            answer = await http.get(PROJECT + path)
            assert (answer.status_code, answer.json()["code"]) == (503, "NODE_UNAVAILABLE")


async def test_rules_come_back_as_they_were_put(out: Any) -> None:
    rules = [{"ruleKey": "no", "verdict": "deny", "match": {"hosts": ["*.example.com"]}}]
    async with out.client("ruler") as http:
        first = (await http.get(f"{PROJECT}/egress/rules")).json()
        put = await http.put(f"{PROJECT}/egress/rules", json={"rules": rules, "auditOnly": True})
        # An answer can be sent back as it is.
        again = await http.put(f"{PROJECT}/egress/rules", json=put.json())
        read = (await http.get(f"{PROJECT}/egress/rules")).json()
    assert first == {"rules": [], "default": "deny", "version": 0}
    assert (put.status_code, again.status_code) == (200, 200)
    assert (read["rules"], read["auditOnly"], read["default"]) == (rules, True, "deny")
    assert put.json()["version"] < again.json()["version"] == read["version"]


@pytest.mark.parametrize(
    "body",
    [
        {"rules": [{"ruleKey": "x", "verdict": "perhaps"}]},
        {"rules": [{"ruleKey": "x", "verdict": "deny", "match": {"host": ["a"]}}]},
        {"rules": [{"ruleKey": "x", "verdict": "allow", "mode": "tcp", "match": {"hosts": ["*"]}}]},
        {"rules": [{"ruleKey": "x", "verdict": "deny"}] * 2},
        {"rules": [{"ruleKey": "x", "verdict": "deny"}] * 1001},
        {"rules": [], "default": "hold"},
        {"rules": [], "approvers": ["no key"]},
        {"rules": [], "unknown": 1},
        {},
        [],
    ],
)
async def test_rules_that_mean_nothing_change_nothing(out: Any, body: Any) -> None:
    async with out.client("ruler") as http:
        answer = await http.put(f"{PROJECT}/egress/rules", json=body)
        assert (answer.status_code, answer.json()["code"]) == (400, "VALIDATION_FAILED"), answer.text
        assert (await http.get(f"{PROJECT}/egress/rules")).json()["version"] == 0


async def test_every_route_asks_for_its_scope(out: Any) -> None:
    reading = [("GET", path) for path in ("/egress/rules", "/egress/log", "/egress/hosts", "/approvals")]
    reading += [("POST", "/egress/test"), ("POST", "/egress/replay")]
    ruling = [("PUT", "/egress/rules"), ("POST", "/approvals/hold-0000000000000001")]
    keeping = [("GET", "/secrets"), ("GET", "/secrets/x"), ("PUT", "/secrets/x"), ("DELETE", "/secrets/x")]
    for key, routes in (("runner", reading), ("reader", ruling), ("ruler", keeping), ("keeper", reading + ruling)):
        async with out.client(key) as http:
            for method, path in routes:
                answer = await http.request(method, PROJECT + path, json={} if method in ("PUT", "POST") else None)
                assert (answer.status_code, answer.json()["code"]) == (403, "FORBIDDEN"), (key, method, path)
    async with out.client("other") as http:
        for method, path in [*reading, *ruling, *keeping]:
            answer = await http.request(method, PROJECT + path, json={} if method in ("PUT", "POST") else None)
            assert answer.status_code == 404, (method, path)


async def test_a_dry_run_asks_the_gateway_and_sends_nothing(out: Any, gateway: FakeGateway) -> None:
    gateway.answers[wire.Try] = lambda ask: {"verdict": "deny", "url": ask.url}
    asked = {"sandbox": "box", "method": "post", "url": "https://a.example.com/", "headers": {"X-A": "1"}}
    async with out.client("reader") as http:
        found = await http.post(f"{PROJECT}/egress/test", json=asked)
        bad = await http.post(f"{PROJECT}/egress/test", json={**asked, "method": "GET /x"})
        gateway.here = False
        away = await http.post(f"{PROJECT}/egress/test", json=asked)
    assert (found.status_code, found.json()["verdict"]) == (200, "deny")
    [told] = gateway.of(wire.Try)
    assert (told.method.upper(), told.headers) == ("POST", [("X-A", "1")])
    assert (bad.status_code, away.status_code, away.json()["code"]) == (400, 503, "GATEWAY_UNAVAILABLE")


async def test_material_is_in_no_answer_whatever_is_wrong_with_it(out: Any, gateway: FakeGateway) -> None:
    answers = []
    async with out.client("keeper") as http:
        answers.append(put := await http.put(f"{PROJECT}/secrets/token", json=PIN))
        answers.append(got := await http.get(f"{PROJECT}/secrets/token"))
        answers.append(await http.get(f"{PROJECT}/secrets"))
        for change in (
            {"origins": []}, {"origins": ["ftp://x"]}, {"origins": CANARY}, {"material": [CANARY]}, {"extra": CANARY},
            {"material": CANARY * 2000}, {"refresh": {"strategy": CANARY, "endpoint": "x"}}, {"methods": [CANARY] * 99},
            {"refresh": {"strategy": "oauth-refresh-token", "endpoint": "https://api.example.com/t"}},
        ):  # fmt: skip
            answers.append(bad := await http.put(f"{PROJECT}/secrets/token", json={**PIN, **change}))
            assert 400 <= bad.status_code < 500, change
        answers.append(await http.put(f"{PROJECT}/secrets/token", content=f'{{"material": "{CANARY}'.encode()))
        answers.append(await http.put(f"{PROJECT}/secrets/a//b", json=PIN))
        gateway.here = False
        answers.append(await http.put(f"{PROJECT}/secrets/other", json={**PIN, "material": {"a": CANARY}}))
    assert (put.status_code, got.json()["path"]) == (200, "/secrets/token")
    held = [(answer.request.content[:200], answer.text) for answer in answers if CANARY in answer.text]
    assert held == []
    assert CANARY not in repr([told for told in gateway.told if not isinstance(told, wire.ProjectKey)])


async def test_a_secret_that_is_not_there(out: Any) -> None:
    async with out.client("keeper") as http:
        for method in ("GET", "DELETE"):
            answer = await http.request(method, f"{PROJECT}/secrets/none")
            assert (answer.status_code, answer.json()["code"]) == (404, "SECRET_NOT_FOUND")
        await http.put(f"{PROJECT}/secrets/team/a", json=PIN)
        assert [row["path"] for row in (await http.get(f"{PROJECT}/secrets")).json()["secrets"]] == ["/secrets/team/a"]
        assert (await http.delete(f"{PROJECT}/secrets/team/a")).status_code == 204
        assert (await http.get(f"{PROJECT}/secrets")).json() == {"secrets": []}


async def test_what_waits_is_answered_once(out: Any, gateway: FakeGateway) -> None:
    name = "hold-0000000000000001"
    requests = [wire.HeldRequest("GET", "https://a.example.com/", [])]
    gateway.answers[wire.Decide] = lambda ask: True
    await gateway.says(wire.HoldRequested(name, "default", "/sandboxes/box", "ask", "", requests, 2**50))
    async with out.client("ruler") as http:
        [row] = (await http.get(f"{PROJECT}/approvals?status=open")).json()["approvals"]
        bad = await http.post(f"{PROJECT}/approvals/{name}", json={"approve": "yes"})
        done = await http.post(f"{PROJECT}/approvals/{name}", json={"approve": True, "reason": "why not"})
        late = await http.post(f"{PROJECT}/approvals/{name}", json={"approve": False})
        unknown = await http.get(f"{PROJECT}/approvals/hold-00000000000000ff")
        odd = await http.get(f"{PROJECT}/approvals/..%2Fx")
    assert (row["id"], row["ruleKey"], row["status"]) == (name, "ask", "open")
    assert (bad.status_code, done.status_code) == (400, 200), (bad.text, done.text)
    assert late.status_code in (200, 409)
    assert late.json().get("status", "approved") == "approved"
    assert (unknown.status_code, odd.status_code) == (404, 404)
    assert len(gateway.of(wire.Decide)) == 1


async def test_the_audit_of_a_quiet_project_is_empty_and_bounded(out: Any) -> None:
    async with out.client("reader") as http:
        assert (await http.get(f"{PROJECT}/egress/log")).json() == {"events": []}
        for query in ("limit=0", "limit=501", "after=-1", f"after={2**54}"):
            assert (await http.get(f"{PROJECT}/egress/log?{query}")).status_code == 400, query
