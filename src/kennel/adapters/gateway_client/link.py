"""Owns control's connection to the gateway: numbered calls out, replies and notices in, over a Unix stream socket.

Implements ports.gateway. Invariant: it comes back by itself within a second; a pending call ends with the connection;
notices wait in a bounded queue, and a full one presses back on the gateway.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import msgspec

from kennel.ports.gateway import Arrival, Hearing
from kennel.wire import gateway as wire
from kennel.wire.errors import KennelError, error

RETRY = 0.2
PATIENCE = 5.0
_NOTICES = 64
_READ = 256 * 1024

log = logging.getLogger("kennel.gateway_client")


class GatewayClient:
    """The gateway, by the path of its socket."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._writer: asyncio.StreamWriter | None = None
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._number = 0
        self._decoder = msgspec.json.Decoder(wire.Frame)
        self._tasks: list[asyncio.Task[None]] = []
        self._notices: asyncio.Queue[wire.Notice] = asyncio.Queue(_NOTICES)

    @property
    def here(self) -> bool:
        return self._writer is not None

    def start(self, arrival: Arrival, hear: Hearing) -> None:
        loop = asyncio.get_running_loop()
        self._tasks = [
            loop.create_task(self._keep(arrival), name="gateway"),
            loop.create_task(self._hear(hear), name="gateway's notices"),
        ]

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._lose("control is ending")

    async def call(self, request: wire.Request) -> Any:
        number = self._send(request)
        future = self._waiting[number] = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(PATIENCE):
                return await future
        except TimeoutError as late:
            if isinstance(late, KennelError):
                raise
            raise _away("the gateway does not answer") from None
        finally:
            self._waiting.pop(number, None)

    def tell(self, request: wire.Request) -> None:
        if self._writer is not None:
            self._send(request)

    def _send(self, request: wire.Request) -> int:
        if self._writer is None:
            raise _away("the gateway is away")
        self._number += 1
        self._writer.write(wire.encode(wire.Call(self._number, request)))
        return self._number

    async def _keep(self, arrival: Arrival) -> None:
        while True:
            try:
                reader, self._writer = await asyncio.open_unix_connection(self._path, limit=_READ)
            except OSError:
                await asyncio.sleep(RETRY)
                continue
            reading = asyncio.get_running_loop().create_task(self._read(reader), name="gateway's words")
            try:
                facts = msgspec.convert(await self.call(wire.Hello()), wire.Facts)
                log.info("the gateway is here (%s)", facts.instance)
                await arrival(facts)
                await reading
            except (KennelError, OSError, ValueError) as failure:
                log.warning("the gateway is away: %s", failure)
            except Exception:  # whatever it was, the connection is made again
                log.exception("the gateway was not told everything")
            finally:
                reading.cancel()
                await asyncio.gather(reading, return_exceptions=True)
                self._lose("the gateway went away")
            await asyncio.sleep(RETRY)

    async def _read(self, reader: asyncio.StreamReader) -> None:
        splitter = wire.Splitter()
        while data := await reader.read(_READ):
            for body in splitter.feed(data):
                frame = self._decoder.decode(body)
                if isinstance(frame, wire.Reply):
                    self._answered(frame)
                elif not isinstance(frame, wire.Call | wire.Need):
                    await self._notices.put(frame)
        self._lose("it ended the connection")

    def _answered(self, reply: wire.Reply) -> None:
        future = self._waiting.get(reply.id)
        if future is None or future.done():
            if reply.code is not None:
                log.error("the gateway refused: %s %s", reply.code, reply.message)
        elif reply.code is not None:
            future.set_exception(error(reply.code, reply.message or "the gateway refused", admitted="no"))
        else:
            future.set_result(reply.ok)

    async def _hear(self, hear: Hearing) -> None:
        while True:
            notice = await self._notices.get()
            try:
                await hear(notice)
            except Exception:  # the next notice must be heard all the same
                log.exception("a notice of the gateway was lost: %s", type(notice).__name__)

    def _lose(self, why: str) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.close()
        for future in list(self._waiting.values()):
            if not future.done():
                future.set_exception(_away(why))


def _away(why: str) -> KennelError:
    return error("GATEWAY_UNAVAILABLE", why, admitted="no", retry_after_ms=1000)
