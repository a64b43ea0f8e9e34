"""Rows of reductions of a matrix of bf16, results in f32: by one CTA a tile, and by several."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch

from fuser.fusion.definition import FusionDefinition
from fuser.fusion.ir import Fusion
from fuser.schedule.params import Meet, ReductionParams
from fuzz.bench.row import Form, Row, Tensors, by_torch, random_bf16

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


def rows() -> list[Row]:
    """Return the rows R1 to R8."""
    return [_row(name, *case) for name, case in CASES.items()]


def _row(name: str, shape: tuple[int, int], dims: tuple[int, ...], op: str) -> Row:
    form = _sum(dims) if op == "sum" else _absmax(dims)

    def error(given: Tensors, got: torch.Tensor) -> float:
        (x,) = given
        if op != "sum":
            return float((got - form(x)).abs().max())
        want, room = x.sum(dims, dtype=torch.float64), x.abs().sum(dims).double()
        return float(((got.double() - want).abs() / room.clamp(min=1.0)).max())

    return Row(
        name,
        f"{op} of {shape[0]} x {shape[1]} over {dims}",
        _fusion(op, dims),
        form,
        lambda: (random_bf16(*shape),),
        2 * shape[0] * shape[1],
        error,
        1e-5,  # of the sum of magnitudes
        lambda: candidates(dims),
        lambda _, compiled: by_torch(form, compiled=compiled),
    )


def _sum(dims: tuple[int, ...]) -> Form:
    return lambda x: x.sum(dims, dtype=torch.float32)


def _absmax(dims: tuple[int, ...]) -> Form:
    return lambda x: x.abs().amax(dims).float()


def _fusion(op: str, dims: tuple[int, ...]) -> Callable[[], Fusion]:
    def make() -> Fusion:
        fd = FusionDefinition()
        x = fd.define_tensor([-1, -1], "bf16")
        if op == "sum":
            fd.add_output(fd.ops.sum(x, list(dims), dtype="f32"))
        else:
            fd.add_output(fd.ops.max(fd.ops.abs(fd.ops.cast(x, "f32")), list(dims)))
        return fd.fusion()

    return make


def candidates(dims: tuple[int, ...]) -> dict[str, ReductionParams]:
    """Schedules worth trying."""
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

    if dims == (0,):
        direct((32, 64), 2, 1, (1, 4, 12, 24, 256))
        direct((16, 128), 4, 1, (8, 16, 32))
        direct((8, 256), 8, 1, (16, 32, 64))
        ring((32, 128), 2, 8, (1, 2, 4, 8))
        ring((64, 64), 2, 8, (1, 2, 4, 8, 132, 256))
        ring((64, 128), 4, 4, (2, 4, 8))
    elif dims == (1,):
        direct((2, 1024), 8, 4, (1, 2, 4))
        direct((1, 8192), 8, 8, (1, 2, 8, 16))
        direct((1, 16384), 8, 8, (1, 4, 8, 16, 32))
    else:
        direct((1, 16384), 8, 8, (32, 64, 96, 132, 256))
        direct((1, 8192), 8, 8, (64, 132, 256))
        direct((1, 16384), 8, 16, (64, 132, 256))
    return out
