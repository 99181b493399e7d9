"""Minimal diffs of JSON values."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kennel.domain.difference import difference, patched

values = st.recursive(
    st.none() | st.booleans() | st.integers(0, 2) | st.sampled_from(["", "a", "b"]),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["a", "b", "a/b", "~", ""]), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(values, values)
def test_a_difference_leads_from_one_to_the_other(old, new):
    assert patched(old, difference(old, new)) == new


@given(values)
def test_nothing_leads_to_itself(value):
    assert difference(value, value) == []


def test_only_what_changed_is_told():
    old = {"status": "running", "env": {"A": "1", "B": "2"}, "labels": {}}
    new = {"status": "stopped", "env": {"A": "1", "C/D": "3"}, "labels": {}}
    assert difference(old, new) == [
        {"op": "remove", "path": "/env/B"},
        {"op": "add", "path": "/env/C~1D", "value": "3"},
        {"op": "replace", "path": "/status", "value": "stopped"},
    ]


def test_true_is_not_one():
    assert difference({"a": 1}, {"a": True}) == [{"op": "replace", "path": "/a", "value": True}]
