"""Owns a JavaScript or TypeScript context: the image's Node as a process of its own, spoken to over pipes.

Made by the hub. Invariants: what a cell prints is its standard output and error, byte for byte into text; everything
else Node says comes over a pipe of its own, is checked here, and follows what was printed before it.
"""

from __future__ import annotations

import asyncio
import codecs
import fcntl
import json
import os
import shutil
import signal
import struct
import termios
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from . import messages
from .cell import Cell, Failure
from .context import READY_SECONDS, Context

PROGRAM = str(Path(__file__).parent / "node_main.mjs")
UNFIT = 64
"""Exit code of a Node that is too old."""
OLDEST = 18
_MOST_LINE = 64 * 1024 * 1024


class _Pipe(asyncio.Protocol):
    """Bytes of one pipe to whoever takes them."""

    def __init__(self, take: Callable[[bytes], None]) -> None:
        self._take = take

    def data_received(self, data: bytes) -> None:
        """More."""
        self._take(data)


class NodeContext(Context):
    """One Node."""

    def __init__(self, name: str, cwd: str, env: dict[str, str], *, typescript: bool) -> None:
        super().__init__(name, cwd, env)
        self.language = "typescript" if typescript else "javascript"
        self._files: list[int] = []
        self._transports: list[asyncio.ReadTransport] = []
        self._requests = -1
        self._rest = bytearray()
        self._done: asyncio.Future[None] | None = None
        self._number = 0
        self._greeted = asyncio.Event()
        self._decoders = {name: codecs.getincrementaldecoder("utf-8")("replace") for name in ("stdout", "stderr")}

    async def start(self) -> None:
        """Starts Node."""
        node = shutil.which("node", path=self.env.get("PATH"))
        if node is None:
            raise Failure(
                "JAVASCRIPT_NOT_AVAILABLE",
                "this image has no Node.js",
                hint=f"use an image with Node {OLDEST} or newer, or install it in the sandbox",
            )
        await self._launch(node)
        ready, gone = asyncio.ensure_future(self._greeted.wait()), asyncio.ensure_future(self._gone.wait())
        done, _ = await asyncio.wait({ready, gone}, timeout=READY_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        ready.cancel()
        gone.cancel()
        if ready in done:
            self._ready = True
            return
        await self.kill("exited")
        if self.ended is not None and self.ended["exitCode"] == UNFIT:
            raise Failure("NOT_SUPPORTED", f"this image's Node.js is older than {OLDEST}")
        raise Failure("INTERPRETER_NOT_READY", "Node.js did not start", contextId=self.name, **(self.ended or {}))

    async def _launch(self, node: str) -> None:
        pairs = [os.pipe() for _ in range(4)]
        (hears, self._requests), (self._said, says), (self._out, out), (self._err, err) = pairs
        try:
            process = await asyncio.create_subprocess_exec(
                node, PROGRAM, str(hears), str(says), self.language, cwd=self.cwd, env=self.env, start_new_session=True,
                stdin=asyncio.subprocess.DEVNULL, stdout=out, stderr=err, pass_fds=(hears, says),
            )  # fmt: skip
        except OSError as problem:
            for fd in (self._requests, self._said, self._out, self._err):
                os.close(fd)
            self._requests = -1
            code = "JAVASCRIPT_NOT_AVAILABLE" if os.path.isdir(self.cwd) else "INVALID_PROCESS_CWD"
            raise Failure(code, f"Node.js cannot be started in {self.cwd}: {problem.strerror}") from None
        finally:
            for fd in (hears, says, out, err):
                os.close(fd)
        os.set_blocking(self._requests, False)
        self.watch(process)
        takers = {self._said: self._hear, self._out: self._printed("stdout"), self._err: self._printed("stderr")}
        for fd, take in takers.items():
            await self._listen(fd, take)

    async def _listen(self, fd: int, take: Callable[[bytes], None]) -> None:
        file = os.fdopen(fd, "rb", buffering=0)
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(lambda: _Pipe(take), file)
        self._transports.append(transport)

    def released(self) -> None:
        """Node is gone."""
        for transport in self._transports:
            transport.close()
        requests, self._requests = self._requests, -1
        if requests >= 0:
            os.close(requests)

    def discard(self) -> None:
        """It never was ready: `released` has done all there is to do."""

    # --- what it says

    def _printed(self, stream: str) -> Callable[[bytes], None]:
        def take(data: bytes) -> None:
            text = self._decoders[stream].decode(data)
            if self._cell is not None and text:
                self._cell.tell({"event": stream, "text": text})

        return take

    def _hear(self, data: bytes) -> None:
        self._rest += data
        if len(self._rest) > _MOST_LINE:
            self._rest.clear()
        while (end := self._rest.find(b"\n")) >= 0:
            line = bytes(self._rest[:end])
            del self._rest[: end + 1]
            with suppress(ValueError, RecursionError):
                told = json.loads(line)
                if isinstance(told, dict):
                    self._told(told)

    def _told(self, told: dict[str, Any]) -> None:
        kind = told.get("event")
        if kind == "ready":
            self._greeted.set()
        if kind == "exiting" and type(told.get("code")) is int:
            self._own_exit = told["code"] & 0xFF
        if self._cell is None or told.get("cell") != self._number:
            return
        self._read_printed()
        if kind == "result" and isinstance(told.get("data"), dict):
            data = messages.bundle(told["data"])
            self._cell.tell({"event": "result", "main": told.get("main") is True, "data": data})
        elif kind == "error":
            self._cell.tell(messages.failure(told))
        elif kind == "done" and self._done is not None and not self._done.done():
            self._done.set_result(None)

    def _read_printed(self) -> None:
        """What was printed before: it lies in the pipes, whichever of them the loop would have looked at first."""
        for fd, stream in ((self._out, "stdout"), (self._err, "stderr")):
            take = self._printed(stream)
            with suppress(OSError, BlockingIOError):
                (waiting,) = struct.unpack("i", fcntl.ioctl(fd, termios.FIONREAD, b"\0\0\0\0"))
                while waiting > 0 and (data := os.read(fd, min(waiting, 1 << 20))):
                    take(data)
                    waiting -= len(data)

    # --- cells

    async def execute(self, cell: Cell) -> None:
        """One request and its `done`."""
        self._number += 1
        self.count += 1
        self._done = asyncio.get_running_loop().create_future()
        await self._send({"op": "run", "cell": self._number, "code": cell.code, "count": self.count, "env": cell.env})
        await self._done

    async def _send(self, request: dict[str, Any]) -> None:
        data = json.dumps(request).encode() + b"\n"
        while data and self._requests >= 0:
            try:
                data = data[os.write(self._requests, data) :]
            except BlockingIOError:
                await asyncio.sleep(0.001)
            except BrokenPipeError:
                return  # it has just died, which its watcher tells

    def strike(self) -> None:
        """Ends what runs, also a loop that never waits; programs it started hear what Ctrl-C says."""
        self._asking = asyncio.ensure_future(self._send({"op": "interrupt", "cell": self._number}))
        process = self._process
        if process is not None and process.returncode is None:
            with suppress(OSError):
                os.killpg(process.pid, signal.SIGINT)
