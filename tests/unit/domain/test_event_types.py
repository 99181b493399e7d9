"""The catalogue of event types: complete, enforced, and equal to its page."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

from kennel.domain.admission import admit
from kennel.domain.event import PLATFORM_PREFIXES, NewEvent, Source, fact
from kennel.domain.event_types import EVENT_TYPES
from kennel.domain.principal import SYSTEM
from kennel.wire.errors import KennelError

ROOT = Path(__file__).parents[3]


def _page_tool():
    spec = importlib.util.spec_from_file_location("event_page", ROOT / "tools" / "event_page.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_page_and_code_are_equal():
    assert (ROOT / "docs" / "events.md").read_text() == _page_tool().page(), (
        "run: python tools/event_page.py > docs/events.md"
    )


def test_page_names_every_type_once():
    named = re.findall(r"^\| `([a-z-]+/[a-z-]+)` \|", (ROOT / "docs" / "events.md").read_text(), re.MULTILINE)
    assert named == list(EVENT_TYPES)


def test_every_listed_type_is_a_platform_type():
    assert [name for name in EVENT_TYPES if not name.startswith(PLATFORM_PREFIXES)] == []


def test_an_unlisted_platform_type_is_refused_even_from_a_service():
    with pytest.raises(KennelError) as caught:
        admit([fact(SYSTEM, "sandbox/made-up")])
    assert caught.value.code == "INVALID_EVENT"


@pytest.mark.parametrize(
    ("type_", "payload"),
    [
        ("sandbox/backup-created", {}),
        ("sandbox/backup-created", {"backupId": 7}),
        ("sandbox/started", {"extra": 1}),
        ("sandbox/exec-started", {"execId": "e", "command": "x" * 501}),
        ("sandbox/created", {"config": {"instanceType": "basic"}}),
        ("key/created", {"keyId": "k", "project": None, "scopes": [], "name": "n", "sha256": "secret"}),
    ],
)
def test_a_payload_of_another_shape_is_refused(type_, payload):
    with pytest.raises(KennelError) as caught:
        admit([fact(SYSTEM, type_, payload)])
    assert caught.value.code == "INVALID_EVENT"


@pytest.mark.parametrize("type_", sorted(EVENT_TYPES))
def test_no_type_of_the_catalogue_is_taken_unstamped(type_):
    with pytest.raises(KennelError) as caught:
        admit([NewEvent(type=type_, source=Source(platform=False, key_id="key_x"))])
    assert caught.value.code == "PLATFORM_TYPE_REFUSED"


def test_every_type_the_sources_write_is_listed():
    written = set()
    for file in (ROOT / "src" / "kennel").rglob("*.py"):
        written |= set(re.findall(r'"((?:sandbox|stream|project|key|room)/[a-z-]+)"', file.read_text()))
    assert written
    assert written <= set(EVENT_TYPES)
