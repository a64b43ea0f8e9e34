"""A witness as a drawing: lanes side by side, time downwards, the missing order in red."""

from __future__ import annotations

from dataclasses import dataclass

from markupsafe import Markup, escape

from oracles.lanes import ROWS, folded, present, selected
from oracles.witness import Mark, Row, Witness

WIDTH = 1136
"""Units of the drawing, one CSS pixel each on a full-width page."""
_NARROW = 920
"""CSS pixels to which a drawing of usual width shrinks at most; below, its text is too small."""
_LEFT, _TOP, _LINE, _GAP = 56, 62, 16, 12
_NOTE = 210
"""Width of the states at the right."""
_LEAST = 120
"""Width of a lane below which the drawing grows instead."""
_CHAR = 6.7
"""Width of a character of the labels, a little more than it is."""
_CAPTIONS = {
    "proxy": "no proxy fence between",
    "fence": "no wgmma fence between",
    "scope": "ordered, but not at this scope",
}
"""What the arrow says of kinds for which an order is there, but not enough."""

_STYLE = """
svg.lanes:root { color-scheme: light dark; }
.lanes {
  --l-ink: var(--ink, light-dark(#1d2129, #e9ebef));
  --l-soft: var(--soft, light-dark(#59606c, #a5adba));
  --l-line: var(--line, light-dark(#e2dfd6, #30353e));
  --l-card: var(--card, light-dark(#ffffff, #1c1f25));
  --l-fail: var(--fail, light-dark(#b3261e, #ff9c93));
  --l-dot: light-dark(#7aa2f0, #6d93dd);
  background: var(--l-card);
}
.lanes text { fill: var(--l-ink); font: 12px var(--sans, "Segoe UI", system-ui, sans-serif);
  paint-order: stroke; stroke: var(--l-card); stroke-width: 4px; stroke-linejoin: round; }
.lanes .bare text { stroke: none; }
.lanes .code { font: 11px var(--mono, ui-monospace, Consolas, "DejaVu Sans Mono", monospace); }
.lanes .soft { fill: var(--l-soft); }
.lanes .title { font-size: 15px; font-weight: 640; }
.lanes .head { font-weight: 600; }
.lanes .mark { fill: var(--l-fail); font-weight: 650; }
.lanes .life { stroke: var(--l-line); stroke-width: 2; }
.lanes .dot { fill: var(--l-dot); stroke: var(--l-card); stroke-width: 2; }
.lanes .hit { fill: var(--l-fail); stroke: var(--l-card); stroke-width: 2; }
.lanes .glow { fill: color-mix(in srgb, var(--l-fail) 9%, transparent); }
.lanes .order { fill: none; stroke: var(--l-fail); stroke-width: 2; stroke-dasharray: 6 4; }
.lanes .tip { fill: var(--l-fail); }
"""


@dataclass(frozen=True, slots=True)
class _Placed:
    """An event with the height of its dot and its broken texts."""

    row: Row | int
    y: float
    text: tuple[str, ...]
    note: tuple[str, ...]


def svg(witness: Witness) -> Markup:
    """Draw a witness.

    Parameters
    ----------
    witness : Witness
        What happened.

    Returns
    -------
    markupsafe.Markup
        One `<svg>` without scripts or links, for a page or a file of its own; its colours are
        those of the page around it, or follow the reader's theme.
    """
    shown = selected(witness, ROWS)
    lanes = present(witness, shown) or ("",)
    noted = any(row.note for row in shown if isinstance(row, Row))
    lane = max((WIDTH - _LEFT - (_NOTE if noted else 16)) / len(lanes), _LEAST)
    width = _LEFT + lane * len(lanes) + (_NOTE if noted else 16)
    at = {name: _LEFT + lane * i + 14 for i, name in enumerate(lanes)}
    heads = [folded(name, int((lane - 26) / _CHAR)) for name in lanes]
    top = _TOP + _LINE * max(len(head) for head in heads) + 8
    placed = _placed(shown, top, int((lane - 26) / _CHAR))
    last = max(len(placed[-1].text), len(placed[-1].note), 1) if placed else 0
    bottom = placed[-1].y + _LINE * last if placed else top
    missing = folded(witness.says, int((width - 90) / 6.4))
    nearest = folded(witness.nearest, int((width - 90) / 6.4)) if witness.nearest else []
    height = bottom + 30 + _LINE * (len(missing) + len(nearest)) + 10
    trips = ", ".join(f"{name}={count}" for name, count in witness.trips)
    title = f"{witness.kernel}: {witness.kind}" + (f" at {trips}" if trips else "")
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" class="lanes" role="img" '
        f'style="min-width:{_NARROW * width / WIDTH:.0f}px" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" '
        f'aria-label="{escape(f"{title}: {witness.says}")}">',
        f"<style>{_STYLE}</style>",
        _text(8, 22, title, "title"),
    ]
    parts += _frame(lanes, heads, at, bottom)
    if any(isinstance(row, Row) and row.line for row in shown):
        parts.append(_text(_LEFT - 14, _TOP - 2, "line", "soft", anchor="end"))
    if noted:
        parts.append(_text(width - _NOTE + 6, _TOP - 2, "state after it", "soft"))
    parts += _marks(placed, at, width, _CAPTIONS.get(witness.kind, "nothing orders this"))
    for event in placed:
        parts += _event(event, _lane(event, at), width)
    y = bottom + 34
    for name, lines, style in (("missing", missing, "mark"), ("nearest", nearest, "soft")):
        for i, says in enumerate(lines):
            if i == 0:
                parts.append(_text(8, y, name, style))
            parts.append(_text(74, y, says, "" if style == "mark" else "soft"))
            y += _LINE
    return Markup("".join([*parts, "</svg>"]))


