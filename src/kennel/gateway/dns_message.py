"""Owns reading a DNS question and writing its answer: one question, no compression inside it, all lengths checked.

Called by the DNS listener and the resolver. Invariant: no I/O; a message that is not exactly one well-formed question
gets FORMERR or nothing; names in answers are read with a bounded number of jumps, each one backwards.
"""

from __future__ import annotations

import ipaddress
import re
import struct
from dataclasses import dataclass

from kennel.domain.egress_host import Address

A, NS, CNAME, PTR, MX, TXT, AAAA, SRV, SVCB, HTTPS, ANY = 1, 2, 5, 12, 15, 16, 28, 33, 64, 65, 255
NOERROR, FORMERR, SERVFAIL, NXDOMAIN, NOTIMP, REFUSED = 0, 1, 2, 3, 4, 5
MAX_UDP = 1232
_HEADER = struct.Struct(">6H")
_FIXED = struct.Struct(">HHIH")
_LABEL = re.compile(rb"[A-Za-z0-9_-]{1,63}")
_MAX_JUMPS = 16
_MAX_RECORDS = 200


class Malformed(ValueError):
    """Bytes that are no acceptable DNS message."""


@dataclass(frozen=True, slots=True)
class Question:
    """A question as asked: `name` in lower case; `raw` its bytes, to be repeated in the answer as they came."""

    id: int
    name: str
    type: int
    recursion: bool
    raw: bytes


def parse_question(message: bytes) -> Question:
    """The one question of a query; Malformed carries words, `answerable` says whether FORMERR can be sent."""
    if len(message) < 12:
        raise Malformed("shorter than a header")
    number, flags, questions, answers, authorities, _ = _HEADER.unpack_from(message)
    if flags & 0x8000:
        raise Malformed("a response")
    if flags & 0x7800 or questions != 1 or answers or authorities:
        raise Malformed("not one standard question")
    labels, at = [], 12
    while True:
        if at >= len(message):
            raise Malformed("a name runs past the end")
        size = message[at]
        at += 1
        if size == 0:
            break
        label = message[at : at + size]
        # A first byte over 63 is a pointer or a reserved form: neither belongs in a question.
        if size > 63 or len(label) != size or not _LABEL.fullmatch(label):
            raise Malformed("a label that is too long or holds other than letters, digits, '-' and '_'")
        labels.append(label)
        at += size
        if at - 12 > 254:
            raise Malformed("a name over 253 characters")
    if len(message) < at + 4:
        raise Malformed("a question without type and class")
    kind, domain = struct.unpack_from(">2H", message, at)
    if domain not in (1, 255):
        raise Malformed("a class other than IN")
    name = b".".join(labels).decode("ascii").lower()
    return Question(number, name, kind, bool(flags & 0x0100), message[12 : at + 4])


def answer(question: Question, records: list[tuple[int, int, bytes]], code: int = NOERROR) -> bytes:
    """The reply: records are (type, ttl, data), all owned by the question's name."""
    flags = 0x8080 | (0x0100 if question.recursion else 0) | code
    head = _HEADER.pack(question.id, flags, 1, len(records), 0, 0)
    rows = (b"\xc0\x0c" + _FIXED.pack(kind, 1, ttl, len(data)) + data for kind, ttl, data in records)
    return head + question.raw + b"".join(rows)


def format_error(message: bytes) -> bytes | None:
    """FORMERR for a message that could not be read, or None when not even its header could, or it is an answer."""
    if len(message) < 12 or message[2] & 0x80:
        return None
    code = NOTIMP if message[2] & 0x78 else FORMERR
    return message[:2] + struct.pack(">H", 0x8080 | ((message[2] & 1) << 8) | code) + b"\0" * 8


