"""Connections to a real guest: several at once, lost ones, lost guests, peers that break the protocol."""

from __future__ import annotations

import asyncio
import random
import socket
import time
from collections.abc import Iterator

import pytest

from guest_process import GuestProcess
from kennel.domain.command import Command
from kennel.guest import framing
from kennel.relay.link import open_guest
from kennel.wire.errors import KennelError, error
from patience import within


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, bool]]:
    return "asyncio", {"use_uvloop": True}


@pytest.fixture
def process() -> Iterator[GuestProcess]:
    made = GuestProcess()
    yield made
    complaints = [line for line in made.complaints().splitlines() if not line.startswith("unshare:")]
    made.close()
    assert complaints == []


def sh(text: str, **more: object) -> Command:
    return Command(command=text, cwd="/", **more)  # type: ignore[arg-type]


async def until(true: object, seconds: float = 2.0) -> None:
    """Waits for a condition that has no event."""
    end = time.monotonic() + seconds
    while not true():  # type: ignore[operator]
        assert time.monotonic() < end, "it did not come true"
        await asyncio.sleep(0.01)


@pytest.mark.anyio
async def test_a_lost_connection_kills_what_ran_in_its_foreground_only(process: GuestProcess) -> None:
    first, second = await process.connect(), await process.connect()
    await second.exec(sh("sleep 201 &"))
    await first.exec(sh("sleep 202 &"))
    running = asyncio.create_task(second.exec(sh("echo over; sleep 0.6; echo there")))
    doomed = asyncio.create_task(first.exec(sh("(setsid sh -c \"trap '' TERM; sleep 203; sleep 204\" &); sleep 205")))
    await until(lambda: "sleep 205" in process.commands() and "sleep 203" in process.commands())
    await asyncio.sleep(0.05)
    first.abort(error("SANDBOX_LOST", "cut"))
    with pytest.raises(KennelError) as caught:
        await doomed
    assert (caught.value.code, caught.value.admitted) == ("SANDBOX_LOST", "yes")
    await until(lambda: sorted(process.commands()) == ["sleep 201", "sleep 202"])
    assert (await running).stdout == b"over\nthere\n"
    again = await process.connect()
    assert (await again.exec(sh("echo on"))).stdout == b"on\n"
    await again.close()
    await second.close()


@pytest.mark.anyio
async def test_a_killed_guest_ends_every_call_within_a_second(process: GuestProcess) -> None:
    link = await process.connect()
    started = asyncio.create_task(link.exec(sh("sleep 206")))
    run = await link.run(sh("echo on; sleep 207"))
    assert (await anext(aiter(run))).data == b"on\n"
    await until(lambda: "sleep 206" in process.commands())
    await asyncio.sleep(0.05)  # the word that it was started waits for company for some milliseconds
    began = time.monotonic()
    process.kill()
    for waiting in (started, run.outcome(), anext(aiter(run))):
        with pytest.raises(KennelError) as caught:
            await waiting
        assert (caught.value.code, caught.value.status, caught.value.admitted) == ("SANDBOX_LOST", 503, "yes")
    assert time.monotonic() - began < within(1)
    assert link.closed
    with pytest.raises(KennelError) as caught:
        await link.exec(sh("true"))
    assert caught.value.admitted == "no"
    await link.close()


@pytest.mark.anyio
async def test_abort_ends_calls_at_once_with_its_reason(process: GuestProcess) -> None:
    link = await process.connect()
    call = asyncio.create_task(link.exec(sh("sleep 208")))
    ping = asyncio.create_task(link.ping())
    await asyncio.sleep(0)
    link.abort(error("SANDBOX_DESTROYED", "gone"))
    with pytest.raises(KennelError) as caught:
        await call
    assert (caught.value.code, caught.value.admitted) == ("SANDBOX_DESTROYED", "unknown")
    with pytest.raises(KennelError):
        await ping
    await link.close()


@pytest.mark.anyio
async def test_a_frozen_guest_is_waited_for(process: GuestProcess) -> None:
    import os
    import signal

    link = await process.connect()
    os.kill(process.pid, signal.SIGSTOP)
    call = asyncio.create_task(link.exec(sh("echo late")))
    await asyncio.sleep(0.3)
    assert not call.done()
    os.kill(process.pid, signal.SIGCONT)
    assert (await asyncio.wait_for(call, 2)).stdout == b"late\n"
    await link.close()


def _hello() -> bytes:
    return framing.hello()


