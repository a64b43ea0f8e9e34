"""Sections of tables, written as one HTML file that asks the network for nothing."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

import pandas as pd
from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template
from markupsafe import Markup

from fuzz.campaign.record import STATUSES
from fuzz.exit_code import writing
from reports.figure import library

MAX_ROWS = 300
"""Rows of a table that are shown; 10,000 rows as plain DOM take seconds to open."""
HEAT_ROWS = 24
"""Rows of a heat table above which it is laid out in blocks side by side."""
HEAT_CELLS = 24
"""Cells of a line of all blocks, at most, beside the names."""

Look = Literal["table", "heat", "tiles"]
_HERE = Path(__file__).parent
_STYLES = {
    "case": "id",
    "mutation": "mono",
    "kernel": "id",
    "fact": "name",
    "family": "name",
    "reason": "wide",
    "conclusion": "wide",
    "confirmed": "wide",
    "example": "wide",
    "what": "wide",
}
"""CSS classes of columns by name; others are plain text."""


@dataclass(frozen=True, slots=True)
class Section:
    """A title, one sentence that holds the number, and a table.

    Parameters
    ----------
    title : str
        Unique on its page; links are made from it.
    says : str
        The finding in words, with the number.
    table : pandas.DataFrame
        Its index is not shown.
    look : {"table", "heat", "tiles"}
        ``heat`` shades the numbers right of the first column by their size; ``tiles`` gives one
        card per row, with a bar of its statuses.
    figure : markupsafe.Markup
        Charts of `reports.figure` above the table.
    body : markupsafe.Markup
        HTML in place of the table, of a section that has a template of its own.
    """

    title: str
    says: str
    table: pd.DataFrame
    look: Look = "table"
    figure: Markup | None = None
    body: Markup | None = None

    @property
    def anchor(self) -> str:
        """Name of the section in links."""
        return "-".join(self.title.lower().split())


@dataclass(frozen=True, slots=True)
class Share:
    """So many of so many, for a cell of a heat table; it stands out where it is not all."""

    some: int
    of: int


@dataclass(frozen=True, slots=True)
class Cell:
    """What a template shows of one value."""

    text: str
    style: str
    key: str
    heat: int = 0


@dataclass(frozen=True, slots=True)
class Link:
    """Another page."""

    name: str
    path: str


@dataclass(frozen=True, slots=True)
class Headline:
    """What a reader must see first: the result in one sentence, and a few numbers with their names.

    The status is one of `fuzz.campaign.record.STATUSES`, and colours the banner.
    """

    status: str
    says: str
    numbers: tuple[tuple[str, str], ...]


def write(
    path: Path, title: str, headline: Headline, sections: list[Section], *links: Link
) -> None:
    """Write the page, with links to others; its folder is made."""
    save(path, render(title, headline, sections, *links))


def save(path: Path, text: str) -> None:
    """Write a file whole or not at all; its folder is made."""
    with writing(f"reports --out {path}", path, "name another file with --out"):
        path.parent.mkdir(parents=True, exist_ok=True)
        half = path.with_name(f"{path.name}.part")
        half.write_text(text, encoding="utf-8")  # an older page stays, where this one does not fit
        half.replace(path)


def template(name: str, *, escape: bool = True) -> Template:
    """Return a template of this folder; what it is given is escaped for HTML."""
    return _environment(escape).get_template(name)


@cache
def _environment(escape: bool) -> Environment:
    return Environment(
        loader=FileSystemLoader(_HERE),
        autoescape=escape,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def render(title: str, headline: Headline, sections: list[Section], *links: Link) -> str:
    """Return the page as HTML; all text of the tables is escaped."""
    charts = any('class="chart"' in (section.figure or "") for section in sections)
    return template("page.html.j2").render(
        title=title,
        headline=headline,
        sections=sections,
        style=Markup((_HERE / "page.css").read_text(encoding="utf-8")),
        links=links,
        library=library() if charts else "",
        script=Markup((_HERE / "page.js").read_text(encoding="utf-8")),
        rows=rows,
        blocks=blocks,
        statuses=STATUSES,
        max_rows=MAX_ROWS,
        number=number,
        kinds=kinds,
    )


def rows(section: Section) -> list[list[Cell]]:
    """Return the cells of a section's table, the first `MAX_ROWS` rows of it."""
    table, hot = section.table.head(MAX_ROWS), section.look == "heat"
    hottest = max(
        (v for v in table.to_numpy().flat if hot and isinstance(v, int | float) and v == v),
        default=1,
    )
    result = []
    for values in table.itertuples(index=False):
        line = []
        for position, (name, value) in enumerate(zip(map(str, table), values, strict=True)):
            line.append(_hot(value, hottest) if hot and position else _cell(name, value))
        result.append(line)
    return result


def blocks(section: Section) -> list[list[list[Cell]]]:
    """Return the rows of a heat table in one block, or in several if there are many."""
    cells = rows(section)
    if len(cells) <= HEAT_ROWS:
        return [cells]
    beside = min(-(-len(cells) // HEAT_ROWS), max(1, HEAT_CELLS // len(cells[0])))
    size = -(-len(cells) // beside)
    return [cells[start : start + size] for start in range(0, len(cells), size)]


def kinds(section: Section) -> list[str]:
    """Return the alignment class of every column: ``num`` or ``text``."""
    return [
        "num" if pd.api.types.is_numeric_dtype(section.table[name]) else "text"
        for name in section.table.columns
    ]


def number(value: float) -> str:
    """Write a number for people: thousands apart, three digits of a fraction at most."""
    if math.isnan(value):
        return ""
    if float(value).is_integer():
        return f"{int(value):,}"
    digits = max(0, 2 - math.floor(math.log10(abs(value))))
    return f"{value:,.{min(digits, 4)}f}"


def many(count: int, what: str) -> str:
    """Count things: `1 case`, `2 cases`."""
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"


def _hot(value: object, hottest: float) -> Cell:
    """Return a cell of a heat table: empty where there is nothing to meet, 0 where it was not."""
    match value:
        case Share(some, of):
            style = "hot" if some == of else "missed"
            return Cell(f"{some}/{of}", style, str(some / of), round(100 * some / of))
        case int() | float() if value == value:
            heat = round(100 * math.log1p(value) / math.log1p(max(hottest, 1)))
            return Cell(number(value), "hot" if heat else "empty", str(value), heat)
        case _:
            return Cell("", "none", "")


def _cell(name: str, value: object) -> Cell:
    if isinstance(value, bool):
        return Cell("yes" if value else "no", "text", str(value))
    if isinstance(value, int | float):
        return Cell(number(value), "num", str(value))
    text = "" if value is None else str(value)
    if text in STATUSES:
        return Cell(text, f"pill {text}", text)
    return Cell(text, _STYLES.get(name, "text"), text)
