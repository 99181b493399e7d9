"""Mappings that are made at the same time do not wait for each other's children."""

from __future__ import annotations

import os
import threading

import pytest

from kennel.node import idmap

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: user namespaces with mappings are made")


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
