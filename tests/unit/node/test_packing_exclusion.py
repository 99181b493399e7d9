from kennel.node.packing.exclusion import Exclusion


def test_a_path_covers_what_lies_below_it_in_either_order() -> None:
    for paths in ([b"a/b", b"a/b/c", b"d"], [b"a/b/c", b"d", b"a/b"]):
        assert Exclusion(paths).root == {b"a": {b"b": None}, b"d": None}


def test_names_are_left_out_wherever_they_stand() -> None:
    exclusion = Exclusion([b"x/y"], [b"node_modules"])
    assert exclusion.here({}, b"node_modules")
    assert not exclusion.here({}, b"y")
    below = exclusion.root[b"x"]
    assert below is not None
    assert exclusion.here(below, b"y")
    assert not exclusion.here(exclusion.root, b"x"), "only the way to something left out"
