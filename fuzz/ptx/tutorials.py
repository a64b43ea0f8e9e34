"""Kernels of another compiler before the judge of PTX: those of Triton's tutorials.

`python -m fuzz.ptx.tutorials` needs Triton (`pip install triton`), but no GPU.  Each kernel is
executed as it is, in three orders, its values compared; then without each of the synchronising
instructions that it executes, or with one weakened.
"""

from __future__ import annotations

import sys
import time
from importlib import import_module
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from fuzz.exit_code import CLEAN, FAILED, Command
from oracles.ptx.text.mutants import mutants
from oracles.ptx.text.program import prepare
from oracles.verdict import Status

ORDERS = range(3)


def _examples() -> Any:
    """Return the examples; UsageError without Triton."""
    try:
        return import_module("fuzz.ptx.triton").examples()
    except ModuleNotFoundError as error:
        raise click.UsageError(f"tutorials: {error}; pip install triton") from error


@click.command(cls=Command)
@click.option(
    "--write",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Folder for the PTX of each.",
)
def main(write: Path | None) -> None:
    """Judge the kernels, right and with each synchronising instruction left out or weakened."""
    table = Table(
        "kernel", "instructions", "verdict", "CPU s", "mutants killed", "not executed", "survive"
    )
    good = True
    for one in _examples():
        if write:
            name = one.name.replace(" ", "_")
            (write / f"{name}.ptx").write_text(one.text, encoding="utf-8")
        start = time.process_time()
        said = [one.judged(one.text, seed) for seed in ORDERS]
        seconds = (time.process_time() - start) / len(ORDERS)
        worst = next((v for v in said if v.status is not Status.PASS), said[0])
        good &= worst.status is Status.PASS
        alive, many, idle, reached = [], 0, 0, one.reached
        for mutant in mutants(one.text):
            if mutant.line not in reached:
                idle += 1
                continue
            many += 1
            if all(one.judged(mutant.text, seed).status is Status.PASS for seed in ORDERS):
                alive.append(f"{mutant.change} {mutant.opcode}, line {mutant.line}")
        size = len(prepare(one.text).instructions())
        said_ = str(worst) if worst.status is not Status.PASS else "pass"
        killed = f"{many - len(alive)} of {many}"
        cells = (one.name, str(size), said_, f"{seconds:.2f}", killed, str(idle))
        table.add_row(*cells, "; ".join(alive))
    Console(width=160).print(table)
    sys.exit(CLEAN if good else FAILED)


if __name__ == "__main__":
    main()
