"""Write the pages of a ledger: `python -m reports [LEDGER] [--run RUN] [--out FILE]`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from fuzz.exit_code import Command
from fuzz.semaphores.record import NAME, Row, load
from reports import (
    ci,
    correctness,
    coverage,
    history,
    kills,
    page,
    performance,
    semaphores,
    times,
)
from reports.read import read

DEFAULT = Path("reports", "out", "ledger.sqlite")
CORRECTNESS, PERFORMANCE = "fuser correctness", "fuser performance"
SPEED = "performance"
"""Name of the second page beside the first."""
SHIPPED = Path(__file__).with_name(NAME)
"""The semaphore mutants as last measured, for who has no GPU; the section says when and where."""


def report(ledger: Path, runs: Sequence[str], out: Path) -> None:
    """Write both pages of these runs, and of the semaphore mutants as measured beside or shipped.

    Beside them `junit.xml` and `summary.md`.
    """
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
            page.write(out, CORRECTNESS, semaphores.headline(rows), mutants)
            return
    elif SHIPPED.is_file():
        mutants = [semaphores.section(*load(SHIPPED))]
    book = read(ledger, runs)
    records, shown = book.records, correctness.found(book)
    totals = correctness.totals(records, book.runs)
    sections = [
        correctness.failures(shown, book.older),
        totals,
        correctness.gone(book, shown),
        correctness.disagreements(records),
        correctness.unanswered(records),
        correctness.device(records),
        kills.matrix(records),
        kills.mutants(records),
        times.proofs(records),
        times.times(records),
        coverage.table(book.cells),
        coverage.schedules(book.cells),
        coverage.operations(book.cells),
        coverage.families(records),
        correctness.warnings(records),
        times.spent(records, book.runs),
        times.budget(records, book.runs),
        history.trends(book.history),
        history.total(book.history),
        kills.kills(records),
        *mutants,
        correctness.environment(book.runs),
    ]
    fresh = sum(failure.new for failure in shown)
    head = semaphores.joined(correctness.headline(records, book.runs, fresh), rows)
    speed = out.with_name(
        f"{SPEED}{out.suffix}" if out.stem == "index" else f"{out.stem}-{SPEED}{out.suffix}"
    )
    page.write(out, CORRECTNESS, head, sections, page.Link("Performance", speed.name))
    page.write(speed, PERFORMANCE, *performance.sections(book), page.Link("Correctness", out.name))
    ci.write(
        out.parent,
        ci.junit(records, shown),
        ci.summary(CORRECTNESS, head, totals.table, shown),
    )


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
    """Write the pages of LEDGER: what is wrong, and how fast it is.

    Exit code 0 says that they are written, not that nothing failed.
    """
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
