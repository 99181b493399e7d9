"""Who gets into the console, and what every answer carries."""

from __future__ import annotations

import re
from typing import Any

import pytest

from kennel.api.services import ApiSettings

pytestmark = pytest.mark.anyio

HOME = "/console/p/default/sandboxes"
PAGES = ["sandboxes", "sandboxes/main", "rooms", "streams", "streams/one?path=/sandboxes/main", "images", "keys",
         "projects", "node"]  # fmt: skip


async def test_a_browser_is_led_to_the_console_and_a_program_is_not(world: Any) -> None:
    browser = world.browser()
    answer = await browser.get("/", accept="text/html,*/*")
    assert (answer.status_code, answer.headers["location"]) == (303, "/console/")
    assert (await browser.get("/")).status_code == 401
    assert (await browser.get("/console", accept="text/html")).status_code == 303


@pytest.mark.parametrize("page", PAGES)
async def test_without_a_session_every_page_leads_to_the_login(world: Any, page: str) -> None:
    answer = await world.browser().get(f"/console/p/default/{page}")
    assert answer.status_code == 303
    assert answer.headers["location"].startswith("/console/login?next=%2Fconsole%2Fp%2Fdefault%2F")
    assert world.sandboxes.calls == []


async def test_a_form_without_a_session_does_nothing(world: Any) -> None:
    answer = await world.browser().http.post(f"{HOME}/main/destroy", data={"confirm": "main"})
    assert (answer.status_code, answer.headers["location"]) == (303, "/console/login")
    assert world.sandboxes.calls == []


@pytest.mark.parametrize("key", ["", "wrong", "x" * 600, "schlüssel"])
async def test_a_wrong_key_gives_no_session(world: Any, key: str) -> None:
    answer = await world.browser().http.post("/console/login", data={"key": key})
    assert answer.status_code == 401
    assert "set-cookie" not in answer.headers
    assert not key or key not in answer.text


async def test_the_cookie_is_strict_and_means_nothing_to_the_api(world: Any) -> None:
    browser = world.browser()
    answer = await browser.http.post("/console/login", data={"key": "admin"})
    cookie = answer.headers["set-cookie"]
    assert {"httponly", "samesite=strict", "path=/console"} <= {part.strip().lower() for part in cookie.split(";")}
    assert cookie.startswith("kennel-session-8787=")
    assert "admin" not in cookie
    assert (await browser.get(HOME)).status_code == 200
    value = cookie.partition(";")[0]
    assert (await browser.get("/v1/projects/default/sandboxes", cookie=value)).status_code == 401


async def test_a_key_alone_opens_no_page(world: Any) -> None:
    assert (await world.browser().get(HOME, authorization="Bearer admin")).status_code == 303


async def test_a_revoked_key_ends_its_sessions(world: Any) -> None:
    browser = await world.browser().login()
    world.keys.revoked.add("key_admin")
    assert (await browser.get(HOME)).status_code == 303
    world.keys.revoked.clear()
    assert (await browser.get(HOME)).status_code == 303


async def test_logging_out_ends_the_session_on_the_server(world: Any) -> None:
    browser = await world.browser().login()
    cookie = browser.http.cookies["kennel-session-8787"]
    assert (await browser.submit("/console/logout")).status_code == 303
    assert (await browser.get(HOME, cookie=f"kennel-session-8787={cookie}")).status_code == 303


@pytest.mark.parametrize("wanted", ["//evil.example/", "https://evil.example", "/console/../v1", "javascript:alert(1)",
                                    "/console/p/x\\@evil", "/v1/projects"])  # fmt: skip
async def test_the_login_leads_nowhere_else(world: Any, wanted: str) -> None:
    answer = await world.browser().http.post("/console/login", data={"key": "admin", "next": wanted})
    assert answer.headers["location"] == "/console"


async def test_the_login_leads_back(world: Any) -> None:
    answer = await world.browser().http.post("/console/login", data={"key": "admin", "next": f"{HOME}/main?x=1"})
    assert answer.headers["location"] == f"{HOME}/main?x=1"


FORMS = [
    "sandboxes", "sandboxes/main/turn/start", "sandboxes/main/destroy", "sandboxes/main/env", "sandboxes/main/exec",
         "sandboxes/main/settings", "rooms", "rooms/r/exec", "rooms/r/cleanup", "keys", "keys/key_1/revoke",
         "projects"]  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("token", [None, "", "wrong"])
async def test_no_form_works_without_the_sessions_token(world: Any, form: str, token: str | None) -> None:
    browser = await world.browser().login()
    data = {} if token is None else {"token": token}
    answer = await browser.http.post(f"/console/p/default/{form}", data={"confirm": "main", **data})
    assert answer.status_code == 403
    assert "FORBIDDEN" in answer.text
    assert [call for call in world.sandboxes.calls + world.rooms.calls + world.keys.calls] == []


