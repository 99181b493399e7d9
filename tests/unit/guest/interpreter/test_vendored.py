"""The transpiler is the bundle that its own page says how to make, byte for byte."""

from __future__ import annotations

import hashlib
from pathlib import Path

import kennel.guest.interpreter

VENDOR = Path(kennel.guest.interpreter.__file__).parent / "vendor"
SHA256 = "383025ab5e5efc037be7ed3574775f881783dc0cce74fa60f81d71215cfae0ff"


def test_the_transpiler_is_unchanged() -> None:
    assert hashlib.sha256((VENDOR / "sucrase.cjs").read_bytes()).hexdigest() == SHA256
    assert {path.name for path in VENDOR.iterdir()} == {"sucrase.cjs", "LICENSES", "README.md"}
