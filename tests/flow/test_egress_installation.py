"""A whole installation in a network of the test's own: secrets, rules, approvals, a gateway that dies."""

from __future__ import annotations

import base64
import json
import re
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from egress_canary import Canaries, memory, processes, stored, told, written
from egress_installation import Walled, make_walled, soon
from egress_world import OTHER, Heard, answering, reply

CANARY = "sk-canary-5d3c9a7e11f04b62"


@pytest.fixture(scope="module")
def walled() -> Iterator[Walled]:
    for made in make_walled():
        made.ask(lambda itx: itx.sandboxes.get("box").create())
        yield made


@pytest.fixture(autouse=True)
def emptied(walled: Walled) -> Iterator[None]:
    yield
    walled.world.clear()
    assert walled.world.strayed() == {}


def test_a_secret_goes_to_its_host_and_is_nowhere_else(walled: Walled) -> None:
    site = walled.world.site("api.example.com", "other.example.com")
    origin = "https://api.example.com"
    walled.ask(lambda itx: itx.secrets.set("canary", CANARY, origins=[origin]))
    ask = "curl -sS -H 'Authorization: Bearer getSecret(\"/secrets/canary\")' https://%s/v1"
    assert walled.run(ask % "api.example.com") == "ok"
    assert f"Bearer {CANARY}".encode() in site.requests[-1]
    heard = len(site.requests)
    assert "secret_not_allowed_for_origin" in walled.run(ask % "other.example.com")
    assert len(site.requests) == heard
    view = soon(lambda: (v := walled.ask(lambda itx: itx.secrets.get("canary"))).used_count and v)
    assert (view.used_count, view.last_used_by) == (1, "/sandboxes/box")
    assert walled.holding(CANARY.encode()) == []


def test_58_a_value_is_in_no_byte_that_is_kept_said_or_remembered(walled: Walled) -> None:
    """After a use, a rotation by hand and by itself, two denials, a snapshot, and after those who knew it died."""
    canaries = Canaries()
    first, second, client, token = map(canaries.value, ("first", "second", "client", "token"))
    said = json.dumps({"access_token": token, "expires_in": 3600}).encode()
    site = walled.world.site("bird.example.com", "other-bird.example.com", handler=answering(reply(b"ok")))
    walled.world.site("id-bird.example.com", handler=answering(reply(said)), address=OTHER)
    origins = ["https://bird.example.com", "https://id-bird.example.com"]
    use = "curl -sS -m 9 -H 'X-Token: getSecret(\"/secrets/%s\"%s)' https://%s/v1"
    plain, field = ("bird", ""), ("crm", ', { field: "accessToken" }')

    def keep(value: str) -> None:
        walled.ask(lambda itx: itx.secrets.set("bird", value, origins=origins))

    keep(first)
    assert walled.run(use % (*plain, "bird.example.com")) == "ok"
    assert "secret_not_allowed_for_origin" in walled.run(use % (*plain, "other-bird.example.com"))
    keep(second)
    assert walled.run(use % (*plain, "bird.example.com")) == "ok"
    material = {"clientId": "app", "clientSecret": client}
    refresh = {"strategy": "oauth-client-credentials", "endpoint": "https://id-bird.example.com/token"}
    walled.ask(lambda itx: itx.secrets.set("crm", material, origins=origins, refresh=refresh))
    assert walled.run(use % (*field, "bird.example.com")) == "ok"
    assert [value.encode() in r for value, r in zip((first, second, token), site.requests, strict=True)] == [True] * 3
    rule = {"ruleKey": "shut", "verdict": "deny", "match": {"secretPaths": ["/secrets/*"]}}
    walled.ask(lambda itx: itx.egress.set_rules([rule]))
    assert "egress_denied" in walled.run(use % (*plain, "bird.example.com"))
    walled.ask(lambda itx: itx.egress.set_rules([]))
    walled.ask(lambda itx: itx.sandboxes.get("box").snapshot("with it"))
    walled.kill("control")
    walled.kill("gateway")
    soon(lambda: _tried(walled, use % (*plain, "bird.example.com")) == "ok")
    assert "ok" in _tried(walled, use % (*field, "bird.example.com"))
    # The search finds what does lie there, and what the gateway has to know.
    planted = walled.data / "logs" / "planted"
    planted.write_bytes(b"x" * 5_000_000 + base64.b64encode(b"user:" + second.encode()))
    assert [path for path in stored(walled.data) if canaries.within(written(path))] == [planted]
    planted.unlink()
    assert [pid for pid in processes() if canaries.within(told(pid))] == []
    for service in ("control", "node"):
        assert not canaries.within(memory(walled.pid(service))), service
    assert canaries.within(memory(walled.pid("gateway")))
    for service in ("control", "gateway"):
        process = Path(f"/proc/{walled.pid(service)}")
        assert (process / "environ").stat().st_uid == 0, "what may be dumped belongs to its own user"
        assert re.search(r"Max core file size +0 +0 ", (process / "limits").read_text())
    asked = "env; cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline; grep -rs -e first-/ -e second-/ /workspace /tmp /root"
    assert re.search("(first|second)-/[0-9a-f]", walled.run(asked)) is None


