"""The host's half against a guest that is a script: good words, hostile words, silence, and ends of every kind."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncIterator
from contextlib import suppress

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kennel.domain.command import Command
from kennel.guest import framing
from kennel.relay.link import GuestLink, open_guest
from kennel.wire.errors import KennelError, error


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


EXIT = {
    "code": 3,
    "signal": None,
    "timed_out": False,
    "stdout_bytes": 2,
    "stderr_bytes": 0,
    "stdout_truncated": False,
    "stderr_truncated": False,
    "duration_ms": 1.5,
    "cwd": "/x",
}


class Script:
    """The guest's end of a socket pair; what the host said is decoded."""

    def __init__(self) -> None:
        self.near, self.far = socket.socketpair()
        self.far.setblocking(False)
        self._decoder = framing.Decoder(framing.FROM_HOST)
        self._heard: list[tuple[int, int, bytes]] = []
        self.link: GuestLink

    async def open(self) -> GuestLink:
        await self.say(framing.hello())
        self.link = await open_guest(self.near, 2)
        assert (await self.hear())[0] == framing.HELLO
        return self.link

    async def say(self, *frames: bytes) -> None:
        await asyncio.get_running_loop().sock_sendall(self.far, b"".join(frames))

    async def hear(self) -> tuple[int, int, bytes]:
        while not self._heard:
            data = await asyncio.wait_for(asyncio.get_running_loop().sock_recv(self.far, 300_000), 2)
            assert data, "the host closed the connection"
            self._heard += self._decoder.feed(data)
        return self._heard.pop(0)

    async def ended(self) -> bool:
        """The host closes the connection."""
        try:
            while await asyncio.wait_for(asyncio.get_running_loop().sock_recv(self.far, 300_000), 2):
                pass
        except ConnectionError:
            return True
        return True


@pytest.fixture
async def script() -> AsyncIterator[Script]:
    made = Script()
    await made.open()
    yield made
    await made.link.close()
    made.far.close()


async def started(script: Script, **more: object) -> tuple[asyncio.Task[object], int]:
    """A call in progress and its channel."""
    task = asyncio.create_task(script.link.exec(Command(command="x", **more)))  # type: ignore[arg-type]
    kind, channel, _ = await script.hear()
    assert kind == framing.OPEN
    return task, channel


@pytest.mark.anyio
async def test_a_call_from_open_to_exit(script: Script) -> None:
    command = Command(command="x", cwd="/y", env={"A": "b"}, timeout_ms=5000, user="u", stdin=b"in", max_bytes=7)
    task = asyncio.create_task(script.link.exec(command))
    kind, channel, payload = await script.hear()
    assert (kind, framing.read_control(payload)) == (
        framing.OPEN,
        {
            "op": "exec",
            "command": "x",
            "cwd": "/y",
            "env": {"A": "b"},
            "timeout_ms": 5000,
            "user": "u",
            "stdin": True,
            "max_bytes": 7,
        },
    )
    assert await script.hear() == (framing.DATA, channel, b"in")
    assert await script.hear() == (framing.EOF, channel, b"")
    await script.say(
        framing.frame(framing.OPENED, channel),
        framing.frame(framing.STDOUT, channel, b"o"),
        framing.frame(framing.STDERR, channel, b"e"),
        framing.frame(framing.STDOUT, channel, b"p"),
        framing.control(framing.EXIT, channel, EXIT | {"signal": 15, "stderr_bytes": 1}),
    )
    outcome = await task
    assert (outcome.stdout, outcome.stderr, outcome.exit_code, outcome.signal) == (b"op", b"e", 3, "SIGTERM")
    assert (outcome.cwd, outcome.duration_ms, outcome.stdout_truncated) == ("/x", 1.5, False)


@pytest.mark.anyio
async def test_a_session_keeps_its_own_directory_unless_told(script: Script) -> None:
    for cwd, told in ((None, None), ("/workspace", "/workspace"), ("/etc", "/etc")):
        task = asyncio.create_task(script.link.exec(Command(command="x", session_id="s", cwd=cwd)))
        _, channel, payload = await script.hear()
        args = framing.read_control(payload)
        assert (args["op"], args["session"], args.get("cwd")) == ("session.exec", "s", told)
        await script.say(framing.control(framing.EXIT, channel, EXIT))
        await task


