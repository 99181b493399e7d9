"""Rooms with a model, whole: a real installation, a real sandbox, a real server of the model's protocol (scripted)."""

from __future__ import annotations

import json
import threading
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx2
import pytest

import console_browser
from installation import Installation, make_installation
from patience import within
from scripted_model import ModelServer

KEY = "sk-of-the-tests"


@pytest.fixture(scope="module")
def server() -> Iterator[ModelServer]:
    made = ModelServer()
    yield made
    made.close()


@pytest.fixture(scope="module")
def talking(server: ModelServer) -> Iterator[Installation]:
    """An installation with a model that is given up after two silent seconds."""
    yield from make_installation(ai_base_url=f"{server.url}/v1", ai_model="scripted", ai_key=KEY, ai_idle="2")


@pytest.fixture
def http(talking: Installation) -> Iterator[httpx2.Client]:
    headers = {"authorization": f"Bearer {talking.key}"}
    with httpx2.Client(base_url=talking.url, headers=headers, timeout=60) as client:
        yield client


@pytest.fixture
def room(http: httpx2.Client) -> Iterator[str]:
    name = f"talk-{uuid.uuid4().hex[:12]}"
    yield name
    assert http.delete(f"/api/rooms/{name}").status_code == 200


def say(http: httpx2.Client, room: str, text: str, user: str | None = None, status: int = 200) -> dict[str, Any]:
    body = {"text": text} | ({} if user is None else {"userId": user})
    answer = http.post(f"/api/rooms/{room}/message", json=body)
    assert answer.status_code == status, answer.text
    told: dict[str, Any] = answer.json()
    return told


def types(talking: Installation, room: str) -> list[str]:
    return [event["type"] for event in talking.events(f"/rooms/{room}")]


def ends(talking: Installation, room: str) -> list[str]:
    found = [event["payload"] for event in talking.events(f"/rooms/{room}") if event["type"] == "room/turn-ended"]
    return [f"{one['outcome']} {one.get('code', '')}".strip() for one in found]


def eventually(true: Any, seconds: float = 10) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_whole_conversation(http: httpx2.Client, room: str, server: ModelServer, talking: Installation) -> None:
    make, look, wrong = (f"{word} {room}" for word in ("make it", "look", "go wrong"))
    server.script(make, "I'll create the file for you.\n<run>echo 'Hello World' > hello.txt</run>")
    server.script(look, "Looking. <run>cd /tmp</run><run>pwd; cat /workspace/hello.txt</run>")
    server.script(wrong, "<run>echo partly; exit 3</run> <run>no-such-program</run>")
    first = say(http, room, make, "ana")
    assert first["reply"] == ("I'll create the file for you.\n\nOutput (echo 'Hello World' > hello.txt):\n[no output]")
    second = say(http, room, look, "bob")
    assert second["reply"] == (
        "Looking.\n\nOutput (cd /tmp):\n[no output]\n\nOutput (pwd; cat /workspace/hello.txt):\n/tmp\nHello World"
    )
    third = say(http, room, wrong)
    assert third["reply"].startswith(
        "Output (echo partly; exit 3):\npartly\n[exit code 3]\n\nOutput (no-such-program):\n"
    )
    assert third["reply"].endswith("[exit code 127]")
    assert [(m["role"], m.get("userId")) for m in third["messages"]] == [
        ("user", "ana"), ("agent", None), ("user", "bob"), ("agent", None), ("user", None), ("agent", None),
    ]  # fmt: skip
    assert all(abs(m["ts"] - time.time() * 1000) < 60_000 for m in third["messages"])
    [asked] = server.asked(f"] {wrong}")
    assert asked["key"] == f"Bearer {KEY}"
    assert [m["content"] for m in asked["messages"]][1:4] == [f"[ana] {make}", first["reply"], f"[bob] {look}"]
    direct = http.post(f"/api/rooms/{room}/sandbox/exec", json={"cmd": "pwd"}).json()
    assert direct["result"]["stdout"] == "/tmp\n"
    assert len(http.get(f"/api/rooms/{room}").json()["messages"]) == 6
    begun = [e["payload"] for e in talking.events(f"/rooms/{room}") if e["type"] == "room/command-started"]
    assert [one["waking"] for one in begun] == [True, False, False, False, False]


