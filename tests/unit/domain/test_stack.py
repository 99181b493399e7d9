import pytest
from hypothesis import given
from hypothesis import strategies as st

from kennel.domain import stack
from kennel.domain.layer import LayerInfo
from kennel.domain.stack import Merge, Pointer, Suspect
from kennel.wire.errors import Conflict

sizes = st.lists(st.integers(0, 1 << 40), max_size=80)
names = st.lists(st.integers(0, 10**6).map(lambda n: f"{n:064x}"), unique=True, max_size=40)


@given(sizes, st.integers(1, 16))
def test_a_merge_brings_the_stack_to_the_asked_depth(weights: list[int], most: int) -> None:
    merge = stack.merge_due(weights, most)
    if len(weights) <= most:
        assert merge is None
        return
    assert merge is not None
    assert 0 <= merge.first < merge.last <= len(weights)
    assert merge.last - merge.first >= 2
    left = stack.merged([str(n) for n in range(len(weights))], merge, "made")
    assert len(left) <= most
    assert merge.bottom == (merge.last == len(weights))


def test_a_great_base_is_left_alone_by_small_layers() -> None:
    merge = stack.merge_due([10] * 8 + [10_000_000])
    assert merge == Merge(0, 8, False)


def test_a_base_is_taken_in_once_the_layers_above_weigh_a_quarter() -> None:
    assert stack.merge_due([10] * 8 + [300]) == Merge(0, 9, True)


@given(st.lists(st.integers(1, 1000), min_size=100, max_size=300))
def test_packing_for_ever_stays_shallow_and_rewrites_little(packs: list[int]) -> None:
    layers: list[int] = []
    written = 0
    for size in packs:
        layers.insert(0, size)
        merge = stack.merge_due(layers)
        if merge is not None:
            made = sum(layers[merge.first : merge.last])
            written += made
            layers[merge.first : merge.last] = [made]
        assert len(layers) <= stack.MAX_DEPTH
    assert sum(layers) == sum(packs)
    assert written <= sum(packs) * 30


@given(names, st.integers(0, 5), st.data())
def test_a_merge_lands_below_layers_that_were_pushed_meanwhile(
    below: list[str], grown: int, data: st.DataObject
) -> None:
    if len(below) < 2:
        return
    first = data.draw(st.integers(0, len(below) - 2))
    last = data.draw(st.integers(first + 2, len(below)))
    merge = Merge(first, last, last == len(below))
    above = [f"new{n}" for n in range(grown)]
    assert stack.replaced(above + below, below, merge, "made") == (*above, *below[:first], "made", *below[last:])
    assert stack.replaced(below[1:], below, merge, "made") is None
    assert stack.replaced([*above, "other", *below[1:]], below, merge, "made") is None


def test_a_pointer_moves_only_from_what_the_mover_saw() -> None:
    now = Pointer(3, "s1", ("a",))
    after = stack.moved(now, now, 3, "s2", ["b", "a"])
    assert after == Pointer(3, "s2", ("b", "a"))
    assert stack.moved(after, now, 3, "s2", ["b", "a"]) == after, "the same move again"
    with pytest.raises(Conflict, match="another snapshot"):
        stack.moved(after, now, 3, "s3", ["c", "a"])
    with pytest.raises(Conflict, match="epoch"):
        stack.moved(after, after, 2, "s3", ["c"])


def test_the_same_top_is_not_pushed_twice() -> None:
    made = LayerInfo("a", 1, 1, 1)
    assert stack.pushed(["b"], made) == ("a", "b")
    assert stack.pushed(["a", "b"], made) == ("a", "b")


def test_a_stack_weighs_what_its_layers_unpack_to() -> None:
    known = {"a": LayerInfo("a", 10, 100, 1), "b": LayerInfo("b", 10, 1000, 1)}
    assert stack.unpacked(["a", "b"], known) == 1100


looks = st.lists(st.tuples(st.sets(st.integers(0, 9)), st.floats(0, 50)), min_size=1, max_size=20)


@given(looks, st.floats(1, 40))
def test_a_layer_goes_only_after_two_looks_a_grace_apart(rounds: list[tuple[set[int], float]], grace: float) -> None:
    now, stored, suspects = 0.0, {str(n): 0.0 for n in range(10)}, list[Suspect]()
    free_since: dict[str, float] = {}
    for needed_numbers, step in rounds:
        now += step
        needed = stack.referenced([[str(n) for n in needed_numbers]])
        gone, suspects = stack.collect({k: now - v for k, v in stored.items()}, needed, suspects, now, grace)
        for layer in stored:
            if layer in needed:
                free_since.pop(layer, None)
            else:
                free_since.setdefault(layer, now)
        for layer in gone:
            assert layer not in needed
            assert now - free_since[layer] >= grace
            del stored[layer], free_since[layer]
        assert {s.digest for s in suspects} == set(stored) - needed


def test_a_young_layer_stays_though_twice_unneeded() -> None:
    gone, suspects = stack.collect({"a": 5.0}, (), [Suspect("a", 0.0)], 100.0, 60.0)
    assert (gone, suspects) == ([], [Suspect("a", 0.0)])


def test_mounts_count_as_references() -> None:
    assert stack.referenced([["a"], []], ["m"]) == {"a", "m"}


@pytest.mark.parametrize(
    ("sizes", "merge"),
    [
        ([], None),
        ([100], None),
        ([10, 30], None),
        ([10, 50], None),
        ([13, 50], Merge(0, 2, True)),
        ([5, 5, 5, 50], Merge(0, 4, True)),
        ([5, 5, 50], None),
        ([1] * 9, Merge(0, 9, True)),
    ],
)
def test_a_stack_that_takes_half_the_disk_becomes_one_layer(sizes: list[int], merge: Merge | None) -> None:
    assert stack.merge_planned(sizes, 100) == merge
