"""Owns a Python context: a Jupyter kernel as a process of its own, spoken to over Unix sockets of this sandbox.

Made by the hub. Invariants: the kernel runs on the image's own Python where the packages fit it, else on the runtime's;
whatever it says is translated by `messages` first; its sockets lie in a folder only this user may enter.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import os
import shutil
import signal
import sys
import uuid
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import zmq
import zmq.asyncio

from . import messages
from .cell import Cell, Failure
from .context import READY_SECONDS, Context

KERNEL_MAIN = str(Path(__file__).parent / "kernel_main.py")
_ASK_AGAIN = 0.25
_REPLY = 2.0
"""Seconds a kernel that is idle again may take for its reply: it gives none when it was interrupted too early."""
_DELIMITER = b"<IDS|MSG>"
_PORTS = ("shell_port", "iopub_port", "stdin_port", "control_port", "hb_port")


class PythonContext(Context):
    """One kernel."""

    language = "python"

    def __init__(
        self,
        name: str,
        cwd: str,
        env: dict[str, str],
        *,
        folder: str,
        packages: str,
        own: list[str],
        python: str | None,
    ) -> None:
        super().__init__(name, cwd, env)
        self._folder = f"{folder}/{name}"
        self._packages = packages
        self._own = own
        self._asked = python
        self._key = uuid.uuid4().hex.encode()
        self._session = uuid.uuid4().hex
        self._sockets = zmq.asyncio.Context.instance()
        self._shell = self._sockets.socket(zmq.DEALER)
        self._iopub = self._sockets.socket(zmq.SUB)
        self._readers: list[asyncio.Task[None]] = []
        self._current = ""
        self._replied: asyncio.Future[dict[str, Any]] | None = None
        self._idle = asyncio.Event()
        self._begun = self._struck = False
        self._heard = asyncio.Event()
        self._answered = asyncio.Event()

    # --- starting

    async def start(self) -> None:
        """Starts the first Python that fits."""
        if not os.path.isdir(f"{self._packages}/ipykernel"):
            raise Failure("PYTHON_NOT_AVAILABLE", "this installation has no ipykernel; install its 'server' extra")
        os.mkdir(self._folder, 0o700)
        told: dict[str, str | int] = {"transport": "ipc", "ip": f"{self._folder}/k", "key": self._key.decode()}
        told |= {"signature_scheme": "hmac-sha256", "kernel_name": "python3"}
        told |= {name: at for at, name in enumerate(_PORTS, 1)}
        Path(self._folder, "c.json").write_text(json.dumps(told))
        self._connect()
        for words in self._pythons():
            if await self._try(words):
                return
        if self._asked is None:
            raise Failure("INTERPRETER_NOT_READY", "no kernel started", **(self.ended or {}))
        raise Failure(
            "NOT_SUPPORTED",
            f"{self._asked} is no Python the kernel's packages fit",
            hint=f"it has to be {sys.implementation.cache_tag} with glibc, as Kennel's own is",
        )

    def _connect(self) -> None:
        for socket, number in ((self._shell, 1), (self._iopub, 2)):
            socket.setsockopt(zmq.LINGER, 0)
            socket.setsockopt(zmq.RCVHWM, 0)
            socket.setsockopt(zmq.RECONNECT_IVL, 10)
            if number == 2:
                socket.setsockopt(zmq.SUBSCRIBE, b"")
            socket.connect(f"ipc://{self._folder}/k-{number}")
        self._readers = [asyncio.create_task(self._read_shell()), asyncio.create_task(self._read_iopub())]

    def _pythons(self) -> list[list[str]]:
        """The ones to try: the one asked for; or the virtual environment's, the image's, the runtime's."""
        if self._asked is not None:
            return [[f"{self._asked}/bin/python" if os.path.isdir(self._asked) else self._asked]]
        found = [f"{self.env['VIRTUAL_ENV']}/bin/python"] if self.env.get("VIRTUAL_ENV") else []
        image = shutil.which("python3", path=self.env.get("PATH"))
        return [[path] for path in (*found, image) if path and os.access(path, os.X_OK)] + [self._own]

    async def _try(self, python: list[str]) -> bool:
        """Whether this Python became a kernel."""
        self._gone.clear()
        self.ended = None
        words = [*python, KERNEL_MAIN, f"{self._folder}/c.json", self._packages]
        try:
            process = await asyncio.create_subprocess_exec(
                *words, cwd=self.cwd, env=self.env, start_new_session=True, stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL,
            )  # fmt: skip
        except OSError as problem:
            if not os.path.isdir(self.cwd):
                raise Failure("INVALID_PROCESS_CWD", f"cannot work in {self.cwd}: {problem.strerror}") from None
            return False
        self.watch(process)
        greeting, gone = asyncio.ensure_future(self._greet()), asyncio.ensure_future(self._gone.wait())
        done, _ = await asyncio.wait({greeting, gone}, timeout=READY_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        greeting.cancel()
        gone.cancel()
        if greeting in done:
            self._ready = True
            return True
        if gone in done:
            return False  # the packages do not fit it, or it is broken in a way of its own
        await self.kill("exited")
        raise Failure("INTERPRETER_NOT_READY", f"the kernel did not answer for {READY_SECONDS:g} s")

    async def _greet(self) -> None:
        """Until the kernel has answered, and was heard on its publishing channel: nothing it says is missed then."""
        while not (self._heard.is_set() and self._answered.is_set()):
            await self._send("kernel_info_request", {})
            with suppress(TimeoutError):
                async with asyncio.timeout(_ASK_AGAIN):
                    await self._answered.wait()
                    await self._heard.wait()

    def released(self) -> None:
        """The kernel is gone: its sockets too, unless another Python is tried."""
        if self._ready:
            for task in self._readers:
                task.cancel()
            self._shell.close()
            self._iopub.close()
            shutil.rmtree(self._folder, ignore_errors=True)

    def discard(self) -> None:
        """It never was ready."""
        self._ready = True
        self.released()

    # --- messages

    async def _send(self, kind: str, content: dict[str, Any], metadata: dict[str, Any] | None = None) -> str:
        name = uuid.uuid4().hex
        header = {
            "msg_id": name, "msg_type": kind, "session": self._session, "username": "kennel", "version": "5.4",
            "date": datetime.now(UTC).isoformat(),
        }  # fmt: skip
        parts = [json.dumps(part).encode() for part in (header, {}, metadata or {}, content)]
        mac = hmac.new(self._key, digestmod=hashlib.sha256)
        for part in parts:
            mac.update(part)
        await self._shell.send_multipart([_DELIMITER, mac.hexdigest().encode(), *parts])
        return name

    async def _read_iopub(self) -> None:
        while True:
            kind, parent, content = received(await self._iopub.recv_multipart())
            self._heard.set()
            if parent != self._current or self._cell is None:
                continue
            if kind == "execute_input":
                self._begun = True
                if self._struck:
                    self.strike()
            if kind == "status" and content.get("execution_state") == "idle":
                self._idle.set()
            for event in messages.events(kind, content):
                self._cell.tell(event)

    async def _read_shell(self) -> None:
        while True:
            kind, parent, content = received(await self._shell.recv_multipart())
            if kind == "kernel_info_reply":
                self._answered.set()
            elif kind == "execute_reply" and parent == self._current and self._replied is not None:
                self._take_reply(self._replied, content)

    @staticmethod
    def _take_reply(replied: asyncio.Future[dict[str, Any]], content: dict[str, Any]) -> None:
        if not replied.done():
            replied.set_result(content)

    # --- cells

    async def execute(self, cell: Cell) -> None:
        """One request, its reply and the kernel's word that it is idle again."""
        self._idle.clear()
        self._begun = self._struck = False
        self._replied = asyncio.get_running_loop().create_future()
        request = {
            "code": cell.code, "silent": False, "store_history": True, "user_expressions": {}, "allow_stdin": False,
            "stop_on_error": False,
        }  # fmt: skip
        self._current = await self._send("execute_request", request, {"kennel_env": cell.env})
        await self._idle.wait()
        reply = await self._reply(self._replied)
        if reply is None:  # the interrupt came before the first line of the code
            cell.tell(messages.failure({"ename": "KeyboardInterrupt", "traceback": ["KeyboardInterrupt"]}))
            reply = {}
        count = messages.count_of(reply)
        self.count = self.count + 1 if count is None else count
        for event in messages.paged(reply):
            cell.tell(event)
        self._current = ""

    @staticmethod
    async def _reply(replied: asyncio.Future[dict[str, Any]]) -> dict[str, Any] | None:
        """The reply of a kernel that is idle again, which comes over another socket; None when there is none."""
        await asyncio.wait({replied}, timeout=_REPLY)
        return replied.result() if replied.done() else None

    def strike(self) -> None:
        """What Ctrl-C does: the kernel and what it runs in its group; a kernel that has not begun would ignore it."""
        if not self._begun:
            self._struck = True
            return
        process = self._process
        if process is not None and process.returncode is None:
            with suppress(OSError):
                os.killpg(process.pid, signal.SIGINT)


def received(parts: list[bytes]) -> tuple[str, str, dict[str, Any]]:
    """Kind, the request it belongs to, and content of a message; nothing for what is none."""
    try:
        at = parts.index(_DELIMITER)
        header, parent, _, content = (json.loads(part, parse_constant=_no_number) for part in parts[at + 2 : at + 6])
        kind, request = header["msg_type"], parent.get("msg_id", "")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return "", "", {}
    if not (isinstance(kind, str) and isinstance(request, str) and isinstance(content, dict)):
        return "", "", {}
    return kind, request, content


def _no_number(word: str) -> None:
    raise ValueError(f"{word} is no JSON")
