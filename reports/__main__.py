"""Write the report of a ledger: `python -m reports [LEDGER] [--run RUN] [--out FILE]`."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import click
import pandas as pd

from fuzz.campaign.record import VERSION
from fuzz.exit_code import Command
from fuzz.semaphores.record import NAME, Row, load
from reports import correctness, page, semaphores

DEFAULT = Path("reports", "out", "ledger.sqlite")
SHIPPED = Path(__file__).with_name(NAME)
"""The semaphore mutants as last measured, for who has no GPU; the section says when and where."""


def read(ledger: Path, runs: Sequence[str]) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    """Return records, runs (facts as dicts) and repros; of all runs where none is named.

    Raises
    ------
    click.UsageError
        If the file is no ledger of this version, or lacks a run.
    """
    try:
        with closing(sqlite3.connect(f"file:{ledger}?mode=ro", uri=True)) as db:
            (version,) = db.execute("PRAGMA user_version").fetchone()
            if version != VERSION:
                raise click.UsageError(
                    f"{ledger}: version {version} of a ledger, this program reads {VERSION}; "
                    "write a new one with `python -m fuzz`"
                )
            records, found, repros = (
                pd.read_sql_query(f"SELECT * FROM {name} ORDER BY rowid", db)
                for name in ("records", "runs", "repros")
            )
    except (sqlite3.DatabaseError, pd.errors.DatabaseError) as error:
        raise click.UsageError(f"{ledger}: {error}; name a ledger of `python -m fuzz`") from error
    known = list(found["run"])
    for run in runs:
        if run not in known:
            raise click.UsageError(
                f"--run {run}: not among the {len(known)} runs of {ledger}; "
                f"pick from {', '.join(known)}"
            )
    if runs:
        records, found, repros = (
            table[table["run"].isin(runs)] for table in (records, found, repros)
        )
    return records, found.assign(facts=found["facts"].map(json.loads)), repros


def report(ledger: Path, runs: Sequence[str], out: Path) -> None:
    """Write the page of these runs, and of the semaphore mutants as measured beside or shipped."""
    beside = ledger.parent / NAME
    mutants: list[page.Section] = []
    rows: list[Row] = []
    if beside.is_file():
        try:
            rows, facts = load(beside)
        except ValueError as error:
            raise click.UsageError(str(error)) from error
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


@click.command(cls=Command)
@click.argument("ledger", default=DEFAULT, type=click.Path(dir_okay=False, path_type=Path))
@click.option("--run", "runs", multiple=True, help="Only this run; may be repeated.")
@click.option(
    "--out",
    help="The page.",
    show_default="index.html beside the ledger",
    type=click.Path(dir_okay=False, path_type=Path),
)
def main(ledger: Path, runs: tuple[str, ...], out: Path | None) -> None:
    """Write the report of LEDGER; 0 says that it is written, not that nothing failed."""
    if not ledger.is_file() and (runs or not (ledger.parent / NAME).is_file()):
        raise click.UsageError(
            f"{ledger} does not exist; make one with `python -m fuzz`, or the table of "
            "semaphore mutants with `python -m fuzz.semaphores`"
        )
    page_path = out or ledger.parent / "index.html"
    report(ledger, runs, page_path)
    click.echo(page_path)


if __name__ == "__main__":
    main()
