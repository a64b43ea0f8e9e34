"""Rows of reductions of a matrix of bf16, results in f32: by one CTA a tile, and by several."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch

from fuser.fusion.definition import FusionDefinition
from fuser.fusion.ir import Fusion
from fuser.schedule.params import Meet, ReductionParams
from fuzz.bench.row import Row, Tensors, random_bf16

WAYS: tuple[Meet, ...] = ("vectorized", "tma", "last")
"""How CTAs that share a tile reduce it."""
CASES: dict[str, tuple[tuple[int, int], tuple[int, ...], str]] = {
    "R1": ((32768, 8192), (1,), "sum"),
    "R2": ((32768, 8192), (0,), "sum"),
    "R3": ((32768, 16384), (0, 1), "sum"),
    "R4": ((16384, 8192), (1,), "absmax"),
    "R5": ((32768, 8192), (0,), "absmax"),
    "R6": ((16, 1 << 22), (1,), "sum"),
    "R7": ((4096, 4096), (0,), "sum"),
    "R8": ((1 << 20, 64), (0,), "sum"),
}
"""Rows, columns, all of a matrix; then few long rows, a small matrix, few long columns."""


@dataclass(frozen=True)
class Reduction(Row):
    """A row of a matrix of this shape, reduced along `dims`."""

    shape: tuple[int, int]
    dims: tuple[int, ...]
    op: str
    tolerance = 1e-5  # of the sum of magnitudes

    @property
    def says(self) -> str:
        """What it computes."""
        return f"{self.op} of {self.shape[0]} x {self.shape[1]} over {self.dims}"

    @property
    def nbytes(self) -> int:
        """Those of the matrix."""
        return 2 * self.shape[0] * self.shape[1]

    def inputs(self) -> Tensors:
        """Return numbers in [-1, 1]."""
        return (random_bf16(*self.shape),)

    def error(self, given: Tensors, outs: Tensors) -> float:
        """Compare sums with those of torch in f64, maxima as they are."""
        (x,), (out,) = given, outs
        if self.op != "sum":
            return float((out - x.abs().amax(self.dims).float()).abs().max())
        want, room = x.sum(self.dims, dtype=torch.float64), x.abs().sum(self.dims).double()
        return float(((out.double() - want).abs() / room.clamp(min=1.0)).max())

    def candidates(self) -> dict[str, ReductionParams]:
        """Return schedules worth trying."""
        out: dict[str, ReductionParams] = {}

        def shared(name: str, params: ReductionParams, counts: Sequence[int]) -> None:
            for splits in counts:
                for meet in WAYS if splits > 1 else WAYS[:1]:
                    way = f" {meet}" if splits > 1 else ""
                    out[f"{name} x{splits}{way}"] = replace(params, splits=splits, meet=meet)

        def direct(tile: tuple[int, int], vector: int, warps: int, counts: Sequence[int]) -> None:
            params = ReductionParams(tile, vector, warps, None, "direct", "direct")
            shared(f"direct {tile[0]}x{tile[1]} v{vector} w{warps}", params, counts)

        def ring(tile: tuple[int, int], warps: int, stages: int, counts: Sequence[int]) -> None:
            params = ReductionParams(tile, 2, warps, None, "tma", "direct", stages, stages - 1)
            shared(f"tma {tile[0]}x{tile[1]} w{warps} s{stages}", params, counts)

        if self.dims == (0,):
            direct((32, 64), 2, 1, (1, 4, 12, 24, 256))
            direct((16, 128), 4, 1, (8, 16, 32))
            direct((8, 256), 8, 1, (16, 32, 64))
            ring((32, 128), 2, 8, (1, 2, 4, 8))
            ring((64, 64), 2, 8, (1, 2, 4, 8, 132, 256))
            ring((64, 128), 4, 4, (2, 4, 8))
        elif self.dims == (1,):
            direct((2, 1024), 8, 4, (1, 2, 4))
            direct((1, 8192), 8, 8, (1, 2, 8, 16))
            direct((1, 16384), 8, 8, (1, 4, 8, 16, 32))
        else:
            direct((1, 16384), 8, 8, (32, 64, 96, 132, 256))
            direct((1, 8192), 8, 8, (64, 132, 256))
            direct((1, 16384), 8, 16, (64, 132, 256))
        return out


def rows() -> list[Row]:
    """Return the rows R1 to R8."""
    return [row(name, *case) for name, case in CASES.items()]


def row(name: str, shape: tuple[int, int], dims: tuple[int, ...], op: str) -> Row:
    """Return one row."""
    form = partial({"sum": _sum, "absmax": _absmax}[op], dims=dims)
    return Reduction(name, partial(_fusion, op, dims), form, shape, dims, op)


def _sum(x: torch.Tensor, dims: tuple[int, ...]) -> torch.Tensor:
    return x.sum(dims, dtype=torch.float32)


def _absmax(x: torch.Tensor, dims: tuple[int, ...]) -> torch.Tensor:
    return x.abs().amax(dims).float()


def _fusion(op: str, dims: tuple[int, ...]) -> Fusion:
    fd = FusionDefinition()
    x = fd.define_tensor([-1, -1], "bf16")
    if op == "sum":
        fd.add_output(fd.ops.sum(x, list(dims), dtype="f32"))
    else:
        fd.add_output(fd.ops.max(fd.ops.abs(fd.ops.cast(x, "f32")), list(dims)))
    return fd.fusion()
