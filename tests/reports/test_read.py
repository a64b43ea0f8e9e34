"""A ledger is read whole, or some of its runs beside what older ones met."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from records import record
from reported import ROWS, SPLIT
from timings import FACTS, synthetic

from fuzz.campaign.ledger import Ledger
from reports.read import read


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    """Three campaigns a day apart, with a benchmark between them."""
    path = tmp_path / "ledger.sqlite"
    with Ledger(path) as book:
        book.append(
            book.start("old", {"fuser": "abc"}),
            [record("x", status="fail", kind="RAW"), record("x", oracle="build")],
            text="case = ...",
        )
        book.add_timings(book.start("bench", {**FACTS, "fuser": "def"}), list(synthetic(2)))
        book.append(book.start("seed3", {"seed": 3, "elapsed_s": 1.0}), ROWS)
        book.start("last", {})
    with closing(sqlite3.connect(path)) as db, db:
        for day, run in enumerate(("old", "bench", "seed3", "last"), start=1):
            db.execute(
                "UPDATE runs SET started = ? WHERE run = ?", (f"2026-11-0{day}T00:00:00+00:00", run)
            )
    return path


def test_a_named_run_stands_beside_what_older_ones_met(ledger: Path) -> None:
    """A failure is new if none of them had it."""
    book = read(ledger, ["seed3"])
    assert len(book.records) == len(SPLIT)
    assert list(book.runs["run"]) == ["seed3"]
    assert (set(book.before), book.older) == ({"prover RAW direct/tma"}, 1)
    assert book.texts == {"x": "case = ..."}


def test_of_all_runs_the_last_may_bring_news(ledger: Path) -> None:
    """The others are its past."""
    book = read(ledger, [])
    assert len(book.records) == len(SPLIT) + 2
    assert book.older == 2
    assert "prover race direct/tma" in book.before


def test_the_history_has_a_line_for_each_campaign(ledger: Path) -> None:
    """A benchmark judges nothing; a run without records is there, too."""
    lines = read(ledger, []).history.set_index("run")
    assert list(lines.index) == ["old", "seed3", "last"]
    counts = ["cases", "answers", "failed", "failing"]
    assert lines.loc[["old"], counts].to_numpy().tolist() == [[1, 2, 1, 1]]
    buckets = ["answers", "passed", "failed", "open"]
    assert lines.loc[["seed3"], buckets].to_numpy().tolist() == [[7, 3, 3, 1]]
    others = ["mutants", "blind", "shrinking"]
    assert lines.loc[["seed3"], others].to_numpy().tolist() == [[1, 1, 1]]
    assert lines["revision"]["old"] == "abc"


def test_timings_come_with_their_run(ledger: Path) -> None:
    """The revision is what a reader looks for; an older ledger has no such table."""
    timings = read(ledger, []).timings
    assert set(timings["revision"]) == {"def"}
    assert len(timings["samples"].iloc[0]) == 15
    with closing(sqlite3.connect(ledger)) as db:
        db.execute("DROP TABLE timings")
    assert read(ledger, []).timings.empty
