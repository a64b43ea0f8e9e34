"""Rows of products of 8-bit operands, times a number of each row of both: f8 and i8."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

import torch

from fuser.dtype import DType
from fuser.fusion.definition import FusionDefinition
from fuser.fusion.ir import Fusion
from fuser.schedule.shape_class import Params
from fuzz.bench.matmul.schedules import cooperative
from fuzz.bench.row import Peers, Row, Tensors, autotuned, random_of

TYPES = torch.float8_e4m3fn, torch.int8
"""The types of operands."""


@dataclass(frozen=True)
class Scaled(Row):
    """A row: out = x [M, K] @ w [N, K], times numbers [M] and [N]; `shape` is (M, N, K).

    x and w have a `dtype` of 8 bits, the numbers are f32, the result is bf16.  What is `alone` has
    torch beside it, nobody else.
    """

    shape: tuple[int, int, int]
    dtype: torch.dtype = torch.float8_e4m3fn
    alone: bool = False
    tolerance = 0.05
    """Tensor cores keep 14 bits of a sum of 8-bit floats, and cut: some per cent of K = 32768."""

    @property
    def says(self) -> str:
        """M x N x K, and of what type."""
        return f"{' x '.join(map(str, self.shape))}, {DType.of(self.dtype)}"

    @property
    def flops(self) -> int:
        """Floating-point operations of the product, in those of 16 bits: they take half."""
        m, n, k = self.shape
        return m * n * k

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors, each once."""
        m, n, k = self.shape
        return m * k + n * k + 2 * m * n + 4 * (m + n)

    def inputs(self) -> Tensors:
        """Return random tensors: floats in [-1, 1], integers in [-100, 100], numbers in [0, 1]."""
        m, n, k = self.shape
        x, w = (random_of(self.dtype, rows, k) for rows in (m, n))
        return x, w, torch.rand(m, device="cuda"), torch.rand(n, device="cuda")

    def error(self, given: Tensors, outs: Tensors) -> float:
        """Compare some rows with torch in f64, as part of the largest."""
        (out,), few = outs, 16
        x, w, rows, columns = (t.double() for t in given)
        want = x[:few] @ w.T * rows[:few, None] * columns
        return float((out[:few].double() - want).abs().max() / want.abs().max())

    def candidates(self) -> Mapping[str, Params]:
        """Return schedules worth trying."""
        tiles = ((128, 256, 2), (128, 192, 2), (128, 128, 2), (64, 256, 1), (64, 128, 1))
        return cooperative(tiles, depth=128)

    def peers(self, outs: Tensors, *, compiled: bool) -> Peers:
        """Return torch; of floats by sums like ours, and by sums that are brought to f32 often."""
        found = super().peers(outs, compiled=compiled and not self.alone)
        if compiled and not self.alone:
            found["compile max-autotune"] = autotuned(self.form)
        if self.dtype is not torch.int8:
            found["torch, f32 sums"] = partial(_torch_f8, fast=False)
        return found


def row(
    name: str, shape: tuple[int, int, int], dtype: torch.dtype, *, alone: bool = False
) -> Scaled:
    """Return the row of a product, (M, N, K)."""
    form = _torch_i8 if dtype is torch.int8 else _torch_f8
    return Scaled(name, partial(_fusion, DType.of(dtype)), form, shape, dtype, alone)


def rows() -> list[Row]:
    """Return the rows F: squares and layers, many rows and few."""
    shapes = {
        "F1": (4096, 4096, 4096),
        "F2": (8192, 6144, 4096),
        "F3": (4096, 4096, 14336),
        "F4": (128, 7168, 16384),
        "F5": (16, 4096, 14336),
    }
    out: list[Row] = [row(name, shape, torch.float8_e4m3fn) for name, shape in shapes.items()]
    out.append(row("F6", (4096, 4096, 4096), torch.int8))
    return out


def _fusion(dtype: DType) -> Fusion:
    fd = FusionDefinition()
    x, w = (fd.define_tensor([-1, -1], dtype) for _ in range(2))
    rows_, columns = (fd.define_tensor([-1], "f32") for _ in range(2))
    made = fd.ops.cast(fd.ops.linear(x, w), "f32")
    made = fd.ops.mul(made, fd.ops.broadcast(rows_, [False, True]))
    made = fd.ops.mul(made, fd.ops.broadcast(columns, [True, False]))
    fd.add_output(fd.ops.cast(made, "bf16"))
    return fd.fusion()


def _torch_f8(
    x: torch.Tensor, w: torch.Tensor, rows_: torch.Tensor, columns: torch.Tensor, *,
    fast: bool = True,
) -> torch.Tensor:  # fmt: skip
    return torch._scaled_mm(
        x, w.t(), rows_[:, None], columns[None], out_dtype=torch.bfloat16, use_fast_accum=fast
    )


def _torch_i8(
    x: torch.Tensor, w: torch.Tensor, rows_: torch.Tensor, columns: torch.Tensor
) -> torch.Tensor:
    return (torch._int_mm(x, w.t()) * rows_[:, None] * columns).to(torch.bfloat16)
