"""Code contexts on a real installation: what cells show, how they end, what becomes of their contexts."""

from __future__ import annotations

import base64
import io
import subprocess
import sys
import tarfile
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from installation import Installation
from kennel import CodeContext, Gone, Kennel, KennelError, NotFound, Sandbox

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
"""One pixel."""


@pytest.fixture(scope="module")
def box(installation: Installation) -> Iterator[Sandbox]:
    """One sandbox for the whole file: contexts of its own keep the tests apart."""
    with installation.client() as client:
        made = client.sandboxes.get(f"/sandboxes/code-{uuid.uuid4().hex[:8]}").create(instance_type="standard-1")
        yield made
        made.destroy()


@pytest.fixture(scope="module")
def python(box: Sandbox) -> CodeContext:
    return box.create_code_context()


@pytest.fixture(scope="module")
def node(box: Sandbox) -> CodeContext:
    return box.create_code_context("javascript")


def test_a_cell_shows_its_last_value_and_keeps_its_variables(python: CodeContext) -> None:
    first = python.run("x = 20; print('hello'); x + 1")
    assert (first.text, first.stdout, first.error, first.status) == ("21", "hello\n", None, "ok")
    second = python.run("x * 2")
    assert second.text == "40"
    assert second.execution_count == first.execution_count + 1
    assert second.context_id == python.id
    assert not second.truncated
    assert python.run("y = 1").results == []


def test_what_a_cell_raises_is_a_result(python: CodeContext) -> None:
    done = python.run("def f():\n    return 1 / 0\nf()")
    assert done.status == "error"
    assert done.error is not None
    assert (done.error.name, done.error.value) == ("ZeroDivisionError", "division by zero")
    assert any("return 1 / 0" in line for line in done.error.traceback)
    assert not any("\x1b" in line for line in done.error.traceback)
    assert python.run("def g(:").error.name == "SyntaxError"  # type: ignore[union-attr]
    assert python.run("import sys; sys.exit(3)").error.name == "SystemExit"  # type: ignore[union-attr]
    assert python.run("1").text == "1"


def test_results_in_every_format(python: CodeContext) -> None:
    done = python.run(
        "from IPython.display import *\n"
        f"display(Image(data=__import__('base64').b64decode('{PNG}')))\n"
        "display(HTML('<b>bold</b>'), Markdown('# h'), Latex('$x$'), SVG('<svg xmlns=\"http://www.w3.org/2000/svg\"/>'))\n"
        "display({'application/vnd.plotly.v1+json': {'data': [1]}, 'text/x-own': 'mine'}, raw=True)\n"
        "{'a': [1, 2]}"
    )
    assert done.error is None
    image, html, markdown, latex, svg, chart, value = done.results
    assert image.image() == base64.b64decode(PNG)
    assert (html.html, markdown.markdown, latex.latex) == ("<b>bold</b>", "# h", "$x$")
    assert svg.svg is not None
    assert svg.svg.startswith("<svg")
    assert chart.chart == {"type": "plotly", "spec": {"data": [1]}}
    assert chart.data == {"text/x-own": "mine"}
    assert (value.json, value.text, value.main) == ({"a": [1, 2]}, "{'a': [1, 2]}", True)
    assert value.formats() == ["text", "json"]


FIGURE = """
class Axes:
    containers = collections = patches = []
    get_lines = lambda self: [self]
    get_title = get_xlabel = get_ylabel = get_label = lambda self: 'word'
    get_xscale = get_yscale = lambda self: 'linear'
    get_xdata = get_ydata = lambda self: [1, 2]
class Figure:
    __module__ = 'matplotlib.figure'
    axes = [Axes()]
for formatter in get_ipython().display_formatter.formatters.values():
    formatter.pop(Figure, None)
Figure()
"""
"""A stand-in, and what IPython does to every formatter when it sets up its own pictures of figures."""


