"""Owns the contexts of a sandbox and the calls about them: one connection a call, JSON lines both ways.

Started inside the sandbox by the guest. Invariants: at most MOST_CONTEXTS programs run; the last ENDED that ended are
remembered, so that their callers hear what became of them; a caller that hangs up interrupts its own cell.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import socket
import sys
import tempfile
from contextlib import suppress
from typing import Any

from .budget import encoded
from .cell import Cell, Failure
from .context import Context
from .node_context import NodeContext

MOST_CONTEXTS = 32
ENDED = 64
MOST_REQUEST = 8 * 1024 * 1024
_NOT_ALONE = ("-I", "-S")


class Hub:
    """All contexts."""

    def __init__(self, packages: str, folder: str) -> None:
        self._packages = packages
        self._folder = folder
        self._contexts: dict[str, Context] = {}
        self._defaults: dict[str, str] = {}
        self._making: dict[str, asyncio.Lock] = {}
        self._answers = {
            "create": self._create, "list": self._list, "get": self._get, "delete": self._delete,
            "interrupt": self._interrupt,
        }  # fmt: skip
        self._cells: set[asyncio.Task[None]] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One call."""
        try:
            request = json.loads(await reader.readline())
            if request["op"] == "run":
                await self._run(request, reader, writer)
            else:
                answer = await self._answers[request["op"]](request)
                writer.write(encoded({"event": "answer", **answer}))
            await writer.drain()
        except Failure as failure:
            writer.write(failure.line())
        except (KeyError, TypeError, ValueError, AttributeError) as fault:
            writer.write(Failure("CODE_EXECUTION_ERROR", f"no such request: {fault!r}").line())
        except OSError:
            return  # the caller is gone
        finally:
            with suppress(OSError):
                writer.close()
                await writer.wait_closed()

    # --- calls

    async def _create(self, request: dict[str, Any]) -> dict[str, Any]:
        return {"context": (await self._make(request)).facts()}

    async def _list(self, request: dict[str, Any]) -> dict[str, Any]:
        return {"contexts": [context.facts() for context in self._contexts.values()]}

    async def _get(self, request: dict[str, Any]) -> dict[str, Any]:
        return {"context": self._find(request["context"]).facts()}

    async def _delete(self, request: dict[str, Any]) -> dict[str, Any]:
        context = self._find(request["context"])
        await context.kill("deleted")
        self._contexts.pop(context.name, None)
        return {"context": context.facts()}

    async def _interrupt(self, request: dict[str, Any]) -> dict[str, Any]:
        context = self._find(request["context"])
        if context.ended is not None:
            raise context.termination()
        return {"interrupted": context.interrupt(), "context": context.facts()}

    async def _run(self, request: dict[str, Any], reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        limit = request.get("timeout")
        cell = Cell(request["code"], None if limit is None else limit / 1000, request.get("cellEnv"))
        context = await self._default(request) if request.get("default") else self._find(request["context"])
        work = asyncio.create_task(context.run(cell))
        self._cells.add(work)
        work.add_done_callback(lambda _: self._settled(work, cell))
        hangup = asyncio.create_task(reader.read(1))
        hangup.add_done_callback(lambda _: cell.abandon())
        try:
            while (line := await cell.next()) is not None:
                writer.write(line)
                await writer.drain()
        finally:
            if not work.done():
                cell.abandon()
                context.interrupt(cell)
            hangup.cancel()

    def _settled(self, work: asyncio.Task[None], cell: Cell) -> None:
        """Whatever went wrong on its way, a cell's caller hears an end."""
        self._cells.discard(work)
        fault = None if work.cancelled() else work.exception()
        if fault is not None:
            cell.fail(Failure("CODE_EXECUTION_ERROR", f"the cell was lost: {fault!r}"))

    # --- contexts

    def _find(self, name: str) -> Context:
        context = self._contexts.get(self._defaults.get(name, name))
        if context is None:
            raise Failure("CONTEXT_NOT_FOUND", "there is no such context", contextId=name[:200])
        return context

    async def _default(self, request: dict[str, Any]) -> Context:
        """The language's own context, made on first use; one that ended is made anew once somebody was told."""
        language = request["language"]
        async with self._making.setdefault(language, asyncio.Lock()):
            known = self._contexts.get(self._defaults.get(language, ""))
            if known is not None and known.ended is not None:
                del self._defaults[language]
                if not known.told:
                    raise known.termination()
                known = None
            if known is None:
                known = await self._make(request)
                self._defaults[language] = known.name
            return known

    async def _make(self, request: dict[str, Any]) -> Context:
        running = sum(context.ended is None for context in self._contexts.values())
        if running >= MOST_CONTEXTS:
            raise Failure("RESOURCE_BUSY", f"{MOST_CONTEXTS} contexts run in this sandbox")
        context = self._new(f"{request['prefix']}{secrets.token_hex(6)}", request)
        self._contexts[context.name] = context
        try:
            await context.start()
        except BaseException:
            self._contexts.pop(context.name, None)
            await context.kill("exited")
            context.discard()
            raise
        self._forget()
        return context

    def _new(self, name: str, request: dict[str, Any]) -> Context:
        cwd, env = request["cwd"], {**os.environ, **request["env"]}
        if request["language"] != "python":
            return NodeContext(name, cwd, env, typescript=request["language"] == "typescript")
        from .python_context import PythonContext

        return PythonContext(
            name, cwd, env, folder=self._folder, packages=self._packages, own=own_python(), python=request.get("python")
        )

    def _forget(self) -> None:
        ended = [name for name, context in self._contexts.items() if context.ended is not None]
        for name in ended[: max(0, len(ended) - ENDED)]:
            del self._contexts[name]


def own_python() -> list[str]:
    """The words that started this program, without its file and the flags that leave out what a user has."""
    with open("/proc/self/cmdline", "rb") as file:
        words = [os.fsdecode(word) for word in file.read(64 * 1024).split(b"\0")]
    end = next(at for at, word in enumerate(words) if word.endswith("/__main__.py"))
    return [word for word in words[:end] if word not in _NOT_ALONE]


async def _serve(packages: str) -> None:
    place = next(place for place in ("/dev/shm", "/run", "/tmp") if os.access(place, os.W_OK))
    hub = Hub(packages, tempfile.mkdtemp(prefix=".kennel-contexts-", dir=place))
    listener = socket.socket(fileno=os.dup(0))
    nowhere = os.open("/dev/null", os.O_RDONLY)
    os.dup2(nowhere, 0)
    os.close(nowhere)
    server = await asyncio.start_unix_server(hub.serve, sock=listener, limit=MOST_REQUEST)
    await server.serve_forever()


def main(packages: str) -> None:
    """Serves until the sandbox ends."""
    if hasattr(sys, "set_int_max_str_digits"):
        sys.set_int_max_str_digits(640)
    asyncio.run(_serve(packages))
