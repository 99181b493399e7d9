"""Connections that nobody uses: each kind has an end, and what is used goes on."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from egress_gateway import GatewayProcess, Sandbox, read_response
from egress_websocket import KEY, websocket_echo
from egress_world import OTHER, SITE, Heard, reply
from patience import within

if TYPE_CHECKING:
    from egress_world import World

pytest_plugins = ["egress_fixtures"]
pytestmark = pytest.mark.root

HOST, RAW, SILENT = "good.example.com", "raw.example.com", "silent.example.com"
GET = f"GET / HTTP/1.1\r\nHost: {HOST}\r\n\r\n".encode()
UPGRADE = (
    f"GET / HTTP/1.1\r\nHost: {HOST}:8080\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    f"Sec-WebSocket-Key: {KEY}\r\nSec-WebSocket-Version: 13\r\n\r\n"
).encode()


@pytest.fixture
def box(world: World, start: Callable[..., GatewayProcess]) -> Iterator[Sandbox]:
    own = start(
        idle_timeout=1.0, websocket_idle=1.0, splice_idle=1.0, response_timeout=1.5, connect_timeout=1.0,
    )  # fmt: skip
    raw = {"hosts": [RAW], "ports": [5432]}
    own.control.policy({"ruleKey": "raw", "verdict": "allow", "mode": "tcp", "match": raw})
    yield own.sandbox("idlebox001")
    world.clear()


def echo(heard: Heard, link: socket.socket) -> None:
    while data := link.recv(65536):
        link.sendall(data)


def answers_once(heard: Heard, link: socket.socket) -> None:
    """The first request well; of later ones the head alone, and then nothing."""
    if heard.read_request(link) is not None:
        link.sendall(reply())
    if heard.read_request(link) is not None:
        link.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf")
        link.settimeout(30)
        with suppress(OSError):
            link.recv(1)


def end_of(link: socket.socket) -> float:
    """Seconds until the other side ends it."""
    begun = time.monotonic()
    link.settimeout(20)
    with suppress(ConnectionError):
        while link.recv(65536):
            continue
    return time.monotonic() - begun


def speaks(link: socket.socket) -> None:
    """For longer than a silent one may last."""
    for _ in range(6):
        link.sendall(b"again")
        assert link.recv(100) == b"again"
        time.sleep(0.4)


def at_once(*work: Callable[[], None]) -> None:
    failures: list[BaseException] = []

    def run(one: Callable[[], None]) -> None:
        try:
            one()
        except BaseException as failure:  # noqa: BLE001  raised again where the test can see it
            failures.append(failure)

    threads = [threading.Thread(target=run, args=(one,)) for one in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


def test_what_is_not_used_ends_and_what_is_used_stays(world: World, box: Sandbox) -> None:
    world.serve(SITE, 80, answers_once)
    world.serve(SITE, 8080, websocket_echo)
    world.serve(OTHER, 5432, echo)
    world.resolver.names |= {HOST: [SITE], RAW: [OTHER]}

    def kept() -> None:
        with box.connect(HOST, 80) as link:
            link.sendall(GET)
            assert read_response(link).status == 200
            assert 0.5 < end_of(link) < within(4)

    def stalled() -> None:
        with box.connect(HOST, 80) as link:
            for _ in range(2):
                link.sendall(GET)
                answer = b""
                while b"ok" not in answer and b"half" not in answer:
                    answer += link.recv(65536)
            assert 0.5 < end_of(link) < within(5)

    def socketed(used: bool) -> None:
        with box.connect(HOST, 8080) as link:
            link.sendall(UPGRADE)
            assert read_response(link).status == 101
            if used:
                speaks(link)
            assert 0.5 < end_of(link) < within(4)

    def tunnelled(used: bool) -> None:
        with box.connect(RAW, 5432) as link:
            link.sendall(b"again")
            assert link.recv(100) == b"again"
            if used:
                speaks(link)
            assert 0.5 < end_of(link) < within(4)

    at_once(
        kept,
        stalled,
        lambda: socketed(False),
        lambda: socketed(True),
        lambda: tunnelled(False),
        lambda: tunnelled(True),
    )


def test_a_host_that_says_nothing_is_given_up_in_words(world: World, box: Sandbox) -> None:
    # On the link, and nobody has this address; and one that takes a connection and never answers.
    world.resolver.names |= {SILENT: ["45.45.77.77"], HOST: [SITE]}

    def silent(heard: Heard, link: socket.socket) -> None:
        heard.read_request(link)
        time.sleep(6)

    world.serve(SITE, 80, silent)

    def absent() -> None:
        begun = time.monotonic()
        assert box.fetch(f"http://{SILENT}/").code == "connect_failed"
        assert time.monotonic() - begun < within(4)

    def mute() -> None:
        begun = time.monotonic()
        answer = box.fetch(f"http://{HOST}/")
        assert (answer.status, answer.code) == (504, "upstream_timeout"), answer.head
        assert 1.0 < time.monotonic() - begun < within(5)

    at_once(absent, mute)
