"""Figures as inline SVG, drawn at the width of the page so that their text keeps its size.

Here are the numbers; `spreads.svg.j2` draws them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from markupsafe import Markup

from reports.page import template

WIDTH = 1136
"""Units of the drawing, one CSS pixel each on a full-width page."""
_LABEL, _ROW, _TOP, _BOTTOM, _GAP = 190, 30, 30, 26, 54
_RIGHT = 24
"""Room for the last number of the axis."""


@dataclass(frozen=True, slots=True)
class Spread:
    """How a number is spread: percentiles 5, 25, 50, 75, 95, all above 0."""

    name: str
    p5: float
    p25: float
    p50: float
    p75: float
    p95: float


@dataclass(frozen=True, slots=True)
class Panel:
    """One set of spreads on a logarithmic axis, with the limit that their medians should keep."""

    title: str
    unit: str
    goal: float
    spreads: tuple[Spread, ...]


def spreads(panels: tuple[Panel, ...]) -> Markup | None:
    """Draw panels side by side over the same row names: line 5..95 %, box 25..75 %, median.

    Parameters
    ----------
    panels : tuple of Panel
        All with spreads of the same names in the same order; those without any are left out.
    """
    panels = tuple(panel for panel in panels if panel.spreads)
    if not panels:
        return None
    rows = len(panels[0].spreads)
    height = _TOP + _ROW * rows + _BOTTOM
    width = (WIDTH - _LABEL - _RIGHT - _GAP * (len(panels) - 1)) / len(panels)

    def axis(number: int) -> tuple[float, list[float], Callable[[float], float]]:
        """Return where a panel begins, its ticks, and where a value lies."""
        panel, left = panels[number], _LABEL + number * (width + _GAP)
        least = min(panel.goal, *(spread.p5 for spread in panel.spreads))
        most = max(panel.goal, *(spread.p95 for spread in panel.spreads))
        ticks = _ticks(least, most)
        return left, ticks, lambda value: left + width * _position(value, ticks[0], ticks[-1])

    return Markup(
        template("spreads.svg.j2").render(
            panels=panels,
            width=WIDTH,
            height=height,
            top=_TOP - 6,
            bottom=height - _BOTTOM,
            middle=lambda row: _TOP + _ROW * row + _ROW / 2,
            axis=axis,
        )
    )


def _ticks(low: float, high: float) -> list[float]:
    """Return 1, 3, 10, 30, ... from the last one below `low` to the first above `high`."""
    steps = [digit * 10.0**power for power in range(-4, 8) for digit in (1, 3)]
    first = max(i for i, step in enumerate(steps) if step <= max(low, steps[0]))
    last = min(i for i, step in enumerate(steps) if step >= min(high, steps[-1]))
    ticks = steps[first : max(last, first + 1) + 1]
    return ticks if len(ticks) <= 8 else ticks[(len(ticks) - 1) % 2 :: 2]


def _position(value: float, low: float, high: float) -> float:
    from_low = math.log(max(value, 1e-9) / low) / math.log(high / low)
    return min(max(from_low, 0.0), 1.0)
