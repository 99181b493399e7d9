"""What the log takes at all."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kennel.domain.admission import MAX_BATCH, MAX_KEY, MAX_METADATA, MAX_PAYLOAD, admit
from kennel.domain.event import NewEvent, Source, fact
from kennel.domain.principal import SYSTEM
from kennel.wire.errors import KennelError


def code(*events: NewEvent) -> str:
    with pytest.raises(KennelError) as caught:
        admit(events)
    return caught.value.code


def test_an_empty_or_endless_batch_is_refused():
    assert code() == "INVALID_EVENT"
    assert code(*[NewEvent(type="a/b")] * (MAX_BATCH + 1)) == "INVALID_EVENT"
    assert len(admit([NewEvent(type="a/b")] * MAX_BATCH)) == MAX_BATCH


@pytest.mark.parametrize("type_", ["", "/", "a/", "/a", "a b", "a//b", "é", "a\n", "x" * 129, None, 3])
def test_odd_types_are_refused(type_):
    assert code(NewEvent(type=type_)) == "INVALID_EVENT"


@pytest.mark.parametrize(
    "type_", ["a", "a/b", "order.placed", "com.example:x/y-z_1", "Sandbox/created", "sandboxes/x", "streams"]
)
def test_other_peoples_types_are_free(type_):
    assert admit([NewEvent(type=type_)])[0].type == type_


@pytest.mark.parametrize("prefix", ["sandbox/", "stream/", "secret/", "project/", "room/", "key/", "egress/"])
def test_platform_types_need_the_stamp(prefix):
    assert code(NewEvent(type=prefix + "created")) == "PLATFORM_TYPE_REFUSED"
    assert code(NewEvent(type=prefix + "created", source=Source(key_id="system"))) == "PLATFORM_TYPE_REFUSED"


def test_platform_keys_need_the_stamp():
    assert code(NewEvent(type="a/b", idempotency_key="kennel:x")) == "PLATFORM_KEY_REFUSED"
    assert admit([fact(SYSTEM, "sandbox/started", key="x")])[0].key == "kennel:x"


@pytest.mark.parametrize("key", ["", "x" * (MAX_KEY + 1), "a\nb", "a\0", 7])
def test_odd_keys_are_refused(key):
    assert code(NewEvent(type="a/b", idempotency_key=key)) == "INVALID_EVENT"


@pytest.mark.parametrize("offset", [0, -1, True, 1.0, "2", 2**60])
def test_odd_offsets_are_refused(offset):
    assert code(NewEvent(type="a/b", offset=offset)) == "INVALID_EVENT"


def circle() -> dict[str, object]:
    payload: dict[str, object] = {}
    payload["self"] = payload
    return payload


@pytest.mark.parametrize("payload", [[], "x", None, {"a": object()}, {"a": "\ud800"}, {1.5: object()}, circle()])
def test_what_is_not_json_is_refused(payload):
    assert code(NewEvent(type="a/b", payload=payload)) == "INVALID_EVENT"
    assert code(NewEvent(type="a/b", metadata=payload)) == "INVALID_EVENT"


def test_sizes_are_counted_in_bytes_of_json():
    fits = {"a": "x" * (MAX_PAYLOAD - 8)}
    assert len(admit([NewEvent(type="a/b", payload=fits)])[0].payload_json) == MAX_PAYLOAD
    assert code(NewEvent(type="a/b", payload={"a": "x" * (MAX_PAYLOAD - 7)})) == "PAYLOAD_TOO_LARGE"
    assert code(NewEvent(type="a/b", payload={"a": "é" * (MAX_PAYLOAD // 2)})) == "PAYLOAD_TOO_LARGE"
    assert code(NewEvent(type="a/b", metadata={"a": "x" * MAX_METADATA})) == "PAYLOAD_TOO_LARGE"
    assert code(*[NewEvent(type="a/b", payload=fits)] * 17) == "PAYLOAD_TOO_LARGE"


def test_a_draft_does_not_share_the_callers_object():
    inner = [1]
    [draft] = admit([NewEvent(type="a/b", payload={"a": inner, "t": (1, 2)})])
    inner.append(2)
    assert draft.payload == {"a": [1], "t": [1, 2]}


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.text()
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(st.text(max_size=5), json_values, max_size=4))
def test_json_comes_out_as_it_went_in(payload):
    try:
        [draft] = admit([NewEvent(type="a/b", payload=payload)])
    except KennelError:
        assert any("\ud800" <= c <= "\udfff" for c in str(payload))
        return
    assert draft.payload == payload
    [again] = admit([NewEvent(type="a/b", payload=dict(reversed(payload.items())))])
    assert again.payload_json == draft.payload_json


def test_what_json_has_no_word_for_becomes_null_before_it_is_compared():
    [draft] = admit([NewEvent(type="a/b", payload={"x": math.nan, "y": math.inf})])
    assert draft.payload == {"x": None, "y": None}
