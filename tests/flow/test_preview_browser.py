"""Previews in a real browser: programs with hot reload or live sockets, and the console's cookie that stays at home."""

from __future__ import annotations

import io
import json
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from installation import Installation
from kennel import Kennel
from preview_visitor import SERVER

sync_api = pytest.importorskip("playwright.sync_api", reason="needs playwright, of the dev extra")
expect = sync_api.expect

CHROMIUM = "/usr/bin/chromium"
FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip
INDEX = "<!doctype html><title>shown</title><h1></h1><script type=module src=/main.js></script>"
MAIN = """
import { text } from './text.js'
const show = (words) => { document.querySelector('h1').textContent = words }
show(text)
if (import.meta.hot) import.meta.hot.accept('./text.js', (fresh) => show(fresh.text))
"""
CELL = "import os; print('answer', 6 * 7, os.getcwd())"
LAYOUT = "export default function Layout({ children }) { return <html><body>{children}</body></html> }"
PAGE = """
'use client'
import { useState } from 'react'
import { text } from './text.js'
export default function Page() {
  const [clicks, count] = useState(0)
  if (typeof window !== 'undefined') window.clicks = clicks
  return <h1 onClick={() => count(clicks + 1)}>{text} {clicks}</h1>
}
"""

pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(not Path(CHROMIUM).exists(), reason="needs Debian's package chromium"),
]


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with sync_api.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def page(chromium: Any) -> Iterator[Any]:
    context = chromium.new_context()
    context.set_default_timeout(30_000)
    yield context.new_page()
    context.close()


def application(folder: Path) -> bytes:
    """A tar of a page and of vite, as npm brings it on this machine."""
    (folder / "package.json").write_text('{"name": "shown", "private": true, "type": "module"}')
    (folder / "index.html").write_text(INDEX)
    (folder / "main.js").write_text(MAIN)
    (folder / "text.js").write_text("export const text = 'first'\n")
    return with_packages(folder, "vite@5")


def with_packages(folder: Path, *packages: str) -> bytes:
    """A tar of the folder with these packages installed."""
    if shutil.which("npm") is None or shutil.which("node") is None:
        pytest.skip("needs npm and node")
    words = ["npm", "install", *packages, "--ignore-scripts", "--no-audit", "--no-fund"]
    subprocess.run(words, cwd=folder, check=True, capture_output=True, timeout=200)
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        tar.add(folder, ".")
    return packed.getvalue()


@pytest.mark.timeout(300)
def test_vite_reloads_modules_in_place_through_a_preview(itx: Kennel, page: Any, tmp_path: Path) -> None:
    """Reports 75, 689 and 240: development servers refused the host, or their WebSocket saw another one."""
    box = itx.sandboxes.get("/sandboxes/vite").create()
    box.mkdir("/workspace/app")
    box.extract("/workspace/app", application(tmp_path))
    vite = "exec node node_modules/vite/bin/vite.js --port 5173 --strictPort"
    box.start_process(vite, cwd="/workspace/app").wait_for_port(5173, 60)
    sockets: list[str] = []
    page.on("websocket", lambda one: sockets.append(one.url))
    url = box.expose_port(5173).url
    assert url is not None
    page.goto(url)
    expect(page.locator("h1")).to_have_text("first")
    page.evaluate("window.kept = 'never reloaded'")
    assert sockets
    assert sockets[0].startswith(url.replace("http:", "ws:"))
    box.write_file("/workspace/app/text.js", "export const text = 'second'\n")
    expect(page.locator("h1")).to_have_text("second")
    assert page.evaluate("window.kept") == "never reloaded"
    box.unexpose_port(5173)
    # The page notices that its socket is gone, and loads itself again.
    expect(page.locator("body")).to_contain_text("STALE_PREVIEW_URL")


def next_application(folder: Path) -> bytes:
    """A tar of a page and of next."""
    (folder / "app").mkdir()
    (folder / "package.json").write_text('{"name": "shown", "private": true}')
    (folder / "app/layout.js").write_text(LAYOUT)
    (folder / "app/page.js").write_text(PAGE)
    (folder / "app/text.js").write_text("export const text = 'first'\n")
    return with_packages(folder, "next@15", "react@19", "react-dom@19")


