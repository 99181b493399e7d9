from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kennel.sdk import messages
from kennel.sdk.messages import Lines, Message, Messages, Replica, event_of
from kennel.sdk.records import event_bodies, patched, repeatable
from kennel.wire.errors import KennelError

TEXT = (
    b": alive\n\n"
    b'id: 1\ndata: {"a": 1}\n\n'
    b"event: gap\nid: 2\ndata: x\ndata: y\n\n"
    b": alive\n\n"
    b"data: \xc3\xbc\r\n\r\n"
    b"event: empty\n\n"
    b"data: unfinished\n"
)
FOUND = [Message("message", "1", b'{"a": 1}'), Message("gap", "2", b"x\ny"), Message("message", "2", "ü".encode())]


@given(st.lists(st.integers(0, len(TEXT))))
def test_however_the_bytes_are_cut_the_messages_are_the_same(cuts: list[int]) -> None:
    at = [0, *sorted(cuts), len(TEXT)]
    parser = Messages()
    assert [m for a, b in pairwise(at) for m in parser.feed(TEXT[a:b])] == FOUND


@pytest.mark.parametrize("parser", [Lines, Messages])
def test_what_has_no_end_is_refused(parser: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messages, "MAX_WAITING", 100)
    reader = parser()
    for _ in range(6):
        reader.feed(b"data: 1234567\n")
    with pytest.raises(KennelError) as caught:
        reader.feed(b"x" * 101 if parser is Lines else b"data: 1234567890\n" * 3)
    assert caught.value.code == "PROTOCOL_VIOLATION"


def update(kind: str, revision: int, **more: Any) -> Message:
    return Message(kind, str(revision), json.dumps({"kind": kind, "revision": revision, **more}).encode())


def test_a_replica_follows_by_diffs() -> None:
    replica = Replica()
    first = replica.take(update("snapshot", 2, state={"running": False, "env": {"a/b": "1"}, "new": []}))
    assert first is not None
    operations = [
        {"op": "replace", "path": "/running", "value": True}, {"op": "remove", "path": "/env/a~1b"},
        {"op": "add", "path": "/env/c", "value": "2"},
    ]  # fmt: skip
    second = replica.take(update("diff", 5, previous=2, operations=operations))
    assert second is not None
    assert (second.state.running, second.state.env) == (True, {"c": "2"})
    assert (second.kind, second.revision, second.previous, second.operations) == ("diff", 5, 2, operations)
    assert replica.take(update("later-kind", 6)) is None
    gap = replica.take(update("gap", 5))
    assert gap is not None
    assert (gap.kind, gap.state) == ("gap", second.state)


@pytest.mark.parametrize(
    "wrong",
    [
        update("diff", 4, previous=3, operations=[]),
        update("diff", 4, previous=2, operations=[{"op": "remove", "path": "/nothing/here"}]),
        update("diff", 4, previous=2, operations=[{"op": "replace", "path": "/running", "value": "perhaps"}]),
        update("diff", 4, previous=2, operations=[{"op": "replace", "path": 7}]),
        update("snapshot", 4, state={"env": 7}),
        Message("snapshot", None, b"not json"),
    ],
)
def test_what_does_not_fit_is_refused(wrong: Message) -> None:
    replica = Replica()
    replica.take(update("snapshot", 2, state={"running": False}))
    with pytest.raises(KennelError) as caught:
        replica.take(wrong)
    assert caught.value.code == "PROTOCOL_VIOLATION"


def test_a_gap_in_a_stream_is_no_event() -> None:
    assert event_of(Message("gap", "2", b'{"after": 2}')) is None


def test_events_are_checked_before_they_are_sent() -> None:
    one = {"type": "note", "idempotency_key": "k", "payload": {"n": 1}, "offset": None}
    assert event_bodies(one) == event_bodies([one]) == [{"type": "note", "idempotencyKey": "k", "payload": {"n": 1}}]
    assert repeatable(event_bodies([one]))
    assert not repeatable(event_bodies([one, {"type": "other"}]))
    for bad in ({"payload": {}}, [{"type": "a", "source": {}}], ["note"]):
        with pytest.raises(KennelError) as caught:
            event_bodies(bad)  # type: ignore[arg-type]
        assert caught.value.code == "VALIDATION_FAILED"


def test_the_whole_state_can_be_replaced() -> None:
    assert patched({"a": 1}, [{"op": "replace", "path": "", "value": {"b": 2}}]) == {"b": 2}


def test_a_projection_has_the_servers_fields() -> None:
    from kennel.domain.sandbox import Projection as Served
    from kennel.sdk.records import Projection

    served = {field.encode_name for field in msgspec.structs.fields(Served)}
    assert {field.encode_name for field in msgspec.structs.fields(Projection)} == served - {"birthCertificate"}