@pytest.mark.parametrize(
    ("name", "step"),
    [
        ("500", {"status": 500}), ("garbage", {"garbage": "<html>"}), ("cut", {"cut": "half <run>touch bad</run>"}),
        ("silence", {"hang": 4}), ("unfinished", {"unfinished": "half <run>touch bad</run>"}),
    ],
)  # fmt: skip
def test_a_model_that_fails(
    http: httpx2.Client, room: str, server: ModelServer, talking: Installation, name: str, step: dict[str, Any]
) -> None:
    server.script(f"{name} {room}", step)
    server.script(f"again {room}", "fine")
    told = say(http, room, f"{name} {room}", "ana", status=502)
    assert told["code"] == "MODEL_FAILED"
    assert "KENNEL_AI_BASE_URL" in told["hint"]
    assert KEY not in json.dumps(told)
    assert [m["text"] for m in say(http, room, f"again {room}")["messages"]] == [
        f"{name} {room}",
        f"again {room}",
        "fine",
    ]
    assert ends(talking, room) == ["failed MODEL_FAILED", "replied"]
    assert "room/sandbox-assigned" not in types(talking, room)


def test_hostile_answers(http: httpx2.Client, room: str, server: ModelServer) -> None:
    server.script(f"tags {room}", "".join(f"<run>echo {n}</run>" for n in range(3000)))
    reply = say(http, room, f"tags {room}")["reply"]
    assert reply.count("Output (echo ") == 50
    assert "one answer runs at most 50 commands" in reply
    server.script(f"nested {room}", "<run>echo '<run>echo inner</run>'</run> <run>open")
    assert say(http, room, f"nested {room}")["reply"].startswith("'</run> <run>open\n\nOutput (echo '<run>echo inner):")
    server.script(f"huge {room}", {"repeat": "z" * 5000, "times": 1000})
    assert 60_000 < len(say(http, room, f"huge {room}")["reply"]) < 70_000
    server.script(f"controls {room}", "\x00\x1b[2J\u202e<script>")
    assert say(http, room, f"controls {room}")["reply"] == "\ufffd\x1b[2J\u202e<script>"


def test_a_long_output_of_a_command(http: httpx2.Client, room: str, server: ModelServer) -> None:
    server.script(f"much {room}", "<run>yes | head -c 30000000</run><run>printf '\\377'</run><run>ls /none</run>")
    reply = say(http, room, f"much {room}")["reply"]
    assert reply.startswith("Output (yes | head -c 30000000):\n" + "y\n" * 250)
    assert "\n\nOutput (printf '\\377'):\n\ufffd\n\n" in reply
    assert "No such file" in reply.splitlines()[-2]
    assert reply.endswith("[exit code 2]")


def test_twenty_people_at_once(http: httpx2.Client, room: str, server: ModelServer, talking: Installation) -> None:
    for n in range(20):
        server.script(f"m{n} {room}", f"<run>echo {n} >> order; echo {n}</run>")
    before = server.told()["mostActive"]
    with ThreadPoolExecutor(20) as pool:
        replies = list(pool.map(lambda n: say(http, room, f"m{n} {room}", f"u{n}")["reply"], range(20)))
    assert [reply.splitlines()[-1] for reply in replies] == [str(n) for n in range(20)]
    assert server.told()["mostActive"] == max(before, 1)
    told = talking.events(f"/rooms/{room}")
    said = [e["payload"]["text"].split()[0][1:] for e in told if e["payload"].get("role") == "user"]
    order = http.post(f"/api/rooms/{room}/sandbox/exec", json={"cmd": "cat order"}).json()["result"]["stdout"]
    assert order.split() == said
    kinds = [e["type"] for e in told if e["type"] in ("room/turn-started", "room/turn-ended")]
    assert kinds == ["room/turn-started", "room/turn-ended"] * 20
    places = [e["payload"]["place"] for e in told if e["payload"].get("role") == "user"]
    assert places[0] == 0
    assert max(places) >= 1


