"""`kennel top` and `kennel completion`."""

from __future__ import annotations

import json
import shutil
import subprocess
from typing import Any

import pytest

from kennel.cli.__main__ import run
from kennel.cli.top import rates, size
from kennel.wire.results import UsageView


def used(name: str = "main", **changes: Any) -> dict[str, Any]:
    return {
        "path": f"/sandboxes/{name}", "name": name, "instanceType": "basic", "cpuSeconds": 1.0, "cpuLimit": 0.25,
        "memory": 3 << 20, "memoryLimit": 1 << 30, "disk": 1000, "diskLimit": 4_000_000_000, "processes": 2,
        "processLimit": 2048, "oomKills": 0, **changes,
    }  # fmt: skip


def seen(seconds: float, name: str = "main") -> UsageView:
    import msgspec

    return msgspec.convert(used(name, cpuSeconds=seconds), UsageView)


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (200 << 10, "200 KiB"),
        (3 << 20, "3.0 MiB"),
        (5 << 40, "5120 GiB"),
    ],
)
def test_sizes_for_people(count: int, text: str) -> None:
    assert size(count) == text


def test_a_rate_needs_two_looks_of_one_life() -> None:
    last = {"/sandboxes/main": (10.0, 1.0), "/sandboxes/anew": (10.0, 50.0)}
    views = [seen(2.0), seen(0.5, "anew"), seen(3.0, "first")]
    assert rates(last, views, 14.0) == {"/sandboxes/main": 0.25}
    assert rates(last, views, 10.0) == {}


def test_one_table(standin: Any, shapes: Any, capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kennel.cli.top._LEAST", 0.01)
    pages = [{"usage": [used("a", memory=1)], "cursor": "more"}, {"usage": [used("b", oomKills=3)], "cursor": None}]
    standin.will(*(shapes.Answer(200, page) for page in pages * 2))
    assert run(["top", "--url", standin.url]) == 0
    head, first, second = capsys.readouterr().out.splitlines()
    assert head.split() == ["NAME", "TYPE", "CPU", "MEMORY", "DISK", "PROCESSES", "OOM"]
    assert first.split()[:5] == ["b", "basic", "0.00", "of", "0.25"]
    assert first.split()[5:9] == ["3.0", "MiB", "of", "1.0"]
    assert second.split()[0] == "a"
    assert "cursor=more" in standin.seen[1].path


def test_programs_get_the_answer(standin: Any, shapes: Any, capsys: Any) -> None:
    standin.will(shapes.Answer(200, {"usage": [used()], "cursor": None}))
    assert run(["top", "--json", "--url", standin.url]) == 0
    assert json.loads(capsys.readouterr().out) == [used()]


@pytest.mark.parametrize("interval", ["0.5", "0", "-1", "nan", "4000"])
def test_a_senseless_interval(interval: str, capsys: Any) -> None:
    assert run(["top", f"--interval={interval}"]) == 2
    assert "--interval" in capsys.readouterr().err


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_knows_commands_and_flags(shell: str, capsys: Any) -> None:
    assert run(["completion", shell]) == 0
    script = capsys.readouterr().out
    for word in ("sandbox", "snapshots", "follow"):
        assert word in script
    if shutil.which(shell):
        subprocess.run([shell, "-n"], input=script.encode(), check=True, timeout=30)


def test_bash_completes(capsys: Any) -> None:
    run(["completion", "bash"])
    script = capsys.readouterr().out
    ask = f'{script}\nCOMP_WORDS=(kennel sandbox cre); COMP_CWORD=2; _kennel; printf "%s " "${{COMPREPLY[@]}}"'
    done = subprocess.run(["bash", "-c", ask], capture_output=True, text=True, check=True, timeout=30)
    assert done.stdout.split() == ["create"]
