"""A figure as data, from stand-ins with the methods matplotlib's own have."""

from __future__ import annotations

from types import SimpleNamespace as Thing
from typing import Any

from kennel.guest.interpreter.kernel_charts import MOST, chart_of


def said(value: Any) -> Any:
    return lambda: value


def line(xs: Any, ys: Any, label: str = "_child0") -> Any:
    return Thing(get_xdata=said(xs), get_ydata=said(ys), get_label=said(label))


def axes(**more: Any) -> Any:
    told = {
        "get_title": said("t"), "get_xlabel": said("x"), "get_ylabel": said("y"), "get_xscale": said("linear"),
        "get_yscale": said("log"), "get_lines": said([]), "containers": [], "collections": [], "patches": [],
    }  # fmt: skip
    return Thing(**(told | more))


def test_lines_bars_points_and_slices_are_told() -> None:
    bar = Thing(get_x=said(1.0), get_width=said(2.0), get_height=said(3))
    bars = Thing(patches=[bar], get_label=said("bars"))
    points = Thing(get_offsets=said([(1, 2), (3, float("nan"))]), get_label=said("points"))
    part = Thing(theta1=0, theta2=90, get_label=said("a"))
    drawn = axes(
        get_lines=said([line([0, 1], [2.5, "b"], "own")]), containers=[bars], collections=[points], patches=[part]
    )
    chart = chart_of(Thing(axes=[drawn, axes()]))
    assert chart is not None
    (told,) = chart["axes"]
    assert (told["title"], told["xLabel"], told["yLabel"], told["yScale"]) == ("t", "x", "y", "log")
    assert told["series"] == [
        {"type": "line", "label": "own", "x": [0, 1], "y": [2.5, "b"]},
        {"type": "bar", "label": "bars", "x": [2.0], "y": [3]},
        {"type": "scatter", "label": "points", "x": [1, 3], "y": [2, None]},
        {"type": "pie", "labels": ["a"], "values": [0.25]},
    ]


def test_a_figure_tells_at_most_so_many_points() -> None:
    chart = chart_of(Thing(axes=[axes(get_lines=said([line(range(MOST), range(MOST)), line([1], [2])]))]))
    assert chart is not None
    assert [len(one["x"]) for one in chart["axes"][0]["series"]] == [MOST]
    long = chart_of(Thing(axes=[axes(get_lines=said([line(range(MOST + 5), range(MOST + 5))]))]))
    assert long is not None
    assert long["axes"][0]["series"][0]["omitted"] == 5


def test_what_cannot_be_read_is_no_chart() -> None:
    assert chart_of(Thing(axes=[axes(get_lines=said(5))])) is None
    assert chart_of(Thing(axes=[])) is None
    assert chart_of(Thing()) is None