def test_names_rules_and_the_audit(walled: Walled) -> None:
    walled.world.site("good.example.com", "bad.example.com")
    assert "name_not_found" in walled.run("curl -sS http://nowhere.example.com/")
    rule = {"ruleKey": "no-bad", "verdict": "deny", "match": {"hosts": ["bad.example.com"]}}
    walled.ask(lambda itx: itx.egress.set_rules([rule]))
    told = walled.run("curl -sS https://bad.example.com/; echo; curl -sS https://good.example.com/")
    assert '"code":"egress_denied"' in told
    assert '"ruleKey":"no-bad"' in told
    assert told.endswith("ok")
    found = walled.ask(lambda itx: itx.egress.test("GET", "https://bad.example.com/", sandbox="box"))
    assert (found.verdict, found.rule_key) == ("deny", "no-bad")
    rows = soon(lambda: [e.payload for e in walled.ask(lambda itx: itx.egress.log()) if e.payload.get("ruleKey")])
    assert rows[-1]["verdict"] == "deny"
    walled.ask(lambda itx: itx.egress.set_rules([]))


def test_a_request_waits_for_a_person(walled: Walled) -> None:
    site = walled.world.site("ask.example.com")
    rule = {"ruleKey": "ask", "verdict": "hold", "match": {"hosts": ["ask.example.com"]}}
    walled.ask(lambda itx: itx.egress.set_rules([rule]))
    for approve, body in ((True, "ok"), (False, "approval_rejected")):
        walled.run("rm -f out; (curl -sS https://ask.example.com/ > half; mv half out) > /dev/null 2>&1 &")
        heard = len(site.requests)
        [row] = soon(lambda: walled.ask(lambda itx: itx.approvals.list(status="open")))
        assert (row.rule_key, row.requests[0]["method"], len(site.requests)) == ("ask", "GET", heard)
        walled.ask(lambda itx, row=row, approve=approve: itx.approvals.decide(row.id, approve))
        assert body in soon(lambda: walled.run("cat out 2> /dev/null"))
    walled.ask(lambda itx: itx.egress.set_rules([]))


def test_a_gateway_that_dies_is_missed_and_told_everything_again(walled: Walled) -> None:
    walled.world.site("back.example.com")
    assert walled.run("curl -sS https://back.example.com/") == "ok"
    walled.kill("gateway")
    assert walled.run("echo works") == "works\n"
    soon(lambda: walled.run("curl -sS -m 3 https://back.example.com/") == "ok")
    rule = {"ruleKey": "no-back", "verdict": "deny", "match": {"hosts": ["back.example.com"]}}
    walled.ask(lambda itx: itx.egress.set_rules([rule]))
    walled.kill("control")
    walled.kill("gateway")
    soon(lambda: "no-back" in _tried(walled))


def _tried(walled: Walled, command: str = "curl -sS -m 3 https://back.example.com/") -> str:
    try:
        return walled.run(command)
    except (OSError, RuntimeError):
        return ""  # control is on its way back


GIT = "git -c http.version=HTTP/1.1 ls-remote https://github.com/acme/private"


def github(heard: Heard, link: socket.socket) -> None:
    """As much of GitHub as a token needs: its API under an app's key, and a repository that wants Basic."""
    while (request := heard.read_request(link)) is not None:
        head = request.partition(b"\r\n\r\n")[0]
        if b"/access_tokens" in head.split(b"\r\n")[0]:
            ends = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 3600))
            token = {"token": f"{CANARY}-minted", "expires_at": ends}
            link.sendall(reply(json.dumps(token).encode(), status="201 Created"))
            continue
        tokens = (f"{CANARY}-given", f"{CANARY}-minted")
        pairs = [base64.b64encode(f"x-access-token:{token}".encode()) for token in tokens]
        if any(pair in head for pair in pairs) or any(f"token {t}".encode() in head for t in tokens):
            refs = b"001e# service=git-upload-pack\n0000" + b"0000"
            kind = "content-type: application/x-git-upload-pack-advertisement"
            link.sendall(reply(refs if b"info/refs" in head else b"hello", kind))
        else:
            link.sendall(reply(b"who are you", 'www-authenticate: Basic realm="x"', status="401 Unauthorized"))


def restarted(walled: Walled) -> None:
    walled.ask(lambda itx: itx.sandboxes.get("box").restart())


