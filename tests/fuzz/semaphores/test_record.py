"""Results: kept after every answer, and never better than they are."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from fuzz.semaphores.record import (
    JUDGES,
    VERSION,
    Book,
    Cell,
    Row,
    load,
    misjudged,
    unanswered,
    words,
)

SEEN, SILENT = Cell("detected", "drain", 2, 9), Cell("silent", "", 0, 5)
OPEN = Cell("unknown", "timeout", seconds=90.0)
ROW = Row("k/no-await", "k", "no await", "Nobody waits.", legal=False)
CONTROL = Row("k/control", "k", "control", "As it is.", legal=True)


def rows(**cells: Cell) -> tuple[Row, Row]:
    """A defect and a control with the same answers."""
    broken = Row(ROW.subject, ROW.base, ROW.name, ROW.says, legal=False, cells=cells)
    return broken, Row(CONTROL.subject, "k", "control", "As it is.", legal=True, cells=cells)


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    """Every field, after every answer; no half file is left."""
    path = tmp_path / "new" / "table.json"
    book = Book(path, [ROW, CONTROL], {"gpu": "H200"})
    assert load(path) == ([ROW, CONTROL], {"gpu": "H200"})
    book.add(ROW.subject, {"prover": SEEN}, "+ line", "{}")
    book.note(seconds=2.5)
    (row, _), facts = load(path)
    assert (row.cells, row.diff, row.witness) == ({"prover": SEEN}, "+ line", "{}")
    assert facts == {"gpu": "H200", "seconds": 2.5}
    assert [p.name for p in path.parent.iterdir()] == ["table.json"]


def test_a_judge_that_is_none_is_refused(tmp_path: Path) -> None:
    """A typing mistake would be a column that nobody shows."""
    book = Book(tmp_path / "table.json", [ROW], {})
    with pytest.raises(ValueError, match=r"add\(provre\): pick one of \('prover', "):
        book.add(ROW.subject, {"provre": SEEN})


@pytest.mark.parametrize(
    ("status", "count", "of", "message"),
    [("passed", 0, 1, "pick one of"), ("silent", 0, 0, "say unknown"), ("silent", 1, 2, "unknown")],
)
def test_silence_without_a_look_is_no_answer(
    status: str, count: int, of: int, message: str
) -> None:
    """Skipped must not look like clean."""
    with pytest.raises(ValueError, match=message):
        Cell(status, "", count, of)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("no json", "no table of semaphore mutants"),
        ("[1]", "no table of semaphore mutants"),
        (json.dumps({"version": VERSION, "facts": {}, "rows": [{"key": 1}]}), "no table"),
        (
            json.dumps({"version": 99}),
            "no table of semaphore mutants: version 99, .* measure again",
        ),
    ],
)
def test_another_file_is_refused_by_name(tmp_path: Path, text: str, message: str) -> None:
    """The report must say which file it could not read."""
    path = tmp_path / "table.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=rf"table.json\): {message}"):
        load(path)


@pytest.mark.parametrize(
    ("judge", "cell", "said"),
    [
        ("prover", SEEN, "drain"),
        ("gpu", Cell("detected", "values", 37, 200), "37 of 200 launches"),
        ("gpu", Cell("detected", "hang", 1, 2), "hang"),
        ("racecheck", Cell("detected", "RAW, WAW", 3, 3), "RAW, WAW: 3 hazards"),
        ("synccheck", Cell("detected", "Barrier error", 1, 1), "Barrier error: 1 error"),
        ("memcheck", SILENT, "silent"),
        ("memcheck", OPEN, "unknown: timeout"),
        ("memcheck", None, "not measured"),
    ],
)
def test_a_cell_is_put_in_a_few_words(judge: str, cell: Cell | None, said: str) -> None:
    """A count where one was counted."""
    assert words(judge, cell) == said


def test_who_is_wrong_depends_on_what_it_can_see() -> None:
    """A GPU that shows nothing is not blamed; whoever refuses the control is."""
    broken, control = rows(prover=SILENT, gpu=SILENT, racecheck=OPEN)
    assert [j for j in JUDGES if broken.misjudged(j)] == ["prover"]
    assert not any(control.misjudged(j) for j in JUDGES)
    broken, control = rows(prover=SEEN, gpu=SEEN, memcheck=OPEN)
    assert not any(broken.misjudged(j) for j in JUDGES)
    assert [j for j in JUDGES if control.misjudged(j)] == ["prover", "gpu"]


def test_a_proof_that_the_gpu_refutes_is_wrong() -> None:
    """Of a mutant that may be harmless nobody knows more before."""
    open_ = Row("mutant k 2 1", "k", "k", "", legal=None, cells={"prover": SILENT})
    assert not misjudged([open_])
    refuted = replace(open_, cells={"prover": SILENT, "gpu": SEEN, "explorer": SEEN})
    assert misjudged([refuted]) == [("prover", refuted)]
    assert not misjudged([replace(open_, cells={"prover": SEEN, "explorer": SILENT})])


def test_every_cell_without_an_answer_is_counted() -> None:
    """Asked in vain, and not asked."""
    assert unanswered([ROW]) == len(JUDGES)
    assert unanswered(rows(prover=SEEN, gpu=SILENT, memcheck=OPEN)) == 2 * (len(JUDGES) - 2)
