"""Rooms over HTTP on the real runtime: the seed's example, one shell per room, cleanup."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import quote

import httpx2
import pytest

from installation import Installation
from kennel import Kennel
from patience import within


@pytest.fixture
def http(installation: Installation) -> Iterator[httpx2.Client]:
    headers = {"authorization": f"Bearer {installation.key}"}
    with httpx2.Client(base_url=installation.url, headers=headers, timeout=60) as client:
        yield client


@pytest.fixture
def room(http: httpx2.Client) -> Iterator[str]:
    name = f"t-{uuid.uuid4().hex[:12]}"
    yield name
    assert http.delete(f"/api/rooms/{name}").status_code == 200


def run(http: httpx2.Client, room: str, cmd: str) -> dict[str, Any]:
    answer = http.post(f"/api/rooms/{quote(room, safe='')}/sandbox/exec", json={"cmd": cmd})
    assert answer.status_code == 200, answer.text
    result: dict[str, Any] = answer.json()["result"]
    return result


def test_the_seeds_example(http: httpx2.Client, room: str) -> None:
    answer = http.post(f"/api/rooms/{room}/sandbox/exec", json={"cmd": "echo 'Hello from sandbox'"})
    assert answer.status_code == 200
    body = answer.json()
    assert body["sandboxName"] == f"sandbox-{room}"
    assert (body["result"]["stdout"], body["result"]["stderr"]) == ("Hello from sandbox\n", "")
    assert (body["result"]["exitCode"], body["result"]["success"]) == (0, True)


def test_one_shell_keeps_directory_variables_and_files(http: httpx2.Client, room: str) -> None:
    run(http, room, "mkdir -p deep/er && cd deep/er && export A='x y' && f() { echo fun; }")
    assert run(http, room, "pwd; echo $A; f")["stdout"] == "/workspace/deep/er\nx y\nfun\n"
    assert run(http, room, "exit 7")["exitCode"] == 7
    assert run(http, room, "pwd; echo $A")["stdout"] == "/workspace/deep/er\nx y\n"


def test_directory_and_variables_outlive_a_sleep(http: httpx2.Client, room: str, itx: Kennel) -> None:
    run(http, room, "mkdir -p kept && cd kept && export A=1 && echo data > file")
    itx.sandboxes.get(f"/sandboxes/sandbox-{room}").sleep()
    assert run(http, room, "pwd; echo $A; cat file")["stdout"] == "/workspace/kept\n1\ndata\n"
    itx.sandboxes.get(f"/sandboxes/sandbox-{room}").sleep()
    run(http, room, "cd /; rm -r /workspace/kept; mkdir -p /tmp/lost; cd /tmp/lost")


def test_fifty_first_commands_at_once_make_one_sandbox(
    http: httpx2.Client, room: str, installation: Installation
) -> None:
    with ThreadPoolExecutor(50) as pool:
        results = list(pool.map(lambda n: run(http, room, f"echo {n} >> all; echo {n}"), range(50)))
    assert [result["stdout"] for result in results] == [f"{n}\n" for n in range(50)]
    assert int(run(http, room, "wc -l < all")["stdout"]) == 50
    told = [event["type"] for event in installation.events(f"/rooms/{room}")]
    assert told.count("room/sandbox-assigned") == 1


def test_a_cleanup_ends_what_runs_and_the_id_works_again(
    http: httpx2.Client, room: str, installation: Installation
) -> None:
    run(http, room, "echo old > file")
    ends: list[httpx2.Response] = []
    caller = threading.Thread(
        target=lambda: ends.append(http.post(f"/api/rooms/{room}/sandbox/exec", json={"cmd": "sleep 100"}))
    )
    caller.start()
    time.sleep(0.3)
    began = time.monotonic()
    assert http.delete(f"/api/rooms/{room}").json() == {"cleaned": True, "roomId": room}
    caller.join(5)
    assert time.monotonic() - began < within(5)
    assert ends[0].status_code == 500
    assert ends[0].json()["error"].startswith("sandbox execution failed: ")
    assert http.delete(f"/api/rooms/{room}").json() == {"cleaned": True, "roomId": room}
    assert run(http, room, "cat file; pwd")["stdout"] == "/workspace\n"
    paths = [e["payload"]["path"] for e in installation.events(f"/rooms/{room}") if "assigned" in e["type"]]
    assert paths == [f"/sandboxes/sandbox-{room}", f"/sandboxes/sandbox-{room}.2"]


@pytest.mark.parametrize("room_id", ["Ümläut room", "a/../../b", "日本", "..", "x" * 128])
def test_rooms_of_any_name(http: httpx2.Client, room_id: str) -> None:
    url = f"/api/rooms/{quote(room_id, safe='').replace('.', '%2e')}"
    answer = http.post(f"{url}/sandbox/exec", json={"cmd": "echo hi"})
    if room_id == ".." and answer.status_code == 404:
        pytest.skip("this client resolves dots, as browsers do")
    assert answer.json()["sandboxName"] == f"sandbox-{room_id}"
    assert answer.json()["result"]["stdout"] == "hi\n"
    assert http.delete(url).json() == {"cleaned": True, "roomId": room_id}