@pytest.mark.anyio
async def test_more_output_than_was_asked_for_is_cut_here_too(script: Script) -> None:
    task, channel = await started(script, max_bytes=10)
    for _ in range(20):
        await script.say(framing.frame(framing.STDOUT, channel, bytes(100_000)))
        await asyncio.sleep(0)
    await script.say(framing.control(framing.EXIT, channel, EXIT))
    outcome = await task
    assert (len(outcome.stdout), outcome.stdout_truncated, outcome.stdout_bytes) == (10, True, 10)


@pytest.mark.anyio
async def test_a_refusal_says_whether_the_work_was_admitted(script: Script) -> None:
    for words, admitted in ((b"", "no"), (framing.OPENED, "yes")):
        task, channel = await started(script)
        if words:
            await script.say(framing.frame(framing.OPENED, channel))
        body = {"code": "INVALID_USER", "message": "m", "details": {"user": "u"}}
        await script.say(framing.control(framing.ERROR, channel, body))
        with pytest.raises(KennelError) as caught:
            await task
        assert (caught.value.code, caught.value.admitted, caught.value.details) == (
            "INVALID_USER",
            admitted,
            {"user": "u"},
        )


def _exit(**changed: object) -> bytes:
    return framing.control(framing.EXIT, 1, EXIT | changed)


HOSTILE = {
    "noise": b"\xff" * 100,
    "a host's kind": framing.frame(framing.DATA, 1, b"x"),
    "a second hello": framing.hello(),
    "an unknown channel": framing.frame(framing.STDOUT, 2, b"x"),
    "a channel of the future": framing.control(framing.EXIT, 99, EXIT),
    "a pong nobody asked for": framing.frame(framing.PONG, 0, b"12345678"),
    "opened twice": framing.frame(framing.OPENED, 1) * 2,
    "a result for a command": framing.control(framing.RESULT, 1, {}),
    "an exit and more": _exit() + framing.frame(framing.STDOUT, 1, b"x"),
    "output without credit": framing.frame(framing.STDOUT, 1, bytes(framing.MAX_PAYLOAD)) * 3,
    "empty output": framing.frame(framing.STDERR, 1, b""),
    "too much credit": framing.credit(1, framing.MAX_WINDOW),
    "no credit": framing.credit(1, 0),
    "not json": framing.frame(framing.EXIT, 1, b"{]"),
    "deep json": framing.frame(framing.EXIT, 1, b'{"a":' + b"[" * 50_000 + b"]" * 50_000 + b"}"),
    "an empty exit": framing.control(framing.EXIT, 1, {}),
    "a code of 256": _exit(code=256),
    "a negative code": _exit(code=-1),
    "a code that is true": _exit(code=True),
    "a signal of 65": _exit(signal=65),
    "a signal by name": _exit(signal="SIGKILL"),
    "a count below zero": _exit(stdout_bytes=-1),
    "a count without end": _exit(stdout_bytes=1 << 70),
    "a flag that is 1": _exit(timed_out=1),
    "a duration below zero": _exit(duration_ms=-1),
    "a duration without end": _exit(duration_ms=10**300),
    "a cwd that is a list": _exit(cwd=[]),
    "a cwd without end": _exit(cwd="/" * 100_000),
    "an error of another layer": framing.control(framing.ERROR, 1, {"code": "UNAUTHORIZED", "message": "m"}),
    "an error nobody knows": framing.control(framing.ERROR, 1, {"code": "X", "message": "m"}),
    "an error without message": framing.control(framing.ERROR, 1, {"code": "INVALID_USER"}),
    "an error with a code that is a list": framing.control(framing.ERROR, 1, {"code": [], "message": "m"}),
    "an error with big details": framing.control(
        framing.ERROR, 1, {"code": "INVALID_USER", "message": "m", "details": {"x": "y" * 100_000}}
    ),
}


@pytest.mark.anyio
@pytest.mark.parametrize("words", HOSTILE.values(), ids=HOSTILE.keys())
async def test_a_hostile_word_ends_the_link_and_its_calls_at_once(words: bytes) -> None:
    script = Script()
    await script.open()
    run = await script.link.run(Command(command="x"))
    other = asyncio.create_task(script.link.ping())
    await asyncio.sleep(0)
    exits = words.startswith(_exit()[:40])
    with suppress(ConnectionError):  # cut while we were still speaking
        await script.say(words)
    assert await script.ended()
    assert script.link.closed
    for waiting in [other] if exits else [run.outcome(), other]:
        with pytest.raises(KennelError) as caught:
            await waiting
        assert (caught.value.code, caught.value.status) == ("PROTOCOL_VIOLATION", 500)
    script.far.close()


