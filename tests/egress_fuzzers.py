"""Owns the fuzzers of what the gateway reads before it trusts anything: ClientHello, DNS, heads, placeholders.

Run by tests/attack/test_egress_fuzz as `python -m egress_fuzzers NAME SEED SECONDS`, a process each. Invariant: the
same seed makes the same inputs; an input that ends in anything but a typed refusal, breaks what its reader promises, or
takes too much time or memory ends the process with the input in words.
"""

from __future__ import annotations

import base64
import json
import logging
import random
import re
import resource
import ssl
import struct
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

from egress_shown import WORDS, hidden, shown
from egress_world import Authority
from kennel.domain.denial import Refused
from kennel.domain.egress_host import normal_host, parse_authority
from kennel.domain.placeholder import mentions
from kennel.domain.redaction import Redactor, forms
from kennel.domain.request_target import Target, parse_target
from kennel.domain.substitution import Survey, fill_body, fill_headers, fill_target, survey, survey_body
from kennel.gateway import client_hello
from kennel.gateway import dns_message as dns
from kennel.gateway.message_head import forwarded, request_head, response_fields, response_head
from kennel.gateway.request_reader import Incoming, RequestReader
from kennel.gateway.upstream import Upstream

LARGEST = 64 * 1024
CPU_SECONDS = 0.5
"""For one input, all its checks together; the slowest of a million took 0.04 s."""
MEMORY = 96 * 1024 * 1024
KEPT = 400
CORPUS = Path(__file__).parent / "attack" / "corpus"
Dice = random.Random
Check = Callable[[bytes, Dice], str]
"""Reads one input; says in a word or two how it ended, so that inputs that end in new ways are kept."""


def pieces(data: bytes, dice: Dice) -> list[bytes]:
    """The same bytes, cut as a network might."""
    cuts = sorted(dice.randrange(len(data) + 1) for _ in range(dice.randrange(6)))
    return [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True) if b > a]


# -- ClientHello -------------------------------------------------------------------------------------------------------


def hellos() -> list[bytes]:
    """What curl, wget, git, node, Java, Chromium and OpenSSL sent to a listener of a test."""
    found = [base64.b64decode(text) for text in json.loads((CORPUS / "hellos.json").read_text()).values()]
    cut = [b"".join(b"\x16\x03\x01" + len(p).to_bytes(2, "big") + p for p in _parts(one[5:], 50)) for one in found]
    return found + cut


def _parts(data: bytes, size: int) -> list[bytes]:
    return [data[at : at + size] for at in range(0, len(data), size)]


class Hellos:
    """A hello is read the same however much of it is here, and OpenSSL sees no other name than the one judged."""

    def __init__(self) -> None:
        import tempfile

        with tempfile.TemporaryDirectory() as folder:
            self._context = Authority(Path(folder)).context("localhost")
        self._context.sni_callback = self._seen
        self._name: str | None = None

    def _seen(self, _link: Any, name: str | None, _context: Any) -> int:
        self._name = name
        return ssl.ALERT_DESCRIPTION_HANDSHAKE_FAILURE

    def __call__(self, data: bytes, dice: Dice) -> str:
        try:
            found = client_hello.parse(data)
        except client_hello.NotTls as refused:
            return str(refused)
        if found is None:
            return "incomplete"
        assert client_hello.parse(data + b"\x17\x03\x03\0\1x") == found
        early = data[: dice.randrange(len(data) + 1)]
        assert client_hello.parse(early) in (None, found)
        name = found.server_name
        assert name is None or (name.isascii() and "\0" not in name)
        if name is not None:
            normal_host(name)
        if dice.random() < 0.2:
            self._same_to_openssl(data, name)
        return f"hello {name is not None} {found.protocols is not None}"

    def _same_to_openssl(self, data: bytes, name: str | None) -> None:
        incoming, self._name = ssl.MemoryBIO(), None
        side = self._context.wrap_bio(incoming, ssl.MemoryBIO(), server_side=True)
        incoming.write(data)
        with suppress(ssl.SSLError):
            side.do_handshake()
        assert self._name in (None, name), (self._name, name)


