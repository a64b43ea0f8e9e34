"""Kernels of another compiler before the judge of PTX: those of Triton's tutorials.

`python -m fuzz.ptx.tutorials` needs Triton (`pip install triton`), but no GPU.  Each kernel is
executed as it is, in three orders, its values compared; then without each of the synchronising
instructions that it executes, or with one weakened.
"""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from fuzz.exit_code import CLEAN, FAILED, Command
from fuzz.ptx.subjects import table


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
    found = list(_examples())
    if write:
        for one in found:
            name = one.name.replace(" ", "_")
            (write / f"{name}.ptx").write_text(one.text, encoding="utf-8")
    clean = table(found, Console(width=160))
    sys.exit(CLEAN if clean else FAILED)


if __name__ == "__main__":
    main()
