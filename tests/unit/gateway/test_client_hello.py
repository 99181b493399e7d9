"""Reading a ClientHello: real ones, cut ones, and any bytes at all."""

from __future__ import annotations

import ssl

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kennel.gateway.client_hello import MAX_PEEK, ClientHello, NotTls, parse


def real(name: str | None, protocols: list[str] | None = None) -> bytes:
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    if protocols:
        context.set_alpn_protocols(protocols)
    with pytest.raises(ssl.SSLWantReadError):
        context.wrap_bio(incoming, outgoing, server_hostname=name).do_handshake()
    return outgoing.read()


HELLO = real("a.example.com", ["h2", "http/1.1"])


def test_names_and_protocols() -> None:
    assert parse(HELLO) == ClientHello("a.example.com", (b"h2", b"http/1.1"))
    assert parse(real(None)) == ClientHello(None, None)
    assert parse(HELLO + b"anything behind it") == ClientHello("a.example.com", (b"h2", b"http/1.1"))


def test_every_prefix_is_incomplete() -> None:
    assert all(parse(HELLO[:size]) is None for size in range(len(HELLO)))


@given(st.lists(st.integers(1, 60), min_size=1, max_size=60))
def test_any_cut_into_records(sizes: list[int]) -> None:
    message, records = HELLO[5:], b""
    for size in [*sizes, len(message)]:
        part, message = message[:size], message[size:]
        if part:
            records += b"\x16\x03\x01" + len(part).to_bytes(2, "big") + part
    assert parse(records) == ClientHello("a.example.com", (b"h2", b"http/1.1"))


@given(st.binary(max_size=400))
@example(b"\x16\x03\x01\x00\x00")
@example(b"\x16\x03\x01\x00\x04\x01\x00\x00\x00")
def test_any_bytes_end_in_a_hello_nothing_or_an_error(data: bytes) -> None:
    try:
        found = parse(data)
    except NotTls:
        return
    assert found is None or isinstance(found, ClientHello)


@given(st.integers(5, len(HELLO) - 1), st.integers(0, 255))
def test_one_wrong_byte(at: int, byte: int) -> None:
    try:
        found = parse(HELLO[:at] + bytes([byte]) + HELLO[at + 1 :])
    except NotTls:
        return
    assert found is None or found.server_name is None or found.server_name.isascii()


@pytest.mark.full
@given(st.binary(max_size=MAX_PEEK))
def test_any_bytes_at_length(data: bytes) -> None:
    test_any_bytes_end_in_a_hello_nothing_or_an_error.hypothesis.inner_test(b"\x16\x03\x01" + data)  # type: ignore[attr-defined]
