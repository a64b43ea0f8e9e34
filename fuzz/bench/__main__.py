"""`python -m fuzz.bench` times our kernels beside their peers, row by row (needs a GPU)."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click
import torch
from rich.console import Console

from fuser.runtime.executable import device_present
from fuzz.bench import pointwise, shapes
from fuzz.bench.row import PRACTICAL_BYTES, PRACTICAL_FLOPS, measure, medians, table
from fuzz.bench.rows import compile_ahead, rows
from fuzz.campaign.environment import machine, versions
from fuzz.campaign.ledger import Ledger, ledger_option
from fuzz.campaign.record import BENCH
from fuzz.exit_code import FAILED, HARNESS, Command


@click.command(cls=Command)
@click.option("--out", type=click.Path(path_type=Path), help="Write all numbers here as JSON.")
@click.option("--only", default="", help="Comma list of rows, or of their first letters.")
@click.option("--call", "only_call", is_flag=True, help="Measure the host cost of a call alone.")
@click.option("--tune", is_flag=True, help="Time a dozen schedules beside the default one.")
@click.option("--no-compile", is_flag=True, help="Leave torch.compile out.")
@click.option("--random", "drawn", type=click.IntRange(min=1), help="Draw so many shapes a kind.")
@click.option("--seed", default=0, help="Seed of the shapes that are drawn.")
@ledger_option("File that gets all samples.")
@click.option("--workers", default=1, help="Processes that compile before anything is timed.")
def main(
    out: Path | None,
    only: str,
    *,
    only_call: bool,
    tune: bool,
    no_compile: bool,
    drawn: int | None,
    seed: int,
    ledger: Path,
    workers: int,
) -> None:
    """Time our kernels against torch, torch.compile, Triton, Liger and a copy kernel.

    All samples go into the ledger, of which `python -m reports` makes a page.
    """
    if not device_present():
        click.echo("bench: no CUDA device; nothing was measured", err=True)
        sys.exit(HARNESS)
    console = Console(width=140)
    if only_call:
        console.print(cost())
        return
    wanted = tuple(word for word in only.split(",") if word)
    every = rows(drawn, seed)
    chosen = [row for row in every if not wanted or row.name.startswith(wanted)]
    if not chosen:
        names = ", ".join(row.name for row in every)
        raise click.BadParameter(f"{only!r} names no row; pick from {names}", param_hint="--only")
    if workers > 1:
        every_name = [row.name for row in chosen]
        for complaint in compile_ahead(
            every_name, drawn, seed, workers, tune=tune, compiled=not no_compile
        ):
            console.print(complaint)
    measured: dict[str, dict[str, float]] = {}
    off = 0
    with Ledger(ledger) as book:
        run = book.start(BENCH, facts())
        for row in chosen:
            try:
                timings = measure(row, tune=tune, compiled=not no_compile)
            except click.ClickException as error:
                off += 1
                console.print(error.message, style="red")
                continue
            book.add_timings(run, timings)
            measured[row.name] = medians(timings)
            console.print(row.name, row.says, measured[row.name])
            torch.cuda.empty_cache()
            if out is not None:
                out.write_text(json.dumps(measured, indent=1))
    console.print(table(chosen, measured))
    console.print(f"{ledger}: all samples; `nox -s report` makes a page of them")
    if drawn is not None:
        console.print(shapes.summary(measured, chosen))
    elif not wanted:
        console.print(cost())
    if off:
        sys.exit(FAILED)


def cost() -> str:
    """Say what a call costs the host, beside others."""
    taken = (f"{name} {us:.2f} us" for name, us in pointwise.call_cost().items())
    return f"host, of 1024 + 1024 elements: {', '.join(taken)}"


def facts() -> dict[str, str | int | float]:
    """Return what a reader needs to judge times by."""
    roofs = {"flops_per_s": PRACTICAL_FLOPS, "bytes_per_s": PRACTICAL_BYTES}
    return {**versions(), **machine(), "device": torch.cuda.get_device_name(), **roofs}


if __name__ == "__main__":
    main(prog_name="python -m fuzz.bench")
