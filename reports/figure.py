"""Figures as inline SVG, drawn at the width of the page so that their text keeps its size."""

from __future__ import annotations

import math
from dataclasses import dataclass

from markupsafe import Markup, escape

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
    names = [spread.name for spread in panels[0].spreads]
    height = _TOP + _ROW * len(names) + _BOTTOM
    width = (WIDTH - _LABEL - _RIGHT - _GAP * (len(panels) - 1)) / len(panels)
    parts = [
        f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="'
        f'{escape("; ".join(panel.title for panel in panels))}">'
    ]
    for row, name in enumerate(names):
        parts.append(_text(0, _middle(row) + 4, name))
    for number, panel in enumerate(panels):
        parts += _panel(panel, _LABEL + number * (width + _GAP), width, height)
    return Markup("".join([*parts, "</svg>"]))


def _panel(panel: Panel, left: float, width: float, height: float) -> list[str]:
    ticks = _ticks(
        min(panel.goal, *(spread.p5 for spread in panel.spreads)),
        max(panel.goal, *(spread.p95 for spread in panel.spreads)),
    )

    def at(value: float) -> float:
        return left + width * _position(value, ticks[0], ticks[-1])

    bottom = height - _BOTTOM
    parts = [_text(left, 12, f"{panel.title}, {panel.unit}", style="soft")]
    for tick in ticks:
        parts.append(_line(at(tick), _TOP - 6, at(tick), bottom, "grid"))
        parts.append(_text(at(tick), height - 8, f"{tick:,g}", style="soft", anchor="middle"))
    parts.append(_line(at(panel.goal), _TOP - 6, at(panel.goal), bottom, "goal"))
    parts.append(
        _text(at(panel.goal), 12, f"goal {panel.goal:g}", style="goal-name", anchor="middle")
    )
    for row, spread in enumerate(panel.spreads):
        y = _middle(row)
        about = f"{spread.name}: median {spread.p50:.1f}, 5..95 % {spread.p5:.1f}..{spread.p95:.1f}"
        parts.append(f"<g><title>{escape(about)}</title>")
        parts.append(_line(at(spread.p5), y, at(spread.p95), y, "span"))
        box = max(at(spread.p75) - at(spread.p25), 3)
        parts.append(_rect(at(spread.p25), y - 6, box, 12, "core"))
        parts.append(_rect(at(spread.p50) - 1.5, y - 8, 3, 16, "mid"))
        parts.append("</g>")
    return parts


def _middle(row: int) -> float:
    return _TOP + _ROW * row + _ROW / 2


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


def _text(x: float, y: float, text: str, *, style: str = "", anchor: str = "start") -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" class="{style}" text-anchor="{anchor}"'
    return f"<text {place}>{escape(text)}</text>"


def _line(x1: float, y1: float, x2: float, y2: float, style: str) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" class="{style}"/>'


def _rect(x: float, y: float, width: float, height: float, style: str) -> str:
    return (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" rx="2" '
        f'class="{style}"/>'
    )
