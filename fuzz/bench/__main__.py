"""`python -m fuzz.bench` times our kernels beside their peers, row by row (needs a GPU)."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click
import torch
from rich.console import Console

from fuser.runtime.executable import device_present
from fuzz.bench import pointwise, products, reductions
from fuzz.bench.row import measure, table
from fuzz.exit_code import HARNESS, Command


@click.command(cls=Command)
@click.option("--out", type=click.Path(path_type=Path), help="Write all numbers here as JSON.")
@click.option("--only", default="", help="Comma list of rows, or of their first letters.")
@click.option("--tune", is_flag=True, help="Time a dozen schedules beside the default one.")
@click.option("--no-compile", is_flag=True, help="Leave torch.compile out.")
def main(out: Path | None, only: str, *, tune: bool, no_compile: bool) -> None:
    """Time our kernels against torch, torch.compile, Triton and a copy kernel."""
    if not device_present():
        click.echo("bench: no CUDA device; nothing was measured", err=True)
        sys.exit(HARNESS)
    console = Console(width=140)
    wanted = tuple(word for word in only.split(",") if word)
    every = [*pointwise.rows(), *products.rows(), *reductions.rows()]
    rows = [row for row in every if not wanted or row.name.startswith(wanted)]
    if not rows:
        names = ", ".join(row.name for row in every)
        raise click.BadParameter(f"{only!r} names no row; pick from {names}", param_hint="--only")
    measured: dict[str, dict[str, float]] = {}
    for row in rows:
        measured[row.name] = measure(row, tune=tune, compiled=not no_compile)
        console.print(row.name, measured[row.name])
        torch.cuda.empty_cache()
        if out is not None:
            out.write_text(json.dumps(measured, indent=1))
    console.print(table(rows, measured))
    if not wanted:
        ours, bare = pointwise.call_overhead()
        console.print(f"call: {ours:.1f} us on the host, bare launch {bare:.1f} us")


if __name__ == "__main__":
    main(prog_name="python -m fuzz.bench")