# -- DNS ---------------------------------------------------------------------------------------------------------------

ASKED = (7, "www.example.com", dns.A)


def messages() -> list[bytes]:
    """Questions with and without EDNS, and answers with chains, pointers and every type that is read."""
    question = dns.query(*ASKED)
    edns = question[:10] + b"\0\1" + question[12:] + b"\0" + struct.pack(">HHIH", 41, 4096, 0, 0)
    row = struct.Struct(">HHIH")
    chain = question[:2] + b"\x81\x80\0\1\0\3\0\0\0\0" + question[12:]
    chain += b"\xc0\x0c" + row.pack(dns.CNAME, 1, 300, 6) + b"\3cdn\xc0\x10"
    for address in (b"\x5d\xb8\xd8\x22", b"\x0a\0\0\5"):
        chain += b"\xc0\x2d" + row.pack(dns.A, 1, 60, 4) + address
    kinds = [dns.query(7, "_db._tcp.Example.com", kind) for kind in (dns.AAAA, dns.SRV, dns.MX, dns.TXT, dns.HTTPS)]
    reverse = dns.query(7, "34.216.184.93.in-addr.arpa", dns.PTR)
    return [question, edns, chain, reverse, *kinds, dns.answer(dns.parse_question(question), [(1, 9, b"\1\2\3\4")])]


def names(data: bytes, dice: Dice) -> str:
    """Both directions: what a sandbox asks, and what a resolver answers to a question of the gateway's own."""
    told = dns.format_error(data)
    assert told is None or len(told) == 12
    end = ""
    for number, name, kind in (ASKED, (int.from_bytes(data[:2], "big"), "example.com", dns.SRV)):
        try:
            found = dns.parse_answer(data, number, name, kind)
        except dns.Malformed as refused:
            end = str(refused)
            continue
        assert len(found.records) <= 200
        assert all(ttl <= 60 for _, ttl, _ in found.records)
        end = f"answer {len(found.records)}"
    try:
        asked = dns.parse_question(data)
    except dns.Malformed as refused:
        return f"{end}, {refused}"
    assert len(asked.name) <= 253
    if asked.raw[-2:] != b"\0\1":
        return f"{end}, a question of any class"
    reply = dns.answer(asked, [(dns.A, 60, bytes(dice.randrange(256) for _ in range(4)))] * dice.randrange(3))
    again = dns.parse_answer(reply, asked.id, asked.name, asked.type)
    assert len(again.addresses) in ((0, 1, 2) if asked.type == dns.A else (0,))
    assert dns.parse_answer(dns.truncated(reply), asked.id, asked.name, asked.type).truncated
    return f"{end}, question of type {asked.type if asked.type < 70 else 'other'}"


# -- heads -------------------------------------------------------------------------------------------------------------


def heads() -> list[bytes]:
    """Requests and responses as programs and servers send them, with bodies of each framing."""
    get = b"GET /a%2Fb/../c?d=e HTTP/1.1\r\nHost: good.example.com\r\nUser-Agent: curl/7.88.1\r\nAccept: */*\r\n\r\n"
    post = b"POST /v1 HTTP/1.1\r\nHost: good.example.com:443\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\nhello"
    chunks = b"PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5;x=y\r\nhello\r\n0\r\nX-T: 1\r\n\r\n"
    socket = (
        b"GET /s HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Key: MDEyMzQ1Njc4OWFiY2RlZg==\r\nSec-WebSocket-Version: 13\r\n\r\n\x81\x82abcd12"
    )
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nSet-Cookie: a=b\r\n\r\nhello"
    interim = b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 404 No\r\nTransfer-Encoding: chunked\r\n\r\n"
    switch = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\nframes"
    old = b"HTTP/1.0 200 OK\r\nContent-Type: text/html\r\n\r\nto the end"
    return [get, post, chunks, socket, get + post + get, answer, interim + b"5\r\nhello\r\n0\r\n\r\n", switch, old]