def test_watchers_see_the_answer_as_it_comes(http: httpx2.Client, room: str, server: ModelServer) -> None:
    server.script(f"slowly {room}", {"text": "one two three <run>echo done</run>", "pieces": 10, "pause": 0.1})
    assert http.get(f"/api/rooms/{room}/events").status_code == 404
    http.put(f"/api/rooms/{room}", json={"title": "A room"})
    seen: list[tuple[float, str, dict[str, Any]]] = []
    ids: list[int] = []

    def watch() -> None:
        with http.stream("GET", f"/api/rooms/{room}/events") as answer:
            kind = ""
            for line in answer.iter_lines():
                name, _, value = line.partition(": ")
                if name == "event":
                    kind = value
                elif name == "id":
                    ids.append(int(value))
                elif name == "data":
                    data = json.loads(value)
                    seen.append((time.monotonic(), kind or data["type"], data.get("payload", data)))
                    if data.get("type") == "room/turn-ended":
                        return
                elif not line:
                    kind = ""

    watcher = threading.Thread(target=watch)
    watcher.start()
    eventually(lambda: len(seen) >= 3)
    say(http, room, f"slowly {room}", "ana")
    watcher.join(20)
    assert not watcher.is_alive()
    pieces = [(at, data) for at, kind, data in seen if kind == "delta" and "text" in data]
    assert "".join(data["text"] for _, data in pieces) == "one two three <run>echo done</run>"
    assert len(pieces) >= 3
    ended = next(at for at, kind, _ in seen if kind == "room/turn-ended")
    assert ended - pieces[0][0] > 0.5
    assert ids == list(range(1, len(ids) + 1))
    kinds = [kind for _, kind, _ in seen]
    assert kinds.index("room/command-started") < kinds.index("room/command-finished") < kinds.index("room/turn-ended")
    assert any(kind == "command" and data.get("waking") for _, kind, data in seen)
    with http.stream("GET", f"/api/rooms/{room}/events", headers={"last-event-id": str(ids[-1] - 1)}) as answer:
        first = next(line for line in answer.iter_lines() if line.startswith("id: "))
    assert first == f"id: {ids[-1]}"


def test_a_cleanup_during_a_turn(http: httpx2.Client, room: str, server: ModelServer, talking: Installation) -> None:
    server.script(f"work {room}", "<run>sleep 60</run>")
    server.script(f"talk {room}", {"hang": 1.5})
    server.script(f"new {room}", "<run>ls; pwd</run>")
    for text in (f"work {room}", f"talk {room}"):
        told: list[httpx2.Response] = []
        caller = threading.Thread(
            target=lambda text=text, told=told: told.append(
                http.post(f"/api/rooms/{room}/message", json={"text": text})
            )
        )
        caller.start()
        waited = "room/command-started" if text.startswith("work") else "room/turn-started"
        eventually(lambda waited=waited: waited in types(talking, room))
        time.sleep(0.2)
        began = time.monotonic()
        assert http.delete(f"/api/rooms/{room}").json() == {"cleaned": True, "roomId": room}
        caller.join(5)
        assert time.monotonic() - began < within(5)
        assert (told[0].status_code, told[0].json()["code"]) == (409, "OPERATION_INTERRUPTED")
        assert http.get(f"/api/rooms/{room}").status_code == 404
    before = len(talking.events(f"/rooms/{room}"))
    time.sleep(1.5)
    assert len(talking.events(f"/rooms/{room}")) == before
    assert ends(talking, room) == ["cancelled OPERATION_INTERRUPTED"] * 2
    answer = say(http, room, f"new {room}")
    assert answer["reply"] == "Output (ls; pwd):\n/workspace"
    assert len(answer["messages"]) == 2


