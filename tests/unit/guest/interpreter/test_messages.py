"""What a kernel says becomes a caller's events, whatever types it sends."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kennel.guest.interpreter import messages
from kennel.guest.interpreter.python_context import received

PNG = "iVBORw0KGgo="


@pytest.mark.parametrize(
    ("kind", "content", "expected"),
    [
        ("stream", {"name": "stdout", "text": "a\n"}, [{"event": "stdout", "text": "a\n"}]),
        ("stream", {"name": "stderr", "text": "b"}, [{"event": "stderr", "text": "b"}]),
        ("stream", {"name": "stdin", "text": "b"}, []),
        ("stream", {"name": "stdout", "text": ""}, []),
        ("stream", {"name": "stdout", "text": 5}, []),
        (
            "execute_result",
            {"data": {"text/plain": "1"}, "metadata": {}, "execution_count": 3},
            [{"event": "result", "main": True, "data": {"text/plain": "1"}}],
        ),
        (
            "display_data",
            {"data": {"image/png": PNG}, "metadata": {"width": 1}, "transient": {"display_id": "d"}},
            [
                {
                    "event": "result", "main": False, "data": {"image/png": PNG}, "metadata": {"width": 1},
                    "displayId": "d", "update": False,
                }
            ],
        ),
        (
            "update_display_data",
            {"data": {"text/html": ["<b>", "x</b>"]}, "transient": {"display_id": "d"}},
            [{"event": "result", "main": False, "data": {"text/html": "<b>x</b>"}, "displayId": "d", "update": True}],
        ),
        ("display_data", {"data": "no bundle"}, []),
        ("display_data", {"data": {"image/png": 7, "application/json": {"a": [1]}, "": "x", "x" * 300: "y"}},
         [{"event": "result", "main": False, "data": {"application/json": {"a": [1]}}}]),
        (
            "error",
            {"ename": "E", "evalue": "v", "traceback": ["\x1b[0;31mred\x1b[0m\nline", 5]},
            [{"event": "error", "name": "E", "value": "v", "traceback": ["red", "line"]}],
        ),
        ("error", {"ename": 1, "traceback": "x"}, [{"event": "error", "name": "Error", "value": "", "traceback": []}]),
        ("clear_output", {"wait": True}, [{"event": "clear", "wait": True}]),
        ("status", {"execution_state": "busy"}, []),
        ("comm_open", {"data": {}}, []),
    ],
)  # fmt: skip
def test_a_message_becomes_these_events(kind: str, content: dict[str, Any], expected: list[dict[str, Any]]) -> None:
    assert messages.events(kind, content) == expected


def test_a_pager_shows_its_text_as_a_result() -> None:
    reply = {"payload": [{"source": "page", "data": {"text/plain": "\x1b[1mhelp\x1b[0m"}}, {"source": "other"}, 5]}
    assert messages.paged(reply) == [{"event": "result", "main": False, "data": {"text/plain": "help"}}]
    assert messages.paged({"payload": "x"}) == []


@pytest.mark.parametrize(("told", "count"), [(3, 3), (-1, None), ("3", None), (True, None), (1 << 60, None)])
def test_a_count_is_a_small_whole_number(told: object, count: int | None) -> None:
    assert messages.count_of({"execution_count": told}) == count


def parts(header: Any, parent: Any, content: Any) -> list[bytes]:
    return [b"topic", b"<IDS|MSG>", b"mac", *(json.dumps(one).encode() for one in (header, parent, {}, content))]


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (parts({"msg_type": "status"}, {"msg_id": "m"}, {"a": 1}), ("status", "m", {"a": 1})),
        (parts({"msg_type": "status"}, {}, {}), ("status", "", {})),
        (parts({"msg_type": 5}, {"msg_id": "m"}, {}), ("", "", {})),
        (parts({"msg_type": "status"}, {"msg_id": 5}, {}), ("", "", {})),
        (parts({"msg_type": "status"}, "x", {}), ("", "", {})),
        (parts([], {}, {}), ("", "", {})),
        (parts({"msg_type": "status"}, {"msg_id": "m"}, [1]), ("", "", {})),
        (parts({"msg_type": "status"}, {"msg_id": "m"}, {"x": float("nan")}), ("", "", {})),
        ([b"<IDS|MSG>", b"mac", b"{}"], ("", "", {})),
        ([b"<IDS|MSG>", b"mac", *[b"[" * 100_000] * 4], ("", "", {})),
        ([], ("", "", {})),
    ],
)
def test_frames_are_a_message_or_nothing(message: list[bytes], expected: tuple[str, str, dict[str, Any]]) -> None:
    assert received(message) == expected
