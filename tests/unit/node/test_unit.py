"""Locks of sandboxes: one each, and none of those that nobody holds."""

from __future__ import annotations

import gc
import threading
import time

from kennel.node.unit import Locks


def test_a_name_has_one_lock_while_it_is_held_or_waited_for() -> None:
    locks, inside, most = Locks(), 0, 0

    def work() -> None:
        nonlocal inside, most
        for _ in range(50):
            with locks.of("sandbox0"):
                inside += 1
                most = max(most, inside)
                time.sleep(0.0001)
                inside -= 1

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == 1


def test_nothing_is_kept_of_names_that_are_done_with() -> None:
    locks = Locks()
    for number in range(1000):
        with locks.of(f"sandbox{number}"):
            pass
    held = locks.of("sandbox0")
    gc.collect()
    assert list(locks._locks) == ["sandbox0"]
    assert held is locks.of("sandbox0")
