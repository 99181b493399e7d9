"""Owns work that changes the namespaces of its thread: each such work has a thread of its own, which ends with it.

Called by netns, interception and unit. Invariant: no thread that goes on serving ever leaves node's namespaces, because
unshare and setns move the calling thread alone; what the work raises is raised in the caller's thread.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def run(work: Callable[[], T], name: str) -> T:
    """What `work` answers, run in a thread called `name`."""
    results: list[T] = []
    failures: list[BaseException] = []

    def go() -> None:
        try:
            results.append(work())
        except BaseException as failure:  # noqa: BLE001  # raised again in the caller's thread
            failures.append(failure)

    thread = threading.Thread(target=go, name=name)
    thread.start()
    thread.join()
    if failures:
        raise failures[0]
    return results[0]