def test_a_figure_is_told_as_data_too(python: CodeContext) -> None:
    chart = python.run(FIGURE).results[0].chart
    assert chart is not None
    assert chart["axes"][0]["series"] == [{"type": "line", "label": "word", "x": [1, 2], "y": [1, 2]}]


@pytest.mark.full
def test_pictures_and_data_of_real_figures(box: Sandbox, tmp_path: Path) -> None:
    words = [sys.executable, "-m", "pip", "install", "-q", "--only-binary", ":all:", "--target", str(tmp_path)]
    if subprocess.run([*words, "matplotlib", "pandas"], timeout=200, capture_output=True, check=False).returncode:
        pytest.skip("matplotlib cannot be had here")
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        tar.add(tmp_path, ".")
    box.mkdir("/workspace/libraries")
    box.extract("/workspace/libraries", packed.getvalue())
    context = box.create_code_context(env={"PYTHONPATH": "/workspace/libraries"})
    table = context.run("import matplotlib.pyplot as plt, pandas; pandas.DataFrame({'a': [1, 2]})").results[0]
    assert "<table" in str(table.html)
    shown = context.run("plt.bar(['x', 'y'], [3, 4]); plt.title('both'); plt.show()").results[0]
    assert shown.image().startswith(b"\x89PNG")
    assert shown.chart is not None
    assert shown.chart["axes"][0]["title"] == "both"
    assert shown.chart["axes"][0]["series"][0]["y"] == [3, 4]
    context.delete()
    box.delete_file("/workspace/libraries", recursive=True)


def test_output_comes_while_the_cell_runs_and_in_order(box: Sandbox, python: CodeContext) -> None:
    seen: list[tuple[str, float]] = []
    code = "import time, sys\nfor n in range(3):\n    print(n); print('e', file=sys.stderr); time.sleep(0.3)\n'last'"
    numbers = []
    with box.run_code_stream(code, context=python) as events:
        for event in events:
            numbers.append(event.sequence)
            seen.append((event.type, time.monotonic()))
    assert numbers == list(range(1, len(numbers) + 1))
    kinds = [kind for kind, _ in seen]
    assert (kinds[0], kinds[-2:]) == ("start", ["result", "end"])
    assert seen[-1][1] - next(at for kind, at in seen if kind == "stdout") > 0.5
    heard: list[str] = []
    python.run("print('a'); print('b')", on_stdout=heard.append)
    assert "".join(heard) == "a\nb\n"


def test_what_programs_of_a_cell_write_is_its_output(python: CodeContext) -> None:
    done = python.run(
        "import os, subprocess\nos.write(1, b'raw \\xff\\n')\nsubprocess.run('echo out; echo err >&2', shell=True)\n3"
    )
    assert done.stdout == "raw �\nout\n"
    assert done.stderr == "err\n"
    assert done.text == "3"


def test_an_interrupt_ends_the_cell_and_not_the_context(python: CodeContext) -> None:
    done = []
    python.run("kept = 'still here'")
    cell = threading.Thread(target=lambda: done.append(python.run("import time\nwhile True: time.sleep(0.05)")))
    cell.start()
    until = time.monotonic() + 20
    while not python.interrupt():
        assert time.monotonic() < until
        time.sleep(0.05)
    cell.join(20)
    assert done[0].error.name == "KeyboardInterrupt"
    assert (done[0].interrupted, done[0].timed_out) == (True, False)
    assert python.run("kept").text == "'still here'"
    assert python.interrupt() is False


def test_a_limit_in_time_interrupts_and_keeps_the_state(python: CodeContext, node: CodeContext) -> None:
    python.run("kept = 7")
    late = python.run("while True: pass", timeout=0.5)
    assert (late.timed_out, late.status) == (True, "error")
    assert python.run("kept").text == "7"
    node.run("let kept = 8")
    for forever in ("for (;;) {}", "await new Promise(() => {})"):
        assert node.run(forever, timeout=0.5).timed_out
        assert node.run("kept").text == "8"


