"""Facts of files as the API shows them, and what a file is called on the web."""

from __future__ import annotations

import base64

import pytest

from kennel.domain.file import FileFacts, check_path, mode_text, path_from, to_wire, when
from kennel.domain.media_type import is_text, media_type
from kennel.wire.errors import KennelError

FACTS = FileFacts("file", 3, 0o4755, 0, 0, 1_000_000_000, 2, 3, 1)


@pytest.mark.parametrize(
    ("mode", "text"),
    [(0o755, "rwxr-xr-x"), (0, "---------"), (0o4755, "rwsr-xr-x"), (0o2644, "rw-r-Sr--"), (0o1777, "rwxrwxrwt")],
)
def test_modes(mode: int, text: str) -> None:
    assert mode_text(mode) == text


@pytest.mark.parametrize("ns", [0, -(1 << 62), 1 << 62, 1_700_000_000_123_456_789])
def test_every_time_has_a_text(ns: int) -> None:
    assert when(ns).endswith("Z")


def test_a_name_that_is_not_utf8_carries_its_bytes() -> None:
    told = to_wire(b"/a/\xff", FACTS)
    assert base64.b64decode(told["absolutePathBase64"]) == b"/a/\xff"
    assert "nameBase64" not in to_wire(b"/a/b", FACTS)
    assert to_wire(b"/", FACTS)["name"] == "/"


def test_the_tag_follows_every_change() -> None:
    from dataclasses import replace

    tags = {replace(FACTS, **{name: 99}).etag for name in ("size", "mtime_ns", "ctime_ns", "inode")}
    assert len(tags | {FACTS.etag}) == 5


@pytest.mark.parametrize("path", [b"", b"a", b"/\0", b"/" + b"x" * 4095])
def test_what_is_no_path(path: bytes) -> None:
    with pytest.raises(KennelError):
        check_path(path)


def test_paths_of_requests() -> None:
    assert path_from("/\u00e9", None) == b"/\xc3\xa9"
    assert path_from(None, base64.b64encode(b"/\xff").decode()) == b"/\xff"
    for wrong in ((None, None), ("/a", "L2E="), (None, "!"), (None, "YQ==")):
        with pytest.raises(KennelError):
            path_from(*wrong)


@pytest.mark.parametrize(
    ("name", "head", "kind", "text"),
    [
        (b"a.PY", b"", "text/x-python", True), (b"a.json", b"", "application/json", True),
        (b"a.ts", b"", "text/typescript", True), (b"a.svg", b"", "image/svg+xml", True),
        (b"a.png", b"", "image/png", False), (b"a.docx", b"", None, False),
        (b"a.tar.gz", b"", "application/gzip", False),
        (b"x", b"\x89PNG\r\n\x1a\n", "image/png", False), (b"x", b"#!/bin/sh", "text/x-shellscript", True),
        (b"x", b"%PDF-1.7", "application/pdf", False), (b"x", b"plain", "text/plain", True),
        (b"x", b"\xff\xfe\x00", "application/octet-stream", False), (b".bashrc", b"x", "text/plain", True),
        (b"x", b"a" * 511 + b"\xc3", "text/plain", True), (b"x", b"a\xc3", "application/octet-stream", False),
    ],
)  # fmt: skip
def test_media_types(name: bytes, head: bytes, kind: str | None, text: bool) -> None:
    found = media_type(name, head)
    assert kind is None or found == kind
    assert is_text(found) is text
