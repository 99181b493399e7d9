"""The SDK over a line that is slow and breaks: what may be repeated succeeds, what may not says what is known of it."""

from __future__ import annotations

import asyncio
import contextlib
import random
import threading
from collections.abc import Callable, Iterator
from typing import TypeVar
from urllib.parse import urlsplit

import pytest

from installation import Installation
from kennel import Kennel, KennelError

T = TypeVar("T")
DELAY = 0.01
"""Seconds that a piece waits in each direction: a line of 20 ms."""


class PoorLine:
    """Passes connections on, late, and cuts each after some kilobytes of answers."""

    def __init__(self, host: str, port: int, seed: int) -> None:
        self._upstream = (host, port)
        self._chance = random.Random(seed)
        self.cuts = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        left = self._chance.randrange(1500, 20_000)
        there, back = await asyncio.open_connection(*self._upstream)
        up = asyncio.create_task(self._pass(reader, back, 1 << 40))
        down = asyncio.create_task(self._pass(there, writer, left))
        await asyncio.wait({up, down}, return_when=asyncio.FIRST_COMPLETED)
        for task in (up, down):
            task.cancel()
        for end in (writer, back):
            end.transport.abort()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, left: int) -> None:
        with contextlib.suppress(OSError):
            while piece := await reader.read(1400):
                await asyncio.sleep(DELAY)
                writer.write(piece[:left])
                await writer.drain()
                left -= len(piece)
                if left <= 0:
                    self.cuts += 1
                    return


@contextlib.contextmanager
def poor_line(installation: Installation, seed: int) -> Iterator[tuple[PoorLine, Kennel]]:
    """A client behind such a line."""
    parts = urlsplit(installation.url)
    line = PoorLine(parts.hostname or "", parts.port or 0, seed)
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    server = asyncio.run_coroutine_threadsafe(asyncio.start_server(line.serve, "127.0.0.1", 0), loop).result(10)
    port = server.sockets[0].getsockname()[1]
    try:
        with Kennel(url=f"http://127.0.0.1:{port}", api_key=installation.key) as client:
            yield line, client
    finally:
        loop.call_soon_threadsafe(server.close)
        asyncio.run_coroutine_threadsafe(_end_all(), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()


async def _end_all() -> None:
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def known(work: Callable[[], T]) -> T | None:
    """What came of it; None when it was lost, and that was said as it should be."""
    try:
        return work()
    except KennelError as failure:
        lost = failure
    assert (lost.code, lost.admitted) == ("CONNECTION_LOST", "unknown"), lost
    assert lost.hint
    return None


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.full)])
def test_work_over_a_slow_line_that_breaks(installation: Installation, seed: int) -> None:
    """Report 24: a poor line gave failures without a cause, halves taken for wholes, and lost output."""
    with poor_line(installation, seed) as (line, itx):
        box = itx.sandboxes.get(f"/sandboxes/far-away-{seed}").create(env={"PAD": "x" * 400})
        for _ in range(15):
            assert box.info().env == {"PAD": "x" * 400}
        with box.exec_stream("for i in $(seq 1 400); do echo line $i; done") as stream:
            text = "".join(str(event.data) for event in stream if event.type == "stdout")
        assert text == "".join(f"line {n}\n" for n in range(1, 401))
        process = box.start_process("for i in $(seq 1 250); do echo log $i; sleep 0.0005; done", process_id="far")
        got = b"".join(event.data for event in process.stream_logs())
        assert got == b"".join(b"log %d\n" % n for n in range(1, 251))
        content = random.Random(seed).randbytes(9000)
        results = []
        for number in range(6):
            results.append(known(lambda n=number: box.exec(f"echo {n}; head -c 3000 /dev/zero | tr '\\0' x")))  # type: ignore[misc]
            assert results[-1] is None or results[-1].stdout == f"{number}\n" + "x" * 3000
            known(lambda: box.write_file("content", content))
            assert known(lambda: box.read_bytes("content")) in (content, None)
        assert any(results)
        assert line.cuts > 5
    with installation.client() as near:
        box = near.sandboxes.get(box.path)
        assert box.read_bytes("content") == content
        assert [one.id for one in box.list_processes()] == ["far"]
        assert sum(event["type"] == "sandbox/created" for event in installation.events(box.path)) == 1
        box.destroy()
