"""Both halves of the SDK against a scripted server: every test runs once per half."""

from __future__ import annotations

import asyncio
import inspect
import socket
import threading
from typing import Any

import pytest

from kennel import AsyncKennel, ExecResult, Kennel, KennelError, SandboxView
from kennel.wire import errors

pytestmark = pytest.mark.anyio


async def done(value: Any) -> Any:
    """A call's value, whichever half made it."""
    return await value if inspect.isawaitable(value) else value


@pytest.fixture(params=[Kennel, AsyncKennel], ids=["sync", "async"])
def half(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.fixture
async def itx(half: Any, standin: Any) -> Any:
    client = half(url=standin.url, api_key="kn_secret", timeout=5)
    yield client
    await done(client.close())


async def test_get_does_no_io(half: Any) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        listener.settimeout(0.1)
        client = half(url=f"http://127.0.0.1:{listener.getsockname()[1]}")
        client.sandboxes.get("/sandboxes/main")
        client.sandboxes.get("main").get_session("s")
        client.rooms.get("room-1")
        with pytest.raises(TimeoutError):
            listener.accept()
        await done(client.close())


async def test_create_returns_the_handle_and_chains(itx: Any, standin: Any, shapes: Any) -> None:
    standin.will(shapes.Answer(201, shapes.view()), shapes.Answer(200, shapes.result()))
    box = itx.sandboxes.get("/sandboxes/main")
    made = await done(box.create(instance_type="lite", env={"A": "b"}, sleep_after="10m", labels={"k": "v"}))
    assert made is box
    answer = await done(made.exec("echo hi"))
    assert isinstance(answer, ExecResult)
    assert (answer.stdout, answer.exit_code, answer.success) == ("hi\n", 0, True)
    create, run = standin.seen
    assert (create.method, create.path) == ("POST", "/v1/projects/default/sandboxes")
    assert create.json == {
        "path": "/sandboxes/main",
        "instanceType": "lite",
        "env": {"A": "b"},
        "sleepAfter": "10m",
        "labels": {"k": "v"},
    }
    assert len(create.headers["idempotency-key"]) == 32
    assert create.headers["authorization"] == "Bearer kn_secret"
    assert (run.path, run.json) == ("/v1/projects/default/sandboxes/main/exec", {"command": "echo hi"})
    assert "idempotency-key" not in run.headers


def test_sync_create_chains_in_one_expression(standin: Any, shapes: Any) -> None:
    standin.will(shapes.Answer(201, shapes.view()), shapes.Answer(200, shapes.result()))
    with Kennel(url=standin.url) as itx:
        assert itx.sandboxes.get("main").create(instance_type="basic").exec("echo hi").stdout == "hi\n"
    assert "authorization" not in standin.seen[0].headers


async def test_calls_share_one_connection(itx: Any, standin: Any, shapes: Any) -> None:
    standin.will(shapes.Answer(200, shapes.result()))
    for _ in range(5):
        await done(itx.sandboxes.get("main").exec("true"))
    assert len({request.connection for request in standin.seen}) == 1


async def test_every_code_is_raised_as_its_class(itx: Any, standin: Any, shapes: Any) -> None:
    for code in sorted(errors.STATUS):
        sent = errors.error(code, "no", details={"a": [1]}, hint="do this", admitted="no", retry_after_ms=250)
        standin.will(shapes.Answer(sent.status, sent.to_wire()))
        with pytest.raises(type(sent)) as caught:
            await done(itx.sandboxes.get("main").start())
        got = caught.value
        assert type(got) is type(sent)
        assert (got.code, got.message, got.details, got.hint) == (code, "no", {"a": [1]}, "do this")
        assert (got.admitted, got.retry_after_ms, got.status) == ("no", 250, sent.status)


async def test_an_unknown_code_is_a_plain_error(itx: Any, standin: Any, shapes: Any) -> None:
    standin.will(shapes.Answer(418, {"error": "odd", "code": "os.system"}))
    with pytest.raises(KennelError) as caught:
        await done(itx.sandboxes.get("main").info())
    assert type(caught.value) is KennelError
    assert caught.value.code == "os.system"


@pytest.mark.parametrize("raw", [b"<html>", b"[]", b'"x"', b"\xff\xfe", b""])
async def test_an_error_that_is_not_json_is_unknown(itx: Any, standin: Any, shapes: Any, raw: bytes) -> None:
    standin.will(shapes.Answer(502, raw=raw))
    with pytest.raises(KennelError) as caught:
        await done(itx.sandboxes.get("main").start())
    assert caught.value.code == "UNKNOWN_ERROR"
    assert "502" in caught.value.message


@pytest.mark.parametrize("raw", [b"<html>", b"{}", b'{"exitCode": "zero"}', b"\xff", b"null"])
async def test_a_good_answer_of_the_wrong_shape_is_a_violation(itx: Any, standin: Any, shapes: Any, raw: bytes) -> None:
    standin.will(shapes.Answer(200, raw=raw))
    with pytest.raises(errors.Failed) as caught:
        await done(itx.sandboxes.get("main").exec("true"))
    assert (caught.value.code, caught.value.admitted) == ("PROTOCOL_VIOLATION", "unknown")


async def test_a_redirect_is_not_followed(itx: Any, standin: Any, shapes: Any) -> None:
    standin.will(shapes.Answer(302, {}))
    with pytest.raises(KennelError):
        await done(itx.sandboxes.get("main").start())
    assert len(standin.seen) == 1


@pytest.mark.parametrize("cut", ["before", "inside"])
async def test_a_lost_exec_is_unknown_and_never_repeated(itx: Any, standin: Any, shapes: Any, cut: str) -> None:
    standin.will(shapes.Answer(200, shapes.result(), cut=cut))
    with pytest.raises(errors.Unavailable) as caught:
        await done(itx.sandboxes.get("main").exec("rm -rf build"))
    assert (caught.value.code, caught.value.admitted) == ("CONNECTION_LOST", "unknown")
    assert len(standin.seen) == 1


async def test_a_refused_connection_is_not_admitted(half: Any, refused: str) -> None:
    client = half(url=refused)
    for call in (client.sandboxes.list, client.sandboxes.get("main").create):
        with pytest.raises(ConnectionError) as caught:
            await done(call())
        assert isinstance(caught.value, KennelError)
        assert (caught.value.code, caught.value.admitted) == ("CONNECTION_LOST", "no")
        assert "kennel up" in str(caught.value.hint)
    await done(client.close())


async def test_a_lost_create_is_repeated_with_its_key(itx: Any, standin: Any, shapes: Any) -> None:
    standin.will(
        shapes.Answer(cut="before"),
        shapes.Answer(201, shapes.view(), cut="inside"),
        shapes.Answer(201, shapes.view()),
    )
    await done(itx.sandboxes.get("main").create())
    keys = [request.headers["idempotency-key"] for request in standin.seen]
    assert len(keys) == 3
    assert len(set(keys)) == 1
    assert len({request.body for request in standin.seen}) == 1


async def test_two_creates_have_two_keys_and_a_given_one_is_kept(itx: Any, standin: Any, shapes: Any) -> None:
    standin.will(shapes.Answer(201, shapes.view()))
    for request_id in (None, None, "mine"):
        await done(itx.sandboxes.get("main").create(request_id=request_id))
    keys = [request.headers["idempotency-key"] for request in standin.seen]
    assert len(set(keys)) == 3
    assert keys[2] == "mine"


async def test_a_create_that_never_gets_through_says_unknown(half: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first attempt is cut, then the server is gone: a refusal now says nothing about that attempt."""
    for name in ("_async", "_sync"):
        monkeypatch.setattr(f"kennel.sdk.{name}.transport.PAUSES", (0.01, 0.01, 0.0))
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"

        def once() -> None:
            connection, _ = listener.accept()
            connection.recv(65536)
            listener.close()
            connection.close()

        thread = threading.Thread(target=once)
        thread.start()
        client = half(url=url)
        with pytest.raises(KennelError) as caught:
            await done(client.sandboxes.get("main").create())
        thread.join()
        await done(client.close())
    assert (caught.value.code, caught.value.admitted) == ("CONNECTION_LOST", "unknown")


async def test_a_typed_refusal_of_a_create_is_not_repeated(itx: Any, standin: Any, shapes: Any) -> None:
    standin.will(shapes.Answer(409, {"error": "there", "code": "SANDBOX_EXISTS"}))
    with pytest.raises(errors.Conflict):
        await done(itx.sandboxes.get("main").create())
    assert len(standin.seen) == 1


async def test_a_silent_server_ends_in_a_timeout(half: Any, standin: Any, shapes: Any) -> None:
    release = threading.Event()
    standin.will(shapes.Answer(200, shapes.view(), wait=release))
    client = half(url=standin.url, timeout=0.2)
    with pytest.raises(TimeoutError) as caught:
        await done(client.sandboxes.get("main").sleep())
    release.set()
    assert isinstance(caught.value, KennelError)
    assert (caught.value.code, caught.value.admitted) == ("WAIT_TIMEOUT", "unknown")
    await done(client.close())


async def test_exec_without_a_timeout_outlives_the_clients_own(half: Any, standin: Any, shapes: Any) -> None:
    release = threading.Event()
    threading.Timer(0.5, release.set).start()
    standin.will(shapes.Answer(200, shapes.result(), wait=release))
    client = half(url=standin.url, timeout=0.1)
    assert (await done(client.sandboxes.get("main").exec("sleep 1"))).exit_code == 0
    await done(client.close())


async def test_a_cancelled_exec_closes_its_connection(standin: Any, shapes: Any) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        listener.setblocking(False)
        loop = asyncio.get_running_loop()
        client = AsyncKennel(url=f"http://127.0.0.1:{listener.getsockname()[1]}")
        task = asyncio.ensure_future(client.sandboxes.get("main").exec("sleep 1000"))
        connection, _ = await loop.sock_accept(listener)
        with connection:
            assert await loop.sock_recv(connection, 65536)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert await asyncio.wait_for(loop.sock_recv(connection, 65536), 2) == b""
        await client.close()


async def test_an_answer_beyond_all_bounds_is_refused(
    itx: Any, standin: Any, shapes: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("_async", "_sync"):
        monkeypatch.setattr(f"kennel.sdk.{name}.transport.MAX_ANSWER", 1000)
    standin.will(shapes.Answer(200, shapes.result(stdout="x" * 2000)))
    with pytest.raises(KennelError) as caught:
        await done(itx.sandboxes.get("main").exec("yes"))
    assert caught.value.code == "PROTOCOL_VIOLATION"


async def test_lifecycle_verbs_call_their_routes(itx: Any, standin: Any, shapes: Any) -> None:
    standin.will(shapes.Answer(200, shapes.view(status="running", running=True)))
    box = itx.sandboxes.get("main")
    for verb in ("start", "sleep", "restart", "kill", "renew"):
        answer = await done(getattr(box, verb)())
        assert isinstance(answer, SandboxView)
        assert answer.running
    await done(box.renew_activity_timeout())
    await done(box.set_env_vars({"A": "1", "B": None}))
    await done(box.set_sleep_after("5m"))
    await done(box.set_keep_alive(True))
    await done(box.set_labels({"a": "b"}))
    await done(box.info())
    route = "/v1/projects/default/sandboxes/main"
    assert [(request.method, request.path, request.body) for request in standin.seen] == [
        ("POST", f"{route}/start", b"{}"),
        ("POST", f"{route}/sleep", b"{}"),
        ("POST", f"{route}/restart", b"{}"),
        ("POST", f"{route}/kill", b"{}"),
        ("POST", f"{route}/renew", b"{}"),
        ("POST", f"{route}/renew", b"{}"),
        ("PATCH", f"{route}/env", b'{"A":"1","B":null}'),
        ("PATCH", route, b'{"sleepAfter":"5m"}'),
        ("PATCH", route, b'{"keepAlive":true}'),
        ("PATCH", route, b'{"labels":{"a":"b"}}'),
        ("GET", route, b""),
    ]


async def test_destroy_takes_an_empty_answer(itx: Any, standin: Any, shapes: Any) -> None:
    standin.will(shapes.Answer(204))
    assert await done(itx.sandboxes.get("main").destroy()) is None
    assert (standin.seen[0].method, standin.seen[0].path) == ("DELETE", "/v1/projects/default/sandboxes/main")


async def test_a_list_is_fetched_page_by_page(itx: Any, standin: Any, shapes: Any) -> None:
    standin.will(
        shapes.Answer(200, {"sandboxes": [shapes.view("a")], "cursor": "c 1"}),
        shapes.Answer(200, {"sandboxes": [shapes.view("b")], "cursor": None}),
    )
    found = await done(itx.sandboxes.list(status="running", label="k=v", include_destroyed=True))
    assert [one.path for one in found] == ["/sandboxes/a", "/sandboxes/b"]
    assert standin.seen[0].path.endswith("/sandboxes?status=running&label=k%3Dv&includeDestroyed=true")
    assert standin.seen[1].path.endswith("&cursor=c+1")


async def test_a_cursor_that_comes_again_ends_the_list(itx: Any, standin: Any, shapes: Any) -> None:
    standin.will(shapes.Answer(200, {"sandboxes": [shapes.view()], "cursor": "same"}))
    assert len(await done(itx.sandboxes.list())) == 2


async def test_a_limit_bounds_the_list(itx: Any, standin: Any, shapes: Any) -> None:
    pages = iter(range(100))
    standin.will(
        lambda _: shapes.Answer(200, {"sandboxes": [shapes.view(), shapes.view()], "cursor": str(next(pages))})
    )
    assert len(await done(itx.sandboxes.list(limit=4))) == 4
    assert [request.path.rpartition("limit=")[2][:1] for request in standin.seen] == ["4", "2"]


async def test_sessions_share_the_sandboxs_exec(itx: Any, standin: Any, shapes: Any) -> None:
    standin.will(
        shapes.Answer(201, {"id": "s1"}),
        shapes.Answer(200, shapes.result(sessionId="s1")),
        shapes.Answer(200, {"sessions": ["s1"]}),
        shapes.Answer(204),
    )
    box = itx.sandboxes.get("main")
    session = await done(box.create_session("s1", cwd="/tmp", env={"A": "b"}))
    assert (await done(session.exec("cd /", timeout=2.5))).session_id == "s1"
    assert await done(box.list_sessions()) == ["s1"]
    await done(session.delete())
    opened, ran, _, closed = standin.seen
    assert opened.json == {"id": "s1", "cwd": "/tmp", "env": {"A": "b"}}
    assert ran.json == {"command": "cd /", "timeout": 2500, "sessionId": "s1"}
    assert (closed.method, closed.path) == ("DELETE", "/v1/projects/default/sandboxes/main/sessions/s1")


async def test_rooms(itx: Any, standin: Any, shapes: Any) -> None:
    standin.will(
        shapes.Answer(200, {"result": shapes.result(), "sandboxName": "sandbox-a/b"}),
        shapes.Answer(200, {"reply": "done", "messages": [{"role": "user", "userId": "ana", "text": "hi", "ts": 1}]}),
        shapes.Answer(207, {"cleaned": True, "errors": ["sandbox: gone"]}),
    )
    room = itx.rooms.get("a/b")
    assert (await done(room.exec("echo hi"))).stdout == "hi\n"
    reply = await done(room.send("hi", user_id="ana"))
    assert (reply.reply, reply.messages[0].user_id) == ("done", "ana")
    assert (await done(room.cleanup())).errors == ["sandbox: gone"]
    assert [(request.method, request.path) for request in standin.seen] == [
        ("POST", "/api/rooms/a%2Fb/sandbox/exec"),
        ("POST", "/api/rooms/a%2Fb/message"),
        ("DELETE", "/api/rooms/a%2Fb"),
    ]
    assert standin.seen[0].json == {"cmd": "echo hi"}
    assert standin.seen[1].json == {"text": "hi", "userId": "ana"}


async def test_keys_projects_and_images(itx: Any, standin: Any, shapes: Any) -> None:
    key = {"id": "k1", "name": "ci", "project": "p", "scopes": ["exec"], "createdAt": "2026-01-01T00:00:00Z"}
    standin.will(
        shapes.Answer(201, {"token": "kn_new", "key": key}),
        shapes.Answer(200, {"keys": [key]}),
        shapes.Answer(204),
        shapes.Answer(201, {"name": "p", "createdAt": "2026-01-01T00:00:00Z"}),
        shapes.Answer(200, {"projects": [{"name": "default", "createdAt": "2026-01-01T00:00:00Z"}]}),
        shapes.Answer(200, {"images": [{"name": "host", "digest": "sha256:1", "size": 3}]}),
    )
    made = await done(itx.keys.create("ci", scopes=["exec"], project="p"))
    assert (made.token, made.key.id) == ("kn_new", "k1")
    assert [one.name for one in await done(itx.keys.list())] == ["ci"]
    await done(itx.keys.revoke("k1"))
    assert (await done(itx.projects.create("p"))).name == "p"
    assert [one.name for one in await done(itx.projects.list())] == ["default"]
    assert (await done(itx.images.list()))[0].digest == "sha256:1"
    assert standin.seen[0].json == {"name": "ci", "scopes": ["exec"], "project": "p"}
    assert "idempotency-key" in standin.seen[0].headers


async def test_what_json_cannot_hold_is_refused_here(itx: Any, standin: Any) -> None:
    for bad in ({"argv": ["\udcff"]}, {"command": "x", "env": {"A": object()}}):
        with pytest.raises(ValueError) as caught:
            await done(itx.sandboxes.get("main").exec(**bad))
        assert isinstance(caught.value, KennelError)
        assert (caught.value.code, caught.value.admitted) == ("VALIDATION_FAILED", "no")
    assert standin.seen == []


async def test_a_request_id_cannot_smuggle_a_header(itx: Any, standin: Any) -> None:
    with pytest.raises(ValueError):
        await done(itx.sandboxes.get("main").create(request_id="a\r\nx-evil: 1"))
    assert standin.seen == []


async def test_a_block_closes_the_connections(half: Any, standin: Any, shapes: Any) -> None:
    standin.will(shapes.Answer(200, shapes.view()))
    if half is Kennel:
        with Kennel(url=standin.url) as itx:
            itx.sandboxes.get("main").info()
        pool = itx._transport._pool
    else:
        async with AsyncKennel(url=standin.url) as other:
            await other.sandboxes.get("main").info()
        pool = other._transport._pool
    assert pool.connections == []


def test_threads_share_a_client(standin: Any, shapes: Any) -> None:
    standin.will(shapes.Answer(200, shapes.result()))
    codes: list[int] = []
    with Kennel(url=standin.url) as itx:
        work = [
            threading.Thread(target=lambda: codes.append(itx.sandboxes.get("main").exec("true").exit_code))
            for _ in range(16)
        ]
        for thread in work:
            thread.start()
        for thread in work:
            thread.join()
    assert codes == [0] * 16
