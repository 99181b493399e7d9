"""Attacks 50 to 63: a value goes where its pin says and nowhere else; and model calls."""

from __future__ import annotations

import base64
import gzip
import json
import socket
import ssl
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import pytest

from egress_gateway import GatewayProcess, read_response
from egress_world import OTHER, SITE, Heard, Server, World, answering, reply
from patience import within

if TYPE_CHECKING:
    from egress_fixtures import Desk

pytest_plugins = ["egress_fixtures"]
pytestmark = pytest.mark.root

HOST = "api.example.com"
CANARY = "canary-Zx81/k+9=~value"
REFERENCE = 'getSecret("/secrets/token")'


@pytest.fixture
def site(desk: Desk) -> Server:
    """The pinned host, and a secret for it."""
    desk.secret("/secrets/token", CANARY, f"https://{HOST}")
    return desk.world.site(HOST, "sub." + HOST, "other.example.com")


def leaked(desk: Desk) -> list[bytes]:
    """Everything that any server heard that holds the value in some form."""
    forms = [CANARY.encode(), quote(CANARY, safe="").encode(), base64.b64encode(CANARY.encode())[:-4]]
    heard = [h.raw + b"".join(h.requests) for s in desk.world.servers for h in s.connections]
    return [text for text in heard if any(form in text for form in forms)]


def test_50_pinned_host_yes_everything_else_no(desk: Desk, site: Server) -> None:
    plain = desk.world.serve(SITE, 80)
    other_port = desk.world.serve(SITE, 8443, tls=desk.world.authority.context(HOST))
    headers = {"Authorization": f"Bearer {REFERENCE}"}
    assert desk.box.fetch(f"https://{HOST}/v1", headers=headers).status == 200
    assert f"authorization: Bearer {CANARY}\r\n".encode() in site.requests[0]
    assert b"accept-encoding: identity\r\n" in site.requests[0]
    used = desk.decision(secret_path="/secrets/token", verdict="allow")
    assert (used.places, CANARY in used.url) == (["header authorization"], False)
    for url in (
        f"https://{HOST}:8443/", f"http://{HOST}/", f"https://sub.{HOST}/", "https://other.example.com/",
    ):  # fmt: skip
        answer = desk.box.fetch(url, headers=headers)
        assert (answer.status, answer.code) == (403, "secret_not_allowed_for_origin"), url
        assert CANARY.encode() not in answer.body
    assert plain.requests == other_port.requests == []
    assert len(site.requests) == 1


def test_50_never_on_raw_tcp_passthrough_or_after_101(desk: Desk, site: Server) -> None:
    def quiet(heard: Heard, link: socket.socket) -> None:
        while more := link.recv(65536):
            heard.raw += more

    raw = desk.world.serve(OTHER, 5432, quiet)
    desk.world.resolver.names["db.example.com"] = [OTHER]
    secure = desk.world.site("pinned-client.example.com", address=OTHER, handler=quiet)
    desk.policy(
        {"ruleKey": "db", "verdict": "allow", "mode": "tcp", "match": {"hosts": ["db.example.com"], "ports": [5432]}},
        {
            "ruleKey": "through", "verdict": "allow", "mode": "passthrough",
            "match": {"hosts": ["pinned-client.example.com"], "ports": [443]},
        },
    )  # fmt: skip
    with desk.box.connect("db.example.com", 5432) as link:
        link.sendall(REFERENCE.encode())
        time.sleep(0.2)
    address = desk.box.address_of("pinned-client.example.com")
    context = desk.world.authority
    trust = ssl.create_default_context(cafile=str(context.roots))
    with trust.wrap_socket(
        desk.box.connect(address, 443, look_up=False), server_hostname="pinned-client.example.com"
    ) as link:
        link.sendall(REFERENCE.encode())
        time.sleep(0.2)
    assert raw.connections[0].raw == REFERENCE.encode()
    assert secure.connections[0].raw == REFERENCE.encode()
    assert desk.decision(lane="passthrough").layer == "tunnel"
    assert leaked(desk) == []