BAD = {
    "nothing": b"",
    "noise": random.Random(7).randbytes(4000),
    "http": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    "huge frame": framing.HEADER.pack(2**32 - 1, 1, framing.OPEN),
    "a guest's kind": framing.frame(framing.STDOUT, 1, b"x"),
    "no hello": framing.control(framing.OPEN, 1, {"op": "exec"}),
    "no common version": framing.control(framing.HELLO, 0, {"min": 7, "max": 9}),
    "two hellos": _hello() + _hello(),
    "not json": _hello() + framing.frame(framing.OPEN, 1, b"{"),
    "deep json": _hello() + framing.frame(framing.OPEN, 1, b'{"a":' + b"[" * 90_000 + b"]" * 90_000 + b"}"),
    "a list": _hello() + framing.frame(framing.OPEN, 1, b"[1]"),
    "unknown channel": _hello() + framing.frame(framing.DATA, 9, b"x"),
    "a channel twice": _hello() + framing.control(framing.OPEN, 1, {"op": "none"}) * 2,
    "credit for nothing": _hello()
    + framing.control(framing.OPEN, 1, {"op": "exec", "command": "sleep 9", "cwd": "/"})
    + framing.credit(1, 0),
    "endless credit": _hello()
    + framing.control(framing.OPEN, 1, {"op": "exec", "command": "sleep 9", "cwd": "/"})
    + framing.credit(1, 2**32 - 1),
    "data without credit": _hello()
    + framing.control(framing.OPEN, 1, {"op": "exec", "command": "sleep 9", "cwd": "/", "stdin": True})
    + framing.frame(framing.DATA, 1, bytes(framing.MAX_PAYLOAD)) * 4,
    "empty data": _hello()
    + framing.control(framing.OPEN, 1, {"op": "exec", "command": "sleep 9", "cwd": "/", "stdin": True})
    + framing.frame(framing.DATA, 1, b""),
    "endless parts": _hello() + framing.frame(framing.PART, 1, bytes(framing.MAX_PAYLOAD)) * 20,
    "interrupted parts": _hello() + framing.frame(framing.PART, 1, b"{") + framing.frame(framing.PING, 0, b"x"),
}


@pytest.mark.anyio
async def test_peers_that_break_the_protocol_lose_their_connection_only(process: GuestProcess) -> None:
    good = await process.connect()
    for name, sent in BAD.items():
        sock = process.socket()
        try:
            sock.sendall(sent)
            if not sent:
                sock.shutdown(socket.SHUT_WR)
            while sock.recv(65536):
                pass
        except ConnectionError:
            pass  # cut while we were still sending
        except TimeoutError:
            pytest.fail(f"{name}: the guest keeps the connection")
        finally:
            sock.close()
        assert (await good.exec(sh("echo on"))).stdout == b"on\n", name
    await until(lambda: not process.commands())
    await good.close()


WRONG_ARGS: list[dict[str, object]] = [
    {},
    {"op": 3},
    {"op": "no.such"},
    {"op": "exec"},
    {"op": "exec", "command": 3},
    {"op": "exec", "command": "true", "argv": ["true"]},
    {"op": "exec", "argv": "true"},
    {"op": "exec", "argv": [1]},
    {"op": "exec", "argv": [""]},
    {"op": "exec", "command": "true", "cwd": 3},
    {"op": "exec", "command": "true", "cwd": "/", "env": []},
    {"op": "exec", "command": "true", "cwd": "/", "env": {"A": 3}},
    {"op": "exec", "command": "true", "cwd": "/", "timeout_ms": 0},
    {"op": "exec", "command": "true", "cwd": "/", "timeout_ms": True},
    {"op": "exec", "command": "true", "cwd": "/", "timeout_ms": 10**30},
    {"op": "exec", "command": "true", "cwd": "/", "max_bytes": -1},
    {"op": "exec", "command": "\ud800", "cwd": "/"},
    {"op": "exec", "command": "true", "cwd": "/", "user": "9" * 5000},
    {"op": "session.open"},
    {"op": "session.open", "session": "x" * 300},
    {"op": "session.open", "session": "x", "cwd": "/none"},
    {"op": "session.exec", "session": "x"},
    {"op": "session.close", "session": None},
]


@pytest.mark.anyio
async def test_wrong_arguments_are_refused_one_by_one(process: GuestProcess) -> None:
    sock = process.socket()
    sock.sendall(_hello())
    for number, args in enumerate(WRONG_ARGS, 1):
        sock.sendall(framing.control(framing.OPEN, number, args))
    decoder, ended = framing.Decoder(framing.FROM_GUEST), {}
    while len(ended) < len(WRONG_ARGS):
        data = sock.recv(65536)
        assert data, "the guest closed a connection that kept to the protocol"
        for kind, channel, payload in decoder.feed(data):
            if kind == framing.ERROR:
                ended[channel] = framing.read_control(payload)["code"]
    assert len(ended) == len(WRONG_ARGS)
    assert "INTERNAL_ERROR" not in ended.values()
    sock.close()


