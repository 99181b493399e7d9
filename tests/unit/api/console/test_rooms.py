"""A room's page: what was said, what passes by, people and links."""

from __future__ import annotations

import json
from typing import Any

import pytest

from console_world import BORN, event
from kennel.control.room_feed import Passing
from kennel.domain.egress_state import ApprovalView
from kennel.domain.event import Source
from kennel.domain.membership import LinkView, MemberView

pytestmark = pytest.mark.anyio

P = "/console/p/default/rooms/r1"
PIECE = {"hx-request": "true"}
HOSTILE = "<img src=x onerror=alert(1)>\"'</textarea></pre><script>alert(2)</script>{{7*7}}\u202e\x1b[1m"


ASSIGNED = {"roomId": "r1", "path": "/sandboxes/main", "generation": 1}


def _said(offset: int, text: str, role: str = "user", **more: Any) -> Any:
    told = {"turnId": f"t{offset}", "role": role, "text": text, "userId": text}
    return event(offset, "room/message-said", told, **more)


async def test_what_was_said_is_text_and_only_what_kennel_wrote(world: Any) -> None:
    world.streams.streams["/rooms/r1"] = [
        event(1, "room/sandbox-assigned", ASSIGNED),
        _said(2, "before the cleanup"),
        event(3, "room/cleanup-requested", {"roomId": "r1"}),
        _said(4, HOSTILE), _said(5, HOSTILE, "agent"), _said(6, "forged", source=Source(key_id="k")),
        event(7, "room/turn-ended", {"turnId": "t4", "outcome": "failed", "error": HOSTILE, "code": "MODEL_FAILED"}),
    ]  # fmt: skip
    world.rooms.members.rows = [MemberView(user_id=HOSTILE, role="driver", joined_at=BORN, present=True)]
    world.rooms.links.rows = [LinkView(id="l1", name=HOSTILE, role="observer", created_at=BORN)]
    page = (await (await world.browser().login()).get(P)).text
    assert page.count('class="said ') == 3
    assert "MODEL_FAILED" in page
    talk = page.partition('id="talk"')[2].partition("</ol>")[0]
    assert "before the cleanup" not in talk
    assert "forged" not in talk
    assert "<img" not in page
    assert "<script>" not in page
    assert "\x1b" not in talk


async def test_the_talk_is_followed_with_what_passes_by(world: Any) -> None:
    world.streams.streams["/rooms/r1"] = [event(1, "room/sandbox-assigned", ASSIGNED)]
    world.rooms.passing = [
        _said(2, HOSTILE), Passing("delta", {"turnId": "t", "round": 1, "at": 0, "text": HOSTILE + "\n\n"}),
        event(3, "room/command-started", {"turnId": "t", "commandId": "c"}),
    ]  # fmt: skip
    answer = await (await world.browser().login()).get(f"{P}/talk")
    parts = answer.text.strip().split("\n\n")[1:]
    blocks = [dict(line.split(": ", 1) for line in part.split("\n")) for part in parts]
    assert [(block["event"], block.get("id")) for block in blocks] == [("row", "2"), ("delta", None), ("row", "3")]
    row, delta, command = (json.loads(block["data"]) for block in blocks)
    assert (row["turn"], row["role"]) == ("t2", "user")
    assert "<img" not in row["html"]
    assert delta["text"] == HOSTILE + "\n\n"
    assert (command["command"], "html" in command) == ("c", False)


async def test_saying_joining_and_links(world: Any) -> None:
    browser = await world.browser().login()
    new = f"{P}?id=r1"
    assert "Nothing was said yet" in (await browser.get(new)).text
    answer = await browser.submit(f"{P}/say", {"roomId": "r1", "text": " hi\r\nthere ", "userId": "ana"}, **PIECE)
    assert answer.status_code == 204
    assert (await browser.submit(f"{P}/say", {"roomId": "r1", "text": ""}, **PIECE)).status_code == 400
    assert [call[0] for call in world.rooms.called("say")] == ["r1"]
    assert "hi\nthere" in world.rooms.called("say")[0][1]
    await browser.submit(f"{P}/join", {"roomId": "r1", "userId": "ana", "role": "observer"}, **PIECE)
    await browser.submit(f"{P}/leave", {"roomId": "r1", "userId": "ana"}, **PIECE)
    assert world.rooms.members.asked == [("join", "r1", "ana", "observer"), ("leave", "r1", "ana")]
    link = {"roomId": "r1", "role": "observer", "name": "bob", "lasts": "hour"}
    made = await browser.submit(f"{P}/links", link, **PIECE)
    assert made.text.count("kl_the-token") == 1
    assert "kl_the-token" not in (await browser.get(f"{P}/people?id=r1")).text
    assert (await browser.submit(f"{P}/links", {**link, "lasts": "eon"}, **PIECE)).status_code == 400
    await browser.submit(f"{P}/links/l1/revoke", {"roomId": "r1"}, **PIECE)
    [(_, _, words), (verb, room, gone)] = world.rooms.links.asked
    assert (words["role"], words["name"], words["seconds"]) == ("observer", "bob", 3600)
    assert (verb, room, gone) == ("revoke", "r1", "l1")


@pytest.mark.parametrize(("key", "form", "status"), [
    ("reader", "say", 403), ("reader", "join", 403), ("runner", "links", 403), ("runner", "say", 204),
])  # fmt: skip
async def test_scopes(world: Any, key: str, form: str, status: int) -> None:
    browser = await world.browser().login(key)
    answer = await browser.submit(f"{P}/{form}", {"roomId": "r1", "text": "x", "role": "driver"}, **PIECE)
    assert answer.status_code == status
    page = (await browser.get(f"{P}?id=r1")).text
    assert (">Send<" in page) is (key == "runner")
    assert "Make a link" not in page


async def test_what_waits_is_in_the_room_whose_sandbox_asks(world: Any) -> None:
    world.streams.streams["/rooms/r1"] = [event(1, "room/sandbox-assigned", ASSIGNED)]
    held = {"method": "GET", "url": f"http://x/{HOSTILE}", "headers": []}
    for box in ("main", "other"):
        world.egress.approvals.rows.append(
            ApprovalView(id=f"hold-{box}", status="open", sandbox=f"/sandboxes/{box}", rule_key="r", description="",
                         requests=[held], expires_at=10**13, instance="i", asked_at=BORN)
        )  # fmt: skip
    browser = await world.browser().login()
    page = (await browser.get(P)).text
    assert 'id="hold-main"' in page
    assert "hold-other" not in page
    assert "<img" not in page
    seen = page.partition("&amp;seen=")[2].partition('"')[0]
    assert (await browser.get(f"{P}/waiting?id=r1&seen={seen}", **PIECE)).status_code == 204
    world.egress.approvals.rows = []
    answer = await browser.get(f"{P}/waiting?id=r1&seen={seen}", **PIECE)
    assert (answer.status_code, "hold-main" in answer.text) == (200, False)
