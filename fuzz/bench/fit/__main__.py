"""`python -m fuzz.bench.fit` learns from kept timings what predictions of products are off by."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import IO

import click
import pandas as pd

from fuser.schedule.products.residual import TABLE, Process, Residuals
from fuzz.bench.fit.learn import LEAST, left_out, processes, scales_of, told, worth
from fuzz.bench.fit.timings import COLUMNS, KEPT, keep, matched, read
from fuzz.exit_code import HARNESS, Command

FAMILIES = {False: "tiles that TMA brings", True: "operands read where they lie"}
"""Kernels that are told by the same features: whether they read operands where these lie."""


@click.command(cls=Command)
@click.option("--timings", type=click.Path(path_type=Path), default=KEPT, help="Those kept.")
@click.option("--table", type=click.Path(path_type=Path), default=TABLE, help="What is written.")
@click.option("--device", default="NVIDIA H200", show_default=True, help="Where they are from.")
@click.argument("sweeps", nargs=-1, type=click.File())
def main(*, timings: Path, table: Path, device: str, sweeps: tuple[IO[str], ...]) -> None:
    """Keep the timings of SWEEPS, lines of `fuzz.bench.sweep`, too; then learn from all of them.

    A sweep that is kept already is not kept twice.  Timings of schedules that no default is chosen
    from any more are not learned from, and counted.
    """
    kept = [read(timings)] if timings.exists() else []
    first = max((int(one["sweep"].max()) for one in kept), default=0) + 1
    kept += [keep(sweep, first + number) for number, sweep in enumerate(sweeps)]
    every = pd.concat(kept or [keep((), 0)], ignore_index=True)
    every = every.drop_duplicates([name for name in COLUMNS if name != "sweep"])
    if sweeps:
        every.to_csv(timings, index=False)
    some = [*matched(every)]
    found: dict[str, Process] = {}
    said = []
    for directly, name in FAMILIES.items():
        family = [one for one in some if one.where_they_lie is directly]
        arrays = told(family)
        if max(map(len, arrays.by_way().values()), default=0) < LEAST:
            few = f"{len(family)} timings, no {LEAST} of one way: predictions stay as they are"
            click.echo(f"{name}: {few}")
            continue
        scales = scales_of(arrays)
        found |= processes(arrays, scales)
        shapes = len({one.shape for one in family})
        alone = worth(family, [0.0] * len(family))
        checked = worth(family, left_out(family, arrays, scales))
        said.append(f"{name}: {len(family)} timings of {shapes} shapes; left out: {checked}")
        click.echo(f"{said[-1]}\n  without it: {alone}")
    if not found:
        click.echo(
            f"fit: of {len(every)} timings {len(some)} are of schedules that defaults are chosen "
            f"from, no {LEAST} of one way; time more (`python -m fuzz.bench.sweep`)",
            err=True,
        )
        sys.exit(HARNESS)
    Residuals(device, "\n".join(said), found).save(table)
    click.echo(f"{len(every) - len(some)} timings are of schedules that none is chosen from today")


if __name__ == "__main__":
    main(prog_name="python -m fuzz.bench.fit")
