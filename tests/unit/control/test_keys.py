"""Keys: who may make, see and end which."""

from __future__ import annotations

import pytest

from kennel.control.keys import Keys
from kennel.control.projects import Projects
from kennel.domain import key
from kennel.domain.event import NewEvent
from kennel.domain.principal import SCOPES, SYSTEM, Principal
from kennel.domain.stream_path import INSTALLATION
from kennel.wire.errors import KennelError

pytestmark = pytest.mark.anyio


@pytest.fixture
async def keys(log):
    keys = Keys(log, Projects(log))
    await keys.ensure_admin(key.digest("admin-token"))
    return keys


async def refused(code, call):
    with pytest.raises(KennelError) as caught:
        await call
    assert caught.value.code == code
    return caught.value


async def holder(keys, project, *scopes):
    admin = await keys.authenticate("admin-token")
    token, view = await keys.create(admin, project=project, scopes=scopes, name="test")
    return token, view, await keys.authenticate(token)


async def test_the_first_admin(keys, log):
    admin = await keys.authenticate("admin-token")
    assert admin.admin
    assert admin.scopes == frozenset(SCOPES)
    before = await log.head(INSTALLATION, key.STREAM)
    await keys.ensure_admin(key.digest("admin-token"))
    assert await log.head(INSTALLATION, key.STREAM) == before
    await refused("VALIDATION_FAILED", keys.ensure_admin("admin-token"))


async def test_a_revoked_admin_key_does_not_come_back_with_a_restart(keys, log):
    admin = await keys.authenticate("admin-token")
    await keys.revoke(admin, admin.key_id)
    again = Keys(log, Projects(log))
    await again.ensure_admin(key.digest("admin-token"))
    await refused("UNAUTHORIZED", again.authenticate("admin-token"))


@pytest.mark.parametrize(
    "token", ["", "x", "admin-token ", "ADMIN-TOKEN", "kn_" + "a" * 43, "a" * 100_000, "\ud800", "é"]
)
async def test_unknown_tokens(keys, token):
    fault = await refused("UNAUTHORIZED", keys.authenticate(token))
    assert token[:20] not in fault.message or len(token) < 2
    assert fault.status == 401


async def test_a_hash_is_no_token(keys):
    await refused("UNAUTHORIZED", keys.authenticate(key.digest("admin-token")))


async def test_a_token_is_shown_once_and_kept_nowhere(keys, log):
    token, view, who = await holder(keys, "default", "exec", "read", "exec")
    assert token.startswith("kn_")
    assert len(token) >= 43
    assert who == Principal(view.id, "default", frozenset({"read", "exec"}))
    assert view.scopes == ["read", "exec"]
    events = await log.read(INSTALLATION, key.STREAM)
    assert token not in repr(events)
    admin = await keys.authenticate("admin-token")
    assert key.digest(token) not in repr(await keys.list(admin, None))
    assert events[-1].source.key_id == admin.key_id


async def test_revoking_is_at_once_and_for_good(keys, log):
    token, view, _ = await holder(keys, "default", "read")
    admin = await keys.authenticate("admin-token")
    await keys.revoke(admin, view.id)
    await refused("UNAUTHORIZED", keys.authenticate(token))
    head = await log.head(INSTALLATION, key.STREAM)
    await keys.revoke(admin, view.id)
    assert await log.head(INSTALLATION, key.STREAM) == head
    [listed] = [v for v in await keys.list(admin, "default") if v.id == view.id]
    assert listed.revoked_at is not None
    fresh = Keys(log, Projects(log))
    await refused("UNAUTHORIZED", fresh.authenticate(token))


@pytest.mark.parametrize("scopes", [[], ["root"], ["read", "Exec"], [""], [7]])
async def test_bad_scopes(keys, scopes):
    admin = await keys.authenticate("admin-token")
    await refused("VALIDATION_FAILED", keys.create(admin, project="default", scopes=scopes, name="n"))


@pytest.mark.parametrize("name", ["", "x" * 101, "a\nb", None])
async def test_bad_names(keys, name):
    admin = await keys.authenticate("admin-token")
    await refused("VALIDATION_FAILED", keys.create(admin, project="default", scopes=["read"], name=name))


async def test_nobody_gives_away_more_than_he_has(keys):
    _, _, reader = await holder(keys, "default", "read")
    await refused("FORBIDDEN", keys.create(reader, project="default", scopes=["read"], name="n"))
    await refused("FORBIDDEN", keys.create(reader, project=None, scopes=["read"], name="n"))
    _, _, chief = await holder(keys, "default", "admin")
    await refused("FORBIDDEN", keys.create(chief, project=None, scopes=["read"], name="n"))
    token, _ = await keys.create(chief, project="default", scopes=["exec"], name="n")
    assert (await keys.authenticate(token)).project == "default"
    everywhere = Principal("key_x", None, frozenset({"read"}))
    await refused("FORBIDDEN", keys.create(everywhere, project="default", scopes=["read"], name="n"))


async def test_a_foreign_key_and_project_look_like_none(keys, log):
    admin = await keys.authenticate("admin-token")
    await keys._projects.create(admin, "other")
    _, theirs, _ = await holder(keys, "other", "admin")
    _, _, chief = await holder(keys, "default", "admin")
    a = await refused("KEY_NOT_FOUND", keys.revoke(chief, theirs.id))
    b = await refused("KEY_NOT_FOUND", keys.revoke(chief, "key_none"))
    assert a.to_wire() == b.to_wire()
    c = await refused("PROJECT_NOT_FOUND", keys.create(chief, project="other", scopes=["read"], name="n"))
    d = await refused("PROJECT_NOT_FOUND", keys.create(chief, project="none", scopes=["read"], name="n"))
    assert c.to_wire() == d.to_wire()
    await refused("PROJECT_NOT_FOUND", keys.list(chief, "other"))
    assert theirs.id not in [v.id for v in await keys.list(chief, None)]
    assert admin.key_id not in [v.id for v in await keys.list(chief, None)]
    assert {theirs.id, admin.key_id} <= {v.id for v in await keys.list(admin, None)}


async def test_readers_list_no_keys(keys):
    _, view, reader = await holder(keys, "default", "read")
    await refused("FORBIDDEN", keys.list(reader, None))
    await refused("FORBIDDEN", keys.revoke(reader, view.id))


async def test_a_forged_key_event_opens_nothing(keys, log):
    with pytest.raises(KennelError):
        await log.append(INSTALLATION, key.STREAM, [NewEvent(type="key/created", payload={})])
    await refused("UNAUTHORIZED", keys.authenticate("forged"))


async def test_another_process_key_works_here(keys, second_log):
    elsewhere = Keys(second_log, Projects(second_log))
    token, view = await elsewhere.create(SYSTEM, project="default", scopes=["read"], name="n")
    await keys._fold.refresh()
    assert (await keys.authenticate(token)).key_id == view.id