def _placed(shown: list[Row | int], top: float, chars: int) -> list[_Placed]:
    placed = []
    y = top
    hits = [i for i, row in enumerate(shown) if _hit(row)]
    for i, row in enumerate(shown):
        # The arrow's caption stands above the later access.
        y += 2 * _LINE if len(hits) > 1 and i == hits[-1] else 0
        if isinstance(row, int):
            placed.append(
                _Placed(row, y, (f"{row} more event{'' if row == 1 else 's'}, not drawn",), ())
            )
            y += _LINE + _GAP
            continue
        said = tuple(folded(row.text, chars))
        note = tuple(folded(row.note, int((_NOTE - 14) / 6.5))) if row.note else ()
        placed.append(_Placed(row, y, said, note))
        y += _LINE * max(len(said), len(note)) + _GAP
    return placed


def _hit(row: Row | int) -> bool:
    return isinstance(row, Row) and row.mark is not Mark.NONE


def _lane(event: _Placed, at: dict[str, float]) -> float:
    return at.get(event.row.lane, _LEFT) if isinstance(event.row, Row) else _LEFT


def _frame(
    lanes: tuple[str, ...], heads: list[list[str]], at: dict[str, float], bottom: float
) -> list[str]:
    parts = []
    for name, head in zip(lanes, heads, strict=True):
        x = at[name]
        start = _TOP - 2 + _LINE * (len(head) - 1) + 8
        end = bottom + 6
        parts.append(
            f'<line class="life" x1="{x:.1f}" y1="{start:.1f}" x2="{x:.1f}" y2="{end:.1f}"/>'
        )
        parts += [_text(x - 6, _TOP - 2 + _LINE * i, part, "head") for i, part in enumerate(head)]
    return parts


def _event(event: _Placed, x: float, width: float) -> list[str]:
    row, y = event.row, event.y
    if isinstance(row, int):
        return [_text(_LEFT + 4, y + 4, " ".join(("⋮", *event.text)), "soft")]
    hit = _hit(row)
    parts = ['<g class="bare">' if hit else "<g>", f"<title>{escape(row.text)}</title>"]
    if row.line:
        parts.append(_text(_LEFT - 14, y + 4, str(row.line), "code soft", anchor="end"))
    if hit:
        diamond = f"{x},{y - 8} {x + 8},{y} {x},{y + 8} {x - 8},{y}"
        parts.append(f'<polygon class="hit" points="{diamond}"/>')
    else:
        parts.append(f'<circle class="dot" cx="{x:.1f}" cy="{y:.1f}" r="5.5"/>')
    style = "code mark" if hit else "code"
    for i, says in enumerate(event.text):
        parts.append(_text(x + 13, y + 4 + _LINE * i, says, style))
    for i, says in enumerate(event.note):
        parts.append(_text(width - _NOTE + 6, y + 4 + _LINE * i, says, "soft"))
    return [*parts, "</g>"]


def _marks(placed: list[_Placed], at: dict[str, float], width: float, caption: str) -> list[str]:
    """Draw a band behind each access, and between them the order that is missing."""
    hits = [event for event in placed if _hit(event.row)]
    parts = []
    for event in hits:
        tall = _LINE * max(len(event.text), len(event.note), 1) + 10
        parts.append(
            f'<rect class="glow" x="4" y="{event.y - 13:.1f}" width="{width - 8:.1f}" '
            f'height="{tall:.1f}" rx="6"/>'
        )
    if len(hits) < 2:
        return parts
    first, second = hits[0], hits[-1]
    x1, y1 = _lane(first, at), first.y + 8
    x2, y2 = _lane(second, at), second.y - 12
    if x1 == x2:
        bend = f"C {x1 - 22:.1f} {y1 + 8:.1f} {x2 - 22:.1f} {y2 - 8:.1f} {x2:.1f} {y2:.1f}"
    else:
        middle = (y1 + y2) / 2
        bend = f"C {x1:.1f} {middle:.1f} {x2:.1f} {middle:.1f} {x2:.1f} {y2:.1f}"
    parts.append(f'<path class="order" d="M {x1:.1f} {y1:.1f} {bend}"/>')
    tip = f"{x2},{y2 + 5} {x2 - 5},{y2 - 5} {x2 + 5},{y2 - 5}"
    parts.append(f'<polygon class="tip" points="{tip}"/>')
    left = x2 < x1 and x2 > 140
    side, anchor = (x2 - 13, "end") if left or x2 > x1 else (x2 + 13, "start")
    parts.append(_text(side, y2 - 6, caption, "mark", anchor=anchor))
    return parts


def _text(x: float, y: float, says: str, style: str, *, anchor: str = "start") -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" class="{style}" text-anchor="{anchor}"'
    return f"<text {place}>{escape(says)}</text>"
