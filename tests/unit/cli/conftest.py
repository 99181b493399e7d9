"""The SDK tests' scripted server, and the command line run in this process or as one of its own."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

_spec = importlib.util.spec_from_file_location("kennel_standin", Path(__file__).parent.parent / "sdk" / "conftest.py")
assert _spec is not None
assert _spec.loader is not None
_standin = importlib.util.module_from_spec(_spec)
sys.modules[_spec.name] = _standin
_spec.loader.exec_module(_standin)

standin, refused, shapes, no_settings = _standin.standin, _standin.refused, _standin.shapes, _standin.no_settings

Process = subprocess.CompletedProcess[bytes]


@pytest.fixture
def kennel() -> Callable[..., Process]:
    """`kennel(*words, input=b"…")` as a process; no terminal, no settings but those of the test."""

    def call(*words: str, input: bytes = b"", **settings: str) -> Process:
        command = [sys.executable, "-m", "kennel.cli", *words]
        return subprocess.run(command, input=input, capture_output=True, timeout=30, env=os.environ | settings)

    return call