def _noise(seed: int) -> bytes:
    """Frames of random kinds and contents, some of them sensible."""
    dice = random.Random(seed)
    pieces = [_hello()]
    for _ in range(dice.randrange(1, 30)):
        kind, channel = dice.choice(sorted(framing.FROM_HOST)), dice.randrange(0, 4)
        if kind == framing.OPEN:
            args = dice.choice(
                [
                    {"op": "exec", "command": "cat; echo x", "cwd": "/", "stdin": True, "timeout_ms": 50},
                    {"op": "session.open", "session": "n", "cwd": "/"},
                    {"op": "session.exec", "session": "n", "command": "cat; exit 1", "stdin": dice.random() < 0.5},
                    {"op": "session.close", "session": "n"},
                    {"op": "session.state", "session": "n"},
                ]
            )
            pieces.append(framing.control(kind, max(1, channel), args))
        elif kind in (framing.EOF, framing.CLOSE):
            pieces.append(framing.frame(kind, max(1, channel)))
        elif kind == framing.CREDIT:
            pieces.append(framing.credit(max(1, channel), dice.randrange(0, 2_000_000)))
        else:
            pieces.append(framing.frame(kind, channel, dice.randbytes(dice.choice([0, 1, 16, 5000]))))
    return b"".join(pieces)


@pytest.mark.anyio
@pytest.mark.parametrize("seeds", [range(150), pytest.param(range(150, 5000), marks=pytest.mark.full)])
async def test_random_frames_do_the_guest_no_harm(process: GuestProcess, seeds: range) -> None:
    good = await process.connect()
    for seed in seeds:
        sock = process.socket()
        try:
            sock.sendall(_noise(seed))
            if seed % 3:
                sock.settimeout(0.02)
                while sock.recv(65536):
                    pass
        except OSError:
            pass  # cut, or nothing more to say
        finally:
            sock.close()
        if seed % 25 == 0:
            assert (await asyncio.wait_for(good.exec(sh("echo on")), 5)).stdout == b"on\n", seed
    for name in await good.list_sessions():
        await good.close_session(name)
    await until(lambda: not process.commands(), 3)
    assert (await good.exec(sh("ls /dev/shm/.kennel-*"))).stdout == b""
    await good.close()


@pytest.mark.anyio
async def test_a_peer_that_never_reads_fills_no_memory(process: GuestProcess) -> None:
    link = await process.connect()
    await link.exec(sh("true"))
    before = process.memory()
    sock = process.socket()
    sock.settimeout(0.5)
    sock.sendall(_hello())
    try:
        for _ in range(100_000):
            sock.sendall(framing.frame(framing.PING, 0, b"0123456789abcdef") * 100)
    except TimeoutError:
        pass  # pressed back
    else:
        pytest.fail("the guest took 250 MB of questions without an answer read")
    assert process.memory() - before < 16 * 1024 * 1024
    assert (await link.exec(sh("echo on"))).stdout == b"on\n"
    sock.close()
    await link.close()


@pytest.mark.anyio
async def test_more_connections_than_there_may_be_are_closed(process: GuestProcess) -> None:
    links = [await process.connect() for _ in range(64)]
    with pytest.raises(KennelError) as caught:
        await process.connect()
    assert caught.value.code == "SANDBOX_START_FAILED"
    for link in links:
        await link.close()
    await asyncio.sleep(0.1)
    link = await process.connect()
    await link.ping()
    await link.close()


@pytest.mark.anyio
async def test_out_of_descriptors_is_a_typed_error_and_passes() -> None:
    process = GuestProcess(prefix=("prlimit", "--nofile=60"))
    try:
        link = await process.connect()
        results = await asyncio.gather(
            *(link.exec(sh("sleep 0.5; echo on")) for _ in range(60)), return_exceptions=True
        )
        refused = [one for one in results if isinstance(one, KennelError)]
        assert refused
        assert {one.code for one in refused} == {"PROCESS_SPAWN_FAILED"}
        assert {one.admitted for one in refused} == {"no"}
        assert sum(getattr(one, "stdout", b"") == b"on\n" for one in results) >= 5
        assert (await link.exec(sh("echo on"))).stdout == b"on\n"
        await link.close()
        assert process.complaints() == ""
    finally:
        process.close()


@pytest.mark.anyio
@pytest.mark.parametrize("greeting", [b"", framing.control(framing.HELLO, 0, {"min": 5, "max": 6})])
async def test_a_guest_that_does_not_greet_well_is_a_failed_start(greeting: bytes) -> None:
    near, far = socket.socketpair()
    far.sendall(greeting)
    began = time.monotonic()
    with pytest.raises(KennelError) as caught:
        await open_guest(near, 0.2)
    assert caught.value.code == "SANDBOX_START_FAILED"
    assert time.monotonic() - began < within(1)
    far.close()