@pytest.mark.timeout(500)
def test_next_keeps_a_pages_state_through_a_change(itx: Kennel, page: Any, tmp_path: Path) -> None:
    """Report 75 for `next dev`: its socket for hot reload, and its refusal of origins it does not know."""
    box = itx.sandboxes.get("/sandboxes/next").create(instance_type="standard-2")
    box.mkdir("/workspace/app")
    box.extract("/workspace/app", next_application(tmp_path))
    server = box.start_process(
        "exec node node_modules/next/dist/bin/next dev --port 3000",
        cwd="/workspace/app", env={"NEXT_TELEMETRY_DISABLED": "1"},
    )  # fmt: skip
    server.wait_for_port(3000, 120)
    sockets: list[str] = []
    page.on("websocket", lambda one: sockets.append(one.url))
    url = box.expose_port(3000).url
    assert url is not None
    page.set_default_timeout(120_000)
    page.goto(url)
    expect(page.locator("h1")).to_have_text("first 0", timeout=120_000)
    # A click counts only once the page's own code has come and taken over.
    page.wait_for_function("() => { document.querySelector('h1').click(); return window.clicks >= 1 }")
    clicks = page.evaluate("window.clicks")
    expect(page.locator("h1")).to_have_text(f"first {clicks}")
    page.evaluate("window.kept = 'never reloaded'")
    assert [one for one in sockets if one.startswith(url.replace("http:", "ws:")) and "hmr" in one]
    box.write_file("/workspace/app/app/text.js", "export const text = 'second'\n")
    expect(page.locator("h1")).to_have_text(f"second {clicks}", timeout=120_000)
    assert page.evaluate("window.kept") == "never reloaded"
    assert "Blocked cross-origin" not in server.get_logs().stdout + server.get_logs().stderr
    box.destroy()


def laboratory(folder: Path) -> bytes:
    """A tar of JupyterLab."""
    words = [sys.executable, "-m", "pip", "install", "-q", "--only-binary", ":all:", "--target", str(folder)]
    if subprocess.run([*words, "jupyterlab"], timeout=200, capture_output=True, check=False).returncode:
        pytest.skip("JupyterLab cannot be had here")
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        tar.add(folder, ".")
    return packed.getvalue()


@pytest.mark.timeout(500)
def test_jupyterlab_runs_a_cell_through_a_preview(itx: Kennel, page: Any, tmp_path: Path) -> None:
    """A page of some hundred files, two sockets of which one is a live kernel's, cookies and a check of Origin."""
    box = itx.sandboxes.get("/sandboxes/laboratory").create(instance_type="standard-2")
    box.mkdir("/workspace/lab")
    box.extract("/workspace/lab", laboratory(tmp_path))
    cell = {"cell_type": "code", "id": "a", "metadata": {}, "execution_count": None, "outputs": [], "source": CELL}
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    book = {"nbformat": 4, "nbformat_minor": 5, "metadata": kernel, "cells": [cell]}
    box.write_file("/workspace/book.ipynb", json.dumps(book))
    share = "/workspace/lab/share/jupyter"
    box.start_process(
        f"exec python3 -m jupyterlab --no-browser --port 8888 --allow-root --app-dir {share}/lab"
        " --IdentityProvider.token= --ServerApp.allow_remote_access=True",
        env={"PYTHONPATH": "/workspace/lab", "HOME": "/workspace", "JUPYTER_PATH": share},
    ).wait_for_port(8888, 120)
    url = box.expose_port(8888).url
    assert url is not None
    page.set_default_timeout(120_000)
    with page.expect_websocket(lambda one: "/channels" in one.url) as socket:
        page.goto(f"{url}lab/tree/book.ipynb")
    assert socket.value.url.startswith(url.replace("http:", "ws:"))
    expect(page.locator("#jp-main-statusbar")).to_contain_text("Idle", timeout=120_000)
    page.locator(".jp-CodeCell .cm-content").first.click()
    page.keyboard.press("Shift+Enter")
    expect(page.locator(".jp-OutputArea-output").first).to_contain_text("answer 42 /workspace", timeout=120_000)
    box.destroy()


def test_a_browser_at_the_console_takes_nothing_of_it_to_a_preview(
    installation: Installation, itx: Kennel, page: Any
) -> None:
    box = itx.sandboxes.get("/sandboxes/nosy").create()
    box.start_process(argv=["python3", "-c", SERVER])
    box.wait_for_port(3000, 20)
    page.goto(f"{installation.url}/")
    page.get_by_label("Key").fill(installation.key)
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("heading", name="Sandboxes")).to_be_visible()
    assert page.context.cookies()
    url = box.expose_port(3000).url
    page.goto(url)
    told = page.locator("body").inner_text().lower()
    assert "sec-fetch-mode: navigate" in told
    assert "cookie" not in told
    page.evaluate("document.cookie = 'kennel-session=x; domain=localhost'; document.cookie = 'own=2'")
    page.reload()
    told = page.locator("body").inner_text()
    assert "own=2" in told
    assert "kennel" not in told
    # Whatever a page of a sandbox tries: the console and the API are another origin, which does not let it read.
    word = page.evaluate(
        "url => fetch(url, {credentials: 'include'}).then(a => a.status, fault => 'refused')",
        f"{installation.url}/v1/projects/default/sandboxes",
    )
    assert word == "refused"
    page.goto(f"{installation.url}/")
    expect(page.get_by_role("heading", name="Sandboxes")).to_be_visible()
