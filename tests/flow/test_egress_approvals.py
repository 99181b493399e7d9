"""Requests that wait for a person, against a real gateway: gathered, decided, rejected, expired, withdrawn, signed."""

from __future__ import annotations

import base64
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from egress_gateway import Response, Sandbox
from kennel.domain.hold import Batch, signing_text
from kennel.wire.egress import Rule
from kennel.wire.gateway import Decide, HoldEnded, HoldRequested, HoldSettled

if TYPE_CHECKING:
    from egress_fixtures import Desk

pytest_plugins = ["egress_fixtures"]
pytestmark = pytest.mark.root

HOST = "held.example.com"


def hold(**words: Any) -> dict[str, Any]:
    return {"ruleKey": "ask", "verdict": "hold", "description": "ask first", "match": {"hosts": [HOST]}, **words}


class Caller(threading.Thread):
    """A request that waits in a thread of its own."""

    def __init__(self, box: Sandbox, url: str, **words: Any) -> None:
        super().__init__(daemon=True)
        self._work: Callable[[], Response] = lambda: box.fetch(url, timeout=20, **words)
        self.answer: Response | None = None
        self.start()

    def run(self) -> None:
        self.answer = self._work()

    def result(self) -> Response:
        self.join(20)
        assert self.answer is not None
        return self.answer


def asked(desk: Desk, count: int = 1) -> HoldRequested:
    rows: list[HoldRequested] = desk.control.wait_for(
        lambda: (
            (found := [n for n in desk.control.notices if isinstance(n, HoldRequested) and n.project == desk.project])
            and len(found) >= count
            and found
        )
    )
    return rows[count - 1]


def test_one_decision_for_a_batch(desk: Desk) -> None:
    site = desk.world.site(HOST)
    desk.policy(hold(debounceMs=300))
    callers = [
        Caller(desk.box, f"https://{HOST}/{number}", method="POST", body=b"x" * 100_000, headers={"X-A": "1"})
        for number in range(3)
    ]
    question = asked(desk)
    assert (len(question.requests), question.rule_key, question.rule_description) == (3, "ask", "ask first")
    first = question.requests[0]
    assert (first.method, first.body_truncated, len(base64.b64decode(first.body))) == ("POST", True, 65_536)
    assert first.body_length == 100_000
    assert ("x-a", "1") in first.headers
    assert site.requests == []
    order = [int(request.url.rpartition("/")[2]) for request in question.requests]
    desk.control.call(Decide(question.hold, [True, False, True]))
    codes = {number: callers[number].result() for number in order}
    assert [codes[number].status for number in order] == [200, 403, 200]
    assert codes[order[1]].code == "approval_rejected"
    assert codes[order[1]].json["ruleKey"] == "ask"
    assert len(site.requests) == 2
    assert all(request.endswith(b"x" * 100_000) for request in site.requests)
    settled = desk.control.wait_for(
        lambda: (
            (rows := [n for n in desk.control.notices if isinstance(n, HoldSettled) and n.hold == question.hold])
            and len(rows) == 2
            and rows
        )
    )
    assert {row.status for row in settled} == {200}
    with pytest.raises(RuntimeError, match="NOT_FOUND"):
        desk.control.call(Decide(question.hold, [True, True, True]))


def test_decisions_that_do_not_fit_do_not_count(desk: Desk) -> None:
    desk.world.site(HOST)
    desk.policy(hold(debounceMs=None))
    caller = Caller(desk.box, f"https://{HOST}/")
    question = asked(desk)
    for verdicts in ([], [True, True]):
        with pytest.raises(RuntimeError, match="VALIDATION_FAILED"):
            desk.control.call(Decide(question.hold, verdicts))
    desk.control.call(Decide(question.hold, [False]))
    assert caller.result().code == "approval_rejected"


def test_nobody_decides(desk: Desk) -> None:
    desk.policy(hold(approvalTimeoutMs=1000))
    assert Caller(desk.box, f"https://{HOST}/").result().code == "approval_expired"
    ended = desk.control.notice(HoldEnded)
    assert ended.how == "expired"


def test_a_caller_that_leaves_withdraws(desk: Desk) -> None:
    site = desk.world.site(HOST)
    desk.policy(hold())
    link = desk.box.tls(HOST)
    link.sendall(f"GET / HTTP/1.1\r\nHost: {HOST}\r\n\r\n".encode())
    question = asked(desk)
    link.close()
    desk.control.wait_for(
        lambda: [n for n in desk.control.notices if isinstance(n, HoldEnded) and n.hold == question.hold]
    )
    with pytest.raises(RuntimeError, match="NOT_FOUND"):
        desk.control.call(Decide(question.hold, [True]))
    assert site.requests == []


def test_a_hold_survives_control_and_rules_are_looked_at_again(desk: Desk) -> None:
    site = desk.world.site(HOST)
    desk.policy(hold())
    callers = [Caller(desk.box, f"https://{HOST}/1")]
    question = asked(desk)
    desk.control.close()
    time.sleep(0.3)
    desk.control.connect()
    again = asked(desk, 2)
    assert again.hold == question.hold
    desk.control.call(Decide(question.hold, [True]))
    assert callers[0].result().status == 200
    # A rule that came while somebody thought about it counts too.
    callers.append(Caller(desk.box, f"https://{HOST}/2"))
    question = asked(desk, 3)
    desk.policy({"ruleKey": "no", "verdict": "deny", "match": {"hosts": [HOST]}})
    desk.control.call(Decide(question.hold, [True]))
    assert callers[1].result().code == "egress_denied"
    assert len(site.requests) == 1


def test_signatures_where_keys_are_enrolled(desk: Desk) -> None:
    desk.world.site(HOST)
    key, stranger = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    pem = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()
    desk.policy(hold(), approvers=[pem])
    caller = Caller(desk.box, f"https://{HOST}/")
    question = asked(desk)
    batch = Batch(question.hold, desk.project, question.path, Rule("ask", "hold"), 0.0, question.requests)
    text = signing_text(batch, [True])
    forged = base64.b64encode(stranger.sign(text, ec.ECDSA(SHA256()))).decode()
    other = base64.b64encode(key.sign(signing_text(batch, [False]), ec.ECDSA(SHA256()))).decode()
    for signature in (None, forged, other, "!!"):
        with pytest.raises(RuntimeError, match="signature"):
            desk.control.call(Decide(question.hold, [True], signature=signature))
    good = base64.b64encode(key.sign(text, ec.ECDSA(SHA256()))).decode()
    desk.control.call(Decide(question.hold, [True], signature=good))
    assert caller.result().status == 200


def test_too_many_waiting(desk: Desk) -> None:
    desk.policy(hold(debounceMs=200))
    callers = [Caller(desk.box, f"https://{HOST}/{number}") for number in range(18)]
    question = asked(desk)
    time.sleep(0.3)
    full = [c for c in callers if c.answer is not None]
    assert [c.result().code for c in full] == ["approvals_full"] * 2
    desk.control.call(Decide(question.hold, [False] * len(question.requests)))
    assert {c.result().code for c in callers} == {"approvals_full", "approval_rejected"}
