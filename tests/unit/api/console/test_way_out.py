"""Rules, approvals and secrets in the console: what their forms come to, and that no page says a secret."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from console_world import BORN, event
from kennel.domain.egress_state import ApprovalView, SecretView
from kennel.wire.egress import Pin
from kennel.wire.errors import error
from kennel.wire.gateway import Finding

pytestmark = pytest.mark.anyio

P = "/console/p/default"
PIECE = {"hx-request": "true"}
HOSTILE = "<img src=x onerror=alert(1)>\"'</textarea></pre><script>alert(2)</script>{{7*7}}\u202e"
HOLD = "hold-0123456789abcdef"


def _held(count: int = 1, **changes: Any) -> ApprovalView:
    request = {"method": HOSTILE, "url": HOSTILE, "headers": [[HOSTILE, HOSTILE]], "secretPaths": [HOSTILE],
               "body": base64.b64encode(HOSTILE.encode() + b"\xff").decode()}  # fmt: skip
    fields: dict[str, Any] = {
        "id": HOLD, "status": "open", "sandbox": "/sandboxes/main", "rule_key": HOSTILE, "description": HOSTILE,
        "requests": [request] * count, "expires_at": 10**15, "instance": "i", "asked_at": BORN,
    }  # fmt: skip
    return ApprovalView(**{**fields, **changes})


async def test_hostile_words_are_text_on_every_page_of_the_way_out(world: Any) -> None:
    rule = {"ruleKey": "a", "verdict": "deny", "match": {"hosts": ["x.y"], "pathPrefix": f"/{HOSTILE}"}}
    world.egress.policy = {"rules": [{**rule, "description": HOSTILE}]}
    world.egress.finding = Finding("deny", HOSTILE, HOSTILE, HOSTILE, HOSTILE, HOSTILE)
    answered = _held(2, id="hold-1", status="mixed", verdicts=[True, False], decided_by=HOSTILE, reason=HOSTILE,
                     outcomes={0: HOSTILE})  # fmt: skip
    world.egress.approvals.rows = [answered, _held(2)]
    pin = Pin([f"https://{HOSTILE}"], [HOSTILE], f"/{HOSTILE}", [HOSTILE])
    world.egress.secrets.rows = [
        SecretView(path=HOSTILE, pin=pin, created_at=BORN, updated_at=BORN, used_count=1, last_used_at=1,
                   last_used_by=HOSTILE, last_used_url=HOSTILE)
    ]  # fmt: skip
    world.streams.streams["/egress/log"] = [
        event(1, "egress/recorded", {"kind": "decision", "verdict": "deny", "url": HOSTILE, "sandbox": HOSTILE,
                                     "ruleKey": HOSTILE, "code": HOSTILE})
    ]  # fmt: skip
    browser = await world.browser().login()
    for page in ("egress", "egress/log", "egress/log/events", "approvals", "approvals-rows", "secrets"):
        text = (await browser.get(f"{P}/{page}")).text
        assert "img src" in text, page
        assert "<img" not in text, page
        assert "<script>" not in text, page
    for form, data in (("egress", {"policy": HOSTILE}), ("egress/add", {"ruleKey": HOSTILE, "hosts": HOSTILE}),
                       ("egress/test", {"sandbox": "/sandboxes/a", "url": HOSTILE}),
                       ("secrets", {"name": HOSTILE, "origins": HOSTILE, "value": "v"})):  # fmt: skip
        for headers in ({}, PIECE):
            answer = await browser.submit(f"{P}/{form}", {"version": "0", **data}, **headers)
            assert "<img" not in answer.text, form
            assert "<script>" not in answer.text, form


async def test_rules_are_added_moved_and_deleted(world: Any) -> None:
    browser = await world.browser().login()

    async def send(form: str, **data: str) -> int:
        answer = await browser.submit(f"{P}/egress{form}", {"version": str(world.egress.version), **data})
        return int(answer.status_code)

    assert await send("/add", ruleKey="a", verdict="allow", hosts="x.y, *.z", ports="80 443", methods="GET") == 303
    assert await send("/add", ruleKey="b/c", verdict="deny", where="first", description="why", pathPrefix="/p") == 303
    first, second = world.egress.policy["rules"]
    assert first == {"ruleKey": "b/c", "verdict": "deny", "match": {"pathPrefix": "/p"}, "description": "why"}
    assert second["match"] == {"hosts": ["x.y", "*.z"], "methods": ["GET"], "ports": [80, 443]}
    assert await send("/rules/b%2Fc/down") == 303
    assert [rule["ruleKey"] for rule in world.egress.policy["rules"]] == ["a", "b/c"]
    assert await send("/general", default="deny", auditOnly="1") == 303
    assert (world.egress.policy["default"], world.egress.policy["auditOnly"]) == ("deny", True)
    assert await send("/rules/a/delete") == 303
    assert await send("/rules/a/delete") == 404
    assert await send("", policy=json.dumps({"rules": []})) == 303
    assert world.egress.policy == {"rules": []}


@pytest.mark.parametrize(("form", "data", "told"), [
    ("", {"policy": "{"}, "not a JSON object"), ("", {"policy": "[]"}, "not a JSON object"),
    ("", {"policy": '{"rules": [{"ruleKey": "a"}]}'}, "verdict"), ("", {"policy": '{"rules": [], "x": 1}'}, "x"),
    ("/add", {"ruleKey": "a", "verdict": "allow", "ports": "x"}, "whole numbers"),
    ("/add", {"ruleKey": "a", "verdict": "never"}, "Invalid enum value"),
    ("/add", {"ruleKey": "a", "verdict": "allow", "version": "7"}, "changed since you loaded"),
])  # fmt: skip
async def test_wrong_rules_come_back_as_typed(world: Any, form: str, data: dict[str, str], told: str) -> None:
    answer = await (await world.browser().login()).submit(f"{P}/egress{form}", {"version": "0", **data})
    assert answer.status_code >= 400
    assert told in answer.text
    assert world.egress.version == 0
    if "policy" in data:
        assert data["policy"].replace('"', "&#34;") in answer.text


async def test_what_is_approved_is_what_was_ticked(world: Any) -> None:
    browser = await world.browser().login()
    world.egress.approvals.rows = [_held(3)]
    address = f"{P}/approvals/{HOLD}"
    for data, status in (({"do": "approve", "requests": "2", "request": "0"}, 409),
                         ({"do": "approve", "requests": "3"}, 400), ({"do": "", "requests": "3"}, 400)):  # fmt: skip
        assert (await browser.submit(address, data)).status_code == status
    assert world.egress.approvals.decided == []
    await browser.submit(address, {"do": "approve", "requests": "3", "request": ["0", "2"], "reason": "fine"})
    await browser.submit(address, {"do": "deny", "requests": "3", "request": ["0"]})
    world.egress.approvals.rows = [_held(1)]
    await browser.submit(address, {"do": "approve", "requests": "1"})
    assert world.egress.approvals.decided == [
        (HOLD, [True, False, True], "fine"), (HOLD, [False, False, False], ""), (HOLD, [True], ""),
    ]  # fmt: skip
    page = (await browser.get(f"{P}/approvals")).text
    seen = page.partition("approvals-rows?seen=")[2].partition('"')[0]
    assert (await browser.get(f"{P}/approvals-rows?seen={seen}", **PIECE)).status_code == 204
    world.egress.approvals.rows = [_held(2)]
    assert (await browser.get(f"{P}/approvals-rows?seen={seen}", **PIECE)).status_code == 200


async def test_a_secret_is_stored_and_never_said(world: Any) -> None:
    browser = await world.browser().login()
    data = {"name": "/secrets/a/b", "origins": "https://x.y, https://z", "methods": "get", "pathPrefix": "/v1",
            "value": "the-material"}  # fmt: skip
    answer = await browser.submit(f"{P}/secrets", data)
    assert answer.status_code == 303
    [(path, material, pin)] = world.egress.secrets.put_ones
    assert (path, material) == ("/secrets/a/b", "the-material")
    assert pin == Pin(["https://x.y", "https://z"], ["get"], "/v1")
    await browser.submit(f"{P}/secrets", {**data, "value": '{"key": "v"}', "json": "1"})
    assert world.egress.secrets.put_ones[-1][1] == {"key": "v"}
    for wrong in ({"value": "the-material", "json": "1"}, {"origins": ""}):
        answer = await browser.submit(f"{P}/secrets", {**data, **wrong})
        assert answer.status_code == 400
        assert "the-material" not in answer.text
    world.egress.secrets.failure = error("GATEWAY_UNAVAILABLE", "nobody to seal for")
    answer = await browser.submit(f"{P}/secrets", data)
    assert (answer.status_code, "the-material" in answer.text) == (503, False)
    assert 'value="/secrets/a/b"' in answer.text
    assert "the-material" not in (await browser.get(f"{P}/secrets")).text


@pytest.mark.parametrize(("key", "page", "status"), [
    ("reader", "egress", 200), ("reader", "secrets", 403), ("reader", "approvals", 200), ("stranger", "egress", 404),
])  # fmt: skip
async def test_who_sees_what(world: Any, key: str, page: str, status: int) -> None:
    world.egress.approvals.rows = [_held()]
    answer = await (await world.browser().login(key)).get(f"{P}/{page}")
    assert answer.status_code == status
    assert 'value="approve"' not in answer.text
    assert ">Add a rule<" not in answer.text
