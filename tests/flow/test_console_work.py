"""The console's pages for work in a real browser: terminal, files, snapshots, previews, rooms, the way out."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from console_browser import Visitor, browser, expect, needs_chromium
from installation import Installation
from kennel import Kennel

pytestmark = needs_chromium

NAME = "<img src=x onerror=document.title='owned'>\n\u202e.txt"
IMAGE = '<img src=x onerror="document.title=1">'
SHOWN = "<img src=x onerror=document.title='owned'>␊\ufffd.txt"


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with browser() as one:
        yield one


@pytest.fixture(scope="module")
def worked(installation: Installation) -> Iterator[Any]:
    """One sandbox that all of these tests use, since what they do there does not meet."""
    with installation.client() as itx:
        box = itx.sandboxes.get("/sandboxes/console-work").create()
        yield box
        box.destroy()


@pytest.fixture(scope="module")
def logged_in(chromium: Any, installation: Installation) -> Iterator[Visitor]:
    one = Visitor(chromium, installation)
    one.login()
    yield one
    one.context.close()


@pytest.fixture
def visitor(logged_in: Visitor, worked: Any) -> Iterator[Visitor]:
    yield logged_in
    assert "owned" not in logged_in.page.title()
    assert logged_in.complaints == []


def _type(page: Any, line: str) -> None:
    page.keyboard.type(line)
    page.keyboard.press("Enter")


def test_a_terminal_goes_on_when_its_page_leaves(visitor: Visitor, worked: Any) -> None:
    page = visitor.page
    visitor.go("sandboxes/console-work/terminal")
    assert worked.info().status != "running" or page.locator("[data-open]").count() == 0
    page.get_by_role("button", name="New terminal").click()
    expect(page.locator("[data-told]")).to_have_text("connected")
    _type(page, "x=kept; printf '\\033[38;2;9;9;9mcol%sred\\033[0m\\n' o")
    expect(page.locator(".xterm-rows")).to_contain_text("colored")
    page.reload()
    expect(page.locator("[data-told]")).to_have_text("connected")
    expect(page.locator(".xterm-rows")).to_contain_text("colored")
    page.locator(".xterm-helper-textarea").focus()
    _type(page, "stty size > size; echo was-$x")
    expect(page.locator(".xterm-rows")).to_contain_text("was-kept")
    page.set_viewport_size({"width": 390, "height": 800})
    rows, columns = worked.read_file("/workspace/size").content.split()
    _type(page, "stty size > smaller; echo do''ne")
    expect(page.locator(".xterm-rows")).to_contain_text("done")
    assert int(worked.read_file("/workspace/smaller").content.split()[1]) < int(columns), rows
    page.keyboard.press("Shift+Escape")
    expect(page.get_by_role("button", name="web-1", exact=True)).to_be_focused()
    page.get_by_role("button", name="Hang up").click()
    expect(page.locator("[data-told]")).to_contain_text("ended")


@pytest.mark.full
def test_two_terminals_at_once_and_who_types(chromium: Any, installation: Installation, visitor: Visitor) -> None:
    page = visitor.page
    visitor.go("sandboxes/console-work/terminal")
    page.get_by_role("button", name="New terminal").click()
    expect(page.locator("[data-told]")).to_have_text("connected")
    first = page.locator("[aria-pressed=true]").inner_text()
    page.get_by_role("button", name="New terminal").click()
    expect(page.locator("[data-told]")).to_have_text("connected")
    assert page.locator("[aria-pressed=true]").inner_text() != first
    other = Visitor(chromium, installation)
    other.login()
    other.go("sandboxes/console-work/terminal")
    other.page.locator("[data-open]").last.click()
    expect(other.page.locator("[data-told]")).to_have_text("connected")
    expect(page.locator("[data-told]")).to_contain_text("somebody else types")
    page.get_by_role("button", name="Take over").click()
    expect(page.locator("[data-told]")).to_have_text("connected")
    expect(other.page.locator("[data-told]")).to_contain_text("somebody else types")
    other.context.close()
    assert other.complaints == []


def test_files_come_and_go_under_any_name(visitor: Visitor, worked: Any, tmp_path: Path) -> None:
    page = visitor.page
    worked.mkdir("/workspace/f")
    worked.write_file(f"/workspace/f/{NAME}", f"{NAME}</textarea><script>document.title='owned'</script>")
    visitor.go("sandboxes/console-work/files?path=/workspace/f")
    expect(page.locator("tbody .name").nth(1)).to_have_text(SHOWN)
    page.locator("tbody .name").nth(1).click()
    expect(page.locator("textarea.editor")).to_have_value(f"{NAME}</textarea><script>document.title='owned'</script>")
    page.locator("textarea.editor").fill("line one\nline two\n")
    page.get_by_role("button", name="Save").click()
    expect(page.locator(".notice")).to_contain_text("was saved")
    assert worked.read_file(f"/workspace/f/{NAME}").content == "line one\nline two\n"
    worked.write_file(f"/workspace/f/{NAME}", "meanwhile")
    page.locator("textarea.editor").fill("mine")
    page.get_by_role("button", name="Save").click()
    expect(page.locator(".problem")).to_contain_text("changed since you opened it")
    expect(page.locator("textarea.editor")).to_have_value("mine")
    with page.expect_download() as download:
        page.get_by_role("link", name="Download").click()
    assert Path(download.value.path()).read_text() == "meanwhile"
    upload = tmp_path / "up load.bin"
    upload.write_bytes(bytes(range(256)) * 8192)
    visitor.go("sandboxes/console-work/files?path=/workspace/f")
    page.locator("#upload").set_input_files(upload)
    row = page.locator("tr", has_text="up load.bin")
    expect(row).to_contain_text("2 MiB")
    row.locator("summary").click()
    row.get_by_label("New name of up load.bin").fill("moved")
    row.get_by_role("button", name="Rename").click()
    row = page.locator("tr", has_text="moved")
    expect(row).to_be_visible()
    assert worked.read_file("/workspace/f/moved", encoding="base64").size == 2 << 20
    row.locator("summary").click()
    row.get_by_role("button", name="Delete").click()
    expect(page.locator(".notice")).to_contain_text("moved was deleted")
    page.get_by_text("New folder").click()
    page.get_by_label("Name of the new folder").fill("deep")
    page.get_by_role("button", name="Make").click()
    expect(page.locator("tbody .name", has_text="deep/")).to_be_visible()


def test_a_picture_is_seen_and_a_page_is_not_run(visitor: Visitor, worked: Any) -> None:
    page = visitor.page
    png = bytes.fromhex(
        "89504e470d0a1a0a0000000d4948445200000001000000010802000000907753de0000000c49444154789c63f8cfc0000003010100c9fe92ef"
        "0000000049454e44ae426082"
    )
    worked.write_file("/workspace/p.png", png)
    worked.write_file("/workspace/p.html", "<script>document.title='owned'</script>")
    visitor.go("sandboxes/console-work/files?path=/workspace/p.png")
    expect(page.locator(".picture img")).to_be_visible()
    assert page.locator(".picture img").evaluate("one => one.decode().then(() => one.naturalWidth)") == 1
    visitor.go("sandboxes/console-work/files?path=/workspace/p.html")
    expect(page.locator("textarea.editor")).to_have_value("<script>document.title='owned'</script>")
    base = f"{visitor.installation.url}/console/p/default/sandboxes/console-work"
    answer = visitor.context.request.get(f"{base}/download?path=/workspace/p.html")
    assert answer.headers["content-disposition"].startswith("attachment")
    assert answer.headers["content-security-policy"] == "sandbox; default-src 'none'"
    assert visitor.context.request.get(f"{base}/picture?path=/workspace/p.html").status == 404


@pytest.mark.full
def test_a_snapshot_is_compared_gone_back_to_and_forked(visitor: Visitor, worked: Any, itx: Kennel) -> None:
    page = visitor.page
    worked.write_file("/workspace/story", "one")
    visitor.go("sandboxes/console-work/snapshots")
    page.get_by_label("Name", exact=True).fill("chapter")
    page.get_by_label("what git ignores").check()
    page.get_by_role("button", name="Take a snapshot").click()
    row = page.locator(".tree > li", has_text="chapter")
    expect(row).to_contain_text("for good")
    worked.write_file("/workspace/story", "two")
    worked.write_file(f"/workspace/{NAME}", "")
    row.get_by_role("link", name="Compare").click()
    expect(page.locator("tr", has_text="story")).to_contain_text("changed")
    expect(page.locator("td code", has_text=SHOWN)).to_be_visible()
    page.get_by_role("link", name="All snapshots").click()
    row.locator("summary", has_text="More").click()
    with page.expect_download() as download:
        row.get_by_role("link", name="Export").click()
    assert Path(download.value.path()).read_bytes()[:4] == b"\x28\xb5\x2f\xfd"
    page.get_by_label("Name", exact=True).fill("sequel")
    page.get_by_role("button", name="Take a snapshot").click()
    expect(page.locator(".tree > li", has_text="sequel").get_by_role("link", name="Its changes")).to_be_visible()
    row.locator("summary", has_text="Roll back").click()
    row.get_by_role("button", name="Roll back to chapter").click()
    expect(page.locator(".notice")).to_contain_text("of the snapshot again")
    assert worked.read_file("/workspace/story").content == "one"
    row.locator("summary", has_text="Fork").click()
    row.get_by_label("Name of the new sandbox").fill("console-twin")
    row.get_by_role("button", name="Fork").click()
    expect(page.get_by_role("heading", name="console-twin")).to_be_visible()
    visitor.go("sandboxes/console-work/snapshots")
    expect(row.get_by_role("link", name="console-twin")).to_be_visible()
    itx.sandboxes.get("/sandboxes/console-twin").destroy()
    visitor.go("sandboxes/console-work/snapshots")
    expect(row.get_by_role("link", name="console-twin")).to_have_count(0)
    row.locator("summary", has_text="More").click()
    row.get_by_role("button", name="Delete chapter").click()
    expect(row).to_have_count(0)
    visitor.go("sandboxes")
    expect(page.locator("tr", has_text="console-work").locator("td[data-label=Snapshot]")).to_contain_text("ago")


def test_from_the_first_form_to_the_fork(visitor: Visitor, itx: Kennel) -> None:
    page = visitor.page
    visitor.go("sandboxes")
    page.get_by_text("New sandbox").click()
    page.get_by_label("Name", exact=True).fill("console-short")
    page.get_by_role("button", name="Create").click()
    page.get_by_role("link", name="Terminal").click()
    page.get_by_role("button", name="New terminal").click()
    expect(page.locator("[data-told]")).to_have_text("connected")
    _type(page, "echo written > story; echo se''en")
    expect(page.locator(".xterm-rows")).to_contain_text("seen")
    page.get_by_role("link", name="Snapshots").click()
    page.get_by_label("Name", exact=True).fill("first")
    page.get_by_role("button", name="Take a snapshot").click()
    row = page.locator(".tree > li", has_text="first")
    row.locator("summary", has_text="Fork").click()
    row.get_by_label("Name of the new sandbox").fill("console-short-twin")
    row.get_by_role("button", name="Fork").click()
    expect(page.get_by_role("heading", name="console-short-twin")).to_be_visible()
    twin = itx.sandboxes.get("/sandboxes/console-short-twin")
    assert twin.exec("cat story").stdout == "written\n"
    page.get_by_label("to confirm").fill("console-short-twin")
    page.get_by_role("button", name="Destroy").click()
    expect(page.locator(".notice")).to_contain_text("console-short-twin was destroyed")
    itx.sandboxes.get("/sandboxes/console-short").destroy()


@pytest.mark.full
def test_points_and_saved_directories(visitor: Visitor, worked: Any) -> None:
    page = visitor.page
    visitor.go("sandboxes/console-work/snapshots")
    page.get_by_role("button", name="Take points").click()
    expect(page.locator(".notice")).to_contain_text("before each command")
    worked.exec("mkdir -p /home/user/data; echo kept | tee /home/user/data/note draft")
    worked.exec("rm draft # <img src=x>")
    row = page.locator(".undo li", has_text="rm draft")
    for _ in range(40):  # what a command did is told to the log a moment after it
        page.reload()
        if row.count():
            break
    expect(row).to_contain_text("<img src=x>")
    row.locator("summary", has_text="Go back").click()
    row.get_by_role("button", name="Go back to before it").click()
    expect(page.locator(".notice")).to_contain_text("from before that command")
    assert worked.read_file("/workspace/draft").content == "kept\n"
    page.get_by_role("button", name="Take no more points").click()
    expect(page.get_by_role("button", name="Take points")).to_be_visible()
    worked.exec("mkdir -p /home/user/data; echo kept > /home/user/data/note")
    page.get_by_label("Directory", exact=True).fill("/home/user/data")
    page.get_by_label("Title").fill("<b>data</b>")
    page.get_by_role("button", name="Save").click()
    expect(page.locator(".kept")).to_contain_text("<b>data</b>")
    worked.exec("rm -r /home/user/data")
    page.locator(".kept summary", has_text="Restore").click()
    page.locator(".kept").get_by_role("button", name="Restore").click()
    expect(page.locator(".notice")).to_contain_text("what the backup holds")
    assert worked.read_file("/home/user/data/note").content == "kept\n"
    page.locator(".kept summary", has_text="Delete").click()
    page.locator(".kept").get_by_role("button", name="Delete the backup").click()
    expect(page.locator(".kept")).to_have_count(0)


def test_a_process_is_started_followed_and_ended(visitor: Visitor, worked: Any) -> None:
    page = visitor.page
    visitor.go("sandboxes/console-work/processes")
    page.get_by_label("Command", exact=True).fill(
        f"echo '{IMAGE}'; until [ -e go ]; do sleep 0.1; done; cat go; sleep 300"
    )
    page.get_by_label("called").fill("console-p")
    page.get_by_role("button", name="Start").click()
    expect(page.locator("#lines .stdout")).to_have_text(f"{IMAGE}\n")
    expect(page.locator("[data-told]")).to_have_text("live")
    worked.write_file("/workspace/go", "and later\n")
    expect(page.locator("#lines")).to_contain_text("and later")
    assert page.locator("#lines img").count() == 0
    page.get_by_label("Signal for console-p").select_option("STOP")
    page.get_by_role("button", name="Send").click()
    expect(page.locator(".notice")).to_contain_text("was sent STOP")
    page.get_by_role("button", name="End console-p").click()
    expect(page.locator(".notice")).to_contain_text("console-p ended by")
    page.get_by_role("link", name="All processes").click()
    expect(page.locator("tr", has_text="console-p")).to_contain_text("SIG")


def test_a_port_is_exposed_and_revoked(visitor: Visitor, worked: Any) -> None:
    page = visitor.page
    visitor.go("sandboxes/console-work/previews")
    page.get_by_label("Port", exact=True).fill("70000")
    page.get_by_role("button", name="Expose").click()
    expect(page.locator(".problem")).to_contain_text("a number from 1 to 65535")
    page.get_by_label("Port", exact=True).fill("3000")
    page.get_by_label("Name", exact=True).fill("<b>web</b>")
    page.get_by_role("button", name="Expose").click()
    row = page.locator("tbody tr", has_text="3000")
    expect(row).to_contain_text("<b>web</b>")
    [exposed] = worked.get_exposed_ports()
    if exposed.url:
        expect(row.get_by_role("link")).to_have_attribute("href", exposed.url)
    row.locator("summary").click()
    row.get_by_role("button", name="Revoke").click()
    expect(row).to_have_count(0)
    assert worked.get_exposed_ports() == []


TYPED = """async () => {
  const box = document.querySelector("[data-watched]");
  const address = `${box.dataset.terminals}/web-1?mode=drive`.replace(/^/, location.origin.replace("http", "ws"));
  const socket = new WebSocket(address, ["kennel.v1", `kennel.form.${box.dataset.token}`]);
  await new Promise((heard) => { socket.onmessage = heard; });
  socket.send(new TextEncoder().encode("echo by-an-observer > seen\\r"));
  socket.send(JSON.stringify({ type: "resize", cols: 9, rows: 9 }));
  socket.close();
}"""


def test_an_observer_sees_the_terminal_and_types_nothing(
    chromium: Any, installation: Installation, itx: Kennel
) -> None:
    room = itx.rooms.get("watched")
    room.exec("true")
    box = itx.sandboxes.get("/sandboxes/sandbox-watched")
    link = room.create_link(role="observer")
    with box.terminal("web-1", cols=70, rows=12) as driver:
        driver.write(b"echo by-a-$((1 + 1))-driver\r")
        one = Visitor(chromium, installation, viewport={"width": 380, "height": 800}, color_scheme="dark")
        one.page.goto(f"{installation.url}/console/join#{link.token}")
        expect(one.page.locator(".xterm-rows")).to_contain_text("by-a-2-driver")
        expect(one.page.locator("[data-told]")).to_have_text("watching")
        one.page.evaluate(TYPED)
        one.page.locator(".xterm-helper-textarea").focus()
        _type(one.page, "echo by-an-observer > seen")
        driver.write(b"stty size; ls seen; echo the-$((2 + 1))rd\r")
        expect(one.page.locator(".xterm-rows")).to_contain_text("the-3rd")
        expect(one.page.locator(".xterm-rows")).to_contain_text("12 70")
        expect(one.page.locator(".xterm-rows")).not_to_contain_text("observer")
        assert not box.exists("/workspace/seen")
        sides = one.page.locator("[data-screen]").evaluate("(screen) => [screen.scrollWidth, screen.clientWidth]")
        assert sides[0] > sides[1]  # as wide as its driver made it
        assert one.page.evaluate("document.documentElement.scrollWidth") <= 380
    one.context.close()
    assert one.complaints == []
    room.cleanup()


def test_two_people_in_a_room(chromium: Any, installation: Installation, visitor: Visitor, itx: Kennel) -> None:
    page = visitor.page
    page.set_viewport_size({"width": 1280, "height": 900})  # the files are folded where a test before made it small
    visitor.go("rooms")
    page.get_by_label("Room id").fill("console<room>")
    page.get_by_role("button", name="Open").click()
    expect(page.locator("#talk")).to_contain_text("Nothing was said yet")
    assert "console<room>" not in {room.room_id for room in itx.rooms.list()}
    other = Visitor(chromium, installation, viewport={"width": 390, "height": 800}, color_scheme="dark")
    other.login()
    other.page.goto(page.url)
    page.get_by_label("Speak as").fill("ana")
    page.get_by_role("textbox", name="Message").fill(NAME)
    page.keyboard.press("Enter")
    for one in (page, other.page):
        expect(one.locator(".said.user .words")).to_have_text(NAME)
        expect(one.locator(".said.trouble")).to_contain_text("MODEL_NOT_CONFIGURED")
    expect(page.locator(".problem")).to_contain_text("MODEL_NOT_CONFIGURED")
    other.page.get_by_label("Your name").fill("bo<b>")
    other.page.get_by_role("button", name="Join").click()
    expect(page.locator(".members b")).to_have_text("bo<b>")
    expect(page.locator(".there")).to_have_attribute("data-present", "yes")
    page.get_by_text("Shell everybody").click()
    page.get_by_label("Command", exact=True).fill("touch '<i>made'; echo in-$((20 + 3))")
    page.keyboard.press("Enter")
    expect(other.page.locator(".said.ran .out")).to_have_text("in-23")
    expect(other.page.locator("#place .name")).to_contain_text("room")
    expect(page.locator("#files a.name")).to_have_text("<i>made")
    expect(other.page.locator("#files")).to_be_hidden()  # folded: the screen is small
    for one in (page, other.page):  # without loading the page again
        expect(one.get_by_role("button", name="New terminal")).to_be_visible()
    page.get_by_label("For whom the link is").fill("carl")
    page.get_by_role("button", name="Make a link").click()
    expect(page.locator("#people .notice code")).to_contain_text("/console/join#kl_")
    guest = Visitor(chromium, installation)
    guest.page.goto(page.locator("#people .notice code").inner_text())
    expect(guest.page.get_by_role("heading", name="console<room>")).to_be_visible()
    expect(guest.page.locator(".said.user .words")).to_have_text(NAME)
    assert "kl_" not in guest.page.url
    expect(guest.page.get_by_role("link", name="Sandboxes")).to_have_count(0)
    expect(guest.page.locator("#files a.name")).to_have_text("<i>made")
    guest.page.get_by_role("button", name="New terminal").click()
    expect(guest.page.locator("[data-told]")).to_have_text("connected")
    _type(guest.page, "echo by-$((1 + 1))-a-link")
    expect(guest.page.locator(".xterm-rows")).to_contain_text("by-2-a-link")
    assert other.page.evaluate("document.documentElement.scrollWidth") <= 390
    other.context.close()
    assert other.complaints == []
    page.reload()
    expect(page.locator("#people .notice")).to_have_count(0)
    page.get_by_role("button", name="Revoke carl").click()
    expect(page.get_by_text("reached by key alone")).to_be_visible()
    expect(guest.page.locator("[data-told]")).to_contain_text("you are logged out")
    guest.page.reload()
    expect(guest.page.get_by_role("heading", name="Kennel")).to_be_visible()
    guest.context.close()
    assert guest.complaints == []
    page.get_by_label("to confirm").fill("console<room>")
    page.get_by_role("button", name="Clean up").click()
    expect(page.locator(".notice")).to_contain_text("was cleaned up")


def test_a_request_waits_for_a_person_and_is_on_the_log(visitor: Visitor, worked: Any) -> None:
    page = visitor.page
    visitor.go("egress")
    page.get_by_label("Key", exact=True).fill("console-hold")
    page.get_by_label("Verdict", exact=True).select_option("hold")
    page.get_by_label("Hosts").fill("*bad*")
    page.get_by_label("Sandboxes", exact=True).fill("console-work")
    page.get_by_role("button", name="Add", exact=True).click()
    expect(page.locator(".problem")).to_contain_text("is no host")
    expect(page.get_by_label("Key", exact=True)).to_have_value("console-hold")
    page.get_by_label("Hosts").fill("held.example")
    page.get_by_role("button", name="Add", exact=True).click()
    expect(page.locator(".notice")).to_contain_text("hold from the next request on")
    page.get_by_label("Sandbox", exact=True).fill("/sandboxes/console-work")
    page.locator("#url").fill("http://held.example/x")
    page.get_by_role("button", name="Try").click()
    expect(page.locator("#finding")).to_contain_text("by rule console-hold")
    visitor.go("approvals")
    asked = worked.start_process("curl -s -m 60 -H 'x-a: <img src=x>' http://held.example/one > answer")
    held = page.locator(".held")
    expect(held).to_contain_text("http://held.example/one")
    held.get_by_label("Reason").fill("<b>no</b>")
    held.get_by_role("button", name="Deny").click()
    expect(page.locator("#inbox tbody tr").first).to_contain_text("<b>no</b>")
    asked.wait_for_exit()
    assert "approval_rejected" in worked.read_file("/workspace/answer").content
    visitor.go("egress/log")
    expect(page.locator(".event.bad .says").first).to_contain_text("http://held.example/one")
    visitor.go("egress")
    page.locator("tr", has_text="console-hold").locator("summary").click()
    page.get_by_role("button", name="Delete console-hold").click()
    expect(page.locator("tr", has_text="console-hold")).to_have_count(0)


def test_a_secret_goes_in_and_never_comes_out(visitor: Visitor) -> None:
    page = visitor.page
    visitor.go("secrets")
    page.get_by_label("Name /secrets/").fill("console")
    page.get_by_label("May go to").fill("https://api.example.com")
    page.get_by_label("Value").fill("the-material")
    page.get_by_role("button", name="Store").click()
    row = page.locator("tbody tr", has_text="/secrets/console")
    expect(row).to_contain_text("https://api.example.com:443")
    assert "the-material" not in page.content()
    row.locator("summary").click()
    row.get_by_role("button", name="Remove").click()
    expect(row).to_have_count(0)


def test_usage_is_drawn(visitor: Visitor, worked: Any) -> None:
    page = visitor.page
    worked.exec("true")
    visitor.go("sandboxes/console-work/usage")
    expect(page.locator(".plot")).to_have_count(6)
    expect(page.locator(".plot", has_text="Memory").locator(".curve")).to_have_attribute("d", re.compile(r"^M.*\d$"))


@pytest.mark.full
def test_a_session_outlasts_a_restart_and_ends_with_a_logout(chromium: Any, own_installation: Installation) -> None:
    visitor = Visitor(chromium, own_installation)
    page = visitor.login()
    own_installation.kill("control")
    page.reload()
    expect(page.get_by_role("heading", name="Sandboxes")).to_be_visible()
    cookies = visitor.context.cookies()
    page.get_by_role("button", name="Log out").click()
    expect(page.get_by_label("Key")).to_be_visible()
    visitor.context.add_cookies(cookies)
    own_installation.kill("control")
    page.goto(f"{own_installation.url}/console/p/default/sandboxes")
    expect(page.get_by_label("Key")).to_be_visible()
    visitor.context.close()
