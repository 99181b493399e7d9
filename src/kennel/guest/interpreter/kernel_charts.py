"""Owns what a matplotlib figure says as data: axes with titles, labels and the points that were drawn.

Called by a kernel's formatters, on whichever Python it runs; imports nothing but the standard library. Invariant: at
most MOST points of a figure are told, and a figure that cannot be read is still shown as a picture.
"""

from typing import Any

MOST = 10_000
_SERIES = 200


def chart_of(figure: Any) -> "dict[str, Any] | None":
    """The chart of a figure; None for one with nothing to tell."""
    try:
        room = [MOST]
        axes = [_axes(one, room) for one in figure.axes[:50]]
    except Exception:  # noqa: BLE001  # any version of a library that is the user's; the picture is told anyway
        return None
    axes = [one for one in axes if one["series"]]
    if not axes:
        return None
    told = {"type": "figure", "axes": axes}
    title = getattr(getattr(figure, "_suptitle", None), "get_text", lambda: "")()
    return {**told, "title": title} if title else told


def _axes(axes: Any, room: "list[int]") -> "dict[str, Any]":
    series = [_line(line, room) for line in axes.get_lines()[:_SERIES]]
    series += [found for one in axes.containers[:_SERIES] for found in _bars(one, room)]
    series += [_points(one, room) for one in axes.collections[:_SERIES] if hasattr(one, "get_offsets")]
    slices = [patch for patch in axes.patches[:_SERIES] if hasattr(patch, "theta1")]
    if slices:
        labels = [patch.get_label() for patch in slices]
        values = [_plain((patch.theta2 - patch.theta1) / 360) for patch in slices]
        series.append({"type": "pie", "labels": labels, "values": values})
    return {
        "title": axes.get_title(),
        "xLabel": axes.get_xlabel(),
        "yLabel": axes.get_ylabel(),
        "xScale": axes.get_xscale(),
        "yScale": axes.get_yscale(),
        "series": [one for one in series if one.get("x") or one.get("values")],
    }


def _line(line: Any, room: "list[int]") -> "dict[str, Any]":
    return {"type": "line", "label": _label(line), **_pairs(line.get_xdata(), line.get_ydata(), room)}


def _bars(container: Any, room: "list[int]") -> "list[dict[str, Any]]":
    bars = [patch for patch in getattr(container, "patches", []) or [] if hasattr(patch, "get_height")]
    if not bars:
        return []
    middle = [patch.get_x() + patch.get_width() / 2 for patch in bars]
    return [{"type": "bar", "label": _label(container), **_pairs(middle, [bar.get_height() for bar in bars], room)}]


def _points(collection: Any, room: "list[int]") -> "dict[str, Any]":
    offsets = [(one[0], one[1]) for one in collection.get_offsets()[: room[0]]]
    xs, ys = [one[0] for one in offsets], [one[1] for one in offsets]
    return {"type": "scatter", "label": _label(collection), **_pairs(xs, ys, room)}


def _pairs(xs: Any, ys: Any, room: "list[int]") -> "dict[str, Any]":
    count = min(len(xs), len(ys))
    kept = min(count, room[0])
    room[0] -= kept
    pairs = {"x": [_plain(xs[at]) for at in range(kept)], "y": [_plain(ys[at]) for at in range(kept)]}
    return {**pairs, "omitted": count - kept} if kept < count else pairs


def _label(artist: Any) -> str:
    text = str(artist.get_label())
    return "" if text.startswith("_") else text


def _plain(value: Any) -> Any:
    """A number that JSON has, or text."""
    if isinstance(value, str | bool | int):
        return value
    try:
        number = float(value)
    except (TypeError, ValueError):
        return str(value)
    return number if number - number == 0 else None
