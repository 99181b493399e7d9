"""Files over HTTP: bytes in and out, ranges, validators, odd names, every failure with its code."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from typing import Any

import pytest

ROUTE = "/v1/projects/default/sandboxes/main"
ALL_BYTES = bytes(range(256))
ODD = "workspace/a%FF%0Ab%20%25/%C3%A9.txt"
ODD_PATH = b"/workspace/a\xff\nb %/\xc3\xa9.txt"


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.mark.anyio
async def test_what_is_put_is_what_is_got(world: Any) -> None:
    async with world.client() as http:
        put = await http.put(f"{ROUTE}/files/workspace/x.bin", content=ALL_BYTES * 50)
        got = await http.get(f"{ROUTE}/files/workspace/x.bin")
    assert put.status_code == 200, put.text
    assert put.json() | {"created": True, "size": 12_800, "absolutePath": "/workspace/x.bin"} == put.json()
    assert got.content == ALL_BYTES * 50
    assert got.headers["content-length"] == "12800"
    assert got.headers["x-content-type-options"] == "nosniff"
    assert got.headers["content-disposition"] == "attachment"
    assert "sandbox" in got.headers["content-security-policy"]


@pytest.mark.anyio
async def test_a_body_is_passed_on_in_pieces(world: Any) -> None:
    async def body() -> AsyncIterator[bytes]:
        for _ in range(64):
            yield b"x" * 65536

    async with world.client() as http:
        answer = await http.put(f"{ROUTE}/files/workspace/big", content=body())
    assert answer.status_code == 200
    assert len(world.files.content[b"/workspace/big"]) == 4 * 1024 * 1024
    assert world.files.uploads[0].closed


@pytest.mark.anyio
async def test_a_path_is_its_bytes(world: Any) -> None:
    async with world.client() as http:
        put = (await http.put(f"{ROUTE}/files/{ODD}", content=b"1")).json()
        got = await http.get(f"{ROUTE}/files/{ODD}")
    assert list(world.files.content) == [ODD_PATH]
    assert base64.b64decode(put["absolutePathBase64"]) == ODD_PATH
    assert got.content == b"1"


@pytest.mark.anyio
@pytest.mark.parametrize("path", ["workspace/a%00b", "a" * 4096])
async def test_a_path_that_cannot_be_one_is_refused(world: Any, path: str) -> None:
    async with world.client() as http:
        answer = await http.get(f"{ROUTE}/files/{path}")
    assert answer.status_code == 400
    assert answer.json()["code"] in ("INVALID_PATH", "NAME_TOO_LONG")
    assert world.files.calls == []


@pytest.mark.anyio
async def test_an_encoded_slash_moves_no_border(world: Any) -> None:
    async with world.client() as http:
        answer = await http.get("/v1/projects/default/sandboxes%2Fmain/files/workspace/x")
    assert answer.status_code == 404
    assert world.files.calls == []


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("header", "status", "content", "said"),
    [
        ("bytes=0-3", 206, b"0123", "bytes 0-3/10"),
        ("bytes=4-", 206, b"456789", "bytes 4-9/10"),
        ("bytes=-3", 206, b"789", "bytes 7-9/10"),
        ("bytes=-99", 206, b"0123456789", "bytes 0-9/10"),
        ("bytes=8-99", 206, b"89", "bytes 8-9/10"),
        ("bytes=3-1", 200, b"0123456789", None),
        ("bytes=0-1,3-4", 200, b"0123456789", None),
        ("lines=1-2", 200, b"0123456789", None),
    ],
)
async def test_ranges(world: Any, header: str, status: int, content: bytes, said: str | None) -> None:
    world.files.content[b"/f"] = b"0123456789"
    async with world.client(range=header) as http:
        answer = await http.get(f"{ROUTE}/files/f")
    assert (answer.status_code, answer.content) == (status, content)
    assert answer.headers.get("content-range") == said


@pytest.mark.anyio
async def test_a_range_behind_the_end_is_416(world: Any) -> None:
    world.files.content[b"/f"] = b"0123456789"
    async with world.client(range="bytes=10-") as http:
        answer = await http.get(f"{ROUTE}/files/f")
    assert answer.status_code == 416
    assert answer.json()["details"] == {"size": 10}


@pytest.mark.anyio
async def test_validators(world: Any) -> None:
    world.files.content[b"/f"] = b"0123456789"
    async with world.client() as http:
        first = await http.get(f"{ROUTE}/files/f")
        tag = first.headers["etag"]
        same = await http.get(f"{ROUTE}/files/f", headers={"if-none-match": f'W/"x", {tag}'})
        since = await http.get(f"{ROUTE}/files/f", headers={"if-modified-since": first.headers["last-modified"]})
        part = await http.get(f"{ROUTE}/files/f", headers={"if-range": tag, "range": "bytes=0-0"})
        whole = await http.get(f"{ROUTE}/files/f", headers={"if-range": '"other"', "range": "bytes=0-0"})
    assert (same.status_code, same.content, since.status_code) == (304, b"", 304)
    assert (part.status_code, part.content) == (206, b"0")
    assert (whole.status_code, len(whole.content)) == (200, 10)


@pytest.mark.anyio
async def test_head_says_what_get_would(world: Any) -> None:
    world.files.content[b"/f.json"] = b"{}"
    async with world.client() as http:
        answer = await http.head(f"{ROUTE}/files/f.json")
        folder = await http.head(f"{ROUTE}/files/workspace")
    assert (answer.status_code, answer.content) == (200, b"")
    assert answer.headers["content-length"] == "2"
    assert answer.headers["content-type"] == "application/json"
    assert folder.status_code == 400


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("path", "status", "code", "name"),
    [("nope", 404, "FILE_NOT_FOUND", "ENOENT"), ("workspace", 400, "IS_DIRECTORY", "EISDIR")],
)
async def test_a_failure_comes_before_any_byte(world: Any, path: str, status: int, code: str, name: str) -> None:
    async with world.client() as http:
        answer = await http.get(f"{ROUTE}/files/{path}")
    assert (answer.status_code, answer.json()["code"]) == (status, code)
    assert answer.json()["details"]["errno"] == name
    assert answer.json()["admitted"] == "no"


@pytest.mark.anyio
async def test_a_download_that_breaks_does_not_end_like_a_whole_one(world: Any) -> None:
    world.files.content[b"/f"] = b"x" * 10_000
    world.files.broken_after = 3
    sent: list[dict[str, Any]] = []

    messages = [{"type": "http.request", "body": b"", "more_body": False}]

    async def receive() -> dict[str, Any]:
        if not messages:
            await asyncio.Event().wait()
        return messages.pop()

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    scope = {
        "type": "http", "method": "GET", "path": f"{ROUTE}/files/f", "raw_path": f"{ROUTE}/files/f".encode(),
        "query_string": b"", "headers": [(b"host", b"localhost"), (b"authorization", b"Bearer admin")],
        "http_version": "1.1", "scheme": "http", "server": ("localhost", 80), "client": ("127.0.0.1", 1),
    }  # fmt: skip
    await world.app(scope, receive, send)
    assert sent[0]["status"] == 200
    assert all(message.get("more_body") for message in sent[1:])


@pytest.mark.anyio
async def test_an_upload_that_fails_says_why(world: Any) -> None:
    world.files.full = 100
    world.files.content[b"/f"] = b"old"
    async with world.client() as http:
        answer = await http.put(f"{ROUTE}/files/f", content=b"x" * 1000)
    assert (answer.status_code, answer.json()["code"], answer.json()["admitted"]) == (500, "NO_SPACE", "yes")
    assert world.files.content[b"/f"] == b"old"
    assert world.files.uploads[0].closed


@pytest.mark.anyio
async def test_a_caller_that_leaves_finishes_nothing(world: Any) -> None:
    messages: list[dict[str, Any]] = [
        {"type": "http.request", "body": b"half", "more_body": True},
        {"type": "http.disconnect"},
    ]

    async def receive() -> dict[str, Any]:
        return messages.pop(0)

    async def send(message: dict[str, Any]) -> None:
        return None

    scope = {
        "type": "http", "method": "PUT", "path": f"{ROUTE}/files/f", "raw_path": f"{ROUTE}/files/f".encode(),
        "query_string": b"", "headers": [(b"host", b"localhost"), (b"authorization", b"Bearer admin")],
        "http_version": "1.1", "scheme": "http", "server": ("localhost", 80), "client": ("127.0.0.1", 1),
    }  # fmt: skip
    await world.app(scope, receive, send)
    assert world.files.content == {}
    assert world.files.uploads[0].closed
    assert bytes(world.files.uploads[0].data) == b"half"


@pytest.mark.anyio
async def test_base64_bodies(world: Any) -> None:
    async def body(text: bytes) -> AsyncIterator[bytes]:
        for at in range(0, len(text), 7):
            yield text[at : at + 7]

    async with world.client() as http:
        text = base64.b64encode(ALL_BYTES)
        good = await http.put(f"{ROUTE}/files/f?encoding=base64", content=body(text))
        bad = [
            await http.put(f"{ROUTE}/files/g?encoding=base64", content=body(wrong))
            for wrong in (b"abc", b"ab!d", b"YQ==YQ==", text + b"\n")
        ]
    assert good.status_code == 200
    assert world.files.content[b"/f"] == ALL_BYTES
    assert {answer.json()["code"] for answer in bad} == {"VALIDATION_FAILED"}


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("name", "data", "encoding", "expected"),
    [
        ("a.txt", b"hi", "auto", ("utf-8", "hi", False)),
        ("a.png", b"hi", "auto", ("base64", "aGk=", True)),
        ("a.xlsx", b"PK\x03\x04", "auto", ("base64", "UEsDBA==", True)),
        ("noname", b"caf\xc3\xa9", "auto", ("utf-8", "caf\u00e9", False)),
        ("noname", b"\x00\x01", "auto", ("base64", "AAE=", True)),
        ("a.txt", b"\xff", "auto", ("base64", "/w==", False)),
        ("a.txt", b"\xff", "utf8", ("utf-8", "\ufffd", False)),
        ("a.txt", b"hi", "base64", ("base64", "aGk=", False)),
    ],
)
async def test_content_in_json(world: Any, name: str, data: bytes, encoding: str, expected: tuple[Any, ...]) -> None:
    world.files.content[f"/{name}".encode()] = data
    async with world.client() as http:
        told = (await http.get(f"{ROUTE}/files/{name}?encoding={encoding}")).json()
    assert (told["encoding"], told["content"], told["isBinary"]) == expected
    assert told["lossy"] is (expected[1] == "\ufffd")


@pytest.mark.anyio
async def test_a_file_too_large_for_json_says_so(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kennel.api.routes.files.MAX_TEXT", 10)
    world.files.content[b"/f"] = b"x" * 11
    async with world.client() as http:
        answer = await http.get(f"{ROUTE}/files/f?encoding=auto")
    assert (answer.status_code, answer.json()["code"]) == (413, "FILE_TOO_LARGE")
    assert answer.json()["details"] == {"maxSize": 10, "actualSize": 11, "errno": "EFBIG"}


@pytest.mark.anyio
async def test_listings_come_in_pages_and_as_lines(world: Any) -> None:
    world.files.content = {b"/workspace/%d" % n: b"" for n in range(5)} | {b"/workspace/\xff": b""}
    found: list[str] = []
    cursor = ""
    async with world.client() as http:
        while cursor is not None:
            more = {"cursor": cursor} if cursor else {}
            page = (await http.get(f"{ROUTE}/files/workspace", params={"list": "", "limit": "4", **more})).json()
            found += [entry["name"] for entry in page["files"]]
            cursor = page["cursor"]
        lines = await http.get(f"{ROUTE}/files/workspace?recursive", headers={"accept": "application/x-ndjson"})
        wrong = await http.get(f"{ROUTE}/files/workspace?list&cursor=!")
        missing = await http.get(f"{ROUTE}/files/nope?list", headers={"accept": "application/x-ndjson"})
    assert found == ["0", "1", "2", "3", "4", "\ufffd"]
    assert lines.text.splitlines()[-1] == '{"end":true,"count":6,"unreadable":0}'
    assert (wrong.status_code, missing.status_code) == (400, 404)
    assert world.files.calls[-2][3] | {"recursive": True, "hidden": False} == world.files.calls[-2][3]


@pytest.mark.anyio
async def test_changes_of_trees(world: Any) -> None:
    odd = base64.b64encode(b"/workspace/\xff").decode()
    async with world.client() as http:
        made = await http.post(f"{ROUTE}/files:mkdir", json={"path": "/a", "recursive": True, "mode": "750"})
        moved = await http.post(f"{ROUTE}/files:move", json={"pathBase64": odd, "to": "/b", "into": True})
        copied = await http.post(f"{ROUTE}/files:copy", json={"path": "/a", "to": "/c", "recursive": True})
        changed = await http.post(f"{ROUTE}/files:chmod", json={"path": "/a", "mode": "755", "user": "node"})
        none = await http.post(f"{ROUTE}/files:chmod", json={"path": "/a", "mode": "9"})
        both = await http.post(f"{ROUTE}/files:mkdir", json={"path": "/a", "pathBase64": odd})
        relative = await http.post(f"{ROUTE}/files:mkdir", json={"path": "a"})
    assert [answer.status_code for answer in (made, moved, copied, changed)] == [200] * 4
    assert moved.json()["newPath"] == "/b"
    assert [answer.status_code for answer in (none, both, relative)] == [400] * 3
    box = "/sandboxes/main"
    assert world.files.calls == [
        ("mkdir", box, b"/a", {"recursive": True, "mode": 0o750}, None),
        ("move", box, b"/workspace/\xff", {"to": b"/b", "into": True, "overwrite": True}, None),
        ("copy", box, b"/a", {"to": b"/c", "into": False, "overwrite": True, "recursive": True}, None),
        ("chmod", box, b"/a", {"mode": 0o755}, "node"),
    ]


@pytest.mark.anyio
async def test_a_batch_stops_at_a_failure_or_goes_on(world: Any) -> None:
    steps = [
        {"op": "write", "path": "/f", "content": "aGk=", "encoding": "base64"},
        {"op": "read", "path": "/f"},
        {"op": "exists", "path": "/g"},
        {"op": "stat", "path": "/g"},
        {"op": "delete", "path": "/f"},
    ]
    async with world.client() as http:
        stopped = (await http.post(f"{ROUTE}/files:batch", json={"operations": steps})).json()["results"]
        went_on = (await http.post(f"{ROUTE}/files:batch", json={"operations": steps, "goOn": True})).json()["results"]
    assert [result["success"] for result in stopped] == [True, True, True, False]
    assert stopped[1]["content"] == "hi"
    assert stopped[2]["exists"] is False
    assert stopped[3]["error"]["code"] == "FILE_NOT_FOUND"
    assert [result["success"] for result in went_on] == [True, True, True, False, True]


@pytest.mark.anyio
async def test_a_batch_reads_only_so_much(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kennel.api.routes.file_changes.MAX_BATCH_READ", 15)
    world.files.content[b"/f"] = b"x" * 10
    steps = [{"op": "read", "path": "/f"}] * 2
    async with world.client() as http:
        results = (await http.post(f"{ROUTE}/files:batch", json={"operations": steps})).json()["results"]
    assert results[0]["size"] == 10
    assert results[1]["error"]["code"] == "FILE_TOO_LARGE"


@pytest.mark.anyio
async def test_archives_pass_through(world: Any) -> None:
    async with world.client() as http:
        down = await http.get(f"{ROUTE}/archive/workspace")
        missing = await http.get(f"{ROUTE}/archive/nope")
        up = await http.put(f"{ROUTE}/archive/workspace/t", content=b"tar" * 1000)
    assert (down.content, down.headers["content-type"]) == (b"tarball", "application/x-tar")
    assert missing.status_code == 404
    assert up.json()["success"] is True
    assert world.files.content[b"/workspace/t"] == b"tar" * 1000


@pytest.mark.anyio
async def test_a_watch_is_events_and_an_end(world: Any) -> None:
    async with world.client() as http:
        stream = await http.get(f"{ROUTE}/watch", params={"path": "/workspace", "exclude": "a,b/**"})
        missing = await http.get(f"{ROUTE}/watch?path=/nope")
        both = await http.get(f"{ROUTE}/watch?path=workspace")
        first = (await http.get(f"{ROUTE}/changes?path=/workspace")).json()
        later = (await http.get(f"{ROUTE}/changes?path=/workspace&since={first['version']}")).json()
        wrong = await http.get(f"{ROUTE}/changes?path=/workspace&since=x")
    kinds = [line.removeprefix("event: ") for line in stream.text.splitlines() if line.startswith("event: ")]
    assert kinds == ["watching", "event", "stopped"]
    assert '"pathBase64":"L3dvcmtzcGFjZS9h/w=="' in stream.text
    assert world.files.calls[0][2].exclude == ("a", "b/**")
    assert (missing.status_code, both.status_code, wrong.status_code) == (404, 400, 400)
    assert (first["status"], later["status"], later["paths"]) == ("unchanged", "changed", ["/workspace/a"])


@pytest.mark.anyio
async def test_files_take_their_own_scope(world: Any) -> None:
    async with world.client("runner") as http:
        for answer in (
            await http.get(f"{ROUTE}/files/f"),
            await http.put(f"{ROUTE}/files/f", content=b""),
            await http.post(f"{ROUTE}/files:mkdir", json={"path": "/a"}),
            await http.get(f"{ROUTE}/archive/workspace"),
            await http.get(f"{ROUTE}/watch?path=/workspace"),
        ):
            assert (answer.status_code, answer.json()["code"]) == (403, "FORBIDDEN")
    assert world.files.calls == []


@pytest.mark.anyio
async def test_git_routes_ask_the_service(world: Any) -> None:
    async with world.client() as http:
        body = {"url": "https://u:p@h/r.git", "branch": "b", "targetDir": "x", "depth": 1, "timeout": 5000}
        good = await http.post(f"{ROUTE}/git/checkout", json=body)
        bad = [
            await http.post(f"{ROUTE}/git/checkout", json={**body, **wrong})
            for wrong in ({"depth": 0}, {"depth": 1.5}, {"timeout": 0}, {"url": ""}, {"url": "x" * 2049})
        ]
        for verb, more in (("status", {}), ("diff", {}), ("commit", {"message": "m"}), ("push", {}), ("branches", {})):
            assert (await http.post(f"{ROUTE}/git/{verb}", json=more)).status_code == 200
    assert good.status_code == 200
    assert [answer.status_code for answer in bad] == [400] * 5
    clone = world.git.calls[0][2]
    assert (clone.url, clone.branch, clone.target, clone.depth) == ("https://u:p@h/r.git", "b", "/workspace/x", 1)
    assert [call[0] for call in world.git.calls] == ["checkout", "status", "diff", "commit", "push", "branches"]
