"""Output in events: text or exact bytes, and nothing else."""

from __future__ import annotations

import msgspec
import pytest

from kennel.api.exec_messages import output_body
from kennel.sdk.running import data_of
from kennel.wire.errors import KennelError


@pytest.mark.parametrize("data", [b"", b"x", b"\0\xff", bytes(range(256)) * 1000])
def test_bytes_of_the_server_are_bytes_here(data: bytes) -> None:
    assert data_of(msgspec.json.encode(output_body(data, "base64"))) == data


def test_text_of_the_server_is_text_here() -> None:
    assert data_of(msgspec.json.encode(output_body("é\n".encode(), "utf8"))) == "é\n"
    assert data_of(msgspec.json.encode(output_body(b"\xff", "utf8"))) == "\ufffd"


@pytest.mark.parametrize(
    "raw",
    [
        b"{}", b'{"data":1}', b'{"data":null}', b'{"data":"\xff"}', b'{"data":"a","encoding":"base64"}',
        b'{"data":"a!==","encoding":"base64"}', b'{"data":1,"encoding":"base64"}',
        b'{"data":"YQ==YQ==","encoding":"base64"}', b'{"data":"-_-_","encoding":"base64"}', b"[]", b"x",
    ],
)  # fmt: skip
def test_anything_else_is_refused(raw: bytes) -> None:
    with pytest.raises(KennelError) as caught:
        data_of(raw)
    assert caught.value.code == "PROTOCOL_VIOLATION"
