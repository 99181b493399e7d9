"""Claims: one name, one winner; the same request, the same answer; nothing looked up is made."""

from __future__ import annotations

import asyncio

import pytest

from kennel.control.catalogue import Catalogue
from kennel.control.projection import Projections
from kennel.domain import creation
from kennel.domain.create_options import CreateOptions
from kennel.domain.event import NewEvent, fact
from kennel.domain.principal import SYSTEM
from kennel.wire.errors import KennelError

pytestmark = pytest.mark.anyio
P, A = "default", "/sandboxes/a"


@pytest.fixture
def projections(log):
    return Projections(log)


@pytest.fixture
def catalogue(log, projections):
    return Catalogue(log, projections)


def claim(catalogue, path=A, request="r1", sandbox="sb1", options=None, project=P):
    return catalogue.claim(SYSTEM, project, path, options or CreateOptions(), request, sandbox, image_digest="sha256:1")


async def refused(code, call):
    with pytest.raises(KennelError) as caught:
        await call
    assert caught.value.code == code


async def test_a_claim_and_its_repetition(catalogue, log):
    options = CreateOptions(
        instance_type="lite",
        env={"A": "1", "B": None},
        sleep_after="5m",
        keep_alive=True,
        persist="disk",
        labels={"x": "y"},
    )
    first = await claim(catalogue, options=options)
    assert first.fresh
    assert first.options == options
    again = await claim(catalogue, options=CreateOptions(), sandbox="sb2")
    assert not again.fresh
    assert (again.sandbox_id, again.options, again.image_digest) == ("sb1", options, "sha256:1")
    [event] = await log.read(P, "/sandboxes", types=["sandbox/create-requested"])
    assert event.payload["requestId"] == "r1"
    assert event.source.platform
    assert event.source.key_id == SYSTEM.key_id
    assert await log.head(P, A) is None


async def test_another_request_is_told_whatever_its_body(catalogue):
    await claim(catalogue)
    await refused("SANDBOX_EXISTS", claim(catalogue, request="r2"))
    await refused("SANDBOX_EXISTS", claim(catalogue, request=None))


async def test_a_retired_name(catalogue, projections):
    made = await claim(catalogue)
    await projections.append_and_fold(P, A, creation.birth(SYSTEM, made))
    await refused("SANDBOX_EXISTS", claim(catalogue, request="r2"))
    await projections.append_and_fold(P, A, [fact(SYSTEM, "sandbox/destroyed")])
    await refused("SANDBOX_DESTROYED", claim(catalogue, request="r2"))
    assert (await claim(catalogue)).sandbox_id == "sb1"


async def test_200_racing_creates_have_one_winner(log, second_log):
    services = [Catalogue(one, Projections(one)) for one in (log, log, second_log)]
    outcomes = await asyncio.gather(
        *(claim(services[i % 3], request=f"r{i}", sandbox=f"sb{i}") for i in range(200)), return_exceptions=True
    )
    won = [o for o in outcomes if not isinstance(o, BaseException)]
    assert len(won) == 1
    assert won[0].fresh
    assert [o.code for o in outcomes if isinstance(o, KennelError)] == ["SANDBOX_EXISTS"] * 199
    assert len(await log.read(P, "/sandboxes", types=["sandbox/create-requested"])) == 1


async def test_one_request_many_times_at_once_has_one_answer(log, second_log):
    services = [Catalogue(one, Projections(one)) for one in (log, second_log)]
    outcomes = await asyncio.gather(*(claim(services[i % 2], sandbox=f"sb{i}") for i in range(60)))
    assert len({o.sandbox_id for o in outcomes}) == 1
    assert sum(o.fresh for o in outcomes) == 1


async def test_many_names_at_once_from_two_processes(log, second_log):
    services = [Catalogue(one, Projections(one)) for one in (log, second_log)]
    made = await asyncio.gather(*(claim(services[i % 2], f"/sandboxes/n{i}", f"r{i}", f"sb{i}") for i in range(60)))
    assert all(m.fresh for m in made)
    assert len(await Catalogue(log, Projections(log)).claims(P)) == 60


async def test_abandoning_frees_the_name_and_only_for_its_holder(catalogue):
    first = await claim(catalogue)
    await catalogue.abandon(SYSTEM, first, "NO_CAPACITY", "no room")
    await refused("SANDBOX_NOT_FOUND", catalogue.find(P, A))
    await catalogue.abandon(SYSTEM, first, "NO_CAPACITY", "said twice")
    second = await claim(catalogue, request="r2", sandbox="sb2")
    assert second.fresh
    await catalogue.abandon(SYSTEM, first, "NO_CAPACITY", "too late")
    assert (await catalogue.find(P, A)).sandbox_id == "sb2"
    await catalogue.abandon(SYSTEM, second, "X", "y")
    third = await claim(catalogue, request="r1", sandbox="sb3")
    assert (third.fresh, third.sandbox_id) == (True, "sb3")


async def test_a_restart_has_the_same_claims(catalogue, log):
    await claim(catalogue)
    await catalogue.abandon(SYSTEM, await claim(catalogue, "/sandboxes/b"), "X", "y")
    await claim(catalogue, "/sandboxes/b", "r9", "sb9")
    again = Catalogue(log, Projections(log))
    assert await again.claims(P) == [
        await catalogue.find(P, "/sandboxes/a"),
        await catalogue.find(P, "/sandboxes/b"),
    ]


async def test_looking_makes_nothing_and_costs_nothing(catalogue, log, monkeypatch):
    await refused("SANDBOX_NOT_FOUND", catalogue.find(P, "/sandboxes/none"))
    assert await log.paths(P) == []
    await claim(catalogue)

    async def never(*args, **kwargs):
        raise AssertionError("a look-up read the log")

    monkeypatch.setattr(log, "read", never)
    monkeypatch.setattr(log, "by_key", never)
    for _ in range(3):
        await catalogue.find(P, A)
        assert await catalogue.claims(P)


async def test_another_project_has_other_names(catalogue):
    await claim(catalogue)
    await refused("SANDBOX_NOT_FOUND", catalogue.find("other", A))
    assert (await claim(catalogue, project="other", sandbox="sb9")).fresh
    assert (await catalogue.find(P, A)).sandbox_id == "sb1"


async def test_another_process_claim_is_found_at_once(catalogue, second_log):
    await claim(catalogue)
    await claim(Catalogue(second_log, Projections(second_log)), "/sandboxes/b", "r2", "sb2")
    assert (await catalogue.find(P, "/sandboxes/b")).sandbox_id == "sb2"


async def test_list_joins_status_and_makes_no_stream(catalogue, projections, log):
    made = await claim(catalogue)
    await claim(catalogue, "/sandboxes/b", "r2", "sb2")
    await projections.append_and_fold(P, A, [*creation.birth(SYSTEM, made), fact(SYSTEM, "sandbox/started")])
    listed = await catalogue.list(P)
    assert [(c.path, s.status) for c, s in listed] == [(A, "running"), ("/sandboxes/b", None)]
    assert await log.head(P, "/sandboxes/b") is None
    assert await catalogue.list("empty") == []


async def test_strangers_events_on_the_catalogue_change_nothing(catalogue, log):
    await log.append(P, "/sandboxes", [NewEvent(type="note/made", payload={"path": A})])
    await log.append(P, A, [NewEvent(type="note/made")])
    await refused("SANDBOX_NOT_FOUND", catalogue.find(P, A))
    assert (await claim(catalogue)).fresh
