"""A witness as a diagram in plain text: one column per lane, one row per event, time downwards.

An event is ●; ◆ is one of the two accesses in conflict, which a double line at the left joins.
"""

from __future__ import annotations

import re
from dataclasses import replace

from oracles.witness import Mark, Row, Witness

WIDTH = 140
"""Columns of the diagram where nothing else is asked for."""
ROWS = 60
"""Events that are shown at most; those far from both accesses are left out first."""
LANES = 5
"""Lanes up to which all are shown, even if two do the same."""
_LANE, _NOTE = 14, 18
"""Columns that a lane and the notes need at least."""
_GUTTER = 8
"""Columns of the double line and the line numbers."""
_NEAR = 6
"""Events that are kept before each access."""
_PIECES = re.compile(r"\s+|[^\s(\[,._]*[(\[,._]+|[^\s(\[,._]+")
"""Where a text may be broken: at spaces, and after brackets, commas and the like within code."""
_LONG = re.compile(r"\[[^\[\]]{17,}\]")
"""Coordinates of a box: the kernel's text has them, under the line that stands beside."""


def text(witness: Witness, *, width: int = WIDTH, rows: int = ROWS) -> str:
    """Return the diagram, so many columns wide at most; ValueError if that is too few to read (60).

    Lanes that do not fit side by side are named in a column of their own instead.  A line says how
    many events beyond `rows` were left out.
    """
    if width < 60:
        raise ValueError(f"lanes.text(width={width}): a diagram needs 60 columns; ask for more")
    shown = selected(witness, rows)
    witness = replace(witness, lanes=present(witness, shown))
    columns = _columns(witness, shown, width)
    body = _side_by_side(witness, shown, columns) if columns else _listed(witness, shown, width)
    trips = ", ".join(f"{name}={count}" for name, count in witness.trips)
    head = [f"{witness.kernel}: {witness.kind}" + (f" at {trips}" if trips else ""), ""]
    foot = ["", *_wrapped("missing  ", witness.says, width)]
    if witness.nearest:
        foot += _wrapped("nearest  ", witness.nearest, width)
    return "\n".join(line.rstrip() for line in [*head, *body, *foot]) + "\n"


def selected(witness: Witness, rows: int) -> list[Row | int]:
    """Return the rows to show, with the number of those left out in their places.

    Of more than `LANES` lanes those are left out that only do what another one does as well.  Of
    more than `rows` events both accesses are kept, what comes shortly before each, and the first
    ones.  Coordinates of boxes are left out.
    """
    twins = _twins(witness) if len(witness.lanes) > LANES else frozenset()
    left = [i for i, row in enumerate(witness.rows) if row.lane not in twins]
    marks = [i for i in left if witness.rows[i].mark is not Mark.NONE] or left[-1:]

    def far(i: int) -> tuple[int, int]:
        before = min(m - i if m >= i else 2 * (i - m) for m in marks)
        return (0 if before <= _NEAR or i < 2 else 1, before)

    keep = set(sorted(left, key=far)[:rows])
    out: list[Row | int] = []
    for i, row in enumerate(witness.rows):
        if i in keep:
            out.append(replace(row, text=brief(row.text), note=brief(row.note)))
        elif out and isinstance(out[-1], int):
            out[-1] += 1
        else:
            out.append(1)
    return out


def _twins(witness: Witness) -> frozenset[str]:
    """Return the lanes without an access whose every event some other lane has as well."""
    does: dict[str, set[tuple[int, str]]] = {lane: set() for lane in witness.lanes}
    for row in witness.rows:
        does.setdefault(row.lane, set()).add((row.line, row.text))
    kept = {row.lane for row in witness.rows if row.mark is not Mark.NONE}
    for lane in sorted(does, key=lambda name: -len(does[name])):
        if not any(does[lane] <= does[other] for other in kept):
            kept.add(lane)
    return frozenset(does) - kept


def present(witness: Witness, shown: list[Row | int]) -> tuple[str, ...]:
    """Return the lanes that have an event among those shown, in the order of the witness."""
    busy = {row.lane for row in shown if isinstance(row, Row)}
    return tuple(lane for lane in witness.lanes if lane in busy)


def brief(code: str) -> str:
    """Return a line of a kernel's text without the coordinates of long boxes."""
    return _LONG.sub("[…]", code)


def folded(says: str, width: int) -> list[str]:
    """Break a text into lines of at most `width` characters; code is broken after punctuation."""
    lines = [""]
    for piece in _PIECES.findall(says):
        if len(lines[-1]) + len(piece.rstrip()) > width and lines[-1]:
            lines[-1] = lines[-1].rstrip()
            lines.append("")
        if not lines[-1]:
            piece = piece.lstrip()
        while len(piece) > width:
            lines[-1], piece = piece[:width], piece[width:]
            lines.append("")
        lines[-1] += piece
    return [line.rstrip() for line in lines]


