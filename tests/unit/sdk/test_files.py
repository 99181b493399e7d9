"""Files in the SDK: how a path becomes a route, what a body looks like, what an answer means."""

from __future__ import annotations

import base64
from io import BytesIO
from typing import Any

import pytest

from kennel import AsyncKennel, Kennel, KennelError
from kennel.sdk._sync.files import pieces
from kennel.sdk.file_records import PIECE, absolute, named, octal, route_of

INFO = {
    "name": "f", "absolutePath": "/workspace/f", "relativePath": "f", "type": "file", "size": 3,
    "modifiedAt": "2026-01-01T00:00:00.000Z", "mode": "rw-r--r--",
    "permissions": {"readable": True, "writable": True, "executable": False},
}  # fmt: skip


@pytest.mark.parametrize(
    ("path", "route"),
    [
        ("/etc/hosts", "etc/hosts"),
        ("a b/\u00e9", "workspace/a%20b/%C3%A9"),
        (b"/\xff\n%", "%FF%0A%25"),
        ("/a/../b/./c", "a/%2E%2E/b/%2E/c"),
        ("/a//b/", "a//b/"),
        ("/", ""),
        ("/x?y#z", "x%3Fy%23z"),
    ],
)
def test_a_path_becomes_a_route_byte_by_byte(path: Any, route: str) -> None:
    assert route_of(path) == route


def test_paths_in_bodies() -> None:
    assert named("path", "a") == {"path": "/workspace/a"}
    assert named("to", b"/\xff") == {"toBase64": base64.b64encode(b"/\xff").decode()}
    for wrong in ("", "a\0b"):
        with pytest.raises(KennelError):
            absolute(wrong)
    assert (octal(0o755), octal("644"), octal(None)) == ("755", "644", None)


@pytest.mark.parametrize("content", ["abc", b"abc"])
def test_text_and_bytes_are_sent(standin: Any, shapes: Any, content: Any) -> None:
    standin.will(shapes.Answer(body=INFO))
    with Kennel(url=standin.url, api_key="k") as itx:
        assert itx.sandboxes.get("main").write_file("f", content, mode=0o600).size == 3
    assert standin.seen[0].body == b"abc"
    assert standin.seen[0].path.endswith("/files/workspace/f?mode=600")


def test_every_other_content_comes_in_pieces() -> None:
    big = b"x" * (PIECE + 1)
    assert [len(piece) for piece in pieces(BytesIO(big))] == [PIECE, 1]
    assert list(pieces([b"a", b"bc"])) == [b"a", b"bc"]
    assert list(pieces(iter([b"ab"]))) == [b"ab"]


def test_a_missing_file_does_not_exist(standin: Any, shapes: Any) -> None:
    missing = shapes.Answer(404, {"error": "x", "code": "FILE_NOT_FOUND"})
    standin.will(missing, shapes.Answer(body=INFO), shapes.Answer(403, {"error": "x", "code": "PERMISSION_DENIED"}))
    with Kennel(url=standin.url, api_key="k") as itx:
        box = itx.sandboxes.get("main")
        assert [box.exists("f"), box.exists("f")] == [False, True]
        with pytest.raises(KennelError):
            box.exists("f")


def test_a_part_of_a_file_is_a_range(standin: Any, shapes: Any) -> None:
    standin.will(shapes.Answer(206, raw=b"bc"))
    with Kennel(url=standin.url, api_key="k") as itx:
        box = itx.sandboxes.get("main")
        assert box.read_file_stream("f", start=1, count=2).read() == b"bc"
        box.read_file_stream("f", start=-2).close()
        for wrong in ({"start": -2, "count": 1}, {"count": 0}):
            with pytest.raises(KennelError):
                box.read_file_stream("f", **wrong)
    assert [seen.headers["range"] for seen in standin.seen] == ["bytes=1-2", "bytes=-2"]


def test_a_listing_that_was_cut_off_is_not_a_listing(standin: Any, shapes: Any) -> None:
    import json

    line = json.dumps(INFO).encode() + b"\n"
    end = b'{"end":true,"count":1,"unreadable":0}\n'
    standin.will(shapes.Answer(raw=line + end), shapes.Answer(raw=line))
    with Kennel(url=standin.url, api_key="k") as itx:
        box = itx.sandboxes.get("main")
        assert [entry.name for entry in box.list_files()] == ["f"]
        with pytest.raises(KennelError) as caught:
            box.list_files()
    assert caught.value.code == "CONNECTION_LOST"


def test_a_download_that_breaks_leaves_no_file(standin: Any, shapes: Any, tmp_path: Any) -> None:
    standin.will(shapes.Answer(raw=b"x" * 1000, cut="inside"), shapes.Answer(raw=b"x" * 1000))
    with Kennel(url=standin.url, api_key="k") as itx:
        box = itx.sandboxes.get("main")
        with pytest.raises(KennelError):
            box.download_file("f", tmp_path / "f")
        assert list(tmp_path.iterdir()) == []
        assert box.download_file("f", tmp_path / "f") == 1000
    assert [path.name for path in tmp_path.iterdir()] == ["f"]


def test_a_second_beginning_of_a_watch_is_an_overflow(standin: Any, shapes: Any) -> None:
    start = b'event: watching\ndata: {"watchId":"1","path":"/workspace"}\n\n'
    event = b'event: event\ndata: {"eventType":"create","path":"/workspace/a"}\n\n'
    stopped = b'event: stopped\ndata: {"reason":"deleted"}\n\n'
    standin.will(shapes.Answer(raw=start + event), shapes.Answer(raw=start + event + stopped))
    with Kennel(url=standin.url, api_key="k") as itx, itx.sandboxes.get("main").watch() as events:
        seen = [next(events).event_type for _ in range(3)]
        with pytest.raises(KennelError) as caught:
            next(events)
    assert seen == ["create", "overflow", "create"]
    assert caught.value.code == "WATCH_NOT_FOUND"


@pytest.mark.anyio
async def test_the_asynchronous_half(standin: Any, shapes: Any) -> None:
    standin.will(shapes.Answer(body=INFO), shapes.Answer(raw=b"abc"))
    async with AsyncKennel(url=standin.url, api_key="k") as itx:
        box = itx.sandboxes.get("main")
        assert (await box.stat("f")).mode == "rw-r--r--"
        assert await box.read_bytes("f") == b"abc"