def requests(parts: list[bytes]) -> tuple[list[tuple[Any, ...]], str, list[Incoming]]:
    reader = RequestReader()
    for part in parts:
        reader.feed(part)
    found = list(reader.arrived)
    shapes = [(r.method, r.raw, r.headers, b"".join(r.body), r.complete, r.fault and r.fault.code) for r in found]
    return shapes, "" if reader.broken is None else reader.broken.code, found


class Recorder:
    """What an exchange would do with a host's answer."""

    def __init__(self) -> None:
        self.said: list[Any] = []
        self.body = b""

    def on_interim(self, status: int) -> None:
        self.said.append(status)

    def on_head(self, status: int, reason: bytes, headers: list[tuple[bytes, bytes]]) -> bool:
        head = response_head(status, reason, response_fields(headers), b"content-length: 0\r\n")
        assert head.count(b"\r\n\r\n") == 1
        self.said.append((status, reason, list(headers)))
        return status != 101 or any(name == b"upgrade" for name, _ in headers)

    def on_data(self, data: bytes) -> None:
        self.body += data

    def on_end(self) -> None:
        self.said.append("end")

    def on_switch(self, leftover: bytes) -> None:
        self.said.append("switch")
        self.body += leftover

    def on_failure(self, code: str, detail: str) -> None:
        self.said.append(code)

    def flush(self) -> None:
        """Nothing gathers here."""

    def pause_client(self, paused: bool) -> None:
        raise AssertionError("nothing is written here")


def answers(parts: list[bytes], *, bodiless: bool) -> Recorder:
    upstream, heard = Upstream(), Recorder()
    upstream.begin(heard, b"", bodiless=bodiless)
    for part in parts:
        upstream.data_received(part)
    upstream.connection_lost(None)
    return heard


def http(data: bytes, dice: Dice) -> str:
    """However it is cut a head is read the same; what passes and is written anew is read as what it was."""
    whole, broken, found = requests([data])
    cut, broken_cut, _ = requests(pieces(data, dice))
    known = min(len(whole), len(cut))
    assert whole[:known] == cut[:known] or broken or broken_cut, "cuts change what is read"
    assert bool(broken) == bool(broken_cut), "cuts change whether it is read"
    for request in found:
        if request.fault is None:
            assert request.target is not None
            parse_authority(request.host.decode("latin-1"))
            _written_anew(request)
    end = f"{broken} {[shape[5] for shape in whole][-2:]}"
    heard = answers([data], bodiless=dice.random() < 0.2)
    for said in heard.said:
        if isinstance(said, tuple):
            end += f" {said[0] // 100}"
    return end + f" {heard.said[-1] if isinstance(heard.said[-1], str) else 'open'}" if heard.said else end


def _written_anew(request: Incoming) -> None:
    assert request.target is not None
    kept = forwarded(request.headers)
    head = request_head(request.method, request.target.raw, "good.example.com", kept, b"")
    [again], broken, _ = requests([head])
    assert not broken
    assert again[:2] == (request.method, request.raw)
    assert again[2] == [(b"host", b"good.example.com"), *kept]


# -- placeholders ------------------------------------------------------------------------------------------------------

VALUE = '|"v/%+=<>&\u00e9|'
"""Has what every form of writing changes, and nothing that a placeholder is made of."""
SPELLINGS = forms(VALUE)


