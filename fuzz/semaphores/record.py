"""What judges say of subjects, on a GPU too: a table in one JSON file.

It imports nothing of ours but exit codes, so that the report can read it without the compiler.  The
file holds ``{"version": 2, "facts": {...}, "rows": [...]}``: facts of `campaign.environment` with
the GPU, its driver and the sanitizer's version, and a `Row` for each kernel.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from fuzz.exit_code import writing

VERSION = 2
NAME = "semaphore_mutants.json"
"""Name of the file, beside the ledger."""

PROVING = {
    "prover": "Every trip count, every interleaving",
    "simulator": "Adversarial schedules of small launches",
    "explorer": "Every interleaving of small launches",
}
"""Judges that must notice every defect, and what they look at."""
SANITIZERS = {
    "racecheck": "compute-sanitizer, hazards in shared memory",
    "synccheck": "compute-sanitizer, wrong use of barriers",
    "memcheck": "compute-sanitizer, accesses out of bounds",
}
DEVICE = {
    "gpu": "Values of many launches on the same semaphores",
    "gpu with delays": "The same, threads and engines held up at random",
    **SANITIZERS,
}
"""Judges that need a GPU: what they do not show they may not be able to see."""
JUDGES = {**PROVING, **DEVICE}
"""Who is asked, in the order of the table."""

STATUSES = ("detected", "silent", "unknown")
"""Noticed; asked and nothing noticed; asked without an answer (crashed, timed out, not there)."""

Facts = dict[str, str | int | float]


@dataclass(frozen=True, slots=True)
class Cell:
    """What one judge said of one kernel, with a status of `STATUSES`.

    `says` is in a few words: kinds of findings, ``hang``, or why there is no answer; `detail` what
    convinces a reader.  `count` launches were wrong, `of` all; or findings, of claims; 0 of 0 where
    nothing is counted.  ValueError if a kernel passes though nothing was looked at.
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
        case "detected" if judge in PROVING or cell.says in ("hang", "CUDA error"):
            return cell.says
        case "detected" if judge in SANITIZERS:
            what = "hazard" if judge == "racecheck" else "error"
            return f"{cell.says}: {cell.count} {what}" + ("s" if cell.count > 1 else "")
        case "detected":
            return f"{cell.count} of {cell.of} launches"
        case "silent":
            return "silent"
        case _:
            return f"unknown: {cell.says}"


@dataclass(frozen=True, slots=True)
class Tried:
    """The outcome of launches; `stuck` if a kernel still hangs, so that this process is lost."""

    cell: Cell
    stuck: bool = False


@dataclass(frozen=True, slots=True)
class Row:
    """One kernel, a subject as `fuzz.kernels.subjects.find` takes it, and who noticed.

    `base`, `name`, `says`: the kernel without the change, the change, and what is wrong with it.
    `legal` is whether the memory model allows it; None where nobody knows.  `digest` is of its CUDA
    text: answers about another text are not about this kernel.  `diff` shows the statements that
    differ; `witness` is an execution that goes wrong as JSON of `oracles.witness`; empty without
    one. `cells` are by judge, a key of `JUDGES`; who was not asked is not there.
    """

    subject: str
    base: str
    name: str
    says: str
    legal: bool | None
    digest: str = ""
    diff: str = ""
    witness: str = ""
    cells: dict[str, Cell] = field(default_factory=dict)

    def status(self, judge: str) -> str:
        """Return the status of a judge's cell; ``missing`` where it was not asked."""
        return self.cells[judge].status if judge in self.cells else "missing"

    def misjudged(self, judge: str) -> bool:
        """Tell whether a judge refuses what is legal, or misses what it, or the GPU, must show."""
        if self.legal:
            return self.status(judge) == "detected"
        wrong = self.legal is False or any(self.status(one) == "detected" for one in DEVICE)
        return wrong and judge in PROVING and self.status(judge) == "silent"


def misjudged(rows: Iterable[Row]) -> list[tuple[str, Row]]:
    """Return every wrong answer: a judge, and the kernel about which it is wrong."""
    return [(judge, row) for row in rows for judge in JUDGES if row.misjudged(judge)]


def unanswered(rows: Iterable[Row]) -> int:
    """Count the cells without an answer, those of judges that were not asked among them."""
    return sum(row.status(judge) in ("missing", "unknown") for row in rows for judge in JUDGES)


class Book:
    """The file, written anew after every answer, so that nothing is lost when a run is ended."""

    def __init__(self, path: Path, rows: Iterable[Row], facts: Facts) -> None:
        self._path = path
        self.rows = {row.subject: row for row in rows}
        self.facts = facts
        self.save()

    def add(
        self, subject: str, cells: dict[str, Cell], diff: str | None = None, witness: str = ""
    ) -> None:
        """Keep what judges (of `JUDGES`) said of a kernel, and what a reader is shown of it."""
        if stray := cells.keys() - JUDGES.keys():
            raise ValueError(f"Book.add({', '.join(stray)}): pick one of {tuple(JUDGES)}")
        row = self.rows[subject]
        self.rows[subject] = replace(row, cells={**row.cells, **cells})
        if diff is not None:
            self.rows[subject] = replace(self.rows[subject], diff=diff, witness=witness)
        self.save()

    def open(self, *judges: str) -> list[str]:
        """Return the kernels about which one of some judges has said nothing yet."""
        return [
            subject
            for subject, row in self.rows.items()
            if any(row.status(judge) in ("missing", "unknown") for judge in judges)
        ]

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


def load(path: Path) -> tuple[list[Row], Facts]:
    """Return rows and facts of a file; ValueError if it is of another version, or is none."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if (version := content["version"]) != VERSION:
            raise ValueError(f"version {version}, this program reads {VERSION}; measure again")
        for row in content["rows"]:
            row["cells"] = {name: Cell(**cell) for name, cell in row["cells"].items()}
        return [Row(**row) for row in content["rows"]], content["facts"]
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise ValueError(f"load({path}): no table of semaphore mutants: {error}") from error
