"""Attack 67: bytes that nobody would send, for every reader that a sandbox or a host can reach, side by side."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

READERS = ("hello", "dns", "head", "placeholder", "answer")
HERE = Path(__file__).parents[1]


def fuzz(seed: int, seconds: float) -> None:
    """Every reader in a process of its own; each must have met enough inputs that ended in enough ways."""
    words = [sys.executable, "-m", "egress_fuzzers"]
    running = {
        name: subprocess.Popen(
            [*words, name, str(seed), str(seconds)],
            cwd=HERE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for name in READERS
    }  # fmt: skip
    try:
        for name, process in running.items():
            out, err = process.communicate(timeout=seconds + 60)
            assert process.returncode == 0, err
            tried, ends = json.loads(out.splitlines()[-1])
            print(out.splitlines()[0])
            assert tried > 100 * seconds, (name, tried)
            assert ends > 4, (name, ends)
    finally:
        for process in running.values():
            process.kill()


def test_67_every_reader_refuses_in_words_in_bounded_time_and_memory() -> None:
    fuzz(2026, 9)


@pytest.mark.full
@pytest.mark.timeout(300)
def test_67_at_length_and_never_twice_the_same() -> None:
    fuzz(int.from_bytes(os.urandom(4), "big"), 150)
