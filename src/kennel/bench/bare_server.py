"""Owns the floor of a transfer over HTTP: a bare uvicorn that takes a body and forgets it, or gives one.

Called by the benchmark of files. Invariant: a process of its own, as Kennel's is, with the same loop and parser; ends
with its block.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import socket
from collections.abc import Iterator
from typing import Any

import uvicorn

PIECE = bytes(256 * 1024)


async def application(scope: Any, receive: Any, send: Any) -> None:
    """PUT takes a body to its end; GET of a number answers with that many pieces."""
    if scope["method"] == "PUT":
        while (await receive()).get("more_body"):
            continue
    count = int(scope["path"][1:]) if scope["method"] == "GET" else 0
    length = (b"content-length", str(count * len(PIECE)).encode())
    await send({"type": "http.response.start", "status": 200, "headers": [length]})
    for _ in range(count):
        await send({"type": "http.response.body", "body": PIECE, "more_body": True})
    await send({"type": "http.response.body"})


def _serve(listener: socket.socket) -> None:
    config = uvicorn.Config(application, loop="uvloop", http="httptools", lifespan="off", log_level="error")
    uvicorn.Server(config).run(sockets=[listener])


@contextlib.contextmanager
def bare_server() -> Iterator[str]:
    """Its URL, while it serves."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = multiprocessing.get_context("spawn").Process(target=_serve, args=(listener,), daemon=True)
        server.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.kill()
            server.join()
