"""The plan of an append against a model: a list of events and a map of keys."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from kennel.domain.admission import admit
from kennel.domain.append import NOTHING, plan
from kennel.domain.chain import Link, canonical, verify
from kennel.domain.event import Event, NewEvent
from kennel.wire.errors import KennelError

NOW = "2026-01-01T00:00:00.000Z"


def make(events, *, head=NOTHING, existing=None, position=0):
    return plan("p", "/a", admit(events), head=head, existing=existing or {}, position=position, now=NOW, stream_id="s")


def test_a_new_stream_is_born_in_the_same_plan():
    made = make([NewEvent(type="a/b")], position=7)
    assert made.born
    assert [(r.event.position, r.event.offset, r.event.type) for r in made.rows] == [
        (8, 1, "stream/created"),
        (9, 2, "a/b"),
    ]
    assert made.answer == [made.rows[1].event]
    assert made.head.offset == 2
    assert made.head.hash == made.rows[1].event.hash


def test_a_refused_batch_leaves_no_rows():
    with pytest.raises(KennelError):
        make([NewEvent(type="a/b"), NewEvent(type="a/b", offset=9)])


class Appends(RuleBasedStateMachine):
    """Random batches with few keys, values and offsets, so that they collide."""

    @initialize()
    def start(self):
        self.head, self.events, self.position = NOTHING, [], 0
        self.model: list[tuple[str, int, str | None]] = []
        self.links: list[tuple[Link, str]] = []

    @rule(
        batch=st.lists(
            st.tuples(st.sampled_from(["a/x", "a/y"]), st.integers(0, 1), st.sampled_from([None, "k1", "k2", "k3"]),
                      st.sampled_from([None, None, None, -1, 0, 1])),
            min_size=1, max_size=5,
        )
    )  # fmt: skip
    def append(self, batch):
        base = max(len(self.model), 1)
        new = [
            NewEvent(type=t, payload={"v": v}, idempotency_key=k, offset=None if d is None else max(1, base + 1 + d))
            for t, v, k, d in batch
        ]
        expected = self._expect(new)
        existing = {e.idempotency_key: e for e in self.events if e.idempotency_key is not None}
        try:
            made = make(new, head=self.head, existing=existing, position=self.position)
        except KennelError as refusal:
            self._refused(refusal.code, expected)
            return
        assert expected is not None
        model, offsets = expected
        assert [e.offset for e in made.answer] == offsets
        self.model = model
        self.events += [r.event for r in made.rows]
        self.links += [(self._link(r), r.event.hash) for r in made.rows]
        self.position += len(made.rows)
        self.head = made.head

    @staticmethod
    def _refused(code, expected):
        assert code in ("IDEMPOTENCY_CONFLICT", "OFFSET_CONFLICT")
        assert expected is None

    def _expect(self, new):
        """The model's answer: its list and the offsets, or None for a refusal."""
        model = list(self.model) or [("stream/created", 0, "kennel:stream-created")]
        offsets = []
        for event in new:
            known = [
                i for i, m in enumerate(model) if event.idempotency_key is not None and m[2] == event.idempotency_key
            ]
            if known:
                if model[known[0]][:2] != (event.type, event.payload["v"]):
                    return None
                at = known[0] + 1
            else:
                at = len(model) + 1
            if event.offset not in (None, at):
                return None
            if not known:
                model.append((event.type, event.payload["v"], event.idempotency_key))
            offsets.append(at)
        return model, offsets

    @staticmethod
    def _link(row) -> Link:
        e, d = row.event, row.draft
        return Link(
            e.project,
            e.path,
            e.offset,
            e.type,
            e.idempotency_key,
            e.created_at,
            d.payload_json,
            d.metadata_json,
            d.source_json,
        )

    @invariant()
    def the_log_is_the_model(self):
        assert [e.offset for e in self.events] == list(range(1, len(self.events) + 1))
        assert [(e.type, e.idempotency_key) for e in self.events] == [(m[0], m[2]) for m in self.model]
        assert [e.payload["v"] for e in self.events[1:]] == [m[1] for m in self.model[1:]]

    @invariant()
    def the_chain_holds(self):
        assert list(verify(self.links, (self.head.offset, self.head.hash), ("p", "/a"))) == []


Appends.TestCase.settings = settings(max_examples=60, stateful_step_count=20, deadline=None)
TestAppends = Appends.TestCase


def test_the_stored_text_is_canonical():
    row = make([NewEvent(type="a/b", payload={"b": 1, "a": 2})]).rows[1]
    assert row.draft.payload_json == '{"a":2,"b":1}' == canonical(row.event.payload).decode()
    assert isinstance(row.event, Event)
