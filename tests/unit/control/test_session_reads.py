"""What the console's sessions ask: who holds a key now, where a stream ends."""

from __future__ import annotations

import pytest

from kennel.control.keys import Keys
from kennel.control.projects import Projects
from kennel.control.streams import OutsideEvent, Streams
from kennel.domain import key
from kennel.wire.errors import KennelError

pytestmark = pytest.mark.anyio


async def test_the_holder_of_an_id_until_it_is_revoked(log):
    keys = Keys(log, Projects(log))
    await keys.ensure_admin(key.digest("admin-token"))
    admin = await keys.authenticate("admin-token")
    _, view = await keys.create(admin, project=None, scopes=["read"], name="console")
    assert (await keys.holder(view.id)).scopes == frozenset({"read"})
    assert await Keys(log, Projects(log)).holder(admin.key_id) == admin
    await keys.revoke(admin, view.id)
    for unknown in (view.id, "", "key_nosuch"):
        with pytest.raises(KennelError) as caught:
            await keys.holder(unknown)
        assert caught.value.code == "UNAUTHORIZED"


async def test_the_end_of_a_stream(log):
    keys = Keys(log, Projects(log))
    await keys.ensure_admin(key.digest("admin-token"))
    streams = Streams(log)
    assert await streams.head("default", "/notes") is None
    who = await keys.authenticate("admin-token")
    landed = await streams.append(who, "default", "/notes", [OutsideEvent(type="note")])
    assert await streams.head("default", "/notes") == landed[-1].offset
