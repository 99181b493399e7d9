"""The one thread: events, timers and their order, and that no mistake of a callback ends it."""

from __future__ import annotations

import os
import time

import pytest

from kennel.guest.loop import READ, Loop


def test_events_reach_their_handler_until_forgotten() -> None:
    loop, seen = Loop(), []
    read, write = os.pipe()
    loop.watch(read, READ, lambda events: seen.append(os.read(read, 10)))
    os.write(write, b"a")
    loop.tick()
    loop.forget(read)
    loop.forget(read)
    os.write(write, b"b")
    loop.later(0, lambda: None)
    loop.tick()
    assert seen == [b"a"]
    os.close(read)
    os.close(write)


def test_a_descriptor_closed_in_a_batch_gets_no_event_of_it_under_a_new_name() -> None:
    loop, seen = Loop(), []
    pipes = [os.pipe() for _ in range(2)]

    def handler(own: int, other: int) -> object:
        def act(events: int) -> None:
            seen.append(own)
            loop.close(other)
            fresh = os.dup(own)  # must not take the number of the one that is closing
            assert fresh != other
            os.close(fresh)

        return act

    (a, wa), (b, wb) = pipes
    loop.watch(a, READ, handler(a, b))  # type: ignore[arg-type]
    loop.watch(b, READ, handler(b, a))  # type: ignore[arg-type]
    os.write(wa, b"x")
    os.write(wb, b"x")
    loop.tick()
    assert len(seen) == 1
    closed = b if seen == [a] else a
    with pytest.raises(OSError):
        os.fstat(closed)
    for fd in (seen[0], wa, wb):
        os.close(fd)


def test_timers_fire_in_order_once_and_not_when_cancelled() -> None:
    loop, seen = Loop(), []
    loop.later(0.02, lambda: seen.append("late"))
    loop.later(0.0, lambda: seen.append("first"))
    loop.later(0.0, lambda: seen.append("second"))
    gone = loop.later(0.01, lambda: seen.append("never"))
    gone.cancel()
    gone.cancel()
    until = time.monotonic() + 1
    while "late" not in seen and time.monotonic() < until:
        loop.tick()
    assert seen == ["first", "second", "late"]


def test_cancelled_timers_do_not_pile_up() -> None:
    loop = Loop()
    keep = loop.later(100, lambda: None)
    for _ in range(5000):
        loop.later(1000, lambda: None).cancel()
    assert len(loop._timers) < 300
    assert keep in loop._timers


def test_what_is_put_off_comes_after_the_events_of_the_tick_even_when_put_off_there() -> None:
    loop, seen = Loop(), []

    def first() -> None:
        seen.append(1)
        loop.soon(lambda: seen.append(2))

    loop.soon(first)
    loop.tick()
    assert seen == [1, 2]


def test_no_mistake_of_a_callback_ends_the_loop(capfd: pytest.CaptureFixture[str]) -> None:
    loop, seen = Loop(), []
    read, write = os.pipe()
    os.write(write, b"x")

    def wrong(*events: int) -> None:
        raise ValueError("wrong\ud800")

    loop.watch(read, READ, wrong)
    for _ in range(100):
        loop.soon(wrong)
        loop.later(0, wrong)
    loop.soon(lambda: seen.append(1))
    loop.tick()
    loop.later(0, lambda: seen.append(2))
    loop.tick()  # the descriptor whose handler failed is let go: this does not spin on it
    assert seen == [1, 2]
    said = capfd.readouterr().err
    assert "guest: ValueError: wrong? at" in said
    assert said.count("\n") <= 50
    os.close(read)
    os.close(write)