async def test_a_token_of_another_session_is_refused(world: Any) -> None:
    first, second = await world.browser().login(), await world.browser().login()
    answer = await second.http.post(f"{HOME}/main/turn/start", data={"token": await first.token()})
    assert answer.status_code == 403
    assert not world.sandboxes.called("start")


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://localhost:1"])
async def test_a_foreign_page_cannot_send_a_form(world: Any, origin: str) -> None:
    browser = await world.browser().login()
    answer = await browser.submit(f"{HOME}/main/turn/start", origin=origin)
    assert answer.status_code == 403
    login = await browser.http.post("/console/login", data={"key": "admin"}, headers={"origin": origin})
    assert login.status_code == 403


async def test_a_rebound_name_reaches_nothing(world: Any) -> None:
    assert (await world.browser().get("/console/login", host="evil.example")).status_code == 400


@pytest.mark.parametrize("path", [*PAGES, "nosuch", "sandboxes/nosuch"])
async def test_every_answer_carries_the_policy(world: Any, path: str) -> None:
    browser = await world.browser().login()
    answer = await browser.get(f"/console/p/default/{path}")
    policy = answer.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; script-src http://localhost:8787/console/static/;")
    assert "unsafe" not in policy
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["x-frame-options"] == "DENY"
    assert answer.headers["referrer-policy"] == "same-origin"


@pytest.mark.parametrize("path", PAGES)
async def test_no_page_holds_inline_script_or_style(world: Any, path: str) -> None:
    browser = await world.browser().login()
    answer = await browser.get(f"/console/p/default/{path}")
    assert answer.status_code == 200, answer.text
    assert not re.search(r"<script(?![^>]*\bsrc=)|<style|\sstyle=|\son[a-z]+=|hx-on|javascript:", answer.text)


async def test_without_keys_no_login_is_needed_but_the_token_is(new_world: Any) -> None:
    world = new_world(ApiSettings(open=True))
    browser = world.browser()
    page = await browser.get(HOME)
    assert page.status_code == 200
    assert "open: no keys" in page.text
    assert "Log out" not in page.text
    assert (await browser.http.post(f"{HOME}/main/turn/start", data={"x": "1"})).status_code == 403
    assert (await browser.submit(f"{HOME}/main/turn/start")).status_code == 303


async def test_a_link_from_elsewhere_comes_again_from_here(world: Any) -> None:
    answer = await world.browser().get(f"{HOME}/main?a=%22%3E", **{"sec-fetch-site": "cross-site"})
    assert answer.status_code == 200
    assert '<meta http-equiv="refresh" content="0; url=/console/p/default/sandboxes/main?a=%22%3E">' in answer.text


async def test_static_files_are_cached_by_their_content(world: Any) -> None:
    browser = world.browser()
    page = await browser.get("/console/login")
    for address in re.findall(r'(?:src|href)="(/console/static/[^"]+)"', page.text):
        answer = await browser.get(address)
        assert answer.status_code == 200
        assert "immutable" in answer.headers["cache-control"]
    for path in ("/console/static/../app.py", "/console/static/%2e%2e/app.py", "/console/static/nosuch.js"):
        assert (await browser.get(path)).status_code in (303, 404)


async def _socket(world: Any, path: str, headers: dict[str, str], protocols: list[str]) -> dict[str, Any]:
    """What a WebSocket's handshake is answered with."""
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "websocket.connect"}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    raw = [(name.encode(), value.encode()) for name, value in {"host": "localhost:8787", **headers}.items()]
    scope = {"type": "websocket", "path": path, "raw_path": path.encode(), "query_string": b"", "headers": raw,
             "scheme": "ws", "server": ("localhost", 8787), "subprotocols": protocols, "root_path": "",
             "extensions": {"websocket.http.response": {}}}  # fmt: skip
    await world.app(scope, receive, send)
    return sent[0]


@pytest.mark.parametrize(("key", "origin", "shown", "status"), [
    ("admin", "http://localhost:8787", "token", 503), ("admin", "http://localhost:8787", "wrong", 403),
    ("admin", "http://localhost:8787", "", 403), ("admin", None, "token", 403),
    ("admin", "http://localhost:8788", "token", 403), ("admin", "https://localhost:8787", "token", 403),
    (None, "http://localhost:8787", "token", 401), ("reader", "http://localhost:8787", "token", 403),
])  # fmt: skip
async def test_a_socket_is_opened_by_a_page_of_the_session_alone(
    world: Any, key: str | None, origin: str | None, shown: str, status: int
) -> None:
    browser = await world.browser().login(key or "admin")
    token = await browser.token()
    headers = {} if origin is None else {"origin": origin}
    if key is not None:
        headers["cookie"] = "; ".join(f"{name}={value}" for name, value in browser.http.cookies.items())
    protocols = ["kennel.v1", f"kennel.form.{token if shown == 'token' else shown}"]
    answer = await _socket(world, "/console/p/default/sandboxes/main/terminals/t", headers, protocols)
    assert answer["status"] == status


async def test_a_body_that_is_no_form_needs_the_token_too(world: Any) -> None:
    browser = await world.browser().login()
    address = "/console/p/default/sandboxes/main/upload?path=/x"
    answer = await browser.http.put(address, content=b"x")
    assert answer.status_code == 403
    answer = await browser.http.put(address, content=b"x", headers={"x-kennel-form": await browser.token()})
    assert answer.status_code == 503  # the scripted world has no files