def references() -> list[bytes]:
    """Placeholders as people write them and as programs encode them, with what stands around."""
    plain = 'getSecret("/secrets/token")'
    field = 'getSecret("/secrets/json", { field: "a.b" })'
    platform = 'getSecret({ platform: "openai.apiKey" })'
    made = [plain, f"Bearer {plain}", field, platform, quote(plain), f"/bot{quote(plain, safe='/()')}/send?k=%20a&b=+"]
    made += [json.dumps({"a": field, "list": [plain, 1, None], "text": f"see {plain}"}), json.dumps(plain), plain * 3]
    made += ["user:" + plain, base64.b64encode(f"user:{plain}".encode()).decode(), "getSecret(", "getSecret\\u0028"]
    return [text.encode() for text in made]


def placeholders(data: bytes, dice: Dice) -> str:
    """No reference leaves as it came, nothing else changes, and a value that is shown again is hidden."""
    end = []
    text = data.replace(b"\r", b" ").replace(b"\n", b" ").replace(b"\0", b" ")
    for name, value in ((b"x-token", text), (b"authorization", b"Basic " + base64.b64encode(data)), (b"referer", text)):
        end.append(_in_header(name, value))
    target = parse_target(b"/" + data.replace(b" ", b"%20"))
    if isinstance(target, Target):
        end.append(_in_target(target))
    end.append(_in_body(data))
    redactor = Redactor(SPELLINGS, b"X")
    spelled = dice.choice(SPELLINGS).join(_parts(data[:2000], 7))
    shown = b"".join(redactor.feed(part) for part in pieces(spelled, dice)) + redactor.end()
    assert not any(spelling in shown for spelling in SPELLINGS if len(spelling) > 12)
    return " ".join(end)


def _value(_: object) -> str:
    return VALUE


def _in_header(name: bytes, value: bytes) -> str:
    headers = [(b"host", b"a"), (name, value)]
    try:
        found = survey(headers, "/", None)
        found.require_one()
    except Refused as refused:
        return refused.code
    [_, (_, filled)] = fill_headers(found, headers, _value)
    if not found.references:
        assert filled == value
        return "nothing"
    text = base64.b64decode(filled[6:]).decode("utf-8", "replace") if found.basic else filled.decode("utf-8", "replace")
    assert not mentions(text), "a reference would be sent on"
    assert text.count(VALUE) == len(found.references)
    return "filled"


def _in_target(target: Target) -> str:
    try:
        found = survey([], target.raw_path, target.raw_query)
    except Refused as refused:
        return refused.code
    path, query = fill_target(found, target.raw_path, target.raw_query, _value)
    if not found.references:
        assert (path, query) == (target.raw_path, target.raw_query)
        return "nothing"
    assert isinstance(parse_target(f"{path}?{query}".encode()[:8192]), Target)
    assert (path + (query or "")).count(quote(VALUE, safe="")) == len(found.references)
    return "filled"


def _in_body(data: bytes) -> str:
    found = Survey()
    try:
        tree = survey_body(found, data)
    except Refused as refused:
        return refused.code
    filled = fill_body(tree, _value)
    json.loads(filled)
    assert filled.decode("utf-8", "surrogatepass").count(json.dumps(VALUE, ensure_ascii=False)[1:-1]) >= len(
        found.references
    )
    return "filled"


# -- the loop ----------------------------------------------------------------------------------------------------------