def test_a_restart_of_control_in_the_middle_of_a_turn(
    http: httpx2.Client, room: str, server: ModelServer, talking: Installation
) -> None:
    server.script(f"long {room}", {"hang": 1.9})
    server.script(f"after {room}", "fine")
    told: list[Any] = []

    def call() -> None:
        try:
            told.append(http.post(f"/api/rooms/{room}/message", json={"text": f"long {room}", "userId": "ana"}))
        except httpx2.HTTPError as failure:
            told.append(failure)

    caller = threading.Thread(target=call)
    caller.start()
    eventually(lambda: server.asked(f"long {room}"))
    talking.kill("control")
    caller.join(10)
    assert isinstance(told[0], httpx2.HTTPError)
    eventually(lambda: ends(talking, room) == ["interrupted OPERATION_INTERRUPTED"], 30)
    with talking.client() as itx:
        answer = itx.rooms.get(room).send(f"after {room}")
    assert [message.text for message in answer.messages] == [f"long {room}", f"after {room}", "fine"]


def test_a_cleanup_cut_off_by_a_crash_is_finished(http: httpx2.Client, room: str, talking: Installation) -> None:
    http.post(f"/api/rooms/{room}/sandbox/exec", json={"cmd": "echo hi"})

    def clean() -> None:
        try:
            http.delete(f"/api/rooms/{room}")
        except httpx2.HTTPError:
            interrupted.set()

    interrupted = threading.Event()
    caller = threading.Thread(target=clean)
    caller.start()
    eventually(lambda: "room/cleanup-requested" in types(talking, room))
    talking.kill("control")
    caller.join(10)
    eventually(lambda: "room/cleaned" in types(talking, room), 30)
    with talking.client() as itx:
        status = itx.sandboxes.get(f"/sandboxes/sandbox-{room}").info().status
    assert status == "destroyed"


def test_a_change_of_the_sandboxs_environment_goes_before_the_rooms_old_variables(
    http: httpx2.Client, room: str, talking: Installation
) -> None:
    def run(cmd: str) -> str:
        answer = http.post(f"/api/rooms/{room}/sandbox/exec", json={"cmd": cmd})
        text: str = answer.json()["result"]["stdout"]
        return text

    run("export A=room B=room C=room")
    with talking.client() as itx:
        box = itx.sandboxes.get(f"/sandboxes/sandbox-{room}")
        box.set_env_vars({"A": "patched", "C": None})
        box.sleep()
        assert run('echo "$A ${B-none} ${C-none}"') == "patched room none\n"


def test_a_link_opens_its_room_until_it_is_revoked(
    http: httpx2.Client, room: str, server: ModelServer, talking: Installation
) -> None:
    server.script(f"hi {room}", "hello")
    made = http.post(f"/api/rooms/{room}/links", json={"userId": "eve"}).json()
    looks = http.post(f"/api/rooms/{room}/links", json={"role": "observer"}).json()
    with (
        httpx2.Client(base_url=talking.url, headers={"authorization": f"Bearer {made['token']}"}) as eve,
        httpx2.Client(base_url=talking.url, headers={"x-kennel-room-link": looks["token"]}) as looker,
    ):
        assert say(eve, room, f"hi {room}", "somebody else")["messages"][0]["userId"] == "eve"
        assert eve.post(f"/api/rooms/{room}/sandbox/exec", json={"cmd": "echo hi"}).status_code == 200
        assert len(looker.get(f"/api/rooms/{room}").json()["messages"]) == 2
        assert looker.post(f"/api/rooms/{room}/message", json={"text": "x"}).status_code == 403
        assert looker.post(f"/api/rooms/{room}/sandbox/exec", json={"cmd": "ls"}).status_code == 403
        for client in (eve, looker):
            for path in ("/api/rooms", f"/api/rooms/{room}x", "/v1/projects/default/sandboxes", "/v1/keys"):
                assert client.get(path).status_code == 403
        assert http.delete(f"/api/rooms/{room}/links", params={"id": made["link"]["id"]}).status_code == 200
        assert eve.get(f"/api/rooms/{room}").status_code == 401
        assert looker.get(f"/api/rooms/{room}").status_code == 200
        http.delete(f"/api/rooms/{room}")
        assert looker.get(f"/api/rooms/{room}").status_code == 401
    stored = json.dumps(talking.events("/room-links", "_kennel"))
    assert made["token"] not in stored


