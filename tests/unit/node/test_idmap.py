"""Mappings that are made at the same time do not wait for each other's children."""

from __future__ import annotations

import os
import threading

import pytest

from kennel.node import idmap

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: user namespaces with mappings are made")


def _name(userns: int) -> str:
    return os.readlink(f"/proc/self/fd/{userns}")


def test_the_last_ones_are_kept_and_each_is_what_was_asked_for() -> None:
    before, one, other = len(os.listdir("/proc/self/fd")), 0x1000_0000, 0x1001_0000
    with idmap.mapping(one) as first, idmap.mapping(one, reverse=True) as back, idmap.mapping(other) as second:
        with idmap.mapping(one) as again:
            assert _name(again) == _name(first)
        assert len({_name(first), _name(back), _name(second)}) == 3
        for number in range(2, idmap.KEPT + 3):
            with idmap.mapping(one + number * 65536):
                assert len(os.listdir("/proc/self/fd")) <= before + 4 + idmap.KEPT
        # Pushed out meanwhile, and whoever holds it has it still.
        with idmap.mapping(one) as anew:
            assert _name(anew) != _name(first)


@pytest.mark.full
def test_many_at_once_all_end_and_leave_no_child() -> None:
    made: list[bool] = []

    def work(number: int) -> None:
        for _ in range(10):
            with idmap.mapping(0x1000_0000 + number * 65536) as userns:
                made.append(os.readlink(f"/proc/self/fd/{userns}").startswith("user:"))

    threads = [threading.Thread(target=work, args=(number,), daemon=True) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert not any(thread.is_alive() for thread in threads)
    assert made == [True] * 80
