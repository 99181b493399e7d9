"""The files of others are what their makers published, byte for byte but for the reference to a source map."""

from __future__ import annotations

import hashlib

import pytest

from kennel.api.console.rendering import STATIC

PUBLISHED = {
    "htmx-4.0.1.min.js": "a0abb04f2f45a1f89d1d4844023245537e5e6014c87b144553e0607b4cc32130",
    "xterm-6.0.0.js": "98d0973151aff2991d335b1adbbdac2e14da26341abe329d677d4c0034402bdf",
    "xterm-6.0.0.css": "854a7c0fb70e8b1a083c16797ab827299fb18744f5ad34f227b48337e33293c6",
    "xterm-addon-fit-0.11.0.js": "4df3789fa7bff5d545ba38462a8cd2f7460ba971021bce3f81c2870f937a201e",
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_vendored_files_are_unchanged(name: str) -> None:
    assert hashlib.sha256((STATIC / "vendor" / name).read_bytes()).hexdigest() == PUBLISHED[name]


def test_nothing_else_is_vendored() -> None:
    assert {path.name for path in (STATIC / "vendor").iterdir()} == {*PUBLISHED, "LICENSES"}