def _wrapped(head: str, says: str, width: int) -> list[str]:
    lines = folded(says, width - len(head))
    return [(head if i == 0 else " " * len(head)) + line for i, line in enumerate(lines)]


def _columns(witness: Witness, shown: list[Row | int], width: int) -> tuple[list[int], int] | None:
    """Return the widths of the lanes and of the notes; None if they do not fit."""
    events = [row for row in shown if isinstance(row, Row)]
    note = max((len(row.note) for row in events), default=0)
    wants = [
        max([min(len(lane), _LANE), *(len(row.text) + 2 for row in events if row.lane == lane)]) + 1
        for lane in witness.lanes
    ]
    room = width - _GUTTER - (1 if note else 0)
    lows = [min(want, _LANE) for want in wants]
    low = min(note, _NOTE)
    while sum(wants) + note > room:
        slack = [want - least for want, least in zip([*wants, note], [*lows, low], strict=True)]
        widest = max(range(len(slack)), key=lambda i: [*wants, note][i] if slack[i] > 0 else -1)
        if slack[widest] <= 0:
            return None
        if widest == len(wants):
            note -= 1
        else:
            wants[widest] -= 1
    return wants, note


def _side_by_side(
    witness: Witness, shown: list[Row | int], columns: tuple[list[int], int]
) -> list[str]:
    widths, note = columns
    names = [folded(lane, w - 2) for lane, w in zip(witness.lanes, widths, strict=True)]
    out = []
    for i in reversed(range(max(map(len, names), default=1))):
        cells = "".join(
            (name[-1 - i] if i < len(name) else "").ljust(w)
            for name, w in zip(names, widths, strict=True)
        )
        out.append(("        " if i else "   line ") + cells + (" state" if note and not i else ""))
    out.append("  ──────" + "".join("┬".ljust(w, "─") for w in widths) + "─" * (note and note + 1))
    for row, bar in zip(shown, _bars(shown), strict=True):
        if isinstance(row, int):
            cells = "".join("┊".ljust(w) for w in widths)
            out.append(f"{bar[0]}   ⋮ {cells} {_left_out(row)}")
            continue
        at = witness.lanes.index(row.lane) if row.lane in witness.lanes else 0
        said = folded(row.text, widths[at] - 3)
        noted = folded(row.note, note) if row.note else []
        for i in range(max(len(said), len(noted))):
            cells = ""
            for lane, w in enumerate(widths):
                here = said[i] if lane == at and i < len(said) else ""
                dot = (_dot(row) if i == 0 else "│") if lane == at else "│"
                cells += f"{dot} {here}".ljust(w)
            number = f"{row.line:>4}" if i == 0 and row.line else " " * 4
            right = f" {noted[i]}" if i < len(noted) else ""
            out.append(f"{bar[min(i, 1)]}{number} {cells}{right}")
    return out


def _listed(witness: Witness, shown: list[Row | int], width: int) -> list[str]:
    lane = min(max((len(name) for name in witness.lanes), default=4), 32) + 1
    room = width - _GUTTER - lane - 2
    out = ["   line " + "lane".ljust(lane) + "  event"]
    out.append("  ──────" + "─" * (width - _GUTTER))
    for row, bar in zip(shown, _bars(shown), strict=True):
        if isinstance(row, int):
            out.append(f"{bar[0]}   ⋮ {_left_out(row)}")
            continue
        says = row.text + (f" → {row.note}" if row.note else "")
        for i, part in enumerate(folded(says, room)):
            number = f"{row.line:>4}" if i == 0 and row.line else " " * 4
            who = (row.lane if i == 0 else "")[: lane - 1].ljust(lane)
            dot = _dot(row) if i == 0 else " "
            out.append(f"{bar[min(i, 1)]}{number} {who}{dot} {part}")
    return out


def _left_out(count: int) -> str:
    return f"({count} event{'s' if count > 1 else ''} not shown)"


def _dot(row: Row) -> str:
    return "●" if row.mark is Mark.NONE else "◆"


def _bars(shown: list[Row | int]) -> list[tuple[str, str]]:
    """Return the double line beside each row: on its first line, and on the lines after it."""
    marks = [i for i, row in enumerate(shown) if isinstance(row, Row) and row.mark is not Mark.NONE]
    if len(marks) < 2:
        return [("►  ", "   ") if i in marks else ("   ", "   ") for i in range(len(shown))]
    first, last = marks[0], marks[-1]
    out = []
    for i in range(len(shown)):
        if i == first:
            out.append((" ╔►", " ║ "))
        elif i == last:
            out.append((" ╚►", "   "))
        elif first < i < last:
            out.append((" ╠►", " ║ ") if i in marks else (" ║ ", " ║ "))
        else:
            out.append(("   ", "   "))
    return out
