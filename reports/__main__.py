"""Write the report of a ledger: `python -m reports [LEDGER] [--run RUN] [--out FILE]`."""

from __future__ import annotations

import argparse
import json
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import pandas as pd

from fuzz.campaign.record import VERSION
from fuzz.semaphores.record import NAME, Row, load
from reports import correctness, page, semaphores

DEFAULT = Path("reports", "out", "ledger.sqlite")
SHIPPED = Path(__file__).with_name(NAME)
"""The semaphore mutants as last measured, for who has no GPU; the section says when and where."""


def read(ledger: Path, runs: list[str]) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    """Return records, runs (facts as dicts) and repros; of all runs where none is named."""
    with closing(sqlite3.connect(f"file:{ledger}?mode=ro", uri=True)) as db:
        (version,) = db.execute("PRAGMA user_version").fetchone()
        if version != VERSION:
            raise SystemExit(
                f"{ledger}: version {version} of a ledger, this program reads {VERSION}; "
                "write a new one with `python -m fuzz`"
            )
        tables = [
            pd.read_sql_query(f"SELECT * FROM {name} ORDER BY rowid", db)
            for name in ("records", "runs", "repros")
        ]
    if runs:
        tables = [table[table["run"].isin(runs)] for table in tables]
    records, found, repros = tables
    return records, found.assign(facts=found["facts"].map(json.loads)), repros


def report(ledger: Path, runs: list[str], out: Path) -> None:
    """Write the page of these runs, and of the semaphore mutants as measured beside or shipped."""
    beside = ledger.parent / NAME
    mutants: list[page.Section] = []
    rows: list[Row] = []
    if beside.is_file():
        try:
            rows, facts = load(beside)
        except ValueError as error:
            raise SystemExit(str(error)) from error
        mutants = [semaphores.section(rows, facts)]
        if not ledger.is_file():
            page.write(out, "fuser correctness", semaphores.headline(rows), mutants)
            return
    elif SHIPPED.is_file():
        mutants = [semaphores.section(*load(SHIPPED))]
    records, found, repros = read(ledger, runs)
    sections = [
        correctness.totals(records, found),
        correctness.failures(records, repros),
        correctness.disagreements(records),
        correctness.unanswered(records),
        correctness.warnings(records),
        correctness.mutants(records),
        correctness.times(records),
        correctness.mechanisms(records),
        correctness.operations(records),
        correctness.families(records),
        correctness.kills(records),
        *mutants,
        correctness.environment(found),
    ]
    head = semaphores.joined(correctness.headline(records, found), rows)
    page.write(out, "fuser correctness", head, sections)


def main(argv: list[str] | None = None) -> int:
    """Parse the command line; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m reports", description=__doc__)
    parser.add_argument("ledger", nargs="?", type=Path, default=DEFAULT)
    parser.add_argument("--run", action="append", default=[], help="only this run; may be repeated")
    parser.add_argument("--out", type=Path, help="default: index.html beside the ledger")
    options = parser.parse_args(argv)
    if not options.ledger.is_file() and not (options.ledger.parent / NAME).is_file():
        parser.error(
            f"{options.ledger} does not exist; make one with `python -m fuzz`, or the table of "
            "semaphore mutants with `python -m fuzz.semaphores`"
        )
    out = options.out or options.ledger.parent / "index.html"
    report(options.ledger, options.run, out)
    print(out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
