"""Owns a real S3 server for tests (moto's), and a way to it that can be cut.

Used by the contract of blobs and by tests of an installation. Invariant: the server ends with the fixture.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import threading
import time
import urllib.request
from collections.abc import Iterator

import pytest


def s3_options(address: str) -> dict[str, str]:
    """How the store is told of the server at `address`."""
    return {"endpoint": address, "region": "us-east-1", "access_key_id": "a", "secret_access_key": "b"}


def make_s3() -> Iterator[str]:
    """The body of a fixture: the address of a server that has one bucket, `bucket`."""
    program = os.environ.get("KENNEL_TEST_MOTO") or shutil.which("moto_server")
    if program is None:
        pytest.skip("no S3 server: install moto[server] somewhere and name its moto_server in KENNEL_TEST_MOTO")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = subprocess.Popen([program, "-H", "127.0.0.1", "-p", str(port)], stdout=-3, stderr=-3)
    try:
        address = f"http://127.0.0.1:{port}"
        deadline = time.monotonic() + 30
        while True:
            with contextlib.suppress(OSError):
                urllib.request.urlopen(urllib.request.Request(f"{address}/bucket", method="PUT"), timeout=5)
                break
            assert time.monotonic() < deadline, "the S3 server did not start"
            time.sleep(0.1)
        yield address
    finally:
        # Not terminate(): under load its handler waited more than 10 s for connections a client kept open (one CI run).
        server.kill()
        server.wait()


class Line:
    """A way to a server at a port of its own: while it is cut nobody answers there, and what was open is reset."""

    def __init__(self, address: str) -> None:
        self._target = ("127.0.0.1", int(address.rpartition(":")[2]))
        self._open: list[socket.socket] = []
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._port = self._listener.getsockname()[1]
        self._serve()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def cut(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        with self._lock:
            for each in self._open:
                with contextlib.suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)

    def mend(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", self._port))
        self._serve()

    def _serve(self) -> None:
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                near, _ = listener.accept()
            except OSError:
                return  # it was cut
            far = socket.create_connection(self._target)
            with self._lock:
                self._open += [near, far]
            for one, other in ((near, far), (far, near)):
                threading.Thread(target=self._carry, args=(one, other), daemon=True).start()

    def _carry(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while piece := source.recv(1 << 16):
                target.sendall(piece)
            target.shutdown(socket.SHUT_WR)
