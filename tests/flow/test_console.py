"""The console in a real browser over a real installation."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from console_browser import HOSTILE, Visitor, browser, expect, needs_chromium
from installation import Installation
from kennel import Kennel

PAGES = ("sandboxes", "sandboxes/{name}", "rooms", "streams", "streams/one?path=/sandboxes/{name}", "images", "keys",
         "projects", "sandboxes/nosuch", "sandboxes/{name}/terminal", "sandboxes/{name}/files",
         "sandboxes/{name}/files?path=/etc/hostname", "sandboxes/{name}/snapshots", "sandboxes/{name}/previews",
         "sandboxes/{name}/processes", "sandboxes/{name}/processes/p",
         "sandboxes/{name}/usage", "rooms/{name}?id={name}",
         "egress", "egress/log", "approvals", "secrets")  # fmt: skip

pytestmark = needs_chromium


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with browser() as one:
        yield one


@pytest.fixture
def visitor(chromium: Any, installation: Installation) -> Iterator[Visitor]:
    one = Visitor(chromium, installation)
    yield one
    one.context.close()
    assert one.complaints == []


def test_a_life_from_the_first_to_the_last_button(visitor: Visitor, itx: Kennel) -> None:
    page = visitor.login()
    page.get_by_text("New sandbox").click()
    page.get_by_label("Name", exact=True).fill("console-life")
    page.get_by_label("Environment").fill("GREETING=hello there")
    page.get_by_role("button", name="Create").click()
    expect(page.get_by_role("heading", name="console-life")).to_be_visible()
    expect(page.locator("#state .status")).to_have_text("created")
    page.get_by_label("Command", exact=True).fill("echo $GREETING; echo kept > note; echo oops >&2; exit 3")
    page.get_by_role("button", name="Run").click()
    expect(page.locator(".entry .out")).to_have_text("hello there\n")
    expect(page.locator(".entry .err")).to_have_text("oops\n")
    expect(page.locator(".entry .exit")).to_have_text("exit code 3")
    expect(page.locator("#state .status")).to_have_text("running")
    page.get_by_role("button", name="Sleep").click()
    expect(page.locator("#state .status")).to_have_text("stopped")
    expect(page.get_by_role("button", name="Sleep")).to_be_disabled()
    page.get_by_role("button", name="Start", exact=True).click()
    expect(page.locator("#state .status")).to_have_text("running")
    expect(page.locator(".event .type").first).to_have_text("sandbox/workspace-restored")
    expect(page.locator(".event .type").nth(1)).to_have_text("sandbox/started")
    page.get_by_label("Command", exact=True).fill("cat note")
    page.keyboard.press("Enter")
    expect(page.locator(".entry .out").first).to_have_text("kept\n")
    destroy = page.get_by_role("button", name="Destroy")
    page.get_by_label("to confirm").fill("console-lif")
    expect(destroy).to_be_disabled()
    page.get_by_label("to confirm").fill("console-life")
    destroy.click()
    expect(page.locator(".notice")).to_contain_text("console-life was destroyed")
    assert "console-life" not in {box.name for box in itx.sandboxes.list()}


def test_what_happens_elsewhere_shows_by_itself(visitor: Visitor, itx: Kennel) -> None:
    box = itx.sandboxes.get("/sandboxes/console-live").create()
    page = visitor.login()
    expect(page.locator("tr", has_text="console-live").locator(".status")).to_have_text("created")
    visitor.go("sandboxes/console-live")
    expect(page.locator(".event")).to_have_count(2)
    box.exec("echo from elsewhere")
    expect(page.locator(".event .says", has_text="from elsewhere")).to_be_visible()
    expect(page.locator("#state .status")).to_have_text("running")
    visitor.go("sandboxes")
    box.destroy()
    expect(page.locator("tr", has_text="console-live")).to_have_count(0)


def test_a_command_that_is_stopped_ends_in_the_sandbox_too(visitor: Visitor, itx: Kennel) -> None:
    box = itx.sandboxes.get("/sandboxes/console-stop").create()
    page = visitor.login()
    visitor.go("sandboxes/console-stop")
    stop = page.get_by_role("button", name="Stop")
    expect(stop).to_be_hidden()
    page.get_by_label("Command", exact=True).fill("sleep 300")
    page.get_by_role("button", name="Run").click()
    expect(page.locator(".event .says", has_text="sleep 300")).to_be_visible()
    expect(page.get_by_role("button", name="Run")).to_be_disabled()
    stop.click()
    expect(page.locator(".event .says", has_text="failed: INTERRUPTED")).to_be_visible()
    expect(stop).to_be_hidden()
    expect(page.get_by_role("button", name="Run")).to_be_enabled()
    assert box.exec("cat /proc/[0-9]*/cmdline | tr '\\0' ' ' | grep -c 'slee[p] 300'").stdout == "0\n"
    box.destroy()


def test_what_a_sandbox_says_never_scripts_the_page(visitor: Visitor, itx: Kennel) -> None:
    box = itx.sandboxes.get("/sandboxes/console-hostile").create(env={"X": HOSTILE}, labels={"note": HOSTILE[:80]})
    page = visitor.login()
    visitor.go("sandboxes/console-hostile")
    page.get_by_label("Command", exact=True).fill('printf "%s" "$X"; printf "%s" "$X" >&2')
    page.get_by_role("button", name="Run").click()
    expect(page.locator(".entry .out")).to_have_text(HOSTILE)
    box.exec(f"true '{HOSTILE.replace(chr(39), '')}'")
    expect(page.locator(".event .says", has_text="<img src=x").first).to_be_visible()
    assert page.locator("main img, main script").count() == 0
    visitor.go("sandboxes")
    assert page.locator("main img, main script").count() == 0
    assert "owned" not in page.title()
    box.destroy()


def test_the_policy_stops_what_got_through(chromium: Any, installation: Installation) -> None:
    visitor = Visitor(chromium, installation)
    page = visitor.login()
    page.evaluate(
        """async (hostile) => {
             document.querySelector("main").insertAdjacentHTML("beforeend", hostile);
             const script = document.createElement("script");
             script.textContent = "document.title = 'owned'";
             document.body.append(script);
             for (const src of ["/health", "data:text/javascript,document.title='owned'"]) {
               const outside = document.createElement("script");
               outside.src = src;
               document.body.append(outside);
             }
             await new Promise((done) => setTimeout(done, 300));
           }""",
        HOSTILE,
    )
    assert "owned" not in page.title()
    assert len(visitor.complaints) >= 4, visitor.complaints
    visitor.context.close()


def test_by_keyboard_alone(visitor: Visitor, itx: Kennel) -> None:
    itx.sandboxes.get("/sandboxes/console-keys").create()
    page, keys = visitor.page, visitor.page.keyboard
    page.goto(f"{visitor.installation.url}/console/")
    keys.type(visitor.installation.key)
    keys.press("Enter")
    expect(page.get_by_role("heading", name="Sandboxes")).to_be_visible()
    page.wait_for_load_state("load")
    keys.press("Tab")
    expect(page.get_by_text("Skip to the content")).to_be_focused()
    keys.press("/")
    expect(page.get_by_label("Search by name")).to_be_focused()
    keys.type("console-keys")
    expect(page.locator("tbody tr")).to_have_count(1)
    _tab_to(page, "console-keys")
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    keys.press("Enter")
    expect(page.get_by_role("heading", name="console-keys")).to_be_visible()
    _tab_to(page, "Start")
    keys.press("Enter")
    expect(page.locator("#state .status")).to_have_text("running")
    keys.press("/")
    keys.type("echo typed")
    keys.press("Enter")
    expect(page.locator(".entry .out")).to_have_text("typed\n")
    expect(page.get_by_label("Command", exact=True)).to_be_focused()
    _tab_to(page, None)
    keys.type("console-keys")
    keys.press("Enter")
    expect(page.locator(".notice")).to_contain_text("console-keys was destroyed")


def _tab_to(page: Any, text: str | None) -> None:
    """Presses Tab until the focus is on a control of this text, None for the field that confirms."""
    for _ in range(60):
        page.keyboard.press("Tab")
        where = page.evaluate("[document.activeElement.textContent.trim(), document.activeElement.id]")
        if where[0] == text or (text is None and where[1] == "confirm"):
            return
    raise AssertionError(f"no Tab leads to {text}")


# Each pair: what is read, in which property its colour is, and the least contrast WCAG AA allows it.
PAIRS = """() => {
  const paint = (colour) => {
    const canvas = document.createElement("canvas");
    canvas.width = canvas.height = 1;
    const brush = canvas.getContext("2d");
    brush.fillStyle = colour;
    brush.fillRect(0, 0, 1, 1);
    return Array.from(brush.getImageData(0, 0, 1, 1).data);
  };
  const linear = (c) => (c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
  const light = (colour) => colour.slice(0, 3).map((c) => linear(c / 255))
    .reduce((sum, c, n) => sum + c * [0.2126, 0.7152, 0.0722][n], 0);
  const ground = (one) => {
    for (; one; one = one.parentElement) {
      const found = paint(getComputedStyle(one).backgroundColor);
      if (found[3] === 255) return found;
    }
    return [255, 255, 255];
  };
  const ratio = (a, b) => {
    const [x, y] = [light(a), light(b)].sort((m, n) => n - m);
    return (x + 0.05) / (y + 0.05);
  };
  const seen = [];
  for (const one of document.querySelectorAll("body *")) {
    if (!one.checkVisibility() || one.closest(".skip, .hide")) continue;
    const own = Array.from(one.childNodes).some((node) => node.nodeType === 3 && node.data.trim());
    const name = `${one.tagName}.${one.className.baseVal ?? one.className}`;
    if (own) seen.push([name, 4.5, ratio(paint(getComputedStyle(one).color), ground(one))]);
    if (one.matches("input, select, textarea")) {
      seen.push([`${name} border`, 3, ratio(paint(getComputedStyle(one).borderTopColor), ground(one.parentElement))]);
      seen.push([`${name} placeholder`, 4.5, ratio(paint(getComputedStyle(one, "::placeholder").color), ground(one))]);
    }
  }
  return seen;
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_contrast_and_width_of_every_page(chromium: Any, installation: Installation, itx: Kennel, scheme: str) -> None:
    name = f"console-{scheme}"
    box = itx.sandboxes.get(f"/sandboxes/{name}").create(labels={"a": "b"}, env={"LONG": "x" * 300})
    box.exec("exit 1")
    box.snapshot(name="one")
    box.start_process("echo out; echo err >&2", process_id="p").wait_for_exit()
    visitor = Visitor(chromium, installation, color_scheme=scheme)
    page = visitor.login()
    for path in PAGES:
        visitor.go(path.format(name=name))
        if path == "sandboxes/{name}":
            page.get_by_label("Command", exact=True).fill("echo out; echo err >&2; exit 1")
            page.keyboard.press("Enter")
            expect(page.locator(".entry .err")).to_be_visible()
        seen = page.evaluate(PAIRS)
        assert len(seen) > 10
        assert [pair for pair in seen if pair[2] < pair[1]] == [], path
        for width in (380, 1600):
            page.set_viewport_size({"width": width, "height": 800})
            assert page.evaluate("document.documentElement.scrollWidth") <= width, (path, width)
    box.destroy()
    visitor.context.close()
    assert visitor.complaints == []


def test_the_theme_that_was_chosen_stays(visitor: Visitor) -> None:
    page = visitor.login()
    before = page.evaluate("getComputedStyle(document.body.parentElement).backgroundColor")
    page.get_by_role("button", name=re.compile("Dark|Light")).click()
    after = page.evaluate("getComputedStyle(document.body.parentElement).backgroundColor")
    assert before != after
    page.reload()
    assert page.evaluate("getComputedStyle(document.body.parentElement).backgroundColor") == after