def truncated(reply: bytes) -> bytes:
    """The reply cut to its question, with the bit that sends the asker to TCP."""
    at = 12
    while reply[at]:
        at += 1 + reply[at]
    flags = int.from_bytes(reply[2:4], "big") | 0x0200
    return reply[:2] + struct.pack(">5H", flags, 1, 0, 0, 0) + reply[12 : at + 5]


def encode_name(name: str) -> bytes:
    """Wire form of a name without compression."""
    return b"".join(bytes((len(label),)) + label.encode("ascii") for label in name.split(".") if label) + b"\0"


def query(number: int, name: str, kind: int) -> bytes:
    """A question of the gateway's own."""
    return _HEADER.pack(number, 0x0100, 1, 0, 0, 0) + encode_name(name) + struct.pack(">2H", kind, 1)


@dataclass(frozen=True, slots=True)
class Answer:
    """A resolver's reply to a question of ours: its code, whether it was cut, and the records of the chain."""

    code: int
    truncated: bool
    addresses: list[Address]
    records: list[tuple[int, int, bytes]]


def parse_answer(message: bytes, number: int, name: str, kind: int) -> Answer:
    """The reply to `query(number, name, kind)`; Malformed when it answers something else or lengths are wrong."""
    if len(message) < 12:
        raise Malformed("shorter than a header")
    theirs, flags, questions, answers, _, _ = _HEADER.unpack_from(message)
    if theirs != number or not flags & 0x8000 or questions != 1 or answers > _MAX_RECORDS:
        raise Malformed("not the answer to this question")
    asked, at = _name(message, 12)
    if asked != name.lower() or struct.unpack_from(">2H", message + b"\0\0\0\0", at) != (kind, 1):
        raise Malformed("the answer to another question")
    at += 4
    wanted, found = {name.lower()}, Answer(flags & 15, bool(flags & 0x0200), [], [])
    for _ in range(answers):
        owner, at = _name(message, at)
        if len(message) < at + 10:
            raise Malformed("a record runs past the end")
        type_, class_, ttl, size = _FIXED.unpack_from(message, at)
        at += 10
        if len(message) < at + size:
            raise Malformed("a record runs past the end")
        if class_ == 1 and owner in wanted:
            if type_ == CNAME and kind != CNAME:
                wanted.add(_name(message, at)[0])
            elif type_ == kind:
                _take(found, message, at, size, type_, ttl)
        at += size
    return found


def _take(found: Answer, message: bytes, at: int, size: int, kind: int, ttl: int) -> None:
    data = message[at : at + size]
    if kind in (A, AAAA):
        if size != (4 if kind == A else 16):
            raise Malformed("an address of the wrong size")
        found.addresses.append(ipaddress.ip_address(data))
    elif kind in (CNAME, MX, SRV):
        head = {CNAME: 0, MX: 2, SRV: 6}[kind]
        if size <= head:
            raise Malformed("a record without its name")
        data = data[:head] + encode_name(_name(message, at + head)[0])
    found.records.append((kind, min(ttl, 60), data))


def _name(message: bytes, at: int) -> tuple[str, int]:
    """A possibly compressed name, in lower case, and where it ends."""
    labels: list[str] = []
    end, jumps, total = -1, 0, 0
    while True:
        if at >= len(message):
            raise Malformed("a name runs past the end")
        size = message[at]
        if size == 0:
            return ".".join(labels), (end if end >= 0 else at + 1)
        if size >= 0xC0:
            jumps += 1
            target = int.from_bytes(message[at : at + 2], "big") & 0x3FFF
            if len(message) < at + 2 or jumps > _MAX_JUMPS or target >= at:
                raise Malformed("a compression pointer that does not point back")
            end = end if end >= 0 else at + 2
            at = target
            continue
        label = message[at + 1 : at + 1 + size]
        total += size + 1
        if size > 63 or len(label) != size or total > 254 or not _LABEL.fullmatch(label):
            raise Malformed("a malformed name")
        labels.append(label.decode("ascii").lower())
        at += size + 1