def test_leaving_a_stream_interrupts_its_cell(box: Sandbox, python: CodeContext) -> None:
    with box.run_code_stream("import time\nprint('on')\ntime.sleep(60)", context=python) as events:
        for event in events:
            if event.type == "stdout":
                break
    assert python.run("1 + 1", timeout=20).text == "2"


def test_a_cells_own_variables_end_with_it(python: CodeContext, node: CodeContext) -> None:
    look = "import os; [os.environ.get(name) for name in ('NEW', 'HOME')]"
    home = python.run(look).results[0].json[1]
    assert python.run(look, env={"NEW": "1", "HOME": "/elsewhere"}).results[0].json == ["1", "/elsewhere"]
    assert python.run("await __import__('asyncio').sleep(0); 1 / 0", env={"NEW": "2"}).error is not None
    assert python.run("while True: pass", env={"NEW": "3"}, timeout=0.3).timed_out
    assert python.run(look).results[0].json == [None, home]
    seen = "[process.env.NEW ?? null, process.env.HOME]"
    home = node.run(seen).results[0].json[1]
    assert node.run(seen, env={"NEW": "1", "HOME": "/elsewhere"}).results[0].json == ["1", "/elsewhere"]
    assert node.run("await new Promise(() => {})", env={"NEW": "2"}, timeout=0.3).timed_out
    assert node.run(seen).results[0].json == [None, home]


def test_a_cell_goes_on_over_a_connection_that_breaks(box: Sandbox, python: CodeContext) -> None:
    code = "import time\nfor n in range(20):\n    print(n); time.sleep(0.05)\n'last'"
    said, numbers = "", []
    with box.run_code_stream(code, context=python) as events:
        for event in events:
            numbers.append(event.sequence)
            said += event.text
            if event.text.strip() in ("3", "9") and events._reply is not None:
                events._reply.hang_up()
    assert said == "".join(f"{n}\n" for n in range(20))
    assert numbers == list(range(1, len(numbers) + 1))
    assert events.run_id is not None
    assert python.run("n").text == "19"