def test_looking_answers_at_once_during_a_long_command(http: httpx2.Client, room: str, server: ModelServer) -> None:
    server.script(f"hi {room}", "hello")
    http.post(f"/api/rooms/{room}/sandbox/exec", json={"cmd": "true"})
    caller = threading.Thread(target=lambda: http.post(f"/api/rooms/{room}/sandbox/exec", json={"cmd": "sleep 3"}))
    caller.start()
    time.sleep(0.3)
    slowest = 0.0
    for _ in range(10):
        began = time.monotonic()
        assert http.get(f"/api/rooms/{room}").status_code == 200
        assert http.post(f"/api/rooms/{room}/members", json={"userId": "ana"}).status_code == 200
        slowest = max(slowest, time.monotonic() - began)
    assert say(http, room, f"hi {room}")["reply"] == "hello"
    assert caller.is_alive()
    caller.join(10)
    assert slowest < within(0.5)


def test_sdk_and_command_line(talking: Installation, room: str, server: ModelServer) -> None:
    server.script(f"hello {room}", "Hi. <run>echo there</run>", "Again. <run>echo twice</run>", "Done.")
    with talking.client() as itx:
        here = itx.rooms.get(room)
        assert here.send(f"hello {room}", user_id="ana").reply == "Hi.\n\nOutput (echo there):\nthere"
        assert [message.role for message in here.messages()] == ["user", "agent"]
        assert here.set_title("Our room").title == "Our room"
        assert here.set(max_rounds=2).settings.max_rounds == 2
        assert room in [view.room_id for view in itx.rooms.list()]
        assert (here.join("ana").role, [member.user_id for member in here.members()]) == ("driver", ["ana"])
        with here.events() as moments:
            kinds = [next(moments).kind for _ in range(3)]
        assert kinds[1:] == ["room/opened", "room/message-said"]
        made = here.create_link(role="observer")
        here.revoke_links(made.link.id)
        assert here.links() == []
    at = ("room", "message", room, f"hello {room}", "--user", "bob")
    assert talking.cli(*at).stdout.decode() == "Again.\n\nOutput (echo twice):\ntwice\n\nDone.\n"
    assert talking.cli("room", "exec", room, "echo out; exit 3").returncode == 3
    assert "Our room" in talking.cli("room", "list").stdout.decode()
    link = talking.cli("room", "link", room, "--user", "eve").stdout.decode()
    assert f"{talking.url}/console/join#kl_" in link.splitlines()[-1]
    assert talking.cli("room", "set", room, "--title", "Theirs", "--setting", "maxRounds=").returncode == 0
    assert "Theirs" in talking.cli("room", "list").stdout.decode()
    assert "ana" in talking.cli("room", "members", room).stdout.decode()
    assert "[bob] hello" in talking.cli("room", "show", room).stdout.decode()


@console_browser.needs_chromium
def test_the_console_shows_an_answer_as_it_grows(talking: Installation, server: ModelServer) -> None:
    word = uuid.uuid4().hex
    hostile = "<img src=x onerror=document.title='owned'>"
    server.script(word, {"text": f"{hostile} slowly.\n<run>echo made-$((40 + 2))</run>", "pieces": 12, "pause": 0.1})
    with console_browser.browser() as chromium:
        visitor = console_browser.Visitor(chromium, talking)
        page = visitor.login()
        visitor.go(f"rooms/{word}?id={word}")
        page.get_by_role("textbox", name="Message").fill(word)
        page.keyboard.press("Enter")
        console_browser.expect(page.locator(".said.now .words")).to_contain_text("<img src=x")
        reply = page.locator(".said.agent:not(.now) .words")
        console_browser.expect(reply).to_contain_text("made-42", timeout=30_000)
        console_browser.expect(reply).to_contain_text(f"{hostile} slowly.")
        console_browser.expect(page.locator("#talk > *")).to_have_count(2)
        order = page.locator("#talk > *").evaluate_all("rows => rows.map((one) => one.dataset.role)")
        assert order == ["user", "agent"]
        page.reload()
        console_browser.expect(reply).to_contain_text("made-42")
        assert "owned" not in page.title()
        assert visitor.complaints == []
