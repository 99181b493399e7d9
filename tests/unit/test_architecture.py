"""ARCHITECTURE against the code: every event is in its table, every file it names exists, services as they run."""

from __future__ import annotations

import re
from pathlib import Path

from kennel.domain.event_types import EVENT_TYPES

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "ARCHITECTURE.md").read_text()


def section(title: str) -> str:
    return PAGE.split(f"## {title}", 1)[1].split("\n## ", 1)[0]


def test_every_event_of_the_catalogue_is_in_the_table_and_no_other() -> None:
    told = set(re.findall(r"`((?:sandbox|room|key|project|stream|secret|egress)/[a-z-]+)`", section("Event →")))
    assert told == set(EVENT_TYPES)


def test_every_file_and_folder_it_names_exists() -> None:
    source = ROOT / "src/kennel"
    for word in re.findall(
        r"`((?:control|domain|api|adapters|sdk|guest|relay|ports|node|docs|tests|tools)/[^`\s]*)`", PAGE
    ):
        for one in re.split(r"[{},]", word) if "{" in word else [word]:
            if "{" in word:
                head = word.split("{")[0]
                one = head + one if one and not one.startswith(head) and one != word.split("}")[-1] else ""
            if not one:
                continue
            candidates = [source / one, ROOT / one, source / f"{one}.py", source / f"{one.rstrip('/')}"]
            candidates += [source / f"{one}.py"]
            assert any(path.exists() for path in candidates), one


def test_the_services_it_lists_are_the_ones_that_run() -> None:
    from kennel.settings import CONTROL_UID, GATEWAY_UID

    table = section("Processes")
    for name in ("up", "control", "node", "gateway"):
        assert f"| `{name}` |" in table
    assert f"uid {CONTROL_UID}" in table
    assert f"uid {GATEWAY_UID}" in table
