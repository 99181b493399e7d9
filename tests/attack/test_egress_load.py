"""Attacks 64 and 65: many, slow and greedy sandboxes; and that nothing is left of them."""

from __future__ import annotations

import contextlib
import os
import resource
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from egress_gateway import GatewayProcess, read_response
from egress_world import SITE, Heard, World, answering, reply
from patience import within

if TYPE_CHECKING:
    from egress_fixtures import Desk

pytest_plugins = ["egress_fixtures"]
pytestmark = pytest.mark.root

HOST = "good.example.com"
MB = 1024 * 1024


def idle(world: World, own: GatewayProcess, sandboxes: int, each: int) -> int:
    """Opens idle connections from many sandboxes; bytes of memory per connection."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 2 * sandboxes * each + 1000), hard))

    def once(heard: Heard, link: socket.socket) -> None:
        heard.read_request(link)
        link.sendall(reply(b"ok", "Connection: close"))

    world.serve(SITE, 80, once)
    world.resolver.names[HOST] = [SITE]
    own.control.policy()
    boxes = [own.sandbox(f"idlebox{number:04d}") for number in range(sandboxes)]
    assert boxes[0].fetch(f"http://{HOST}/").status == 200
    before, links = own.memory(), []
    for box in boxes:
        address = box.address_of(HOST)

        def open_all(address: str = address) -> list[socket.socket]:
            return [socket.create_connection((address, 80), 30) for _ in range(each)]

        for link in box.inside(open_all):
            link.sendall(b"GET / HTTP/1.1\r\nHost: good.example.com\r\n\r\n")
            assert read_response(link).status == 200
            links.append(link)
    used = (own.memory() - before) // len(links)
    begun = time.monotonic()
    assert boxes[-1].fetch(f"http://{HOST}/").status == 200
    assert time.monotonic() - begun < within(1)
    for link in links:
        link.close()
    world.clear()
    return used


def test_64_idle_connections_from_twenty_sandboxes(world: World, start: Callable[..., GatewayProcess]) -> None:
    assert idle(world, start(connection_burst=100_000), 20, 50) < 40_000


@pytest.mark.full
def test_64_ten_thousand_idle_connections(world: World, start: Callable[..., GatewayProcess]) -> None:
    assert idle(world, start(connection_burst=100_000, max_connections=600), 20, 500) < 40_000


def test_64_more_than_the_cap_waits_and_is_not_reset(world: World, start: Callable[..., GatewayProcess]) -> None:
    own = start(max_connections=5)
    world.serve(SITE, 80)
    world.resolver.names[HOST] = [SITE]
    own.control.policy()
    box, other = own.sandbox("overcap001"), own.sandbox("neighbour1")
    links = [box.connect(HOST, 80) for _ in range(8)]
    for link in links:
        link.sendall(b"GET / HTTP/1.1\r\nHost: good.example.com\r\n\r\n")
    assert [read_response(link).status for link in links[:5]] == [200] * 5
    links[5].settimeout(0.3)
    with pytest.raises(TimeoutError):
        links[5].recv(1)
    assert other.fetch(f"http://{HOST}/").status == 200
    for link in links[:5]:
        link.close()
    links[5].settimeout(5)
    assert [read_response(link).status for link in links[5:]] == [200] * 3
    world.clear()


def test_64_a_slow_head_is_given_up(world: World, start: Callable[..., GatewayProcess]) -> None:
    own = start(hello_timeout=2.0)
    own.control.policy()
    with own.sandbox("slowhead01").connect(HOST, 80) as link:
        begun = time.monotonic()
        link.sendall(b"GET / HTTP/1.1\r\nX: ")
        got = b""
        link.settimeout(0.3)
        while time.monotonic() - begun < 8 and not got:
            with contextlib.suppress(TimeoutError):
                link.sendall(b"a")
                got = link.recv(1000)
        assert got.startswith(b"HTTP/1.1 408 ")
        assert 1.5 < time.monotonic() - begun < within(5)


@pytest.mark.parametrize("size", [64, pytest.param(256, marks=pytest.mark.full)])
def test_64_a_slow_reader_does_not_grow_the_gateway(desk: Desk, gateway: GatewayProcess, size: int) -> None:
    total = size * MB

    def endless(heard: Heard, link: socket.socket) -> None:
        heard.read_request(link)
        link.sendall(f"HTTP/1.1 200 OK\r\nContent-Length: {total}\r\n\r\n".encode())
        block = b"x" * MB
        for _ in range(total // MB):
            link.sendall(block)

    desk.world.site(HOST, handler=endless)
    before = gateway.memory()
    with desk.box.tls(HOST) as link:
        link.sendall(f"GET / HTTP/1.1\r\nHost: {HOST}\r\n\r\n".encode())
        got, peak = 0, 0
        for _ in range(15):
            got += len(link.recv(10_000))
            time.sleep(0.05)
            peak = max(peak, gateway.memory())
        assert peak - before < 16 * MB
        while got < total:
            got += len(link.recv(MB))
        assert gateway.memory() - before < 16 * MB


def test_64_a_slow_host_does_not_grow_the_gateway(desk: Desk, gateway: GatewayProcess) -> None:
    go = threading.Event()

    def lazy(heard: Heard, link: socket.socket) -> None:
        head = b""
        while b"\r\n\r\n" not in head:
            head += link.recv(1000)
        go.wait(10)
        while b"END" not in link.recv(MB):
            pass
        link.sendall(reply())

    desk.world.site(HOST, handler=lazy)
    before = gateway.memory()
    with desk.box.tls(HOST) as link:
        total = 32 * MB
        link.sendall(f"POST / HTTP/1.1\r\nHost: {HOST}\r\nContent-Length: {total}\r\n\r\n".encode())
        link.settimeout(1)
        sent = 0
        try:
            while sent < total - MB:
                sent += link.send(b"y" * MB)
        except TimeoutError:
            pass  # as it must: nobody takes it
        assert sent < 20 * MB
        assert gateway.memory() - before < 16 * MB
        go.set()


def test_64_one_sandbox_that_floods_leaves_another_usable(world: World, start: Callable[..., GatewayProcess]) -> None:
    own = start(connections_per_second=50.0, connection_burst=50)
    world.serve(SITE, 80, answering(reply()))
    world.resolver.names[HOST] = [SITE]
    own.control.policy()
    flood, other = own.sandbox("floodbox01"), own.sandbox("calmbox001")
    address, done = flood.address_of(HOST), threading.Event()

    def work() -> None:
        while not done.is_set():
            with contextlib.suppress(OSError), socket.create_connection((address, 80), 0.5) as link:
                link.sendall(b"GET / HTTP/1.1\r\nHost: good.example.com\r\n\r\n")

    threads = [threading.Thread(target=flood.inside, args=(work,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    times = []
    for _ in range(15):
        begun = time.monotonic()
        assert other.fetch(f"http://{HOST}/").status == 200
        times.append(time.monotonic() - begun)
        time.sleep(0.05)
    done.set()
    for thread in threads:
        thread.join()
    assert sorted(times)[len(times) // 2] < within(0.3)
    world.clear()


def kept(namespaces: set[int]) -> list[str]:
    """What processes and mounts of this machine still keep one of these namespaces."""
    found = []
    for file in Path("/proc").glob("[0-9]*/task/*/ns/net"):
        with contextlib.suppress(OSError):
            if os.stat(file).st_ino in namespaces:
                found.append(str(file))
    mounts = Path("/proc/self/mountinfo").read_text()
    return found + [f"mount {number}" for number in namespaces if f"net:[{number}]" in mounts]


def churn(world: World, gateway: GatewayProcess, times: int) -> None:
    world.serve(SITE, 80)
    world.resolver.names[HOST] = [SITE]
    gateway.control.policy()
    warm = gateway.sandbox("churnwarm1")
    assert warm.fetch(f"http://{HOST}/").status == 200
    warm.remove()
    time.sleep(0.2)
    descriptors, memory = gateway.descriptors(), gateway.memory()
    namespaces: set[int] = set()
    for number in range(times):
        box = gateway.sandbox(f"churn{number:06d}")
        namespaces.add(os.stat(box.handle).st_ino)
        if number % 10 == 0:
            link = box.connect(HOST, 80)
            assert box.fetch(f"http://{HOST}/").status == 200
            box.remove()
            link.close()
        else:
            box.remove()
    time.sleep(0.5)
    assert gateway.descriptors() <= descriptors
    assert kept(namespaces) == []
    assert namespaces
    assert gateway.memory() - memory < 8 * MB
    assert gateway.control.attached() == []
    world.clear()


def test_65_nothing_is_left_after_many_sandboxes(world: World, start: Callable[..., GatewayProcess]) -> None:
    churn(world, start(), 40)


@pytest.mark.full
def test_65_nothing_is_left_after_five_hundred(world: World, start: Callable[..., GatewayProcess]) -> None:
    churn(world, start(), 500)


def test_requests_over_the_rate_wait_and_are_not_refused(world: World, start: Callable[..., GatewayProcess]) -> None:
    own = start(requests_per_second=20.0)
    world.serve(SITE, 80)
    world.resolver.names[HOST] = [SITE]
    own.control.policy()
    box = own.sandbox("overrate01")
    begun = time.monotonic()
    with box.connect(HOST, 80) as link:
        for _ in range(60):
            link.sendall(b"GET / HTTP/1.1\r\nHost: good.example.com\r\n\r\n")
            assert read_response(link).status == 200
    assert 0.7 < time.monotonic() - begun < within(5)
    world.clear()
