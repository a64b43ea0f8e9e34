"""The section about semaphore mutants: which judge notices which broken release.

Every function is pure: rows of `fuzz.semaphores.record` in, a Section out.
"""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
from markupsafe import Markup

from fuzz.semaphores.record import DEVICE, JUDGES, PROVING, Facts, Row, misjudged, unanswered, words
from oracles.witness import loads
from reports.lanes import svg
from reports.page import Headline, Section, template

BASES = {
    "split_k": "CTAs add up by ordinary loads and stores",
    "split_k_tma": "CTAs add up by bulk stores and reductions",
    "wide_turns": "CTAs add up by bulk copies of 64 KB, and do little else",
    "split_pipelined": "what the compiler makes of a product, relu(x @ w + bias)",
}
"""What the kernels are that the mutants change."""
DETAIL = 1200
"""Characters of what a judge says that are shown."""
_FACTS = ("gpu", "cuda_driver", "sanitizer", "torch", "nvrtc", "launches", "seconds", "started")
_NAMED = {"gpu": "", "started": "", "cuda_driver": "driver ", "sanitizer": "compute-sanitizer "}


def section(rows: Sequence[Row], facts: Facts) -> Section:
    """Show who notices what, a row for each kernel."""
    groups = {base: [row for row in rows if row.base == base] for base in (r.base for r in rows)}
    body = template("semaphores.html.j2").render(
        judges={name: (about, noticed(rows, name)) for name, about in JUDGES.items()},
        groups=groups,
        bases=BASES,
        mark=mark,
        tone=tone,
        drawn=lambda row: svg(loads(row.witness)) if row.witness else "",
        kinds={"+": "added", "-": "gone"},
        most=DETAIL,
        facts=", ".join(_NAMED.get(k, f"{k} ") + str(facts[k]) for k in _FACTS if k in facts),
    )
    return Section("Semaphores", says(rows), pd.DataFrame(), body=Markup(body))


def says(rows: Sequence[Row]) -> str:
    """Put the table in words."""
    legal = sum(row.legal is True for row in rows)
    dark = sum(_detected(row, PROVING) and not _detected(row, DEVICE) for row in rows)
    out = f"{len(rows) - legal} broken ways to pass a semaphore on, and {legal} legal kernels: "
    out += f"{len(misjudged(rows))} wrong answers, {unanswered(rows)} cells without one."
    if any(judge in row.cells for row in rows for judge in DEVICE):
        out += f" {dark} defects are noticed by a proof or a simulation alone."
    return out + " Silence of a tool that only runs a kernel is no proof."


def _detected(row: Row, judges: dict[str, str]) -> bool:
    return any(row.status(judge) == "detected" for judge in judges)


def headline(rows: Sequence[Row]) -> Headline:
    """Say what a reader must know first, on a page of this section alone."""
    if wrong := misjudged(rows):
        return Headline("fail", f"{len(wrong)} wrong answers about semaphores", ())
    open_ = unanswered(rows)
    if open_ or not rows:
        return Headline("unknown", f"{open_} cells of the table of semaphores have no answer", ())
    return Headline("pass", f"{len(rows)} kernels with semaphores, no wrong answer", ())


def joined(whole: Headline, rows: Sequence[Row]) -> Headline:
    """Say at the head of a page too that a judge was wrong here."""
    own = headline(rows)
    if own.status != "fail":
        return whole
    return Headline("fail", f"{whole.says}; {own.says}", whole.numbers)


def noticed(rows: Sequence[Row], judge: str) -> str:
    """Count the defects that a judge noticed, of those that it was asked about."""
    asked = [row.status(judge) for row in rows if not row.legal and judge in row.cells]
    return f"{asked.count('detected')} of {len(asked)}" if asked else "not measured"


def mark(row: Row, judge: str) -> tuple[str, str]:
    """Return the word for a cell, and what more there is."""
    cell, said = row.cells.get(judge), words(judge, row.cells.get(judge))
    match row.status(judge):
        case "detected":
            return "killed" if judge in PROVING else "detected", said
        case "silent":
            return "passes" if row.legal else "silent", ""
        case "unknown":
            return "unknown", cell.says if cell else ""
        case _:
            return said, ""


def tone(row: Row, judge: str) -> str:
    """Return the class of a cell: ``fail`` where the judge is wrong.

    ``pass`` where it is right, ``unknown`` where it has no answer, ``quiet`` where it only did not
    see anything, ``missing`` where it was not asked.
    """
    status = row.status(judge)
    if status in ("missing", "unknown"):
        return status
    if row.misjudged(judge):
        return "fail"
    return "pass" if row.legal or status == "detected" else "quiet"
