"""Streams, projections and live views in both halves, against a scripted server that cuts connections."""

from __future__ import annotations

import inspect
import json
import threading
import time
from typing import Any
from urllib.parse import parse_qs, urlsplit

import anyio
import pytest

from kennel import AsyncKennel, Event, Kennel, KennelError, LiveUpdate
from kennel.sdk._async import following as async_following
from kennel.sdk._sync import following

pytestmark = pytest.mark.anyio

END = object()


async def done(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value


async def take(iterator: Any, count: int) -> list[Any]:
    """The first items of either half's iterator; fewer when it ends."""
    found: list[Any] = []
    while len(found) < count:
        item = await anext(iterator, END) if hasattr(iterator, "__anext__") else next(iterator, END)
        if item is END:
            break
        found.append(item)
    return found


@pytest.fixture(params=[Kennel, AsyncKennel], ids=["sync", "async"])
def half(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.fixture
async def itx(half: Any, standin: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    for module in (following, async_following):
        monkeypatch.setattr(module, "PAUSES", (0.01,) * 4)
    client = half(url=standin.url, api_key="kn_secret", timeout=5)
    yield client
    await done(client.close())


def event(offset: int, **changes: Any) -> dict[str, Any]:
    return {
        "position": offset, "project": "default", "path": "/s", "offset": offset, "type": "note",
        "payload": {"n": offset}, "metadata": {}, "idempotencyKey": None, "source": {"keyId": "k1"},
        "createdAt": "2026-01-02T03:04:05.678Z", "hash": "00",
    } | changes  # fmt: skip


def sse(*offsets: int, tail: bytes = b"") -> bytes:
    return b"".join(b"id: %d\ndata: %s\n\n" % (n, json.dumps(event(n)).encode()) for n in offsets) + tail


def query(seen: Any) -> dict[str, str]:
    return {name: values[0] for name, values in parse_qs(urlsplit(seen.path).query).items()}


def test_a_handle_does_no_io_and_keeps_its_route() -> None:
    with Kennel(url="http://127.0.0.1:9") as itx:
        assert itx.streams.get("/a b/../ü")._route == "/v1/projects/default/streams/a%20b/%2E%2E/%C3%BC"
        itx.sandboxes.get("main").events()
        with pytest.raises(KennelError) as caught:
            itx.streams.get("no-slash")
        assert caught.value.code == "INVALID_PATH"


async def test_append_is_repeated_only_when_every_event_has_a_key(itx: Any, standin: Any, shapes: Any) -> None:
    answer = shapes.Answer(201, {"events": [event(1)]})
    standin.will(shapes.Answer(cut="before"), answer)
    [kept] = await done(itx.streams.get("/s").append({"type": "note", "idempotency_key": "k", "payload": {"n": 1}}))
    assert isinstance(kept, Event)
    assert (kept.offset, kept.source.key_id) == (1, "k1")
    assert standin.seen[1].json == {"events": [{"type": "note", "idempotencyKey": "k", "payload": {"n": 1}}]}
    standin.seen.clear()
    standin.will(shapes.Answer(cut="before"), answer)
    with pytest.raises(KennelError) as caught:
        await done(itx.streams.get("/s").append([{"type": "note"}]))
    assert (caught.value.code, caught.value.admitted, len(standin.seen)) == ("CONNECTION_LOST", "unknown", 1)


async def test_read_fetches_pages_as_needed(itx: Any, standin: Any, shapes: Any) -> None:
    standin.will(
        shapes.Answer(200, {"events": [event(n) for n in range(3, 503)]}),
        shapes.Answer(200, {"events": [event(n) for n in range(503, 505)]}),
    )
    found = await done(itx.streams.get("/s").read(after=2, before=900, types=["a", "b"], limit=700))
    assert [e.offset for e in found] == list(range(3, 505))
    assert query(standin.seen[0]) == {"after": "2", "before": "900", "types": "a,b", "limit": "500"}
    assert query(standin.seen[1])["after"] == "502"
    assert query(standin.seen[1])["limit"] == "200"


async def test_following_goes_on_where_a_connection_broke(itx: Any, standin: Any, shapes: Any) -> None:
    gap = b'event: gap\ndata: {"after": 4, "reason": "slow"}\n\n'
    standin.will(
        shapes.Answer(raw=sse(2, 3) + b"id: 4\ndata: {" + b" " * 1200, cut="inside"),
        shapes.Answer(cut="before"),
        shapes.Answer(raw=b": alive\n\n" + sse(4, tail=gap)),
        shapes.Answer(raw=sse(5)),
    )
    events = itx.sandboxes.get("main").events(after=1, types="note")
    assert [e.offset for e in await take(events, 4)] == [2, 3, 4, 5]
    await done(events.close())
    first = standin.seen[0]
    assert first.path == "/v1/projects/default/streams/sandboxes/main?after=1&types=note&follow=true"
    assert [seen.headers.get("last-event-id") for seen in standin.seen[:4]] == [None, "3", "3", "4"]
    assert first.headers["accept"] == "text/event-stream"


async def test_a_server_that_does_not_come_back_is_given_up(itx: Any, standin: Any, shapes: Any) -> None:
    standin.will(shapes.Answer(raw=sse(1)), shapes.Answer(cut="before"))
    events = itx.streams.get("/s").events()
    await take(events, 1)
    with pytest.raises(KennelError) as caught:
        await take(events, 1)
    assert caught.value.code == "CONNECTION_LOST"
    assert len(standin.seen) == 5
    assert await take(events, 1) == []


async def test_a_refusal_is_raised_at_once(itx: Any, standin: Any, shapes: Any, half: Any, refused: str) -> None:
    standin.will(shapes.Answer(404, {"error": "no stream", "code": "STREAM_NOT_FOUND"}))
    with pytest.raises(KennelError) as caught:
        await take(itx.streams.get("/s").events(), 1)
    assert (caught.value.code, len(standin.seen)) == ("STREAM_NOT_FOUND", 1)
    nobody = half(url=refused)
    with pytest.raises(KennelError) as caught:
        await take(nobody.streams.get("/s").events(), 1)
    assert (caught.value.code, caught.value.admitted) == ("CONNECTION_LOST", "no")
    await done(nobody.close())


async def test_waiting_asks_again_until_its_time_is_over(itx: Any, standin: Any, shapes: Any) -> None:
    none_yet = shapes.Answer(408, {"error": "none", "code": "WAIT_TIMEOUT"})
    standin.will(none_yet, shapes.Answer(200, {"events": [event(7)]}))
    found = await done(itx.streams.get("/s").wait_for_event("note", after=6, timeout=60))
    assert found.offset == 7
    assert query(standin.seen[0]) == {"after": "6", "types": "note", "waitMs": "20000"}
    standin.will(none_yet)
    begun = time.monotonic()
    with pytest.raises(KennelError) as caught:
        await done(itx.streams.get("/s").wait_for_event(timeout=0.2))
    assert (caught.value.code, str(caught.value.message)) == ("WAIT_TIMEOUT", "no such event came in 0.2 s")
    assert 0.2 <= time.monotonic() - begun < 3


async def test_the_projection_after_an_offset(itx: Any, standin: Any, shapes: Any) -> None:
    standin.will(shapes.Answer(200, {"offset": 9, "state": {"status": "destroyed", "running": False, "later": 1}}))
    box = itx.sandboxes.get("main")
    assert (await done(box.processor.snapshot())).state.status == "destroyed"
    assert (await done(box.processor.wait_until_processed(9, timeout=1))).offset == 9
    assert query(standin.seen[1])["waitUntil"] == "9"
    now = await done(box.live_state.get())
    assert isinstance(now, LiveUpdate)
    assert (now.kind, now.revision) == ("snapshot", 9)


def live(kind: str, revision: int, **more: Any) -> bytes:
    body = json.dumps({"kind": kind, "revision": revision, **more}).encode()
    return b"event: %s\nid: %d\ndata: %s\n\n" % (kind.encode(), revision, body)


async def test_a_live_view_begins_afresh_after_a_loss(itx: Any, standin: Any, shapes: Any) -> None:
    change = [{"op": "replace", "path": "/running", "value": True}]
    standin.will(
        shapes.Answer(
            raw=live("snapshot", 2, state={"running": False})
            + live("diff", 3, previous=2, operations=change)
            + live("gap", 3)
        ),
        shapes.Answer(raw=live("snapshot", 5, state={"running": False})),
    )
    updates = itx.sandboxes.get("main").live_state.updates()
    found = await take(updates, 4)
    await done(updates.close())
    assert [(u.kind, u.revision, u.state.running) for u in found] == [
        ("snapshot", 2, False), ("diff", 3, True), ("gap", 3, True), ("snapshot", 5, False),
    ]  # fmt: skip
    assert "last-event-id" not in standin.seen[1].headers


async def test_a_subscription_stops_at_once_and_keeps_what_ended_it(itx: Any, standin: Any, shapes: Any) -> None:
    blocked = threading.Event()
    try:
        standin.will(
            shapes.Answer(raw=live("snapshot", 2, state={})),
            lambda _: shapes.Answer(raw=live("snapshot", 3, state={}), wait=blocked),
        )
        seen: list[int] = []
        told = threading.Event()

        def note(update: LiveUpdate) -> None:
            seen.append(update.revision)
            told.set()

        subscription = await done(itx.sandboxes.get("main").live_state.subscribe(note))
        deadline = time.monotonic() + 5
        while not seen and time.monotonic() < deadline:
            await anyio.sleep(0.01)
        assert seen == [2]
        assert subscription.running
        if inspect.iscoroutinefunction(subscription.stop):
            await subscription.stop()
        else:
            threading.Timer(0.1, blocked.set).start()
            subscription.stop()
        assert not subscription.running
        assert seen == [2]
    finally:
        blocked.set()

    def fail(_: LiveUpdate) -> None:
        raise RuntimeError("the callback's own")

    standin.will(shapes.Answer(raw=live("snapshot", 2, state={})))
    subscription = await done(itx.sandboxes.get("main").live_state.subscribe(fail))
    with pytest.raises(RuntimeError, match="the callback's own"):
        await done(subscription.wait())


async def test_an_export_that_is_cut_says_so(itx: Any, standin: Any, shapes: Any) -> None:
    lines = b"".join(json.dumps(event(n)).encode() + b"\n" for n in range(1, 5))
    standin.will(shapes.Answer(raw=lines), shapes.Answer(raw=lines + b" " * len(lines), cut="inside"))
    stream = itx.streams.get("/s")
    whole = stream.export()
    assert b"".join(await take(whole, 4)) == lines
    assert await take(whole, 1) == []
    with pytest.raises(KennelError) as caught:
        await take(stream.export(), 5)
    assert caught.value.code == "CONNECTION_LOST"
    assert standin.seen[0].headers["accept"] == "application/x-ndjson"


async def test_listing_and_verifying(itx: Any, standin: Any, shapes: Any) -> None:
    standin.will(
        shapes.Answer(200, {"streams": [{"path": "/"}, {"path": "/a"}], "cursor": "/a"}),
        shapes.Answer(200, {"streams": [{"path": "/b"}], "cursor": None}),
        shapes.Answer(200, {"path": "/a", "events": 3, "holds": False, "faults": [{"offset": 2, "reason": "r"}]}),
    )
    assert await done(itx.streams.list()) == ["/", "/a", "/b"]
    assert query(standin.seen[1])["cursor"] == "/a"
    checked = await done(itx.streams.get("/a").verify())
    assert (checked.holds, checked.faults[0].offset) == (False, 2)
    assert standin.seen[2].path == "/v1/projects/default/stream-verification/a"