def basic(text: bytes, encode: Callable[[bytes], bytes] = base64.b64encode) -> dict[str, str]:
    return {"Authorization": "Basic " + encode(text).decode()}


def test_51_inside_basic_credentials(desk: Desk, site: Server) -> None:
    box, url = desk.box, f"https://{HOST}/repo.git/info/refs"
    assert box.fetch(url, headers=basic(f"x-access-token:{REFERENCE}".encode())).status == 200
    assert base64.b64encode(f"x-access-token:{CANARY}".encode()) in site.requests[0]
    non_ascii = "us\u00e9r:".encode() + REFERENCE.encode() + b"\xff"
    assert box.fetch(url, headers=basic(non_ascii)).status == 200
    assert base64.b64encode("us\u00e9r:".encode() + CANARY.encode() + b"\xff") in site.requests[1]
    url_safe = basic(("\u00ff\u00fe?>:" + REFERENCE).encode(), base64.urlsafe_b64encode)
    assert "_" in url_safe["Authorization"] or "-" in url_safe["Authorization"]
    assert box.fetch(url, headers=url_safe).code == "secret_reference_malformed"
    assert box.fetch(url, headers={"Authorization": "Basic !!!not-base64"}).status == 200
    assert box.fetch(url, headers=basic(b"user:getSecret(/secrets/token)")).code == "secret_reference_malformed"
    assert b"!!!not-base64" in site.requests[2]
    assert len(site.requests) == 3


def test_52_path_query_and_disguises(desk: Desk, site: Server) -> None:
    box = desk.box
    encoded = quote(REFERENCE, safe="/()")
    assert box.fetch(f"https://{HOST}/bot{encoded}/send?a=%20b&key={quote(REFERENCE)}&c=+d").status == 200
    value = quote(CANARY, safe="")
    assert site.requests[0].split(b" ")[1].decode() == f"/bot{value}/send?a=%20b&key={value}&c=+d"
    for headers in (
        {"X-Token": "getSecret%28%22/secrets/token%22%29"},
        {"X-Token": 'getSecret(\\"/secrets/token\\")'},
        {"X-Token": "getSecret\\u0028"},
        {"X-Token": "getSecret('/secrets/token')"},
        {"X-Token": 'getSecret("/secrets/token"'},
        {"X-Token": 'getSecret(getSecret("/secrets/token"))'},
        {"X-Token": base64.b64encode(REFERENCE.encode()).decode()},
        {"X-Token": 'getSecret("/secrets/token", { field: "a" } extra)'},
    ):
        assert box.fetch(f"https://other.example.com/{0}", headers=headers).code == "secret_reference_malformed"
    for path in (f"/?{quote(REFERENCE)}=x", f"/?{quote(REFERENCE)}"):
        assert box.fetch(f"https://{HOST}{path}").code == "secret_reference_outside_url_path"
    many = {"X-Token": REFERENCE * 1000}
    assert box.fetch(f"https://{HOST}/", headers=many).code == "secret_reference_too_many"
    assert box.fetch(f"https://{HOST}/", headers={"X": 'getSecret("/other/x")'}).code == "secret_reference_invalid_path"
    assert len(site.requests) == 1


def test_52_split_over_packets_it_is_still_found(desk: Desk, site: Server) -> None:
    with desk.box.tls(HOST) as link:
        for byte in f"GET / HTTP/1.1\r\nHost: {HOST}\r\nX-Token: a{REFERENCE}b{REFERENCE}\r\n\r\n":
            link.sendall(byte.encode())
        assert read_response(link).status == 200
    assert f"x-token: a{CANARY}b{CANARY}\r\n".encode() in site.requests[0]


