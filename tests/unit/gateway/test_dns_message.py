"""DNS messages: written and read again, malformed ones refused, any bytes survived."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kennel.gateway import dns_message as dns

label = st.text(st.sampled_from("abcdefghijklmnopqrstuvwxyz0123456789-_"), min_size=1, max_size=20)
names = st.lists(label, min_size=1, max_size=6).map(".".join)


@given(names, st.sampled_from([dns.A, dns.AAAA, dns.TXT, dns.HTTPS]), st.integers(0, 65535))
def test_a_question_comes_back(name: str, kind: int, number: int) -> None:
    question = dns.parse_question(dns.query(number, name, kind))
    assert (question.id, question.name, question.type, question.recursion) == (number, name, kind, True)


@given(names, st.lists(st.ip_addresses(v=4), max_size=5))
def test_an_answer_comes_back(name: str, addresses: list[object]) -> None:
    question = dns.parse_question(dns.query(1, name, dns.A))
    reply = dns.answer(question, [(dns.A, 300, a.packed) for a in addresses])  # type: ignore[attr-defined]
    found = dns.parse_answer(reply, 1, name, dns.A)
    assert found.addresses == addresses
    assert all(ttl == 60 for _, ttl, _ in found.records)
    with pytest.raises(dns.Malformed):
        dns.parse_answer(reply, 2, name, dns.A)
    with pytest.raises(dns.Malformed):
        dns.parse_answer(reply, 1, name + "x", dns.A)


def test_aliases_are_followed_inside_one_answer_only() -> None:
    question = dns.parse_question(dns.query(1, "a.example", dns.A))
    head = struct.pack(">6H", 1, 0x8180, 1, 3, 0, 0) + question.raw
    alias = dns.encode_name("b.example")
    rows = b"\xc0\x0c" + struct.pack(">HHIH", dns.CNAME, 1, 5, len(alias)) + alias
    rows += alias + struct.pack(">HHIH", dns.A, 1, 5, 4) + b"\1\2\3\4"
    rows += dns.encode_name("stranger.example") + struct.pack(">HHIH", dns.A, 1, 5, 4) + b"\x0a\0\0\1"
    found = dns.parse_answer(head + rows, 1, "a.example", dns.A)
    assert [str(a) for a in found.addresses] == ["1.2.3.4"]


def test_truncation_and_format_errors() -> None:
    question = dns.parse_question(dns.query(5, "a.example", dns.TXT))
    reply = dns.answer(question, [(dns.TXT, 5, b"\x05hello")] * 300)
    cut = dns.parse_answer(dns.truncated(reply), 5, "a.example", dns.TXT)
    assert (cut.truncated, cut.records) == (True, [])
    assert dns.format_error(b"\0" * 5) is None
    assert dns.format_error(reply) is None
    refused = dns.format_error(dns.query(5, "a.example", dns.A))
    assert refused is not None
    assert refused[3] & 15 == dns.FORMERR


@given(st.binary(max_size=200))
def test_any_bytes_as_a_question(data: bytes) -> None:
    try:
        question = dns.parse_question(data)
    except dns.Malformed:
        refused = dns.format_error(data)
        assert refused is None or len(refused) == 12
        return
    assert question.name == question.name.lower()
    assert len(dns.answer(question, [])) == 12 + len(question.raw)


@given(st.binary(max_size=300))
def test_any_bytes_as_an_answer(data: bytes) -> None:
    base = dns.query(1, "a.example", dns.A)
    for message in (data, b"\0\1\x81\x80\0\1\0\2\0\0\0\0" + base[12:] + data):
        try:
            dns.parse_answer(message, 1, "a.example", dns.A)
        except dns.Malformed:
            continue
