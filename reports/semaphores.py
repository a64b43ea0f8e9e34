"""The section about the release family: which judge notices which broken turn.

Every function is pure: rows of `fuzz.semaphores.record` in, a Section out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd
from markupsafe import Markup

from fuzz.semaphores.record import DEVICE, JUDGES, PROVING, Cell, Row, misjudged, unanswered, words
from oracles.witness_json import loads
from reports.lanes import svg
from reports.page import Headline, Section, template

BASES = {
    "split_k": "CTAs add up by ordinary loads and stores",
    "split_k_tma": "CTAs add up by bulk stores and reductions",
    "wide_turns": "CTAs add up by bulk copies of 64 KB, and do little else",
    "split_pipelined": "what the compiler makes of a product, relu(x @ w + bias)",
}
"""What the kernels are that the family changes."""
DETAIL = 1200
"""Characters of what a judge says that are shown."""
_FACTS = ("gpu", "cuda_driver", "sanitizer", "torch", "nvrtc", "launches", "seconds", "started")
_NAMED = {"gpu": "", "started": "", "cuda_driver": "driver ", "sanitizer": "compute-sanitizer "}


@dataclass(frozen=True, slots=True)
class Judge:
    """The head of a column: a judge, and how many defects it noticed."""

    name: str
    about: str
    noticed: str


@dataclass(frozen=True, slots=True)
class Mark:
    """What is shown of a cell: a word, what more there is, and a class of the page's style."""

    text: str
    more: str
    tone: str


@dataclass(frozen=True, slots=True)
class Line:
    """One kernel as the template shows it; `diff` has lines with their kinds."""

    name: str
    says: str
    legal: bool
    cells: list[Mark]
    diff: list[tuple[str, str]]
    witness: Markup | None
    details: list[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Group:
    """The kernels made from one."""

    name: str
    about: str
    rows: list[Line]


def section(rows: Sequence[Row], facts: dict[str, str | int | float]) -> Section:
    """Show who notices what, a row for each kernel."""
    body = template("release.html.j2").render(
        judges=[Judge(name, about, noticed(rows, name)) for name, about in JUDGES.items()],
        groups=[_group(base, rows) for base in dict.fromkeys(row.base for row in rows)],
        facts=", ".join(_NAMED.get(k, f"{k} ") + str(facts[k]) for k in _FACTS if k in facts),
    )
    return Section("Turns", says(rows), pd.DataFrame(), body=Markup(body))


def says(rows: Sequence[Row]) -> str:
    """Put the table in words."""
    legal = sum(row.legal for row in rows)
    wrong = sum(misjudged(row, judge) for row in rows for judge in JUDGES)
    dark = sum(_seen_by(row, PROVING) and not _seen_by(row, DEVICE) for row in rows)
    asked = any(judge in row.cells for row in rows for judge in DEVICE)
    out = f"{len(rows) - legal} broken ways to give a turn on, and {legal} legal kernels: "
    out += f"{wrong} wrong answers, {unanswered(rows)} cells without one."
    if asked:
        out += f" {dark} defects are noticed by a proof or a simulation alone."
    return out + " Silence of a tool that only runs a kernel is no proof."


def _seen_by(row: Row, judges: Sequence[str]) -> bool:
    return any(row.cells[j].status == "betrayed" for j in judges if j in row.cells)


def joined(whole: Headline, rows: Sequence[Row]) -> Headline:
    """Say at the head of a page too that a judge was wrong here."""
    wrong = sum(misjudged(row, judge) for row in rows for judge in JUDGES)
    if not wrong:
        return whole
    return Headline("fail", f"{whole.says}; {wrong} wrong answers about turns", whole.numbers)


def headline(rows: Sequence[Row]) -> Headline:
    """Say what a reader must know first, on a page of this section alone."""
    wrong = sum(misjudged(row, judge) for row in rows for judge in JUDGES)
    if wrong:
        return Headline("fail", f"{wrong} wrong answers about turns", ())
    open_ = unanswered(rows)
    if open_ or not rows:
        return Headline("unknown", f"{open_} cells of the table of turns have no answer", ())
    return Headline("pass", f"{len(rows)} kernels that take turns, no wrong answer", ())


def noticed(rows: Sequence[Row], judge: str) -> str:
    """Count the defects that a judge noticed, of those that it was asked about."""
    cells = [row.cells[judge] for row in rows if not row.legal and judge in row.cells]
    if not cells:
        return "not measured"
    return f"{sum(cell.status == 'betrayed' for cell in cells)} of {len(cells)}"


def _group(base: str, rows: Sequence[Row]) -> Group:
    return Group(base, BASES.get(base, ""), [_line(row) for row in rows if row.base == base])


def _line(row: Row) -> Line:
    cells = [_mark(row, judge) for judge in JUDGES]
    kinds = {"+": "added", "-": "gone"}
    diff = [(kinds.get(line[:1], "same"), line) for line in row.diff.splitlines()]
    drawn = svg(loads(row.witness)) if row.witness else None
    details = [(judge, cell.detail[:DETAIL]) for judge, cell in row.cells.items() if _told(cell)]
    return Line(row.name, row.says, row.legal, cells, diff, drawn, details)


def _told(cell: Cell) -> bool:
    return bool(cell.detail) and cell.status != "silent"


def _mark(row: Row, judge: str) -> Mark:
    cell, said = row.cells.get(judge), tone(row, judge)
    if cell is None:
        return Mark(words(judge, cell), "", said)
    match cell.status:
        case "betrayed":
            return Mark("killed" if judge in PROVING else "betrayed", words(judge, cell), said)
        case "silent":
            return Mark("passes" if row.legal else "silent", "", said)
        case _:
            return Mark("unknown", cell.says, said)


def tone(row: Row, judge: str) -> str:
    """Return the class of a cell: ``fail`` where the judge is wrong.

    ``pass`` where it is right, ``unknown`` where it has no answer, ``quiet`` where it only did not
    see anything, ``missing`` where it was not asked.
    """
    cell = row.cells.get(judge)
    if cell is None:
        return "missing"
    if cell.status == "unknown":
        return "unknown"
    if misjudged(row, judge):
        return "fail"
    return "pass" if row.legal or cell.status == "betrayed" else "quiet"