def test_53_redirects_are_not_followed_and_judged_again(desk: Desk) -> None:
    desk.secret("/secrets/token", CANARY, f"https://{HOST}")
    locations = ("https://other.example.com/", f"https://{HOST}:8443/", f"http://{HOST}/")
    answers = [reply(b"", f"Location: {to}?t={CANARY}", status="307 Temporary Redirect") for to in locations]
    desk.world.site(HOST, "other.example.com", handler=answering(*answers))
    for to in locations:
        answer = desk.box.fetch(f"https://{HOST}/", headers={"X-Token": REFERENCE})
        assert answer.status == 307
        assert CANARY not in (answer.field("location") or "")
        again = desk.box.fetch(to, headers={"X-Token": REFERENCE})
        assert again.code == "secret_not_allowed_for_origin"


def chunked(*parts: bytes) -> bytes:
    return b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"


def test_54_an_echo_is_hidden_in_every_form(desk: Desk) -> None:
    forms = [
        CANARY, quote(CANARY, safe=""), json.dumps(CANARY), json.dumps({"a": CANARY}).replace("/", "\\/"),
        base64.b64encode(f"user:{CANARY}".encode()).decode(), base64.b64encode(CANARY.encode()).decode(),
        CANARY.encode().hex(),
    ]  # fmt: skip
    body = "\n".join(forms).encode()
    half = CANARY.encode()
    bodies = [
        reply(body, f"X-Echo: {CANARY}", f"Location: /?t={quote(CANARY, safe='')}"),
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
        + chunked(*(body[i : i + 3] for i in range(0, 300, 3))),
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunked(half[:9], half[9:]),
        reply(gzip.compress(body), "Content-Encoding: gzip"),
        b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + body,
    ]
    desk.secret("/secrets/token", CANARY, f"https://{HOST}")
    for answer in bodies:
        desk.world.clear()

        def once(heard: Heard, link: socket.socket, answer: bytes = answer) -> None:
            heard.read_request(link)
            link.sendall(answer)

        desk.world.site(HOST, handler=once)
        got = desk.box.fetch(f"https://{HOST}/", headers=basic(f"user:{REFERENCE}".encode()))
        text = got.head + got.body
        for form in (CANARY, quote(CANARY, safe=""), CANARY.replace("/", "\\/"), CANARY.encode().hex()):
            assert form.encode() not in text, (form, text)
        assert base64.b64encode(CANARY.encode())[:20] not in text
        assert base64.b64encode(f"user:{CANARY}".encode()) not in text
        assert got.status == 200
        assert b"getSecret(" in got.body


def test_54_encodings_that_cannot_be_searched_are_refused(desk: Desk) -> None:
    desk.secret("/secrets/token", CANARY, f"https://{HOST}")
    for coding in ("br", "zstd", "gzip, gzip", "compress"):
        desk.world.clear()
        desk.world.site(HOST, handler=answering(reply(b"xxxx", f"Content-Encoding: {coding}")))
        answer = desk.box.fetch(f"https://{HOST}/", headers={"X-Token": REFERENCE})
        assert answer.code == "response_encoding_refused", coding
    # Without a secret in the request nothing is touched.
    assert desk.box.fetch(f"https://{HOST}/").field("content-encoding") == "compress"


def test_54_event_streams_are_not_held_back(desk: Desk) -> None:
    def stream(heard: Heard, link: socket.socket) -> None:
        heard.read_request(link)
        link.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
        for number in range(3):
            event = f"data: {number} {CANARY}\n\n".encode()
            link.sendall(b"%x\r\n%b\r\n" % (len(event), event))
            time.sleep(0.3)
        link.sendall(b"0\r\n\r\n")

    desk.secret("/secrets/token", CANARY, f"https://{HOST}")
    desk.world.site(HOST, handler=stream)
    with desk.box.tls(HOST) as link:
        link.sendall(f"GET / HTTP/1.1\r\nHost: {HOST}\r\nX-Token: {REFERENCE}\r\n\r\n".encode())
        begun, times, text = time.monotonic(), [], b""
        while b"0\r\n\r\n" not in text[-5:]:
            text += link.recv(65536)
            times.append(time.monotonic() - begun)
    assert text.count(b"getSecret") == 3
    assert CANARY.encode() not in text
    assert times[0] < within(0.3)
    assert len(times) >= 3


