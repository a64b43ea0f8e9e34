"""Look after a ledger: `python -m fuzz.ledger list|show|merge|prune`."""

from __future__ import annotations

import sys
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import click
from rich.console import Console
from rich.table import Column, Table

from fuzz.campaign import summary
from fuzz.campaign.ledger import PRUNED, Ledger, ledger_option
from fuzz.exit_code import Group

WIDE = 160
"""Columns of a table in a file or a pipe."""
FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
LEDGER = ledger_option("The file.")


@click.group(cls=Group)
def main() -> None:
    """Look after the ledgers that campaigns write."""


@main.command("list")
@LEDGER
@click.option("--last", type=click.IntRange(min=1), help="Only so many runs, the newest.")
def list_(ledger: Path, last: int | None) -> None:
    """List the runs, the oldest first: what became of the nights."""
    table = Table("run", Column("began (UTC)", no_wrap=True), box=None)
    for name in ("minutes", "drawn", "a second", "given", "mutants", "failing", "open", "answers"):
        table.add_column(name, justify="right", no_wrap=True)
    with closing(Ledger(ledger)) as book:
        for run, started, facts, n in list(book.runs())[-(last or 0) :]:
            seconds = float(facts.get("elapsed_s", 0.0))
            table.add_row(
                f"{run} (pruned)" if PRUNED in facts else run,
                f"{started:%Y-%m-%d %H:%M}",
                f"{seconds / 60:.1f}" if seconds else "cut off",
                f"{n.drawn}",
                f"{n.drawn / seconds:.1f}" if seconds else "",
                *(f"{n.given}", f"{n.mutants}", f"{n.failing}", f"{n.open}", f"{n.answers}"),
                style="red" if n.failing else None,
            )
    _print(table)


@main.command()
@click.argument("run", required=False)
@LEDGER
@click.option("--case", help="Print the text of this case, and what was said of it.")
def show(run: str | None, ledger: Path, case: str | None) -> None:
    """Show RUN, or the newest one, as its campaign ended."""
    with closing(Ledger(ledger)) as book:
        runs = {name: facts for name, _, facts, _ in book.runs()}
        if not runs:
            raise click.UsageError(f"{ledger} holds no run; `python -m fuzz` writes one")
        run = run or list(runs)[-1]
        if run not in runs:
            raise click.UsageError(f"no run {run!r} in {ledger}; pick from {', '.join(runs)}")
        records = book.records(run)
        if case is not None:
            text = book.texts(run).get(case)
            if text is None:
                raise click.UsageError(f"no case {case!r} in run {run} of {ledger}")
            click.echo(text)
            for r in records:
                if r.case == case and r.status != "pass":
                    click.echo(f"# {r.oracle} {r.subject}: {r.status} {r.kind} {r.reason}")
            return
        for name, fact in runs[run].items():
            click.echo(f"{name}: {fact}")
        for line in summary.lines(records):
            click.echo(line)
        paths = {failure: Path(path) for failure, path in book.repros(run).items()}
        for line in summary.failing(records, paths):
            click.echo(line)


@main.command()
@click.argument("target", type=click.Path(dir_okay=False, path_type=Path))
@click.argument("shards", nargs=-1, required=True, type=FILE)
def merge(target: Path, shards: tuple[Path, ...]) -> None:
    """Merge the ledgers SHARDS into the ledger TARGET; again, to bring what is new."""
    with closing(Ledger(target)) as book:
        for shard in shards:
            click.echo(f"{shard}: {book.merge(shard)} records")


@main.command()
@LEDGER
@click.option(
    "--days",
    default=30.0,
    show_default=True,
    type=click.FloatRange(min=0),
    help="Keep the records of runs that are younger.",
)
def prune(ledger: Path, days: float) -> None:
    """Forget the records of old runs; what they counted stays, and so do scripts and corpus."""
    with closing(Ledger(ledger)) as book:
        before = ledger.stat().st_size
        gone = book.prune(datetime.now(UTC) - timedelta(days=days))
    freed = before - ledger.stat().st_size
    click.echo(
        f"{len(gone)} runs pruned, {freed:,} bytes freed{': ' if gone else ''}{', '.join(gone)}"
    )


def _print(table: Table) -> None:
    """Print a table, unabridged where the output is no terminal."""
    Console(width=None if sys.stdout.isatty() else WIDE).print(table)


if __name__ == "__main__":
    main(prog_name="python -m fuzz.ledger")