def test_contexts_are_apart_and_run_side_by_side(box: Sandbox, python: CodeContext) -> None:
    other = box.create_code_context(cwd="/tmp", env={"COLOUR": "green"})
    try:
        python.run("only_here = 1")
        assert other.run("only_here").error.name == "NameError"  # type: ignore[union-attr]
        assert other.run("import os; os.getcwd(), os.environ['COLOUR']").text == "('/tmp', 'green')"
        wait = "import time\nt = time.monotonic()\ntime.sleep(0.8)\n[t, time.monotonic()]"
        spans: list[list[float]] = []
        threads = [
            threading.Thread(target=lambda one: spans.append(one.run(wait).results[0].json), args=[one])
            for one in (python, other)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        (a, b), (c, d) = spans
        assert max(a, c) < min(b, d)
        assert {python.id, other.id} <= {context.id for context in box.list_code_contexts()}
    finally:
        other.delete()
    with pytest.raises(NotFound) as gone:
        other.run("1")
    assert gone.value.code == "CONTEXT_NOT_FOUND"


def test_the_death_of_a_kernel_is_told_with_its_exit(box: Sandbox) -> None:
    doomed = box.create_code_context()
    with pytest.raises(Gone) as told:
        doomed.run("import os; print('last words', flush=True); os._exit(3)")
    assert told.value.code == "CONTEXT_TERMINATED"
    assert told.value.details["exitCode"] == 3
    with pytest.raises(Gone):
        doomed.run("1")
    assert doomed.refresh().status == "ended"
    doomed.delete()


def test_a_language_has_a_default_context(box: Sandbox) -> None:
    assert box.run_code("d = 5").error is None
    assert box.run_code("d").text == "5"
    with pytest.raises(Gone):
        box.run_code("import os; os._exit(1)")
    fresh = box.run_code("'d' in globals()")
    assert fresh.text == "False"
    assert fresh.execution_count == 1


def test_two_megabytes_of_output_are_whole(python: CodeContext) -> None:
    line = "0123456789" * 20
    done = python.run(f"for _ in range(10_500): print('{line}')")
    assert len(done.stdout) == 10_500 * 201
    assert not done.truncated


@pytest.mark.full
def test_a_flood_is_cut_and_counted(python: CodeContext) -> None:
    flood = python.run("for _ in range(20): print('x' * (1 << 20))\nb'\\x00' * (8 << 20)")
    assert flood.truncated
    assert 15 * 1024 * 1024 < len(flood.stdout) <= 16 * 1024 * 1024
    assert flood.dropped_bytes > 0
    assert flood.results[0].omitted == ["text/plain"]
    assert python.run("1").text == "1"


def test_javascript_awaits_at_the_top_and_keeps_names(node: CodeContext) -> None:
    done = node.run("const a = await Promise.resolve(4); let b = 3; console.log('hi'); console.error('e'); a * b")
    assert (done.text, done.stdout, done.stderr) == ("12", "hi\n", "e\n")
    assert node.run("const a = 9; ({ sum: a + b })").results[0].json == {"sum": 12}
    assert node.run("import fs, { readFileSync as r } from 'fs'; typeof r + typeof fs.stat").text == "functionfunction"
    assert node.run("const p = await import('node:path'); p.join('a', 'b')").text == "a/b"
    failed = node.run("throw new TypeError('no')")
    assert failed.error is not None
    assert (failed.error.name, failed.error.value) == ("TypeError", "no")
    assert node.run("foo(").error.name == "SyntaxError"  # type: ignore[union-attr]
    shown = node.run("display({'text/html': '<i>x</i>'}, {raw: true}); 'end'")
    assert [result.html or result.text for result in shown.results] == ["<i>x</i>", "end"]


def test_typescript_is_stripped_of_its_types(box: Sandbox) -> None:
    done = box.run_code(
        "interface P { x: number }\nenum E { A = 1, B }\nconst v: P = { x: 5 }\nv.x + (E.B as number)", language="ts"
    )
    assert done.text == "7"
    assert box.run_code("v!.x", language="typescript").text == "5"
    assert box.run_code("const w: = 5", language="typescript").error.name == "SyntaxError"  # type: ignore[union-attr]


def test_a_node_that_ends_says_how(box: Sandbox) -> None:
    doomed = box.create_code_context("js")
    with pytest.raises(Gone) as told:
        doomed.run("process.exit(4)")
    assert told.value.details["exitCode"] == 4


def test_a_virtual_environment_is_a_contexts_own(box: Sandbox) -> None:
    assert box.exec("python3 -m venv --without-pip /workspace/env").exit_code == 0
    assert box.exec("cd /workspace/env/lib/python3.*/site-packages && echo 'here = 42' > only_there.py").exit_code == 0
    for words in ({"python": "/workspace/env"}, {"env": {"VIRTUAL_ENV": "/workspace/env"}}):
        context = box.create_code_context(**words)  # type: ignore[arg-type]
        done = context.run("import only_there, sys; print(sys.prefix); only_there.here")
        assert (done.error, done.stdout, done.text) == (None, "/workspace/env\n", "42")
        context.delete()


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ({"language": "cobol"}, "VALIDATION_FAILED"),
        ({"cwd": "/nowhere"}, "INVALID_PROCESS_CWD"),
        ({"python": "/usr/bin/env"}, "NOT_SUPPORTED"),
        ({"language": "javascript", "env": {"PATH": "/nowhere"}}, "JAVASCRIPT_NOT_AVAILABLE"),
    ],
)
def test_what_cannot_be_a_context_is_refused(box: Sandbox, words: dict[str, object], code: str) -> None:
    with pytest.raises(KennelError) as refused:
        box.create_code_context(**words)  # type: ignore[arg-type]
    assert refused.value.code == code


