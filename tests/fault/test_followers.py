"""SIGKILL of control under those who follow: they go on by themselves, and miss nothing."""

from __future__ import annotations

import threading
import uuid

from installation import Installation
from kennel import Kennel, LiveUpdate


def test_followers_outlive_control_and_miss_nothing(itx: Kennel, installation: Installation) -> None:
    box = itx.sandboxes.get(f"/sandboxes/follow-{uuid.uuid4().hex[:8]}").create()
    stream = itx.streams.get(f"/notes/{uuid.uuid4().hex[:10]}")
    stream.append({"type": "before"})
    found: list[tuple[int, str]] = []
    begun, ended = threading.Event(), threading.Event()

    def follow() -> None:
        with stream.events() as events:
            for event in events:
                found.append((event.offset, event.type))
                begun.set()
                if event.type == "after":
                    break
        ended.set()

    updates: list[LiveUpdate] = []
    afresh, destroyed = threading.Event(), threading.Event()

    def note(update: LiveUpdate) -> None:
        updates.append(update)
        if [u.kind for u in updates].count("snapshot") == 2:
            afresh.set()
        if update.state.status == "destroyed":
            destroyed.set()

    threading.Thread(target=follow, daemon=True).start()
    watching = box.live_state.subscribe(note)
    assert begun.wait(5)
    installation.kill("control")
    stream.append({"type": "after", "idempotency_key": "once"})
    assert ended.wait(10)
    assert found == [(1, "stream/created"), (2, "before"), (3, "after")]
    assert afresh.wait(10)
    box.destroy()
    assert destroyed.wait(10)
    watching.stop()
    assert watching.error is None
