"""Projects: there from the start, made by admins, hidden from strangers."""

from __future__ import annotations

import asyncio

import pytest

from kennel.control.projects import Projects
from kennel.domain.principal import SYSTEM, Principal
from kennel.domain.stream_path import INSTALLATION
from kennel.wire.errors import KennelError

pytestmark = pytest.mark.anyio
CHIEF = Principal("key_c", "default", frozenset({"admin"}))


async def refused(code, call):
    with pytest.raises(KennelError) as caught:
        await call
    assert caught.value.code == code
    return caught.value


async def test_default_exists_from_the_start(log):
    projects = Projects(log)
    await projects.require("default")
    assert [p.name for p in await projects.list(SYSTEM)] == ["default"]
    await Projects(log).require("default")
    assert len(await log.read(INSTALLATION, "/projects")) == 2


async def test_create_and_find(log):
    projects = Projects(log)
    view = await projects.create(SYSTEM, "team-1")
    assert view.name == "team-1"
    await projects.require("team-1")
    assert [p.name for p in await Projects(log).list(SYSTEM)] == ["default", "team-1"]
    await refused("PROJECT_EXISTS", projects.create(SYSTEM, "team-1"))
    await refused("PROJECT_EXISTS", projects.create(SYSTEM, "default"))


async def test_one_of_many_creates_wins(log):
    projects, twin = Projects(log), Projects(log)
    calls = [(projects if i % 2 else twin).create(SYSTEM, "team") for i in range(40)]
    outcomes = await asyncio.gather(*calls, return_exceptions=True)
    assert sum(not isinstance(o, BaseException) for o in outcomes) == 1
    assert {o.code for o in outcomes if isinstance(o, KennelError)} == {"PROJECT_EXISTS"}


@pytest.mark.parametrize("name", ["", "_kennel", "A", "a/b", "-a", "x" * 64])
async def test_bad_names_and_the_installations_own(log, name):
    await refused("VALIDATION_FAILED", Projects(log).create(SYSTEM, name))
    await refused("PROJECT_NOT_FOUND", Projects(log).require(name))


async def test_only_admins_of_the_installation_create(log):
    await refused("FORBIDDEN", Projects(log).create(CHIEF, "team"))
    await refused("FORBIDDEN", Projects(log).create(Principal("k", None, frozenset({"lifecycle"})), "team"))


async def test_a_foreign_project_looks_like_none(log):
    projects = Projects(log)
    await projects.create(SYSTEM, "other")
    a = await refused("PROJECT_NOT_FOUND", projects.require("other", CHIEF))
    b = await refused("PROJECT_NOT_FOUND", projects.require("none", CHIEF))
    assert a.to_wire() == b.to_wire()
    await projects.require("default", CHIEF)
    assert [p.name for p in await projects.list(CHIEF)] == ["default"]


async def test_another_process_project_is_found_at_once(log, second_log):
    here, there = Projects(log), Projects(second_log)
    await here.require("default")
    await there.create(SYSTEM, "new")
    await here.require("new")