def test_contexts_end_with_the_sandbox_and_say_so(itx: Kennel) -> None:
    box = itx.sandboxes.get(f"/sandboxes/code-{uuid.uuid4().hex[:8]}").create()
    try:
        box.start()
        assert box.list_code_contexts() == []
        assert "interpreter" not in box.exec("cat /proc/[0-9]*/cmdline | tr '\\0' ' '").stdout
        context = box.create_code_context()
        assert context.run("1").text == "1"
        box.sleep()
        assert box.list_code_contexts() == []
        with pytest.raises(Gone) as told:
            context.run("1")
        assert (told.value.code, told.value.details["reason"]) == ("CONTEXT_TERMINATED", "stopped")
        assert box.info().status == "stopped"
        assert box.run_code("2").text == "2"
        with pytest.raises(Gone):
            context.run("1")
        context.delete()
        wanted = ["sandbox/context-created", "sandbox/code-started", "sandbox/code-finished"]
        found = {event.type: event.payload for event in box.stream.read(types=wanted)}
        assert found["sandbox/context-created"]["contextId"] == context.id
        assert found["sandbox/code-started"]["code"] == "2"
        assert found["sandbox/code-finished"]["status"] == "ok"
    finally:
        box.destroy()


@pytest.mark.full
def test_a_kernel_that_takes_all_memory_ends_alone(itx: Kennel) -> None:
    box = itx.sandboxes.get(f"/sandboxes/code-{uuid.uuid4().hex[:8]}").create(instance_type="lite")
    try:
        with pytest.raises(Gone) as told:
            box.run_code("hoard = []\nwhile True: hoard.append(b'x' * (1 << 24))", timeout=60)
        assert told.value.details["signal"] == "SIGKILL"
        assert told.value.details["oomKilled"] is True
        assert box.run_code("'still serving'").text == "'still serving'"
    finally:
        box.destroy()


def test_when_the_program_that_keeps_contexts_is_killed_nothing_is_left_of_them(box: Sandbox) -> None:
    context = box.create_code_context()
    kill = "for p in /proc/[0-9]*; do grep -q '[i]nterpreter/__main__' $p/cmdline && kill -9 ${p#/proc/}; done; true"
    cell = box.run_code_stream("import time\nprint('on')\ntime.sleep(60)", context=context)
    assert [next(cell).type, next(cell).type] == ["start", "stdout"]
    box.exec(kill)
    with pytest.raises(KennelError) as lost:
        list(cell)
    assert lost.value.code == "INTERPRETER_NOT_READY"
    with pytest.raises(NotFound):
        context.run("1")
    assert box.exec("cat /proc/[0-9]*/cmdline | tr '\\0' ' ' | grep -c [k]ernel_main.py").stdout == "0\n"


def test_the_command_line_runs_cells(installation: Installation, box: Sandbox) -> None:
    done = installation.cli("run-code", box.name, "print('out'); cli = 4; cli * 2")
    assert (done.returncode, done.stdout, done.stderr) == (0, b"out\n8\n", b"")
    lent = installation.cli("run-code", box.name, "import os; os.environ['LENT']", "--env", "LENT=yes")
    assert lent.stdout == b"'yes'\n"
    failed = installation.cli("run-code", box.name, stdin=b"cli / 0")
    assert failed.returncode == 1
    assert b"ZeroDivisionError" in failed.stderr
    shown = installation.cli("run-code", box.name, "cli", "--json")
    assert b'"4"' in shown.stdout


@pytest.mark.full
def test_contexts_outlive_a_restart_of_control(own_installation: Installation) -> None:
    with own_installation.client() as itx:
        box = itx.sandboxes.get("/sandboxes/lasting").create()
        context = box.create_code_context()
        context.run("kept = 1")
        own_installation.kill("control")
        until = time.monotonic() + 30
        while (found := _kept(context)) is None:
            assert time.monotonic() < until
            time.sleep(0.2)
        assert found == "1"
        box.destroy()


def _kept(context: CodeContext) -> str | None:
    """What the context kept; None while the service is on its way back."""
    try:
        return context.run("kept").text
    except KennelError as failure:
        if failure.code not in ("CONNECTION_LOST", "LOG_UNAVAILABLE", "SANDBOX_LOST"):
            raise
        return None
