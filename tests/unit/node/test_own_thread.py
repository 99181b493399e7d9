"""Work in a thread of its own: its answer, its failure, and its thread's end."""

from __future__ import annotations

import os
import threading

import pytest

from kennel.node import linux, own_thread


def test_it_answers_from_another_thread_which_is_gone_then() -> None:
    before = threading.active_count()
    assert own_thread.run(threading.get_native_id, "work") != threading.get_native_id()
    assert threading.active_count() == before


def test_what_the_work_raises_is_raised_here() -> None:
    def work() -> None:
        raise FileNotFoundError(2, "no such thing", "/nowhere")

    with pytest.raises(FileNotFoundError, match="no such thing"):
        own_thread.run(work, "work")


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_the_caller_stays_in_its_namespace() -> None:
    def work() -> str:
        linux.unshare(linux.CLONE_NEWUTS)
        linux.sethostname("elsewhere")
        return os.uname().nodename

    before = os.uname().nodename
    assert own_thread.run(work, "work") == "elsewhere"
    assert os.uname().nodename == before
