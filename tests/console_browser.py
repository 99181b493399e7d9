"""Owns the console's real browser for tests: Debian's Chromium, one context for each visitor.

Used by tests/flow/test_console*.py. Invariant: what a page complained about (errors, refusals of its content security
policy, dialogs) is kept, and a test that does not expect it fails.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from installation import Installation

CHROMIUM = "/usr/bin/chromium"
FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip
HOSTILE = "<img src=x onerror=\"document.title='owned'\"></pre><script>document.title='owned'</script>"

sync_api = pytest.importorskip("playwright.sync_api", reason="needs playwright, of the dev extra")
expect = sync_api.expect
expect.set_options(timeout=20_000)
needs_chromium = pytest.mark.skipif(not Path(CHROMIUM).exists(), reason="needs Debian's package chromium")


@contextmanager
def browser() -> Iterator[Any]:
    """A browser for the length of the block."""
    with sync_api.sync_playwright() as driver:
        one = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield one
        one.close()


class Visitor:
    """One browser of its own at one installation; what its pages complained about is kept."""

    def __init__(self, chromium: Any, installation: Installation, **options: Any) -> None:
        self.context = chromium.new_context(**{"viewport": {"width": 1280, "height": 900}, **options})
        self.context.set_default_timeout(20_000)
        self.page = self.context.new_page()
        self.installation = installation
        self.complaints: list[str] = []
        self.page.on("pageerror", lambda fault: self.complaints.append(str(fault)))
        self.page.on("dialog", lambda dialog: (self.complaints.append(dialog.message), dialog.dismiss()))
        self.page.on("console", self._heard)

    def _heard(self, message: Any) -> None:
        if "Content Security Policy" in message.text:
            self.complaints.append(message.text)

    def login(self) -> Any:
        self.page.goto(f"{self.installation.url}/")
        self.page.get_by_label("Key").fill(self.installation.key)
        self.page.get_by_role("button", name="Log in").click()
        expect(self.page.get_by_role("heading", name="Sandboxes")).to_be_visible()
        return self.page

    def go(self, path: str) -> None:
        self.page.goto(f"{self.installation.url}/console/p/default/{path}")