HTTP_WORDS = [
    b"\r\n", b"\n", b"\r", b"\0", b" ", b"\t", b":", b"Content-Length: 5\r\n", b"Content-Length: +5\r\n",
    b"Host: b\r\n",
    b"Transfer-Encoding: chunked\r\n", b"Transfer-Encoding: gzip, chunked\r\n", b"Connection: upgrade, x-a\r\n",
    b"Upgrade: h2c\r\n", b"0\r\n\r\n", b"ffffffffffffffff\r\n", b" HTTP/1.0\r\n", b"http://b/",
    b"HTTP/1.1 100 \r\n\r\n",
    b"\r\n\r\n", b"X-A: b\r\n c\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
]  # fmt: skip
SECRET_WORDS = [
    b"getSecret", b"(", b")", b'"', b'getSecret("', b'("/secrets/x")', b"{ field: ", b"}", b"%22", b"%28", b"\\u0067",
    b"\\u0028", b"&quot;", b"[", b"]", b"{", b'"a":', b",", b"/secrets/", b"..", b"?", b"&", b"=", b"+", b"%",
    b"platform:",
    b"\xff", b"\xed\xa0\x80", b'\\"', "\u0130".encode(), b"Z2V0U2VjcmV0",
]  # fmt: skip
BYTES = [
    b"\0",
    b"\xff",
    b"\0\0",
    b"\xff\xff",
    b"\0\1",
    b"\xc0\x0c",
    b"\x16\x03\x01",
    b"\3www",
    b"\0\x10",
    b"\x40",
    b"\x3f",
]


def fuzzers() -> dict[str, tuple[list[bytes], list[bytes], Check]]:
    """Each reader's name → bytes to begin with, words to put in, and what has to hold."""
    return {
        "hello": (hellos(), BYTES, Hellos()),
        "dns": (messages(), BYTES, names),
        "head": (heads(), HTTP_WORDS, http),
        "placeholder": (references(), SECRET_WORDS, placeholders),
        "answer": (shown(), WORDS, hidden),
    }


def mutated(corpus: list[bytes], words: list[bytes], dice: Dice) -> bytes:
    data = bytearray(dice.choice(corpus))
    for _ in range(1 + int(dice.expovariate(0.6))):
        at, size = dice.randrange(len(data) + 1), int(dice.expovariate(0.1)) + 1
        kind = dice.randrange(8)
        if kind == 0 and at < len(data):
            data[at] ^= 1 << dice.randrange(8)
        elif kind == 1:
            data[at : at + 1] = bytes([dice.randrange(256)])
        elif kind == 2:
            del data[at : at + size]
        elif kind == 3:
            data[at:at] = data[at : at + size]
        elif kind == 4:
            other = dice.choice(corpus)
            start = dice.randrange(len(other) + 1)
            data[at:] = other[start:]
        elif kind == 5 and dice.random() < 0.05:
            data[at:at] = dice.choice(words) * dice.randrange(1, 20_000)
        else:
            data[at : at + dice.choice((0, 0, 1, 2))] = dice.choice(words)
    return bytes(data[:LARGEST])


def run(name: str, seed: int, seconds: float) -> tuple[int, int]:
    """Tries inputs until the time is over; how many, and in how many ways they ended."""
    corpus, words, check = fuzzers()[name]
    corpus, dice, ends = [c for c in corpus if c], Dice(f"{name} {seed}"), set[str]()
    for data in corpus:
        check(data, dice)
    begun, tried, slowest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, 0, 0.0
    over = time.monotonic() + seconds
    while time.monotonic() < over:
        data, tried = mutated(corpus, words, dice), tried + 1
        before = time.process_time()
        try:
            end = re.sub("[0-9]+", "", check(data, dice))
        except Exception as failure:  # noqa: BLE001  whatever it is, with the input that made it
            traceback.print_exc()
            raise SystemExit(f"{name}, seed {seed}, input {tried}: {failure!r}\n{data!r}") from None
        used = time.process_time() - before
        slowest = max(slowest, used)
        grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - begun) * 1024
        if used > CPU_SECONDS or grown > MEMORY:
            raise SystemExit(f"{name}: {used:.2f} s of CPU, {grown >> 20} MiB more\n{data[:2000]!r}")
        if end not in ends and len(corpus) < KEPT and len(data) < 4096:
            ends.add(end)
            corpus.append(data)
    print(f"{name}: {tried} inputs, {len(ends)} ways to end, the slowest {slowest * 1000:.0f} ms", flush=True)
    return tried, len(ends)


if __name__ == "__main__":
    logging.disable()
    found = run(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]))
    print(json.dumps(found))