def test_55_a_value_with_a_line_break_stays_here(desk: Desk, site: Server) -> None:
    desk.secret("/secrets/token", "a\r\nHost: evil.example.com", f"https://{HOST}")
    for headers, path in (({"X-Token": REFERENCE}, "/"), ({}, f"/?k={quote(REFERENCE)}"), ({}, f"/{quote(REFERENCE)}")):
        assert desk.box.fetch(f"https://{HOST}{path}", headers=headers).code == "secret_material_unfit"
    assert desk.box.fetch(f"https://{HOST}/", headers=basic(f"u:{REFERENCE}".encode())).code == "secret_material_unfit"
    assert site.requests == []


@pytest.mark.parametrize(
    "name", ["User-Agent", "Referer", "Cookie", "Origin", "Content-Type", "Content-Language", "Accept", "Range",
             "Accept-Language", "X-Forwarded-For", "Forwarded", "Via", "From"],
)  # fmt: skip
def test_56_headers_that_hosts_store_or_show(desk: Desk, site: Server, name: str) -> None:
    assert desk.box.fetch(f"https://{HOST}/", headers={name: REFERENCE}).code == "secret_reference_forbidden_header"
    assert site.requests == []


def test_56_an_owner_can_narrow_a_secret_further(desk: Desk, site: Server) -> None:
    desk.secret("/secrets/token", CANARY, f"https://{HOST}", headers=["x-token"], methods=["GET"], path_prefix="/v1/")
    box, code = desk.box, "secret_not_allowed_for_request"
    assert box.fetch(f"https://{HOST}/v1/a", headers={"X-Token": REFERENCE}).status == 200
    assert box.fetch(f"https://{HOST}/v1/a", headers={"X-Other": REFERENCE}).code == code
    assert box.fetch(f"https://{HOST}/v1/a?k={quote(REFERENCE)}").code == code
    assert box.fetch(f"https://{HOST}/v2/a", headers={"X-Token": REFERENCE}).code == code
    assert box.fetch(f"https://{HOST}/v1/../v2", headers={"X-Token": REFERENCE}).code == code
    assert box.fetch(f"https://{HOST}/v1/a", method="POST", body=b"x", headers={"X-Token": REFERENCE}).code == code
    assert len(site.requests) == 1


def test_57_one_request_names_one_secret(desk: Desk, site: Server) -> None:
    desk.secret("/secrets/second", "other", f"https://{HOST}")
    two = {"X-A": REFERENCE, "X-B": 'getSecret("/secrets/second")'}
    assert desk.box.fetch(f"https://{HOST}/", headers=two).code == "secret_reference_foreign"
    mixed = {"X-A": REFERENCE, "X-B": 'getSecret({ platform: "openai.apiKey" })'}
    assert desk.box.fetch(f"https://{HOST}/", headers=mixed).code == "secret_reference_foreign"
    assert site.requests == []


def test_json_bodies_only_when_asked(desk: Desk, site: Server) -> None:
    desk.secret("/secrets/json", {"a": {"b": CANARY}, "n": 1}, f"https://{HOST}")
    field = 'getSecret("/secrets/json", { field: "a.b" })'
    body = json.dumps({"token": field, "text": f"see {field}", "list": [field]}).encode()
    box, url = desk.box, f"https://{HOST}/"
    kind = {"Content-Type": "application/json"}
    assert box.fetch(url, method="POST", body=body, headers=kind).status == 200
    assert CANARY.encode() not in site.requests[0]
    template = {**kind, "X-Kennel-Secret-Template": "json"}
    assert box.fetch(url, method="POST", body=body, headers=template).status == 200
    sent = json.loads(site.requests[1].partition(b"\r\n\r\n")[2])
    assert sent == {"token": CANARY, "text": f"see {field}", "list": [CANARY]}
    assert b"x-kennel" not in site.requests[1].lower()
    for words, code in (
        ({**template, "X-Kennel-Secret-Template": "xml"}, "secret_json_template_invalid_mode"),
        ({**template, "Content-Type": "text/plain"}, "secret_json_template_invalid_content_type"),
    ):
        assert box.fetch(url, method="POST", body=body, headers=words).code == code
    for text, code in (
        (b"{", "secret_json_template_invalid_body"), (b"[1]", "secret_reference_required"),
        (b"[" * 100_000, "secret_json_template_invalid_body"),
        (b'["' + b"x" * 1_100_000 + b'"]', "secret_json_template_body_too_large"),
        (json.dumps(['getSecret("/secrets/json")']).encode(), "secret_material_not_a_string"),
        (json.dumps(['getSecret("/secrets/json", { field: "a.c" })']).encode(), "secret_reference_field_not_found"),
        (json.dumps(['getSecret("/secrets/json", { field: "n" })']).encode(), "secret_material_not_a_string"),
        (json.dumps(['getSecret("/secrets/none")']).encode(), "secret_not_found"),
    ):  # fmt: skip
        assert box.fetch(url, method="POST", body=text, headers=template).code == code
    assert len(site.requests) == 2


