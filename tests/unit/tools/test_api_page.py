"""docs/api.md is what the application says of itself."""

from __future__ import annotations

import importlib.util
from pathlib import Path

ROOT = Path(__file__).parents[3]


def test_the_page_is_current() -> None:
    spec = importlib.util.spec_from_file_location("api_page", ROOT / "tools/api_page.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert (ROOT / "docs/api.md").read_text() == module.page(), "python tools/api_page.py > docs/api.md"
