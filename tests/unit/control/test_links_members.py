"""Join links and members over the real log."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kennel.adapters.model.absent import AbsentModel
from kennel.adapters.sql.event_log import SqlEventLog
from kennel.control import links as links_module
from kennel.control import members as members_module
from kennel.control.rooms import Rooms
from kennel.domain import membership
from kennel.domain.principal import Principal
from kennel.domain.stream_path import INSTALLATION
from kennel.wire.errors import KennelError, Unauthorized
from patience import within
from scripted_pets import Pets

pytestmark = pytest.mark.anyio

WHO = Principal("k", None, frozenset({"admin"}))
P = "default"
LINK: dict[str, Any] = {"role": "driver", "name": "", "user_id": None, "seconds": None}
JOIN: dict[str, Any] = {"role": None, "newcomer": "driver", "may_change": True, "seconds": None}


def made(log: SqlEventLog) -> Rooms:
    return Rooms(log, Pets(), AbsentModel())


async def refused(rooms: Rooms, token: str) -> bool:
    try:
        await rooms.links.authenticate(token)
    except Unauthorized:
        return True
    return False


async def test_a_link_lets_in_and_its_token_is_nowhere_on_the_log(log: SqlEventLog) -> None:
    rooms = made(log)
    token, view = await rooms.links.create(WHO, P, "a b", **{**LINK, "role": "observer", "user_id": "ana"})
    guest = await rooms.links.authenticate(token)
    assert (guest.project, guest.room_id, guest.role, guest.user_id) == (P, "a b", "observer", "ana")
    assert guest.key_id == view.id
    for project, path in ((INSTALLATION, membership.LINKS), (P, "/rooms")):
        assert token not in str(await log.read(project, path))
    assert not await refused(made(log), token)
    assert [one.id for one in await rooms.links.list(P, "a b")] == [view.id]


@pytest.mark.parametrize("token", ["kl_x", "", "kl_" + "x" * 500, "\ud800", "kl_\0"])
async def test_other_tokens_are_refused(log: SqlEventLog, token: str) -> None:
    assert await refused(made(log), token)


async def test_a_revoked_link_lets_nobody_in(log: SqlEventLog) -> None:
    rooms = made(log)
    tokens = [(await rooms.links.create(WHO, P, "r", **LINK)) for _ in range(3)]
    assert await rooms.links.revoke(WHO, P, "r", tokens[0][1].id) == [tokens[0][1].id]
    assert await refused(rooms, tokens[0][0])
    assert not await refused(rooms, tokens[1][0])
    with pytest.raises(KennelError, match="NOT_FOUND"):
        await rooms.links.revoke(WHO, P, "r", tokens[0][1].id)
    with pytest.raises(KennelError, match="NOT_FOUND"):
        await rooms.links.revoke(WHO, P, "other", tokens[1][1].id)
    assert len(await rooms.links.revoke(WHO, P, "r", None)) == 2
    assert all([await refused(rooms, token) for token, _ in tokens])
    assert await rooms.links.list(P, "r") == []


async def test_a_link_runs_out(log: SqlEventLog) -> None:
    rooms = made(log)
    lasting = within(0.3)
    token, _ = await rooms.links.create(WHO, P, "r", **{**LINK, "seconds": lasting})
    assert not await refused(rooms, token)
    await asyncio.sleep(lasting + 0.01)
    assert await refused(rooms, token)
    assert await rooms.links.list(P, "r") == []


async def test_a_link_ends_with_the_room_it_was_made_for(log: SqlEventLog) -> None:
    rooms = made(log)
    token, _ = await rooms.links.create(WHO, P, "r", **LINK)
    await rooms.cleanup(WHO, P, "r")
    assert await refused(rooms, token)
    await rooms.exec(WHO, P, "r", "echo")
    assert await refused(rooms, token)
    fresh, view = await rooms.links.create(WHO, P, "r", **LINK)
    assert not await refused(rooms, fresh)
    assert [one.id for one in await rooms.links.list(P, "r")] == [view.id]


async def test_a_room_has_only_so_many_links(log: SqlEventLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(links_module, "MAX_LINKS", 2)
    rooms = made(log)
    await rooms.links.create(WHO, P, "r", **{**LINK, "seconds": 0.01})
    await rooms.links.create(WHO, P, "r", **LINK)
    await asyncio.sleep(0.02)
    await rooms.links.create(WHO, P, "r", **LINK)
    with pytest.raises(KennelError, match="RESOURCE_BUSY"):
        await rooms.links.create(WHO, P, "r", **LINK)
    await rooms.links.create(WHO, P, "other", **LINK)


async def test_who_watches_by_a_link_is_cut_off_when_it_ends(log: SqlEventLog) -> None:
    rooms = made(log)
    for end in ("revoke", "cleanup"):
        token, view = await rooms.links.create(WHO, P, "r", **LINK)
        guest = await rooms.links.authenticate(token)

        async def watch(guest: Principal = guest) -> int:
            return len([item async for item in rooms.follow(guest, P, "r", after=0)])

        task = asyncio.create_task(watch())
        await asyncio.sleep(0.02)
        assert not task.done()
        if end == "revoke":
            await rooms.links.revoke(WHO, P, "r", view.id)
        else:
            await rooms.cleanup(WHO, P, "r")
        await asyncio.wait_for(task, 5)


async def test_members_join_live_and_leave(log: SqlEventLog, monkeypatch: pytest.MonkeyPatch) -> None:
    rooms = made(log)
    joined = await rooms.members.join(WHO, P, "r", "ana", **{**JOIN, "seconds": 0.05})
    await rooms.members.join(WHO, P, "r", "bob", **{**JOIN, "role": "observer"})
    assert (joined.role, joined.present) == ("driver", True)
    listed = await rooms.members.list(P, "r")
    assert [(one.user_id, one.role, one.present) for one in listed] == [
        ("ana", "driver", True), ("bob", "observer", True),
    ]  # fmt: skip
    await asyncio.sleep(0.06)
    assert [one.present for one in await rooms.members.list(P, "r")] == [False, True]
    before = await log.head(P, "/rooms/r")
    await rooms.members.join(WHO, P, "r", "ana", **JOIN)
    assert await log.head(P, "/rooms/r") == before
    await rooms.members.leave(WHO, P, "r", "ana")
    await rooms.members.leave(WHO, P, "r", "ana")
    assert [one.user_id for one in await made(log).members.list(P, "r")] == ["bob"]
    monkeypatch.setattr(members_module, "MAX_MEMBERS", 1)
    with pytest.raises(KennelError, match="RESOURCE_BUSY"):
        await rooms.members.join(WHO, P, "r", "eve", **JOIN)


async def test_a_role_is_changed_only_by_who_may(log: SqlEventLog) -> None:
    rooms = made(log)
    await rooms.members.join(WHO, P, "r", "ana", **JOIN)
    low = {"role": None, "newcomer": "observer", "may_change": False, "seconds": None}
    assert (await rooms.members.join(WHO, P, "r", "ana", **low)).role == "driver"
    assert (await rooms.members.join(WHO, P, "r", "eve", **low)).role == "observer"
    for user, role in (("ana", "observer"), ("eve", "driver"), ("new", "driver")):
        with pytest.raises(KennelError, match="FORBIDDEN"):
            await rooms.members.join(WHO, P, "r", user, **{**low, "role": role})
    assert (await rooms.members.join(WHO, P, "r", "ana", **{**JOIN, "role": "observer"})).role == "observer"