def test_58_the_value_is_in_nothing_the_gateway_keeps(desk: Desk, gateway: GatewayProcess, site: Server) -> None:
    headers = {"X-Token": REFERENCE}
    for url in (f"https://{HOST}/", f"https://{HOST}/{quote(REFERENCE)}", "https://other.example.com/"):
        desk.box.fetch(url, headers=headers)
    desk.decision(code="secret_not_allowed_for_origin")
    time.sleep(0.2)
    assert CANARY.encode() in site.requests[0]
    needle, kept = CANARY.encode(), [p for p in gateway.folder.rglob("*") if p.is_file() and p.suffix != ".net"]
    assert len(kept) > 3
    for file in kept:
        assert needle not in file.read_bytes(), file
    assert needle not in repr((desk.control.records, desk.control.notices)).encode()
    status = Path(f"/proc/{gateway.process.pid}/status").read_text()
    assert "CapEff:\t0000000000000000" in status
    assert "CapPrm:\t0000000000000000" in status
    # Not dumpable: even its own user cannot look into its memory.
    peek = f"open('/proc/{gateway.process.pid}/mem','rb')"
    done = subprocess.run(
        ["setpriv", "--reuid", "59712", "--clear-groups", "/usr/bin/python3", "-c", peek], capture_output=True
    )
    assert b"PermissionError" in done.stderr
    for key in (gateway.data / "keys").iterdir():
        assert key.stat().st_mode & 0o777 == 0o600
    assert (gateway.data / "authority.pem").stat().st_mode & 0o777 == 0o600


def test_59_changed_and_removed_in_the_middle_of_a_connection(desk: Desk, site: Server) -> None:
    from kennel.wire.gateway import DropSecret

    with desk.box.tls(HOST) as link:

        def ask() -> str:
            link.sendall(f"GET / HTTP/1.1\r\nHost: {HOST}\r\nX-Token: {REFERENCE}\r\n\r\n".encode())
            return read_response(link).code

        assert ask() == ""
        desk.secret("/secrets/token", "second-value", f"https://{HOST}")
        assert ask() == ""
        desk.secret("/secrets/token", "third-value", "https://other.example.com")
        assert ask() == "secret_not_allowed_for_origin"
        desk.control.call(DropSecret(desk.project, "/secrets/token"))
        assert ask() == "secret_not_found"
    assert [CANARY.encode() in site.requests[0], b"second-value" in site.requests[1]] == [True, True]
    assert len(site.requests) == 2


def test_60_another_projects_secret(desk: Desk, site: Server) -> None:
    desk.control.policy(project="neighbour")
    stranger = desk.another(project="neighbour")
    assert stranger.fetch(f"https://{HOST}/", headers={"X-Token": REFERENCE}).code == "secret_not_found"
    assert site.requests == []