def test_a_connection_is_planted_and_git_uses_it(walled: Walled) -> None:
    walled.world.site("github.com", "api.github.com", handler=github)
    assert walled.run("echo ${GH_TOKEN-none}") == "none\n"
    walled.ask(lambda itx: itx.github.connect("install-9", token=f"{CANARY}-given"))
    restarted(walled)
    place = 'getSecret("/secrets/integrations/github/install-9", { field: "accessToken" })'
    assert walled.run("echo $GH_TOKEN") == place + "\n"
    assert walled.run(f"{GIT} && echo well") == "well\n"
    assert walled.run('curl -sS -H "Authorization: token $GH_TOKEN" https://api.github.com/user') == "hello"
    # An app's installation sorts before it: its token is minted at the first use, sealed, and not minted again.
    key = rsa.generate_private_key(65537, 2048).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    walled.ask(lambda itx: itx.github.connect("install-10", app_id="7", installation_id="42", private_key=key.decode()))
    restarted(walled)
    assert walled.run(f"{GIT} && {GIT} && echo well") == "well\n"
    minted = [r for s in walled.world.servers for r in s.requests if b"/app/installations/42/access_tokens" in r]
    assert len(minted) == 1
    view = soon(lambda: (v := walled.ask(lambda itx: itx.github.get("install-10"))).rotated_at and v)
    assert view.kind == "app"
    # The sandbox's own variable comes first, null takes the planted one away too, and for good.
    walled.ask(lambda itx: itx.sandboxes.get("box").set_env_vars({"GH_TOKEN": "mine"}))
    assert walled.run("echo $GH_TOKEN") == "mine\n"
    walled.ask(lambda itx: itx.sandboxes.get("box").set_env_vars({"GH_TOKEN": None}))
    assert walled.run("echo ${GH_TOKEN-none} ${GIT_CONFIG_COUNT-none}") == "none none\n"
    restarted(walled)
    assert walled.run("echo ${GH_TOKEN-none} ${GIT_CONFIG_COUNT-none}") == "none none\n"
    # Its placeholder is a value like any other.
    first = place.replace("install-9", "install-10")
    walled.ask(lambda itx: itx.sandboxes.get("box").set_env_vars({"GH_TOKEN": first}))
    assert walled.run(f"{GIT} && echo well") == "well\n"
    assert walled.holding(CANARY.encode()) == []
    walled.ask(lambda itx: [itx.github.disconnect(view.name) for view in itx.github.list()])


@pytest.mark.full
def test_a_minted_token_survives_control_and_gateway(walled: Walled) -> None:
    walled.world.site("github.com", "api.github.com", handler=github)
    key = rsa.generate_private_key(65537, 2048).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    walled.ask(lambda itx: itx.github.connect("app", app_id="7", installation_id="42", private_key=key.decode()))
    restarted(walled)
    assert walled.run(f"{GIT} && echo well") == "well\n"
    walled.kill("control")
    walled.kill("gateway")
    soon(lambda: "well" in _tried(walled, f"{GIT} && echo well"))
    assert len([r for s in walled.world.servers for r in s.requests if b"access_tokens" in r]) == 1
    walled.ask(lambda itx: itx.github.disconnect("app"))


JAVA = (
    "import java.net.*; import java.net.http.*;"
    " public class Get { public static void main(String[] a) throws Exception {"
    " System.out.println(HttpClient.newHttpClient().send(HttpRequest.newBuilder(URI.create(a[0])).build(),"
    " HttpResponse.BodyHandlers.ofString()).body()); } }"
)
TRUSTING = {
    "curl": "curl -sS URL",
    "wget": "wget -q -O - URL",
    "python3": "python3 -c 'import urllib.request as u; print(u.urlopen(\"URL\").read().decode())'",
    "node": "node --input-type=module -e 'console.log(await (await fetch(\"URL\")).text())'",
    "openssl": "echo | openssl s_client -CApath ${SSL_CERT_DIR%%:*} -verify_return_error -connect HOST:443"
    " -servername HOST 2>&1 | grep -o 'Verification: OK' | sed s/Verification:.OK/ok/",
    "chromium": "chromium --headless --no-sandbox --disable-gpu --no-first-run --disable-background-networking"
    " --user-data-dir=/tmp/profile --dump-dom URL 2>/tmp/chromium.log | grep -o '>ok<' | tr -d '<>'",
    "java": "cd /tmp && java Get.java URL 2>/dev/null",
}


SLOW = {"node", "java", "chromium"}


@pytest.mark.parametrize(
    "program", [pytest.param(name, marks=[pytest.mark.full] if name in SLOW else []) for name in TRUSTING]
)
def test_programs_trust_the_gateway_without_being_told(walled: Walled, program: str) -> None:
    if not walled.run(f"command -v {program}"):
        pytest.skip(f"the image has no {program}")
    walled.world.site("trust.example.com")
    if program == "java":
        walled.ask(lambda itx: itx.sandboxes.get("box").write_file("/tmp/Get.java", JAVA))
    command = TRUSTING[program].replace("URL", "https://trust.example.com/").replace("HOST", "trust.example.com")
    assert walled.run(command).strip() == "ok"


def test_the_policy_is_tried_on_what_is_recorded(walled: Walled) -> None:
    walled.world.site("past.example.com")
    assert walled.run("curl -sS https://past.example.com/a") == "ok"
    rule = {"ruleKey": "r", "verdict": "deny", "match": {"hosts": ["past.example.com"]}}
    found = soon(lambda: (f := walled.ask(lambda itx: itx.egress.replay([rule]))).deny and f)
    assert (found.changed[0].url, found.changed[0].would) == ("https://past.example.com/a", "deny")
    [host] = [row for row in walled.ask(lambda itx: itx.egress.hosts()) if row.host == "past.example.com"]
    assert host.requests == 1
    assert walled.run("curl -sS https://past.example.com/a") == "ok"
