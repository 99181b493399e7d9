"""The curves of the usage page."""

from __future__ import annotations

import pytest

from kennel.api.console.plots import line, magnified


def test_a_line_is_broken_where_nobody_looked() -> None:
    assert line([]) == ""
    assert line([(600, 0), (597, 0.5), (300, 1), (297, 1)]) == "M0.0 100.0L3.0 50.0M300.0 0.0L303.0 0.0"


def test_what_is_outside_stays_in_the_field() -> None:
    assert line([(9999, -1), (-5, 7)]) == "M0.0 100.0M600.0 0.0"


@pytest.mark.parametrize(("most", "times"), [(0.0, 64), (0.001, 64), (0.1, 8), (0.44, 2), (0.46, 1), (1.0, 1)])
def test_small_curves_are_drawn_larger(most: float, times: int) -> None:
    assert magnified([(3, most / 2), (0, most)]) == ([(3, most / 2 * times), (0, most * times)], times)
