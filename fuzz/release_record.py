"""What is known of the release family: who noticed which kernel, in one JSON file.

It imports nothing of ours but exit codes, so that the report can read it without the compiler.

The file holds an object::

    {"version": 1,
     "facts": {"started": "2026-11-21T20:00:00+00:00", "seconds": 201.5, "gpu": "NVIDIA H200", ...},
     "rows": [{"key": "split_k_tma/no-await", "base": "split_k_tma", "name": "no await",
               "says": "...", "legal": false, "digest": "...", "diff": "...", "witness": "{...}",
               "cells": {"prover": {"status": "betrayed", "says": "drain", "count": 3, "of": 3,
                                    "seconds": 0.1, "detail": "..."}, ...}}, ...]}

`facts` are those of `fuzz.environment` with the GPU, its driver and the sanitizer's version.  A
judge that is not in `cells` was not asked: not measured, which is never a pass.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from fuzz.exit_code import writing

VERSION = 1
NAME = "release.json"
"""Name of the file, beside the ledger."""

JUDGES = {
    "prover": "Every trip count, every interleaving",
    "simulator": "Adversarial schedules of small launches",
    "explorer": "Every interleaving of small launches",
    "gpu": "Values of many launches on the same semaphores",
    "gpu with delays": "The same, threads and engines held up at random",
    "racecheck": "compute-sanitizer, hazards in shared memory",
    "synccheck": "compute-sanitizer, wrong use of barriers",
    "memcheck": "compute-sanitizer, accesses out of bounds",
}
"""Who is asked, in the order of the table, and what it looks at."""
PROVING = ("prover", "simulator", "explorer")
"""Judges that must notice every defect; what the others do not show they may not be able to see."""
DEVICE = tuple(name for name in JUDGES if name not in PROVING)
"""Judges that need a GPU."""
SANITIZERS = ("racecheck", "synccheck", "memcheck")

STATUSES = ("betrayed", "silent", "unknown")
"""Noticed; asked and nothing noticed; asked without an answer (crashed, timed out, not there)."""


@dataclass(frozen=True, slots=True)
class Cell:
    """What one judge said of one kernel.

    Parameters
    ----------
    status : str
        One of `STATUSES`.
    says : str
        A few words: kinds of findings, ``hang``, or why there is no answer.
    count, of : int
        Launches that were wrong, of all; or findings, of claims.  0 of 0 where nothing is counted.
    seconds : float
        Wall time of the judge.
    detail : str
        What convinces a reader.

    Raises
    ------
    ValueError
        If the status is none, or a kernel passes though nothing was looked at.
    """

    status: str
    says: str
    count: int = 0
    of: int = 0
    seconds: float = 0.0
    detail: str = ""

    def __post_init__(self) -> None:
        if self.status not in STATUSES:
            raise ValueError(f"Cell(status={self.status!r}): pick one of {STATUSES}")
        if self.status == "silent" and (self.of < 1 or self.count):
            raise ValueError(
                f"Cell(silent, count={self.count}, of={self.of}): who was silent has looked at "
                "something and found nothing; say unknown"
            )


def words(judge: str, cell: Cell | None) -> str:
    """Say in a few words what a judge said."""
    if cell is None:
        return "not measured"
    match cell.status:
        case "betrayed" if judge in PROVING or cell.says in ("hang", "CUDA error"):
            return cell.says
        case "betrayed" if judge in SANITIZERS:
            what = "hazard" if judge == "racecheck" else "error"
            return f"{cell.says}: {cell.count} {what}" + ("s" if cell.count > 1 else "")
        case "betrayed":
            return f"{cell.count} of {cell.of} launches"
        case "silent":
            return "silent"
        case _:
            return f"unknown: {cell.says}"


@dataclass(frozen=True, slots=True)
class Tried:
    """What launches came to.

    Parameters
    ----------
    cell : Cell
        For the table.
    stuck : bool
        Whether a kernel still hangs, so that this process is lost.
    """

    cell: Cell
    stuck: bool = False


@dataclass(frozen=True, slots=True)
class Row:
    """One kernel of the family, and who noticed.

    Parameters
    ----------
    key, base, name, says, legal
        Of `fuzz.release_family.Member`.
    digest : str
        Of its CUDA text: answers about another text are not about this kernel.
    diff : str
        Statements of the unchanged kernel and of this one that differ.
    witness : str
        An execution that goes wrong as JSON of `oracles.witness_json`; empty without one.
    cells : mapping of str to Cell
        By judge, a key of `JUDGES`; who was not asked is not there.
    """

    key: str
    base: str
    name: str
    says: str
    legal: bool
    digest: str = ""
    diff: str = ""
    witness: str = ""
    cells: dict[str, Cell] = field(default_factory=dict)


class Book:
    """The file, written anew after every answer, so that nothing is lost when a run is ended.

    Parameters
    ----------
    path : Path
        The file; its folder is made.
    rows : iterable of Row
        The kernels, in the order of the table.
    facts : mapping
        What the run was made with.
    """

    def __init__(
        self, path: Path, rows: Iterable[Row], facts: dict[str, str | int | float]
    ) -> None:
        self._path = path
        self.rows = {row.key: row for row in rows}
        self.facts = facts
        self.save()

    def add(self, key: str, judge: str, cell: Cell) -> None:
        """Keep what a judge said of a kernel.

        Raises
        ------
        ValueError
            If there is no such judge.
        """
        if judge not in JUDGES:
            raise ValueError(f"Book.add({judge!r}): pick one of {tuple(JUDGES)}")
        row = self.rows[key]
        self.rows[key] = replace(row, cells={**row.cells, judge: cell})
        self.save()

    def told(self, key: str, diff: str, witness: str) -> None:
        """Keep what a reader is shown of a kernel."""
        self.rows[key] = replace(self.rows[key], diff=diff, witness=witness)
        self.save()

    def open(self, judge: str) -> list[str]:
        """Return the keys of the kernels about which a judge has said nothing yet."""
        found = []
        for key, row in self.rows.items():
            cell = row.cells.get(judge)
            if cell is None or cell.status == "unknown":
                found.append(key)
        return found

    def note(self, **facts: str | int | float) -> None:
        """Keep facts that are known later."""
        self.facts |= facts
        self.save()

    def save(self) -> None:
        """Write beside and rename, so that no reader sees half a file."""
        rows = [asdict(row) for row in self.rows.values()]
        content = {"version": VERSION, "facts": self.facts, "rows": rows}
        half = self._path.with_name(f"{self._path.name}.part")
        with writing(f"Book({str(self._path)!r})", self._path, "name another folder with --out"):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            half.write_text(json.dumps(content, indent=1), encoding="utf-8")
            half.replace(self._path)


def misjudged(row: Row, judge: str) -> bool:
    """Tell whether a judge is wrong: refuses what is legal, or misses what it has to notice."""
    cell = row.cells.get(judge)
    if cell is None:
        return False
    if row.legal:
        return cell.status == "betrayed"
    return cell.status == "silent" and judge in PROVING


def unanswered(rows: Iterable[Row]) -> int:
    """Count the cells without an answer, those of judges that were not asked among them."""
    cells = [row.cells.get(judge) for row in rows for judge in JUDGES]
    return sum(cell is None or cell.status == "unknown" for cell in cells)


def load(path: Path) -> tuple[list[Row], dict[str, str | int | float]]:
    """Return rows and facts of a file.

    Raises
    ------
    ValueError
        If it was written by another version, or holds something else.
    """
    what = f"release_record.load({path})"
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        version = content["version"]
        if version == VERSION:
            rows = [
                Row(**{**row, "cells": {name: Cell(**cell) for name, cell in row["cells"].items()}})
                for row in content["rows"]
            ]
            return rows, content["facts"]
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise ValueError(f"{what}: no results of the release family ({error})") from error
    raise ValueError(f"{what}: version {version}, this program reads {VERSION}; measure again")
