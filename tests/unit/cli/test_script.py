"""`kennel run`: what is in scope, what is printed, what a failure looks like."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from kennel.cli.__main__ import run


def test_what_is_returned_is_printed(capsys: Any) -> None:
    for text, printed in (
        ("return 1 + 1", "2\n"),
        ("1 + 1", "2\n"),
        ("x = 2\nif x:\n    return 'yes'\nreturn 'no'", "yes\n"),
        ("return '''a\n  b'''", "a\n  b\n"),
        ("print('said')", "said\n"),
        ("x = 1", ""),
        ("", ""),
        ("# nothing", ""),
        ("{'a': [1]}", '{\n  "a": [\n    1\n  ]\n}\n'),
    ):
        assert run(["run", "-e", text]) == 0
        assert capsys.readouterr().out == printed


def test_itx_is_a_client_of_the_project(standin: Any, shapes: Any, capsys: Any) -> None:
    standin.will(shapes.Answer(201, shapes.view()), shapes.Answer(200, shapes.result(stdout="hi\n")))
    text = "box = itx.sandboxes.get('/sandboxes/main').create(instance_type='basic')\nreturn box.exec('echo hi').stdout"
    assert run(["run", "-e", text, "--url", standin.url, "--project", "p"]) == 0
    assert capsys.readouterr().out == "hi\n\n"
    assert standin.seen[1].path == "/v1/projects/p/sandboxes/main/exec"


def test_json_prints_answers_as_the_wire_has_them(standin: Any, shapes: Any, capsys: Any) -> None:
    standin.will(shapes.Answer(200, shapes.view()))
    assert run(["run", "--json", "-e", "itx.sandboxes.get('main').info()", "--url", standin.url]) == 0
    assert json.loads(capsys.readouterr().out) == shapes.view()


def test_functions_and_imports_of_the_text_work(capsys: Any) -> None:
    text = "import math\ndef area(r):\n    return math.pi * r * r\nreturn [round(area(r)) for r in (1, 2)]"
    assert run(["run", "--json", "-e", text]) == 0
    assert json.loads(capsys.readouterr().out) == [3, 13]


def test_a_failure_is_one_with_the_texts_own_lines(capsys: Any) -> None:
    assert run(["run", "-e", "a = 1\nraise ValueError('bad')"]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines()[1:] == [
        '  File "<run>", line 2, in __body__',
        "    raise ValueError('bad')",
        "ValueError: bad",
    ]


def test_a_typed_error_shows_its_hint(standin: Any, shapes: Any, capsys: Any) -> None:
    standin.will(shapes.Answer(404, {"error": "none", "code": "SANDBOX_NOT_FOUND", "hint": "create it"}))
    assert run(["run", "-e", "itx.sandboxes.get('x').info()", "--url", standin.url]) == 1
    err = capsys.readouterr().err
    assert "SANDBOX_NOT_FOUND: none" in err
    assert err.endswith("hint: create it\n")


def test_a_syntax_error_is_shown_in_place(capsys: Any) -> None:
    assert run(["run", "-e", "x = = 1"]) == 1
    err = capsys.readouterr().err
    assert 'File "<run>", line 1' in err
    assert "SyntaxError" in err


def test_a_file_or_stdin_is_read(tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "job.py").write_text("return 'from é'")
    assert run(["run", "--file", str(tmp_path / "job.py")]) == 0
    monkeypatch.setattr("sys.stdin", io.StringIO("return 'from stdin'"))
    assert run(["run", "--file", "-"]) == 0
    assert capsys.readouterr().out == "from é\nfrom stdin\n"


def test_the_process_ends_with_one(kennel: Any) -> None:
    done = kennel("run", "-e", "1 / 0")
    assert (done.returncode, done.stdout) == (1, b"")
    assert done.stderr.endswith(b"ZeroDivisionError: division by zero\n")
