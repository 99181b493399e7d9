"""What every adapter of ports.event_log promises, over SQLite and PostgreSQL alike."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kennel.domain.event import Event, Gap, NewEvent, Source, fact
from kennel.domain.event_types import EVENT_TYPES
from kennel.domain.principal import SYSTEM
from kennel.ports.event_log import Checkpoint
from kennel.wire.errors import KennelError

pytestmark = pytest.mark.anyio

P = "default"


def new(type_: str = "note/made", payload: dict[str, Any] | None = None, **more: Any) -> NewEvent:
    return NewEvent(type=type_, payload=payload or {}, source=Source(key_id="key_t"), **more)


async def refused(code: str, call: Any) -> KennelError:
    with pytest.raises(KennelError) as caught:
        await call
    assert caught.value.code == code
    return caught.value


async def types(log, path: str, project: str = P) -> list[tuple[int, str]]:
    return [(e.offset, e.type) for e in await log.read(project, path)]


async def test_a_stream_begins_with_its_birth_and_counts_without_holes(log):
    a, b = await log.append(P, "/a", [new(payload={"n": 1}), new(payload={"n": 2})])
    assert (a.offset, b.offset) == (2, 3)
    [c] = await log.append(P, "/a", [new(payload={"n": 3})])
    assert c.offset == 4
    first, *rest = await log.read(P, "/a")
    assert first.type == "stream/created"
    assert first.source.platform
    assert first.payload["path"] == "/a"
    assert [(e.offset, e.payload) for e in rest] == [(2, {"n": 1}), (3, {"n": 2}), (4, {"n": 3})]
    assert rest == [a, b, c]
    assert a.source == Source(platform=False, key_id="key_t")


async def test_projects_share_nothing(log):
    await log.append(P, "/a", [new(idempotency_key="k")])
    await log.append("other", "/a", [new(payload={"x": 1}, idempotency_key="k")])
    assert [e.payload for e in await log.read("other", "/a", after=1)] == [{"x": 1}]
    assert await log.paths("third") == []
    await refused("STREAM_NOT_FOUND", log.read("third", "/a"))
    assert await log.by_key("third", "/a", "k") is None


async def test_looking_creates_nothing(log):
    await refused("STREAM_NOT_FOUND", log.read(P, "/a/b"))
    assert await log.head(P, "/a/b") is None
    assert await log.by_key(P, "/a/b", "k") is None
    await refused("STREAM_NOT_FOUND", log.verify(P, "/a/b"))
    await refused("STREAM_NOT_FOUND", anext(aiter(log.follow(P, "/a/b"))))
    log.listen(P, "/a/b", lambda event: None)()
    assert await log.paths(P) == []


async def test_every_ancestor_hears_of_a_newborn_root_first(log):
    [born] = await log.append(P, "/a/b/c", [new()])
    assert await log.paths(P) == ["/", "/a", "/a/b", "/a/b/c"]
    told = []
    for path in ("/", "/a", "/a/b"):
        events = await log.read(P, path, types=["stream/child-stream-created"])
        hits = [e for e in events if e.payload == {"childPath": "/a/b/c"}]
        assert len(hits) == 1
        assert hits[0].source.platform
        told.append(hits[0].position)
    assert told == sorted(told)
    assert born.position < told[0]
    await log.append(P, "/a/b/c", [new()])
    assert len(await log.read(P, "/a/b", types=["stream/child-stream-created"])) == 1


async def test_an_equal_key_answers_with_the_old_event(log):
    [old] = await log.append(P, "/a", [new(payload={"b": 1, "a": [1.5, None, "é"]}, idempotency_key="k")])
    again, fresh = await log.append(
        P, "/a", [new(payload={"a": [1.5, None, "é"], "b": 1}, idempotency_key="k"), new("note/other")]
    )
    assert again == old
    assert fresh.offset == 3
    twice = await log.append(P, "/a", [new(idempotency_key="j"), new(idempotency_key="j")])
    assert twice[0] == twice[1]
    assert await log.head(P, "/a") == 4
    assert await log.by_key(P, "/a", "k") == old


@pytest.mark.parametrize(
    "other",
    [
        new("note/else", {"x": 1}, idempotency_key="k"),
        new("note/made", {"x": 2}, idempotency_key="k"),
        new("note/made", {"x": 1}, metadata={"m": 1}, idempotency_key="k"),
    ],
)
async def test_a_key_with_other_words_refuses_the_whole_batch(log, other):
    await log.append(P, "/a", [new(payload={"x": 1}, idempotency_key="k")])
    fault = await refused("IDEMPOTENCY_CONFLICT", log.append(P, "/a", [new("note/before"), other, new("note/after")]))
    assert fault.status == 409
    assert fault.details == {"index": 1, "idempotencyKey": "k", "offset": 2}
    assert await log.head(P, "/a") == 2


async def test_a_conflict_inside_one_batch_creates_no_stream(log):
    batch = [new(payload={"x": 1}, idempotency_key="k"), new(payload={"x": 2}, idempotency_key="k")]
    await refused("IDEMPOTENCY_CONFLICT", log.append(P, "/new/one", batch))
    assert await log.paths(P) == []


async def test_offset_preconditions(log):
    await log.append(P, "/a", [new()])
    fault = await refused("OFFSET_CONFLICT", log.append(P, "/a", [new(offset=5)]))
    assert fault.details == {"index": 0, "asked": 5, "actual": 3}
    await refused("OFFSET_CONFLICT", log.append(P, "/a", [new(), new(offset=3)]))
    a, b = await log.append(P, "/a", [new(offset=3, idempotency_key="k"), new(offset=4)])
    assert (a.offset, b.offset) == (3, 4)
    [again] = await log.append(P, "/a", [new(offset=3, idempotency_key="k")])
    assert again == a
    await refused("OFFSET_CONFLICT", log.append(P, "/a", [new(offset=9, idempotency_key="k")]))
    await refused("OFFSET_CONFLICT", log.append(P, "/b", [new(offset=1)]))
    [first] = await log.append(P, "/b", [new(offset=2)])
    assert first.offset == 2


async def test_one_refused_append_does_not_hurt_its_neighbours(log):
    await log.append(P, "/a", [new(idempotency_key="k", payload={"x": 1})])
    calls = [
        log.append(P, "/a", [new(payload={"i": i})] if i % 2 else [new(idempotency_key="k", payload={"x": i + 5})])
        for i in range(60)
    ]
    answers = await asyncio.gather(*calls, return_exceptions=True)
    assert [isinstance(a, KennelError) for a in answers] == [i % 2 == 0 for i in range(60)]
    assert [e.offset for e in await log.read(P, "/a")] == list(range(1, 33))
    assert await log.verify(P, "/a") == []


async def test_one_of_many_wins_a_key_and_one_an_offset(log):
    answers = await asyncio.gather(
        *(log.append(P, "/a", [new(payload={"i": i}, idempotency_key="k")]) for i in range(100)), return_exceptions=True
    )
    assert sum(not isinstance(a, KennelError) for a in answers) == 1
    answers = await asyncio.gather(
        *(log.append(P, "/a", [new(payload={"i": i}, offset=3)]) for i in range(100)), return_exceptions=True
    )
    assert sum(not isinstance(a, KennelError) for a in answers) == 1


@pytest.mark.parametrize("type_", [*sorted(EVENT_TYPES), "secret/x", "egress/x", "sandbox/unheard-of"])
async def test_no_platform_type_can_be_forged(log, type_):
    await log.append(P, "/sandboxes", [new()])
    for event in (new(type_), new(type_, {"path": "/sandboxes/x"}, idempotency_key="mine")):
        fault = await refused("PLATFORM_TYPE_REFUSED", log.append(P, "/sandboxes", [new(), event]))
        assert fault.status == 403
    assert await log.head(P, "/sandboxes") == 2


async def test_a_platform_key_is_refused_before_it_is_looked_up(log):
    await log.append(P, "/a", [fact(SYSTEM, "sandbox/started", key="one")])
    for key in ("kennel:one", "kennel:none", "kennel:stream-created"):
        await refused("PLATFORM_KEY_REFUSED", log.append(P, "/a", [new("note/made", idempotency_key=key)]))
    assert await log.head(P, "/a") == 2


async def test_reads_by_offset_type_and_limit(log):
    await log.append(P, "/a", [new(f"note/{'odd' if i % 2 else 'even'}", {"i": i}) for i in range(2, 12)])
    assert [e.offset for e in await log.read(P, "/a", after=3, before=7)] == [4, 5, 6]
    assert [e.offset for e in await log.read(P, "/a", types=["note/odd"], limit=2)] == [3, 5]
    assert await log.read(P, "/a", types=[]) == []
    assert await log.read(P, "/a", after=11) == []
    assert len(await log.read(P, "/a", limit=-1)) == 1
    await log.append(P, "/b", [new() for _ in range(499)])
    await log.append(P, "/b", [new() for _ in range(400)])
    assert len(await log.read(P, "/b", limit=10_000)) == 500


async def test_paths_by_prefix_and_page(log):
    for path in ("/a", "/a/x", "/a/y/z", "/ab", "/a-b", "/A"):
        await log.append(P, path, [new()])
    assert await log.paths(P, "/a") == ["/a", "/a/x", "/a/y", "/a/y/z"]
    assert await log.paths(P) == ["/", "/A", "/a", "/a-b", "/a/x", "/a/y", "/a/y/z", "/ab"]
    assert await log.paths(P, after="/a-b", limit=2) == ["/a/x", "/a/y"]


async def test_what_is_stored_is_what_was_given(log):
    odd = {"": "", "nul": "a\0b", "emoji": "🐶", "deep": {"a": [{"b": {}}]}, "int": 2**53, "neg": -1.5e-300, "t": True}
    [event] = await log.append(P, "/a", [new(payload=odd, metadata=odd)])
    assert event.payload == event.metadata == odd
    assert (await log.read(P, "/a", after=1))[0] == event


async def test_follow_gives_history_then_news(log):
    await log.append(P, "/a", [new(payload={"i": i}) for i in range(1, 500)])
    await log.append(P, "/a", [new(payload={"i": i}) for i in range(500, 800)])
    seen: list[int] = []

    async def follow() -> None:
        async for event in log.follow(P, "/a", after=1):
            assert isinstance(event, Event)
            seen.append(event.payload["i"])
            if len(seen) == 1000:
                return

    task = asyncio.create_task(follow())
    for i in range(800, 1001):
        await log.append(P, "/a", [new(payload={"i": i})])
    await asyncio.wait_for(task, 20)
    assert seen == list(range(1, 1001))


async def test_sixteen_writers_and_a_follower_that_misses_nothing(log):
    await log.append(P, "/a", [new()])
    got: list[Event] = []

    async def follow() -> None:
        async for event in log.follow(P, "/a", after=2):
            assert isinstance(event, Event)
            got.append(event)
            if len(got) == 16 * 40:
                return

    async def write(w: int) -> None:
        for i in range(40):
            await log.append(P, "/a", [new(payload={"w": w, "i": i})])

    task = asyncio.create_task(follow())
    await asyncio.gather(*(write(w) for w in range(16)))
    await asyncio.wait_for(task, 20)
    assert [e.offset for e in got] == list(range(3, 3 + 640))
    for w in range(16):
        assert [e.payload["i"] for e in got if e.payload["w"] == w] == list(range(40))
    assert await log.verify(P, "/a") == []


async def test_a_slow_follower_is_dropped_with_a_gap_and_can_resume(log):
    await log.append(P, "/a", [new()])
    slow, quick = log.follow(P, "/a", after=1), log.follow(P, "/a", after=1)
    assert (await anext(slow)).offset == 2
    waiting = asyncio.create_task(anext(slow))
    await asyncio.sleep(0.05)
    await log.append(P, "/a", [new()])
    assert (await waiting).offset == 3
    seen = []

    async def all_of_it() -> None:
        async for event in quick:
            seen.append(event.offset)
            if len(seen) == 1201:
                return

    task = asyncio.create_task(all_of_it())
    for _ in range(12):
        await log.append(P, "/a", [new() for _ in range(100)])
        await asyncio.sleep(0)
    gap = await anext(slow)
    assert gap == Gap(3, "slow")
    with pytest.raises(StopAsyncIteration):
        await anext(slow)
    resumed = log.follow(P, "/a", after=gap.after)
    assert [(await anext(resumed)).offset for _ in range(5)] == [4, 5, 6, 7, 8]
    await resumed.aclose()
    await asyncio.wait_for(task, 20)


async def test_a_reader_of_history_is_not_dropped_for_what_happens_meanwhile(log):
    """While it reads pages it is sent back to the log, as often as it takes, and then hears live."""
    await log.append(P, "/a", [new() for _ in range(300)])
    follower = log.follow(P, "/a")
    seen = [(await anext(follower)).offset]
    for _ in range(9):
        await log.append(P, "/a", [new() for _ in range(100)])
    while len(seen) < 1201:
        seen.append((await asyncio.wait_for(anext(follower), 5)).offset)
    assert seen == list(range(1, 1202))
    waiting = asyncio.create_task(anext(follower))
    await asyncio.sleep(0.05)
    reads = 0
    original = log._reader.read

    def counting(*args):
        nonlocal reads
        reads += 1
        return original(*args)

    log._reader.read = counting
    await log.append(P, "/a", [new()])
    assert (await asyncio.wait_for(waiting, 5)).offset == 1202
    assert reads == 0
    await follower.aclose()


async def test_a_thousand_followers_do_not_hold_the_writer(log):
    await log.append(P, "/a", [new()])
    done = 0

    async def follow(n: int) -> None:
        nonlocal done
        async for event in log.follow(P, "/a", after=2):
            assert isinstance(event, Event)
            if n % 100 == 7:
                await asyncio.sleep(3600)
            if event.offset == 22:
                done += 1
                return

    tasks = [asyncio.create_task(follow(n)) for n in range(1000)]
    await asyncio.sleep(0)
    async with asyncio.timeout(20):
        for _ in range(20):
            await log.append(P, "/a", [new()])
        while done < 990:
            await asyncio.sleep(0.01)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_a_listener_hears_in_order_before_the_append_returns(log):
    heard: list[int] = []
    stop = log.listen(P, "/a", lambda event: heard.append(event.offset))
    await log.append(P, "/a", [new(), new()])
    assert heard == [1, 2, 3]
    await log.append(P, "/b", [new()])
    stop()
    await log.append(P, "/a", [new()])
    assert heard == [1, 2, 3]


async def test_a_listener_that_fails_harms_nobody(log):
    heard: list[int] = []

    def broken(event: Event) -> None:
        raise RuntimeError("listener")

    log.listen(P, "/a", broken)
    log.listen(P, "/a", lambda event: heard.append(event.offset))
    await log.append(P, "/a", [new()])
    assert heard == [1, 2]


async def test_checkpoints_are_kept_and_replaced(log):
    await log.save_checkpoints(P, "sandbox", [Checkpoint("/a", 1, 5, "{}"), Checkpoint("/b", 1, 6, "{}")])
    await log.save_checkpoints(P, "sandbox", [Checkpoint("/a", 2, 7, '{"x":1}')])
    await log.save_checkpoints(P, "other", [Checkpoint("/a", 9, 9, "{}")])
    assert await log.checkpoints(P, "sandbox", ["/a", "/none"]) == [Checkpoint("/a", 2, 7, '{"x":1}')]
    assert {c.path for c in await log.checkpoints(P, "sandbox")} == {"/a", "/b"}


@pytest.mark.parametrize(
    "path", ["", "a", "/a/", "//", "/a//b", "/./a", "/..", "/a b", "/a\0", "/e\u0301", "/" + "x" * 1025]
)
async def test_bad_paths_are_typed_errors_everywhere(log, path):
    for call in (log.append(P, path, [new()]), log.read(P, path), log.head(P, path), log.by_key(P, path, "k")):
        await refused("INVALID_PATH", call)


async def test_a_closed_log_says_so(log):
    await log.append(P, "/a", [new()])
    follower = log.follow(P, "/a", after=2)
    waiting = asyncio.create_task(anext(follower))
    await asyncio.sleep(0.05)
    await log.close()
    assert await waiting == Gap(2, "closed")
    await refused("LOG_UNAVAILABLE", log.append(P, "/a", [new()]))
    await refused("LOG_UNAVAILABLE", log.read(P, "/a"))


async def test_odd_questions_get_plain_answers(log):
    await log.append(P, "/a", [new()])
    assert await log.read(P, "/a", after=2**80) == []
    assert len(await log.read(P, "/a", after=-5, before=2**90)) == 2
    assert await log.read(P, "/a", types=["\ud800", "a\0b", "' OR 1=1 --", "x" * 10_000]) == []
    assert await log.by_key(P, "/a", "a\0b") is None
    assert await log.by_key(P, "/a", "\ud800") is None
    await refused("INVALID_PATH", log.paths(P, "/", after="\0"))
    await refused("VALIDATION_FAILED", log.read(P, "/a", types=[f"t/{n}" for n in range(5000)]))
    for project in ("", "\0", "\ud800", "_other", "A", "a/b"):
        await refused("PROJECT_NOT_FOUND", log.read(project, "/a"))
        await refused("PROJECT_NOT_FOUND", log.append(project, "/a", [new()]))


async def test_much_at_once_waits_for_room(log):
    """More than the queue may hold: everybody lands, nobody is refused."""
    payload = {"x": "y" * 200_000}
    answers = await asyncio.gather(*(log.append(P, f"/s{i % 7}", [new(payload=payload)] * 10) for i in range(40)))
    assert sum(len(a) for a in answers) == 400
    assert log._room._used == 0


async def test_a_cancelled_append_leaves_the_log_well(log):
    tasks = [asyncio.create_task(log.append(P, "/a", [new(payload={"i": i})])) for i in range(50)]
    await asyncio.sleep(0)
    for task in tasks[::2]:
        task.cancel()
    done = await asyncio.gather(*tasks, return_exceptions=True)
    landed = {o[0].payload["i"] for o in done if isinstance(o, list)}
    await log.append(P, "/a", [new(payload={"i": -1})])
    stored = [e.payload["i"] for e in await log.read(P, "/a", after=1)]
    assert landed <= set(stored)
    assert len(stored) == len(set(stored))
    assert log._room._used == 0
    assert await log.verify(P, "/a") == []
