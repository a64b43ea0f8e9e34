"""`python -m fuzz.bench` times our kernels beside their peers, row by row (needs a GPU)."""

from __future__ import annotations

import json
import sys
from multiprocessing import get_context
from pathlib import Path

import click
import torch
from pebble import ProcessPool
from rich.console import Console

from fuser.runtime.executable import device_present
from fuzz.bench import norms, pointwise, products, reductions, shapes
from fuzz.bench.row import Row, measure, table, warm
from fuzz.exit_code import FAILED, HARNESS, Command

WARM_S = 120
"""Seconds in which all that a row needs is compiled."""


@click.command(cls=Command)
@click.option("--out", type=click.Path(path_type=Path), help="Write all numbers here as JSON.")
@click.option("--only", default="", help="Comma list of rows, or of their first letters.")
@click.option("--tune", is_flag=True, help="Time a dozen schedules beside the default one.")
@click.option("--no-compile", is_flag=True, help="Leave torch.compile out.")
@click.option("--random", "drawn", type=click.IntRange(min=1), help="Draw so many shapes a kind.")
@click.option("--seed", default=0, help="Seed of the shapes that are drawn.")
@click.option("--workers", default=1, help="Processes that compile before anything is timed.")
def main(
    out: Path | None,
    only: str,
    *,
    tune: bool,
    no_compile: bool,
    drawn: int | None,
    seed: int,
    workers: int,
) -> None:
    """Time our kernels against torch, torch.compile, Triton, Liger and a copy kernel."""
    if not device_present():
        click.echo("bench: no CUDA device; nothing was measured", err=True)
        sys.exit(HARNESS)
    console = Console(width=140)
    wanted = tuple(word for word in only.split(",") if word)
    every = _rows(drawn, seed)
    rows = [row for row in every if not wanted or row.name.startswith(wanted)]
    if not rows:
        names = ", ".join(row.name for row in every)
        raise click.BadParameter(f"{only!r} names no row; pick from {names}", param_hint="--only")
    if workers > 1:
        jobs = [(drawn, seed, row.name, not no_compile) for row in rows]
        with ProcessPool(workers, context=get_context("spawn")) as pool:
            for job, done in [(job, pool.schedule(_warm, job, timeout=WARM_S)) for job in jobs]:
                if done.exception() is not None:
                    console.print(f"{job[2]} was not compiled ahead: {done.exception()}")
    measured: dict[str, dict[str, float]] = {}
    wrong = 0
    for row in rows:
        try:
            measured[row.name] = measure(row, tune=tune, compiled=not no_compile)
        except click.ClickException as error:
            wrong += 1
            console.print(error.message, style="red")
            continue
        console.print(row.name, row.says, measured[row.name])
        torch.cuda.empty_cache()
        if out is not None:
            out.write_text(json.dumps(measured, indent=1))
    console.print(table(rows, measured))
    if drawn is not None:
        console.print(shapes.summary(measured, rows))
    elif not wanted:
        ours, bare = pointwise.call_overhead()
        console.print(f"call: {ours:.1f} us on the host, bare launch {bare:.1f} us")
    if wrong:
        sys.exit(FAILED)


def _rows(drawn: int | None, seed: int) -> list[Row]:
    if drawn is not None:
        return list(shapes.rows(drawn, seed))
    return [*pointwise.rows(), *products.rows(), *reductions.rows(), *norms.rows()]


def _warm(drawn: int | None, seed: int, name: str, compiled: bool) -> None:
    """Compile one row, found again by its name: what it computes cannot be sent."""
    warm(next(row for row in _rows(drawn, seed) if row.name == name), compiled=compiled)


if __name__ == "__main__":
    main(prog_name="python -m fuzz.bench")