def test_sealed_boxes_are_bound_to_name_pin_and_project(desk: Desk) -> None:
    import msgspec

    from kennel.adapters.vault.sealer import seal_secret
    from kennel.wire.egress import Pin, SealedSecret
    from kennel.wire.gateway import ProjectKey, PublicKey, PutSecret

    key = msgspec.convert(desk.control.call(ProjectKey(desk.project)), PublicKey)
    good = seal_secret(key, desk.project, "/secrets/a", Pin([f"https://{HOST}"]), 5, CANARY)
    desk.control.call(PutSecret(desk.project, good))
    changed = [
        ("path", "/secrets/b"), ("offset", 6), ("kid", "0" * 16), ("pin", Pin(["https://evil.example.com:443"])),
        ("pin", Pin(good.pin.origins, headers=["x-a"])), ("box", good.box[:-8] + "AAAAAAA="), ("box", ""),
    ]  # fmt: skip
    for name, value in changed:
        other: SealedSecret = msgspec.structs.replace(good, **{name: value})
        with pytest.raises(RuntimeError, match="VALIDATION_FAILED"):
            desk.control.call(PutSecret(desk.project, other))
    desk.control.call(ProjectKey("neighbour"))
    with pytest.raises(RuntimeError, match="VALIDATION_FAILED"):
        desk.control.call(PutSecret("neighbour", good))
    for project in ("../x", "a/b", "", "A"):
        with pytest.raises(RuntimeError, match="VALIDATION_FAILED"):
            desk.control.call(ProjectKey(project))


def test_malformed_references_do_not_get_around_a_denial(desk: Desk, site: Server) -> None:
    desk.policy(
        {"ruleKey": "no", "verdict": "deny", "match": {"hosts": [HOST]}},
        {"ruleKey": "tok", "verdict": "deny", "match": {"secretPaths": ["/secrets/tok*"]}},
    )
    assert desk.box.fetch(f"https://{HOST}/", headers={"X": "getSecret("}).code == "egress_denied"
    answer = desk.box.fetch("https://other.example.com/", headers={"X": REFERENCE})
    assert (answer.code, answer.json["ruleKey"]) == ("egress_denied", "tok")
    assert site.requests == []


OPENAI = "api.openai.com"
CHAT = {"Content-Type": "application/json", "Authorization": "Bearer dummy", "Accept": "text/event-stream"}


@pytest.fixture
def lane(world: World, start: Callable[..., GatewayProcess]) -> GatewayProcess:
    made = start(
        ai_base_url="http://10.0.0.5:9000/base/v1", ai_key="platform-key-value",
        platform_keys={"openai.apiKey": {"value": "platform-secret-1", "origins": [f"https://{OPENAI}"]}},
    )  # fmt: skip
    made.control.policy()
    return made


def test_61_model_calls_go_to_the_installations_gateway_with_built_headers(world: World, lane: GatewayProcess) -> None:
    models, real = world.serve("10.0.0.5", 9000), world.site(OPENAI)
    box = lane.sandbox("modelcalls")
    forged = {**CHAT, "cf-aig-metadata": '{"projectId":"other"}', "OpenAI-Beta": "x=1", "X-Custom": "1", "Cookie": "c"}
    body = json.dumps({"model": "m", "stream": True}).encode()
    answer = box.fetch(f"https://{OPENAI}/v1/chat/completions?a=b", method="POST", body=body, headers=forged)
    assert answer.status == 200
    head, _, sent = models.requests[0].partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")
    assert lines[:2] == ["POST /base/v1/chat/completions?a=b HTTP/1.1", "host: 10.0.0.5:9000"]
    fields = dict(line.split(": ", 1) for line in lines[1:])
    assert json.loads(fields.pop("cf-aig-metadata")) == {
        "projectId": "acme", "source": "project-egress", "caller": "/sandboxes/modelcalls",
    }  # fmt: skip
    assert fields == {
        "host": "10.0.0.5:9000", "content-length": str(len(body)), "authorization": "Bearer platform-key-value",
        "content-type": "application/json", "cf-aig-collect-log": "true", "cf-aig-collect-log-payload": "true",
        "cf-aig-skip-cache": "true", "openai-beta": "x=1", "accept": "text/event-stream",
    }  # fmt: skip
    assert sent == body
    # Everything else goes the ordinary way, credentials and all.
    multipart = {**CHAT, "Content-Type": "multipart/form-data; boundary=x"}
    assert box.fetch(f"https://{OPENAI}/v1/files", method="POST", body=b"--x--", headers=multipart).status == 200
    assert box.fetch(f"https://{OPENAI}/v1/models", headers=CHAT).status == 200
    assert box.fetch(f"https://{OPENAI}/v1/chat", method="POST", body=b"{bad", headers=CHAT).status == 200
    assert box.fetch(f"https://{OPENAI}/v1/", method="POST", body=body, headers=CHAT).status == 200
    assert len(models.requests) == 1
    assert len(real.requests) == 4
    assert all(b"Bearer dummy" in request for request in real.requests)
    world.clear()


