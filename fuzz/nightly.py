"""A night: every harness in turn, then the report, and one summary: `python -m fuzz.nightly`."""

from __future__ import annotations

import secrets
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from fuser.runtime.executable import device_present
from fuzz.campaign.ledger import ledger_option
from fuzz.exit_code import CLEAN, FAILED, HARNESS, INTERRUPTED, USAGE, Command, worst

SAYS = {
    CLEAN: "clean",
    FAILED: "a failure was found",
    USAGE: "asked wrongly",
    HARNESS: "not judged",
    INTERRUPTED: "interrupted",
}
"""What an exit code means."""


@dataclass(frozen=True, slots=True)
class Stage:
    """One command of a night, `python -m` before it."""

    name: str
    words: tuple[object, ...]


def stages(seconds: float, seed: int, ledger: Path, days: float) -> Iterator[Stage]:
    """Yield what a night asks, the report last."""
    count = max(int(seconds / 4), 10)
    drawn = ("fuzz.crosscheck", "--count", count, "--seed", seed)
    yield Stage("crosscheck", drawn)
    yield Stage("crosscheck, wide", (*drawn, "--wide"))
    campaign = ("fuzz", "--seconds", seconds, "--seed", seed, "--ledger", ledger)
    yield Stage("campaign", campaign)
    if device_present():
        yield Stage("semaphores", ("fuzz.semaphores", "--out", ledger.parent))
        yield Stage("bench", ("fuzz.bench",))
    else:
        yield Stage("semaphores", ("fuzz.semaphores", "--out", ledger.parent, "--no-device"))
    yield Stage("retention", ("fuzz.ledger", "prune", "--days", days, "--ledger", ledger))
    yield Stage("report", ("reports", ledger))


@click.command(cls=Command)
@click.option(
    "--seconds",
    default=14400.0,
    show_default=True,
    type=click.FloatRange(min=1),
    help="Of the campaign; the crosschecks judge a kernel for every four.",
)
@click.option("--seed", type=int, show_default="a fresh one", help="Of all that is drawn.")
@ledger_option("Where records go; the report lies beside it.")
@click.option(
    "--days", default=30.0, show_default=True, help="Records of older runs go, their totals stay."
)
@click.option("--only", multiple=True, help="Only this stage, by its name; may be given again.")
def main(
    seconds: float, seed: int | None, ledger: Path, days: float, only: tuple[str, ...]
) -> None:
    """Ask every harness in turn, write the report, and say in one table what came out.

    A stage that fails stops none that follows; the exit code is the worst of theirs.
    """
    seed = secrets.randbelow(2**31) if seed is None else seed
    planned = list(stages(seconds, seed, ledger, days))
    names = [stage.name for stage in planned]
    if unknown := set(only).difference(names):
        raise click.UsageError(f"--only {min(unknown)}: pick from {', '.join(names)}")
    console = Console(soft_wrap=True, highlight=False)
    done: list[tuple[Stage, int, float]] = []
    for stage in planned:
        if not only or stage.name in only:
            words = ["-m", *map(str, stage.words)]
            console.rule(f"{stage.name}: python {' '.join(words)}")
            began = time.monotonic()
            code = _ended([sys.executable, *words])
            done.append((stage, code, time.monotonic() - began))
            if code == INTERRUPTED:
                break
    table = Table("stage", "exit code", "minutes", title=f"night of seed {seed}", box=None)
    for stage, code, lasted in done:
        style = "" if code == CLEAN else "red"
        said = f"{code} {SAYS.get(code, '')}"
        table.add_row(stage.name, said, f"{lasted / 60:.1f}", style=style)
    for name in names[len(done) :] if not only else ():
        table.add_row(name, "not begun", "")
    console.print(table)
    code = worst(code for _, code, _ in done)
    console.print(f"{'green' if code == CLEAN else 'not green'}; exit code {code}")
    sys.exit(code)


def _ended(words: list[str]) -> int:
    """Run a command and return its exit code; an interrupt is its to answer first."""
    with subprocess.Popen(words) as process:
        try:
            code = process.wait()
        except KeyboardInterrupt:
            process.terminate()
            process.wait()
            return INTERRUPTED
    return code if code in SAYS else HARNESS


if __name__ == "__main__":
    main(prog_name="python -m fuzz.nightly")