@given(st.binary(max_size=400), st.sampled_from([*sorted(framing.FROM_GUEST), 0, 99]), st.integers(0, 3))
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_noise_in_a_frame_is_an_end_or_an_answer(payload: bytes, kind: int, channel: int) -> None:
    async def scene() -> None:
        script = Script()
        link = await script.open()
        task, _ = await started(script)
        await script.say(framing.frame(kind, channel, payload))
        await asyncio.sleep(0.002)
        script.far.close()
        with pytest.raises(KennelError) as caught:
            await asyncio.wait_for(task, 2)
        assert caught.value.code in ("PROTOCOL_VIOLATION", "SANDBOX_LOST")
        await link.close()

    asyncio.run(scene())


@pytest.mark.anyio
async def test_a_lost_guest_ends_calls_with_what_is_known_of_each(script: Script) -> None:
    silent, _ = await started(script)
    running, channel = await started(script)
    await script.say(framing.frame(framing.OPENED, channel))
    await asyncio.sleep(0.01)
    began = time.monotonic()
    script.far.close()
    for task, admitted in ((silent, "unknown"), (running, "yes")):
        with pytest.raises(KennelError) as caught:
            await task
        assert (caught.value.code, caught.value.status, caught.value.admitted) == ("SANDBOX_LOST", 503, admitted)
    assert time.monotonic() - began < 0.5
    with pytest.raises(KennelError) as caught:
        await script.link.exec(Command(command="x"))
    assert caught.value.admitted == "no"
    with pytest.raises(KennelError):
        await script.link.ping()


@pytest.mark.anyio
async def test_abort_ends_calls_in_the_same_turn(script: Script) -> None:
    task, _ = await started(script)
    script.link.abort(error("SANDBOX_DESTROYED", "gone", admitted="yes", retry_after_ms=5))
    script.link.abort(error("INTERNAL_ERROR", "the first word stays"))
    with pytest.raises(KennelError) as caught:
        await task
    assert (caught.value.code, caught.value.admitted, caught.value.retry_after_ms) == (
        "SANDBOX_DESTROYED",
        "unknown",
        5,
    )
    assert await script.ended()


@pytest.mark.anyio
async def test_leaving_a_call_closes_its_channel_and_the_link_lives(script: Script) -> None:
    task, channel = await started(script)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await script.hear() == (framing.CLOSE, channel, b"")
    await script.say(framing.frame(framing.STDOUT, channel, b"late"), framing.control(framing.EXIT, channel, EXIT))
    again, channel = await started(script)
    await script.say(framing.control(framing.EXIT, channel, EXIT))
    assert (await again).exit_code == 3  # type: ignore[attr-defined]


@pytest.mark.anyio
async def test_a_limit_in_time_is_kept_here_when_the_guest_is_silent(script: Script) -> None:
    task, channel = await started(script, timeout_ms=50)
    await script.say(framing.frame(framing.OPENED, channel), framing.frame(framing.STDOUT, channel, b"so far"))
    began = time.monotonic()
    outcome = await asyncio.wait_for(task, 2)
    assert 0.9 < time.monotonic() - began < 1.05
    assert (outcome.exit_code, outcome.timed_out, outcome.stdout) == (124, True, b"so far")  # type: ignore[attr-defined]
    assert await script.hear() == (framing.CLOSE, channel, b"")
    for _ in range(4):  # what it says late is taken, credited and dropped
        await script.say(framing.frame(framing.STDOUT, channel, bytes(100_000)))
        await asyncio.sleep(0)
    assert (await script.hear())[0] == framing.CREDIT
    await script.say(framing.control(framing.EXIT, channel, EXIT))
    await asyncio.sleep(0.01)
    assert not script.link.closed


