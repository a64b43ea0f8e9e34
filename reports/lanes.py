"""A witness as a drawing: lanes side by side, time downwards, the missing order in red.

Here is where everything lies; `lanes.svg.j2` draws it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from markupsafe import Markup

from oracles.lanes import ROWS, folded, present, selected
from oracles.witness import Mark, Row, Witness
from reports.page import template

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
_CSS = Path(__file__).with_name("lanes.css")
_CAPTIONS = {
    "proxy": "no proxy fence between",
    "fence": "no wgmma fence between",
    "scope": "ordered, but not at this scope",
}
"""What the arrow says of kinds for which an order is there, but not enough."""


@dataclass(frozen=True, slots=True)
class _Placed:
    """An event with the height of its dot and its broken texts."""

    row: Row | int
    y: float
    text: tuple[str, ...]
    note: tuple[str, ...]

    @property
    def hit(self) -> bool:
        """Whether it is one of the two accesses in conflict."""
        return _hit(self.row)


def svg(witness: Witness) -> Markup:
    """Draw a witness as one `<svg>` without scripts or links, for a page or a file of its own.

    Its colours are those of the page around it, or follow the reader's theme.
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
    ends = [("missing", folded(witness.says, int((width - 90) / 6.4)))]
    if witness.nearest:
        ends.append(("nearest", folded(witness.nearest, int((width - 90) / 6.4))))
    trips = ", ".join(f"{name}={count}" for name, count in witness.trips)
    hits = [event for event in placed if event.hit]
    return Markup(
        template("lanes.svg.j2").render(
            style=Markup(_CSS.read_text(encoding="utf-8")),
            title=f"{witness.kernel}: {witness.kind}" + (f" at {trips}" if trips else ""),
            says=witness.says,
            least=_NARROW * width / WIDTH,
            width=width,
            height=bottom + 30 + _LINE * sum(len(lines) for _, lines in ends) + 10,
            left=_LEFT,
            top=_TOP - 2,
            line=_LINE,
            notes=width - _NOTE + 6,
            lanes=[(at[name], head) for name, head in zip(lanes, heads, strict=True)],
            bottom=bottom,
            numbered=any(isinstance(row, Row) and row.line for row in shown),
            noted=noted,
            placed=placed,
            at=lambda event: _lane(event, at),
            hits=hits,
            arrow=_arrow(hits, at) if len(hits) > 1 else None,
            caption=_CAPTIONS.get(witness.kind, "nothing orders this"),
            ends=ends,
        )
    )


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


@dataclass(frozen=True, slots=True)
class _Arrow:
    """The order that is missing: from one access to the other, with a caption beside its tip."""

    bend: str
    x: float
    y: float
    side: float
    anchor: str


def _arrow(hits: list[_Placed], at: dict[str, float]) -> _Arrow:
    first, second = hits[0], hits[-1]
    x1, y1 = _lane(first, at), first.y + 8
    x2, y2 = _lane(second, at), second.y - 12
    if x1 == x2:
        bend = f"C {x1 - 22:.1f} {y1 + 8:.1f} {x2 - 22:.1f} {y2 - 8:.1f} {x2:.1f} {y2:.1f}"
    else:
        middle = (y1 + y2) / 2
        bend = f"C {x1:.1f} {middle:.1f} {x2:.1f} {middle:.1f} {x2:.1f} {y2:.1f}"
    left = x2 < x1 and x2 > 140
    side, anchor = (x2 - 13, "end") if left or x2 > x1 else (x2 + 13, "start")
    return _Arrow(f"M {x1:.1f} {y1:.1f} {bend}", x2, y2, side, anchor)
