"""Owns a real S3 server (moto's) in the world of egress tests, with TLS under a public-looking name.

Used by tests of bucket mounts. Invariant: the server ends with the block; it can be stopped, and go on, in between.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import ssl
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from egress_world import SITE, World
from kennel.node import interception

HOST = "s3.example.com"
ENDPOINT = f"https://{HOST}"
_SIGNED = "AWS4-HMAC-SHA256 Credential=test/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=0"
_UNCHECKED = ssl._create_unverified_context()


class Store:
    """The server, spoken to from outside of every sandbox."""

    def __init__(self, world: World, server: subprocess.Popen[bytes]) -> None:
        self._world, self.server = world, server

    def request(self, method: str, path: str, body: bytes | None = None) -> bytes:
        """One request; raises for what is no success."""

        def ask() -> bytes:
            made = urllib.request.Request(f"https://{SITE}/{path}", data=body, method=method)
            made.add_header("Authorization", _SIGNED)
            made.add_header("Content-Type", "application/octet-stream")
            with urllib.request.urlopen(made, timeout=10, context=_UNCHECKED) as answer:
                return bytes(answer.read())

        return interception.inside(self._world.outside, ask)

    def put(self, key: str, body: bytes) -> None:
        self.request("PUT", f"bucket/{key}", body)

    def get(self, key: str) -> bytes:
        return self.request("GET", f"bucket/{key}")

    def keys(self) -> list[str]:
        """Every key of the bucket."""
        listing = self.request("GET", "bucket?list-type=2").decode()
        return [each.partition("</Key>")[0] for each in listing.split("<Key>")[1:]]

    @contextmanager
    def silent(self) -> Iterator[None]:
        """While the block runs it accepts connections and says nothing."""
        self.server.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self.server.send_signal(signal.SIGCONT)


@contextmanager
def open_store(world: World) -> Iterator[Store]:
    """A server with one empty bucket, `bucket`."""
    program = os.environ.get("KENNEL_TEST_MOTO") or shutil.which("moto_server")
    if program is None:
        pytest.skip("no S3 server: install moto[server] somewhere and name its moto_server in KENNEL_TEST_MOTO")
    world.authority.context(HOST)
    pair = str(max(world.folder.glob("leaf*.pem"), key=lambda path: path.stat().st_mtime_ns))
    words = [f"--net={world.outside}", program, "-H", SITE, "-p", "443", "-s", "-c", pair, "-k", pair]
    # A path names the bucket, whatever the server's name.
    environment = {**os.environ, "S3_IGNORE_SUBDOMAIN_BUCKETNAME": "true"}
    server = subprocess.Popen(["nsenter", *words], stdout=-3, stderr=-3, env=environment)
    store = Store(world, server)
    world.resolver.names[HOST] = [SITE]
    try:
        deadline = time.monotonic() + 30
        while True:
            with contextlib.suppress(OSError):
                store.request("PUT", "bucket")
                break
            assert time.monotonic() < deadline, "the S3 server did not start"
            time.sleep(0.1)
        yield store
    finally:
        server.kill()
        server.wait()
