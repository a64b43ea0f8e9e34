"""The benchmark table of reductions: ours, by one CTA a tile and by several, against torch.

`python -m fuzz.bench_reductions [--only R2,R3] [--out FILE] [--tune]`.  Peers of a row are captured
and replayed as in `bench_matmul`.  Random bf16 data, results in f32; medians in microseconds.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import click
import torch
from rich.console import Console
from rich.table import Table

from fuser.errors import ScheduleError
from fuser.fusion_ir import FusionDefinition
from fuser.params import Meet, ReductionParams
from fuser.runtime import Executable, device_present
from fuser.tensor_view import Fusion
from fuzz.bench_timing import L2_BYTES, PRACTICAL_BYTES, in_turn
from fuzz.exit_code import HARNESS, Command

SAMPLES = 21
MEETINGS: tuple[Meet, ...] = ("vectorized", "tma", "last")
"""How CTAs that share a tile meet."""
TOLERANCE = 1e-5
"""Error of a sum in f32, as part of the sum of magnitudes."""


@dataclass(frozen=True)
class Row:
    """One case: a matrix of bf16, `op` over some of its axes."""

    name: str
    shape: tuple[int, int]
    dims: tuple[int, ...]
    op: str = "sum"

    @property
    def nbytes(self) -> int:
        """Bytes that are read."""
        return 2 * self.shape[0] * self.shape[1]

    def fusion(self) -> Fusion:
        """Return our form."""
        fd = FusionDefinition()
        x = fd.define_tensor([-1, -1], "bf16")
        if self.op == "sum":
            fd.add_output(fd.ops.sum(x, list(self.dims), dtype="f32"))
        else:
            fd.add_output(fd.ops.max(fd.ops.abs(fd.ops.cast(x, "f32")), list(self.dims)))
        return fd.fusion()

    def form(self, x: torch.Tensor) -> torch.Tensor:
        """Compute the same by torch."""
        if self.op == "sum":
            return x.sum(self.dims, dtype=torch.float32)
        return x.abs().amax(self.dims).float()

    def check(self, x: torch.Tensor, got: torch.Tensor, name: str) -> None:
        """Compare with torch in f64 before anything is timed."""
        if self.op == "sum":
            want, room = x.sum(self.dims, dtype=torch.float64), x.abs().sum(self.dims).double()
            off = float(((got.double() - want).abs() / room.clamp(min=1.0)).max())
        else:
            off = float((got - self.form(x)).abs().max())
        if not off <= TOLERANCE:
            raise click.ClickException(f"{self.name} by {name}: off by {off:.3g}; not timed")


ROWS = (
    Row("R1", (32768, 8192), (1,)),
    Row("R2", (32768, 8192), (0,)),
    Row("R3", (32768, 16384), (0, 1)),
    Row("R4", (16384, 8192), (1,), "absmax"),
    Row("R5", (32768, 8192), (0,), "absmax"),
    Row("R6", (16, 1 << 22), (1,)),
    Row("R7", (4096, 4096), (0,)),
    Row("R8", (1 << 20, 64), (0,)),
)
"""Rows, columns, all of a matrix; then few long rows, a small matrix, few long columns."""


def candidates(row: Row) -> dict[str, ReductionParams]:
    """Schedules worth trying for a row; the best is reported beside the default."""
    out: dict[str, ReductionParams] = {}

    def shared(name: str, params: ReductionParams, counts: Sequence[int]) -> None:
        for splits in counts:
            for meet in MEETINGS if splits > 1 else MEETINGS[:1]:
                way = f" {meet}" if splits > 1 else ""
                out[f"{name} x{splits}{way}"] = replace(params, splits=splits, meet=meet)

    def direct(tile: tuple[int, int], vector: int, warps: int, counts: Sequence[int]) -> None:
        params = ReductionParams(tile, vector, warps, None, "direct", "direct")
        shared(f"direct {tile[0]}x{tile[1]} v{vector} w{warps}", params, counts)

    def ring(tile: tuple[int, int], warps: int, stages: int, counts: Sequence[int]) -> None:
        params = ReductionParams(tile, 2, warps, None, "tma", "direct", stages, stages - 1)
        shared(f"tma {tile[0]}x{tile[1]} w{warps} s{stages}", params, counts)

    if row.dims == (0,):
        direct((32, 64), 2, 1, (1, 4, 12, 24, 256))
        direct((16, 128), 4, 1, (8, 16, 32))
        direct((8, 256), 8, 1, (16, 32, 64))
        ring((32, 128), 2, 8, (1, 2, 4, 8))
        ring((64, 64), 2, 8, (1, 2, 4, 8, 132, 256))
        ring((64, 128), 4, 4, (2, 4, 8))
    elif row.dims == (1,):
        direct((2, 1024), 8, 4, (1, 2, 4))
        direct((1, 8192), 8, 8, (1, 2, 8, 16))
        direct((1, 16384), 8, 8, (1, 4, 8, 16, 32))
    else:
        direct((1, 16384), 8, 8, (32, 64, 96, 132, 256))
        direct((1, 8192), 8, 8, (64, 132, 256))
        direct((1, 16384), 8, 16, (64, 132, 256))
    return out


def measure(row: Row, *, tune: bool, compiled: bool) -> dict[str, float]:
    """Time all peers of a row in turn; medians in microseconds by name."""
    count = max(2, min(8, 2 * L2_BYTES // row.nbytes + 1))
    sets = [
        ((torch.rand(row.shape, device="cuda") * 2 - 1).to(torch.bfloat16),) for _ in range(count)
    ]
    peers: dict[str, Callable[..., object]] = {"torch": row.form}
    if compiled:
        peers["compile"] = torch.compile(row.form, dynamic=False)
    tried = {"ours, default": None} | (candidates(row) if tune else {})
    fusion = row.fusion()
    out = torch.empty_like(row.form(sets[0][0]))
    for name, params in tried.items():
        run = Executable(fusion, params)
        try:
            run(*sets[0], out=[out])
        except ScheduleError:
            continue
        row.check(sets[0][0], out, name)
        label = name if params is None else f"ours, {name}"
        peers[label] = lambda x, run=run: run(x, out=[out])
    return in_turn(peers, sets, SAMPLES)


def _table(measured: dict[str, dict[str, float]]) -> Table:
    heads = ("row", "reduced", "roof", "torch", "compile", "best of ours", "us", "ratio", "default")
    shown = Table(
        *heads, title="Microseconds, median; ratio > 1: ours is faster than the best peer"
    )
    for row in ROWS:
        times = measured.get(row.name)
        if times is None:
            continue
        ours = {name: t for name, t in times.items() if name.startswith("ours")}
        best, peer = (
            min(ours, key=ours.__getitem__),
            min(t for n, t in times.items() if n not in ours),
        )
        shown.add_row(
            row.name,
            f"{row.op} of {row.shape[0]} x {row.shape[1]} over {row.dims}",
            f"{row.nbytes / PRACTICAL_BYTES * 1e6:.1f}",
            f"{times['torch']:.1f}",
            f"{times.get('compile', float('nan')):.1f}",
            best.removeprefix("ours, "),
            f"{ours[best]:.1f}",
            f"{peer / ours[best]:.3f}",
            f"{peer / ours['ours, default']:.3f}",
        )
    return shown


@click.command(cls=Command)
@click.option("--out", type=click.Path(path_type=Path), help="Write all numbers here as JSON.")
@click.option("--only", default="", help="Comma list of rows.")
@click.option("--tune", is_flag=True, help="Time a dozen schedules beside the default one.")
@click.option("--no-compile", is_flag=True, help="Leave torch.compile out.")
def main(out: Path | None, only: str, *, tune: bool, no_compile: bool) -> None:
    """Time reductions against torch and torch.compile."""
    if not device_present():
        click.echo("bench: no CUDA device; nothing was measured", err=True)
        sys.exit(HARNESS)
    console = Console(width=140)
    wanted = tuple(word for word in only.split(",") if word)
    measured: dict[str, dict[str, float]] = {}
    for row in ROWS:
        if wanted and row.name not in wanted:
            continue
        measured[row.name] = measure(row, tune=tune, compiled=not no_compile)
        console.print(row.name, measured[row.name])
        torch.cuda.empty_cache()
        if out is not None:
            out.write_text(json.dumps(measured, indent=1))
    console.print(_table(measured))


if __name__ == "__main__":
    main()
