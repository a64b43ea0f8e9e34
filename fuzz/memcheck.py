"""Random cases under compute-sanitizer's memcheck: `python -m fuzz.memcheck`, on a GPU.

Every tensor has memory of its own that ends where it ends, so that a read past the end is seen,
which no guard bytes show: but for the last aligned 16 bytes, which kernels may read whole, since no
allocation and no page ends within them.  Cases run some at a time under one sanitizer; where it
reports something, its cases run again, one by one.  What TMA reads and writes memcheck does not
look at: the hardware keeps it within its map.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import click
import torch
from rich.console import Console
from rich.table import Table

from fuser.errors import FusionError, ScheduleError
from fuser.fusion.definition import TensorView
from fuser.runtime import torch_calls
from fuser.runtime.executable import Executable, device_present
from fuzz.bench.drawn import texts
from fuzz.campaign.gpu import count_option, seed_option
from fuzz.cases.case import Case, Value, from_text, inputs, output_specs, shape_of, strides_of
from fuzz.cases.strategies import cases
from fuzz.exit_code import CLEAN, FAILED, HARNESS, Command
from fuzz.semaphores.record import Cell
from fuzz.semaphores.sanitizers import DONE, command, find, ran
from fuzz.values import compared
from oracles.verdict import Status

TOGETHER = 25
"""Cases under one sanitizer, whose start takes longer than a case."""
WORD = 16
"""Bytes of the widest access of a thread."""
LIMIT_S = 240.0
"""Wall limit of one sanitizer."""
REFUSED = "refused"
"""How a case ends that the compiler refuses."""
EXACT = {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
"""Each tensor is an allocation of its own."""


def tensor(
    shape: Sequence[int], strides: Sequence[int], dtype: torch.dtype, offset: int = 0
) -> torch.Tensor:
    """Return a tensor on the device whose memory ends with the last word of it."""
    reach = sum((n - 1) * s for n, s in zip(shape, strides, strict=True)) + 1
    count = offset + (0 if 0 in shape else reach)
    words = -(-count * dtype.itemsize // WORD) * (WORD // dtype.itemsize)
    return torch.zeros(words, dtype=dtype, device="cuda").as_strided(shape, strides, offset)


def launched(text: str) -> str:
    """Call a case once; return the status of what it returned, or "refused"."""
    case = from_text(text)
    try:
        run = Executable(case.fusion, case.params)
        return _called(run, case).value
    except (FusionError, ScheduleError):
        return REFUSED


def _called(run: Executable, case: Case) -> Status:
    given = inputs(case, turn=0)
    arguments: list[Value] = []
    for arg, value in zip(case.fusion.inputs, given, strict=True):
        if isinstance(arg, TensorView) and isinstance(value, torch.Tensor):
            held = tensor(shape_of(case, arg), strides_of(case, arg), value.dtype, case.offset)
            value = held.copy_(value)
        arguments.append(value)
    specs = output_specs(case)
    outs = [
        tensor(specs[tv.name].shape, specs[tv.name].strides, getattr(torch, tv.dtype.torch_name))
        for tv in case.fusion.outputs
    ]
    got = run(*arguments, out=outs)
    torch.cuda.synchronize()
    return compared(case, given, [one.cpu() for one in got]).status


def inside(path: Path) -> None:
    """Launch the cases of a file of JSON, and write how each ends beside it."""
    torch_calls.empty = tensor
    ends = [launched(text) for text in json.loads(path.read_text(encoding="utf-8"))]
    path.with_suffix(".ends").write_text(json.dumps(ends), encoding="utf-8")
    print(DONE, flush=True)


def watched(program: Path, group: Sequence[str]) -> tuple[Cell, list[str]]:
    """Launch cases in a process under memcheck; return its report, and how the cases end."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "cases.json")
        path.write_text(json.dumps(group), encoding="utf-8")
        words = command(program, "memcheck", "--inside", str(path), module="fuzz.memcheck")
        cell = ran(words, "memcheck", limit_s=LIMIT_S)
        ends = path.with_suffix(".ends")
        return cell, json.loads(ends.read_text(encoding="utf-8")) if ends.exists() else []


def judged(program: Path, group: Sequence[str]) -> Counter[str]:
    """Count how cases end; print those that memcheck reports or that are lost."""
    cell, ends = watched(program, group)
    if cell.status == "silent":
        return Counter(ends)
    if len(group) > 1:
        return sum((judged(program, (text,)) for text in group), Counter())
    click.echo(f"{cell.status}: {cell.says}\n{group[0]}\n{cell.detail}")
    return Counter(("reported" if cell.status == "detected" else "lost",))


@click.command(cls=Command)
@count_option
@seed_option
@click.option("--workers", default=4, show_default=True, help="Sanitizers at once.")
@click.option("--inside", "path", type=click.Path(path_type=Path), help="Cases to run, in here.")
def main(count: int, seed_: int, workers: int, path: Path | None) -> None:
    """Run random cases under memcheck; exit code 1 if it reports one or a value is wrong."""
    if path is not None:
        inside(path)
        return
    program = find()
    if program is None or not device_present():
        click.echo(f"memcheck: no {'GPU' if program else 'compute-sanitizer'}, 0 cases run")
        sys.exit(HARNESS)
    drawn = texts(cases(), count, seed_)
    groups = [drawn[at : at + TOGETHER] for at in range(0, len(drawn), TOGETHER)]
    os.environ |= EXACT
    ends: Counter[str] = Counter()
    with ThreadPoolExecutor(workers) as pool:
        for one in pool.map(partial(judged, program), groups):
            ends += one
    table = Table("memcheck", "cases")
    for name, many in ends.most_common():
        table.add_row(name, str(many))
    Console().print(table)
    bad = ends["reported"] + ends["fail"]
    sys.exit(FAILED if bad else CLEAN if ends["pass"] and not ends["lost"] else HARNESS)


if __name__ == "__main__":
    main()
