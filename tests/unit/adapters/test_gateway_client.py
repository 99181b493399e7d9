"""Control's end of the gateway's socket, against a script at the other end of a real one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kennel.adapters.gateway_client.link import GatewayClient
from kennel.wire import gateway as wire
from kennel.wire.errors import KennelError

pytestmark = pytest.mark.anyio
FACTS = wire.Facts(wire.PROTOCOL, "one", "pem", [], 0)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Script:
    """A gateway that answers hellos, keeps other calls, and says what the test tells it."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)
        self.calls: asyncio.Queue[wire.Call] = asyncio.Queue()
        self.arrivals: list[str] = []
        self.heard: list[Any] = []
        self.hearing: Callable[[Any], Any] = self.heard.append
        self.greets = True
        self.writer: asyncio.StreamWriter | None = None
        self._server: asyncio.Server | None = None
        self._here = asyncio.Condition()

    async def listen(self) -> None:
        Path(self.path).unlink(missing_ok=True)
        self._server = await asyncio.start_unix_server(self._serve, self.path)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writer, splitter, decoder = writer, wire.Splitter(), msgspec.json.Decoder(wire.Frame)
        while data := await reader.read(65536):
            for body in splitter.feed(data):
                call = decoder.decode(body)
                assert isinstance(call, wire.Call)
                if isinstance(call.request, wire.Hello):
                    if self.greets:
                        self.say(wire.Reply(call.id, msgspec.to_builtins(FACTS)))
                else:
                    self.calls.put_nowait(call)

    def say(self, frame: Any) -> None:
        assert self.writer is not None
        self.writer.write(wire.encode(frame))

    async def arrived(self, facts: wire.Facts) -> None:
        async with self._here:
            self.arrivals.append(facts.instance)
            self._here.notify_all()

    async def hear(self, notice: Any) -> None:
        found = self.hearing(notice)
        if found is not None:
            await found

    async def until(self, count: int) -> None:
        """Waits for the so-manieth arrival."""
        async with asyncio.timeout(5), self._here:
            await self._here.wait_for(lambda: len(self.arrivals) >= count)

    async def drop(self) -> None:
        assert self.writer is not None
        self.writer.close()

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        if self.writer is not None:
            self.writer.close()


@pytest.fixture
async def script(tmp_path: Path) -> AsyncIterator[Script]:
    made = Script(tmp_path / "g.sock")
    yield made
    await made.close()


@pytest.fixture
async def client(script: Script) -> AsyncIterator[GatewayClient]:
    made = GatewayClient(script.path)
    await script.listen()
    made.start(script.arrived, script.hear)
    await script.until(1)
    yield made
    await made.close()


def asking(project: str) -> wire.ProjectKey:
    return wire.ProjectKey(project)


async def refused(awaitable: Any) -> KennelError:
    with pytest.raises(KennelError) as caught:
        await awaitable
    return caught.value


async def test_answers_find_their_calls_in_any_order(client: GatewayClient, script: Script) -> None:
    waiting = [asyncio.create_task(client.call(asking(name))) for name in ("a", "b", "c")]
    calls = [await script.calls.get() for _ in waiting]
    for call in reversed(calls):
        script.say(wire.Reply(call.id, call.request.project))
    assert await asyncio.gather(*waiting) == ["a", "b", "c"]
    # An answer that nobody waits for is nobody's.
    script.say(wire.Reply(10_000, "late"))
    script.say(wire.Reply(10_001, None, "VALIDATION_FAILED", "a tell that was refused"))
    again = asyncio.create_task(client.call(asking("d")))
    script.say(wire.Reply((await script.calls.get()).id, "d"))
    assert await again == "d"


async def test_a_refusal_has_the_gateways_code(client: GatewayClient, script: Script) -> None:
    asked = asyncio.create_task(client.call(asking("a")))
    script.say(wire.Reply((await script.calls.get()).id, None, "VALIDATION_FAILED", "no such thing"))
    failure = await refused(asked)
    assert (failure.code, failure.message, failure.admitted) == ("VALIDATION_FAILED", "no such thing", "no")


async def test_a_gateway_that_dies_ends_what_waits_and_is_met_again(client: GatewayClient, script: Script) -> None:
    asked = asyncio.create_task(client.call(asking("a")))
    await script.calls.get()
    await script.drop()
    failure = await refused(asked)
    assert (failure.code, failure.admitted, failure.retry_after_ms) == ("GATEWAY_UNAVAILABLE", "no", 1000)
    await script.until(2)
    assert client.here
    again = asyncio.create_task(client.call(asking("b")))
    script.say(wire.Reply((await script.calls.get()).id, "b"))
    assert await again == "b"


async def test_while_it_is_away_calls_fail_at_once_and_words_are_dropped(script: Script) -> None:
    client = GatewayClient(script.path)
    client.start(script.arrived, script.hear)
    try:
        assert not client.here
        assert (await refused(client.call(asking("a")))).code == "GATEWAY_UNAVAILABLE"
        client.tell(asking("lost"))
        await script.listen()
        await script.until(1)
        client.tell(asking("told"))
        assert (await script.calls.get()).request == asking("told")
    finally:
        await client.close()
    assert (await refused(client.call(asking("a")))).code == "GATEWAY_UNAVAILABLE"


@pytest.mark.parametrize("words", [b"\0\0\0\5hello", b"\xff\xff\xff\xff", b"\0\0\0\2{}", b'\0\0\0\x0e{"type":"none"}'])
async def test_words_that_are_no_frame_end_the_connection_alone(
    client: GatewayClient, script: Script, words: bytes
) -> None:
    assert script.writer is not None
    script.writer.write(words)
    await script.until(2)
    assert client.here


async def test_notices_are_heard_in_order_whatever_one_does(client: GatewayClient, script: Script) -> None:
    def hearing(notice: Any) -> None:
        script.heard.append(notice.first)
        if notice.first == 2:
            raise RuntimeError("a handler that fails")

    script.hearing = hearing
    for number in range(1, 5):
        script.say(wire.Records("l", number, []))
    async with asyncio.timeout(5):
        while len(script.heard) < 4:
            await asyncio.sleep(0.01)
    assert script.heard == [1, 2, 3, 4]


async def test_a_reader_that_does_not_keep_up_presses_back(client: GatewayClient, script: Script) -> None:
    go = asyncio.Event()

    async def slow(notice: Any) -> None:
        await go.wait()
        script.heard.append(notice.first)

    script.hearing = slow
    assert script.writer is not None
    filler = [wire.Records("l" * 1000, number, []) for number in range(2000)]
    for frame in filler:
        script.say(frame)
    async with asyncio.timeout(5):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                await script.writer.drain()  # 2 MB: more than queue and sockets hold
        go.set()
        while len(script.heard) < len(filler):
            await asyncio.sleep(0.01)
    assert script.heard == list(range(2000))


async def test_an_arrival_that_fails_is_made_again(script: Script) -> None:
    client, failures = GatewayClient(script.path), [RuntimeError("once"), None]

    async def arrived(facts: wire.Facts) -> None:
        if (failure := failures.pop(0)) is not None:
            raise failure
        await script.arrived(facts)

    await script.listen()
    client.start(arrived, script.hear)
    await script.until(1)
    await client.close()
    assert failures == []
