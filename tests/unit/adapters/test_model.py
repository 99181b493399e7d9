"""The chat adapter against a real server process: answers, and everything that a server can do wrong."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import Any

import pytest

from kennel.adapters.model.absent import AbsentModel
from kennel.adapters.model.chat import ChatModel, ChatOptions
from kennel.domain.turn import Prompt
from kennel.wire.errors import KennelError
from scripted_model import ModelServer

pytestmark = pytest.mark.anyio

KEY = "sk-very-secret"


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
def server() -> Iterator[ModelServer]:
    made = ModelServer()
    yield made
    made.close()


async def ask(server: ModelServer, text: str, **options: Any) -> list[str]:
    words: dict[str, Any] = {"base_url": f"{server.url}/v1", "model": "m", "key": KEY, **options}
    model = ChatModel(ChatOptions(**words))
    try:
        return [piece async for piece in model.answer([Prompt("system", "s"), Prompt("user", f"[ana] {text}")])]
    finally:
        await model.close()


async def failure(server: ModelServer, text: str, **options: Any) -> KennelError:
    with pytest.raises(KennelError) as caught:
        await ask(server, text, **options)
    assert (caught.value.code, caught.value.status) == ("MODEL_FAILED", 502)
    assert "KENNEL_AI_BASE_URL" in (caught.value.hint or "")
    assert KEY not in str(caught.value.to_wire())
    return caught.value


async def test_an_answer_comes_in_pieces(server: ModelServer) -> None:
    server.script("hello", {"text": "one two three", "pieces": 3})
    assert "".join(await ask(server, "hello", tokens=77)) == "one two three"
    [request] = server.asked("hello")
    assert (request["path"], request["key"], request["model"]) == ("/v1/chat/completions", f"Bearer {KEY}", "m")
    assert (request["max_tokens"], request["stream"]) == (77, True)
    assert [one["role"] for one in request["messages"]] == ["system", "user"]


async def test_an_empty_answer_is_one(server: ModelServer) -> None:
    server.script("empty", "")
    assert await ask(server, "empty") == []


@pytest.mark.parametrize("status", [400, 401, 404, 429, 500, 503])
async def test_an_error_status(server: ModelServer, status: int) -> None:
    server.script("status", {"status": status, "body": {"error": {"message": f"bad key {KEY}\n\x1b[31m"}}})
    told = await failure(server, "status")
    assert told.details == {"status": status}
    assert f"answered {status}" in told.message
    assert "\x1b" not in told.message
    assert len(server.asked("status")) >= 1


async def test_a_failure_is_not_repeated(server: ModelServer) -> None:
    server.script("once", {"status": 500})
    await failure(server, "once")
    assert len(server.asked("once")) == 1


async def test_a_redirect_does_not_take_the_key_elsewhere(server: ModelServer) -> None:
    other = ModelServer()
    try:
        server.script("redirect", {"status": 307, "body": {}, "location": f"{other.url}/v1/chat/completions"})
        await failure(server, "redirect")
        assert other.told()["asked"] == []
    finally:
        other.close()


@pytest.mark.parametrize(
    "text",
    ["<html>hello</html>", "data: {not json\n\n", "data: 5\n\n", "data: []\n\n", 'data: {"choices": 7}\n\n',
     'data: {"choices": [{"delta": {"content": 5}, "finish_reason": null}]}\n\n', 'data: {"choices": [[]]}\n\n',
     "data: [DONE]\n\n", "", "\0\0\0", 'data: {"choices": [{"delta": null}]}\n\n', "data: " + "[" * 5000 + "\n\n"],
)  # fmt: skip
async def test_garbage(server: ModelServer, text: str) -> None:
    server.script("garbage", {"garbage": text})
    await failure(server, "garbage")


@pytest.mark.parametrize("how", ["cut", "unfinished"])
async def test_an_answer_that_breaks_off(server: ModelServer, how: str) -> None:
    server.script("breaks", {how: "half an ans"})
    await failure(server, "breaks")


async def test_silence(server: ModelServer) -> None:
    server.script("silence", {"hang": 5})
    began = time.monotonic()
    assert "0.2 s" in (await failure(server, "silence", idle_seconds=0.2)).message
    assert time.monotonic() - began < 2


async def test_an_answer_without_end_in_time(server: ModelServer) -> None:
    server.script("slow", {"text": "x" * 100, "pieces": 100, "pause": 0.05})
    assert "0.3 s" in (await failure(server, "slow", seconds=0.3)).message


async def test_an_answer_too_long_simply_ends(server: ModelServer) -> None:
    server.script("long", {"repeat": "y" * 1000, "times": 5000})
    assert len("".join(await ask(server, "long", characters=2500))) == 2500


async def test_a_line_without_end_does_not_fill_the_memory(
    server: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kennel.adapters.model import bounded

    monkeypatch.setattr(bounded.Bounded.__init__, "__defaults__", (100_000,))
    server.script("line", {"garbage": "data: " + "z" * 1_000_000})
    await failure(server, "line")


async def test_nobody_there(server: ModelServer) -> None:
    await failure(server, "x", base_url="http://127.0.0.1:9/v1")
    await failure(server, "x", base_url="no address")


async def test_leaving_in_the_middle_ends_the_call(server: ModelServer) -> None:
    server.script("leave", {"text": "x" * 400, "pieces": 400, "pause": 0.02})
    model = ChatModel(ChatOptions(base_url=f"{server.url}/v1", model="m"))
    stream = model.answer([Prompt("user", "[ana] leave")])
    assert await anext(stream)
    await stream.aclose()  # type: ignore[attr-defined]
    async with asyncio.timeout(5):
        while server.told()["active"]:
            await asyncio.sleep(0.02)
    await model.close()


async def test_proxies_of_the_environment_are_not_used(server: ModelServer, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    server.script("proxy", "fine")
    assert "".join(await ask(server, "proxy")) == "fine"


async def test_no_model_says_what_to_set() -> None:
    with pytest.raises(KennelError) as caught:
        await anext(AbsentModel().answer([]))
    assert (caught.value.code, caught.value.status) == ("MODEL_NOT_CONFIGURED", 503)
    assert "KENNEL_AI_BASE_URL" in (caught.value.hint or "")