@pytest.mark.anyio
async def test_a_guest_that_never_starts_a_limited_command_is_not_waited_for(
    script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kennel.relay.run.UNSTARTED", 0.1)
    task, channel = await started(script, timeout_ms=50)
    with pytest.raises(KennelError) as caught:
        await asyncio.wait_for(task, 1)
    assert (caught.value.code, caught.value.admitted) == ("SANDBOX_LOST", "unknown")
    assert await script.hear() == (framing.CLOSE, channel, b"")
    assert not script.link.closed


@pytest.mark.anyio
async def test_a_reader_that_stops_stops_the_guest_by_credit(script: Script) -> None:
    run = await script.link.run(Command(command="x"))
    await script.hear()
    window, sent = framing.Window(), 0
    while window.room >= 10_000:
        window.take(10_000)
        await script.say(framing.frame(framing.STDOUT, 1, bytes(10_000)))
        sent += 1
    await asyncio.sleep(0.02)
    chunks = aiter(run)
    for _ in range(sent):
        assert len((await anext(chunks)).data) == 10_000
    kind, channel, payload = await script.hear()
    assert (kind, channel) == (framing.CREDIT, 1)
    assert framing.read_credit(payload) >= framing.INITIAL_WINDOW // 4


@pytest.mark.anyio
async def test_input_waits_for_credit(script: Script) -> None:
    run = await script.link.run(Command(command="x"))
    await script.hear()
    writing = asyncio.create_task(run.write(bytes(2_000_000)))
    got = 0
    while got < 2_000_000:
        try:
            kind, _, payload = await asyncio.wait_for(script.hear(), 0.1)
        except TimeoutError:
            assert not writing.done()
            await script.say(framing.credit(1, 400_000))
            continue
        assert kind == framing.DATA
        got += len(payload)
    await asyncio.wait_for(writing, 1)
    await run.close_stdin()
    await run.close_stdin()
    assert (await script.hear())[0] == framing.EOF
    await run.signal(15)
    assert await script.hear() == (framing.SIGNAL, 1, b"\x0f")
    await run.kill()
    assert await script.hear() == (framing.CLOSE, 1, b"")


@pytest.mark.anyio
async def test_a_writer_is_let_go_when_the_command_ends(script: Script) -> None:
    run = await script.link.run(Command(command="x"))
    writing = [asyncio.create_task(run.write(bytes(1_000_000))) for _ in range(2)]
    await asyncio.sleep(0.01)
    await script.say(framing.control(framing.EXIT, 1, EXIT))
    await asyncio.wait_for(asyncio.gather(*writing), 1)
    assert (await run.outcome()).exit_code == 3


@pytest.mark.anyio
async def test_questions_of_sessions(script: Script) -> None:
    async def ask(question: object, reply: bytes) -> object:
        task = asyncio.ensure_future(question)  # type: ignore[arg-type]
        _, channel, payload = await script.hear()
        asked.append(framing.read_control(payload))
        await script.say(reply.replace(b"\x63\0\0\0", channel.to_bytes(4, "little"), 1))
        return await task

    def result(value: dict[str, object]) -> bytes:
        return framing.control(framing.RESULT, 0x63, value)

    asked: list[dict[str, object]] = []
    link = script.link
    await ask(link.open_session("s", cwd="/", env={"A": "b"}, user=None, replace=True), result({}))
    assert asked.pop() == {"op": "session.open", "session": "s", "cwd": "/", "env": {"A": "b"}, "replace": True}
    assert await ask(link.list_sessions(), result({"sessions": ["s"]})) == ["s"]
    state = {"cwd": "/a", "env": {"B": "c"}}
    assert await ask(link.session_state("s"), result(state)) == state


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("verb", "wrong"),
    [
        ("state", {"cwd": 3, "env": {}}),
        ("state", {"cwd": "/", "env": {"A": 1}}),
        ("state", {"cwd": "/"}),
        ("list", {"sessions": [3]}),
        ("list", {"sessions": ["x"] * 5000}),
        ("list", {}),
    ],
)
async def test_wrong_answers_about_sessions_end_the_link(script: Script, verb: str, wrong: dict[str, object]) -> None:
    link = script.link
    task: asyncio.Task[object] = asyncio.create_task(
        link.session_state("s") if verb == "state" else link.list_sessions()
    )
    _, channel, _ = await script.hear()
    await script.say(framing.control(framing.RESULT, channel, wrong))
    with pytest.raises(KennelError) as caught:
        await task
    assert (caught.value.code, caught.value.admitted, link.closed) == ("PROTOCOL_VIOLATION", "yes", True)


@pytest.mark.anyio
async def test_pings_of_both_sides_are_answered(script: Script) -> None:
    asking = asyncio.create_task(script.link.ping())
    kind, channel, token = await script.hear()
    assert (kind, channel) == (framing.PING, 0)
    await script.say(framing.frame(framing.PONG, 0, token))
    await asking
    await script.say(framing.frame(framing.PING, 0, b"hello"))
    assert await script.hear() == (framing.PONG, 0, b"hello")


@pytest.mark.anyio
async def test_a_command_too_long_for_the_protocol_is_refused_unsent(script: Script) -> None:
    with pytest.raises(KennelError) as caught:
        await script.link.exec(Command(argv=("x", "y" * framing.MAX_CONTROL)))
    assert (caught.value.code, caught.value.admitted) == ("INVALID_COMMAND", "no")
    task, channel = await started(script)
    await script.say(framing.control(framing.EXIT, channel, EXIT))
    await task
