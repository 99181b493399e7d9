"""The generator of the SDK's synchronous half, and whether that half is what it would write now."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[3]


@pytest.fixture
def make_sync() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_sync", ROOT / "tools/make_sync.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_committed_half_is_current(make_sync: ModuleType) -> None:
    assert make_sync.main(["--check"]) == 0


def test_keywords_names_and_prose_are_translated(make_sync: ModuleType) -> None:
    source = '''"""Talks to AsyncThing; `await it.go()`."""
import asyncio
from kennel.sdk._async.x import AsyncThing


async def go(thing: AsyncThing) -> None:
    async with thing as open_thing:
        async for part in open_thing.aiter_stream():  # await what comes
            await asyncio.sleep(1)
    await thing.aclose()
    Asynchronous = awaitable = (await thing.get()).value
'''
    assert (
        make_sync.translated(source)
        == make_sync.HEADER
        + '''"""Talks to Thing; `it.go()`."""
import time
from kennel.sdk._sync.x import Thing


def go(thing: Thing) -> None:
    with thing as open_thing:
        for part in open_thing.iter_stream():  # what comes
            time.sleep(1)
    thing.close()
    Asynchronous = awaitable = (thing.get()).value
'''
    )


def test_a_stale_missing_or_extra_file_is_found_and_mended(
    make_sync: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = tmp_path / "_async", tmp_path / "_sync"
    source.mkdir()
    target.mkdir()
    (source / "a.py").write_text('"""A."""\n\n\nasync def a() -> None:\n    """Does."""\n')
    (target / "gone.py").write_text("")
    monkeypatch.setattr(make_sync, "SOURCE", source)
    monkeypatch.setattr(make_sync, "TARGET", target)
    monkeypatch.setattr(make_sync, "ROOT", tmp_path)
    assert make_sync.main(["--check"]) == 1
    assert not (target / "a.py").exists()
    assert make_sync.main([]) == 0
    assert make_sync.main(["--check"]) == 0
    assert [path.name for path in target.iterdir()] == ["a.py"]
    assert "def a() -> None:" in (target / "a.py").read_text()
    assert "async" not in (target / "a.py").read_text().replace("_async", "")
    (target / "a.py").write_text("changed")
    assert make_sync.main(["--check"]) == 1