def test_62_an_explicit_secret_is_not_lost_to_the_lane(world: World, lane: GatewayProcess) -> None:
    models, real = world.serve("10.0.0.5", 9000), world.site(OPENAI, "other.example.com")
    box = lane.sandbox("ownsecret1")
    lane.control.secret("/secrets/openai", CANARY, f"https://{OPENAI}")
    own = {**CHAT, "Authorization": 'Bearer getSecret("/secrets/openai")'}
    assert box.fetch(f"https://{OPENAI}/v1/chat", method="POST", body=b"{}", headers=own).status == 200
    platform = {**CHAT, "Authorization": 'Bearer getSecret({ platform: "openai.apiKey" })'}
    assert box.fetch(f"https://{OPENAI}/v1/chat", method="POST", body=b"{}", headers=platform).status == 200
    assert [CANARY.encode() in real.requests[0], b"platform-secret-1" in real.requests[1]] == [True, True]
    platform_elsewhere = box.fetch("https://other.example.com/", headers=platform)
    assert platform_elsewhere.code == "secret_not_allowed_for_origin"
    query = quote('getSecret({ platform: "openai.apiKey" })')
    assert box.fetch(f"https://{OPENAI}/v1/x?k={query}").code == "secret_reference_outside_url_path"
    unknown = {"X": 'getSecret({ platform: "database.url" })'}
    assert box.fetch(f"https://{OPENAI}/", headers=unknown).code == "secret_not_found"
    assert models.requests == []
    world.clear()


def test_63_the_lane_down_or_unset(world: World, lane: GatewayProcess, desk: Desk) -> None:
    real = world.site(OPENAI)
    box = lane.sandbox("lanedown01")
    answer = box.fetch(f"https://{OPENAI}/v1/chat", method="POST", body=b"{}", headers=CHAT)
    assert answer.code == "connect_failed"
    assert real.requests == []
    # The address of the lane is open for the lane alone.
    world.resolver.names["lan.example.com"] = ["10.0.0.5"]
    assert box.fetch("http://lan.example.com:9000/").code == "destination_refused"
    assert desk.box.fetch(f"https://{OPENAI}/v1/chat", method="POST", body=b"{}", headers=CHAT).status == 200
    assert b"Bearer dummy" in real.requests[0]


def test_a_models_events_are_passed_on_as_they_come(world: World, lane: GatewayProcess) -> None:
    def events(heard: Heard, link: socket.socket) -> None:
        heard.read_request(link)
        link.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
        for _ in range(3):
            link.sendall(b"9\r\ndata: x\n\n\r\n")
            time.sleep(0.3)
        link.sendall(b"0\r\n\r\n")

    world.serve("10.0.0.5", 9000, events)
    with lane.sandbox("lanestream").tls(OPENAI) as link:
        head = f"POST /v1/chat HTTP/1.1\r\nHost: {OPENAI}\r\nContent-Type: application/json\r\nContent-Length: 2\r\n"
        link.sendall(head.encode() + b"\r\n{}")
        begun, first, text = time.monotonic(), 0.0, b""
        while not text.endswith(b"0\r\n\r\n"):
            text += link.recv(65536)
            if b"data:" in text and not first:
                first = time.monotonic() - begun
    assert text.count(b"data: x") == 3
    assert first < time.monotonic() - begun - 0.5
    world.clear()
