"""Rows of plain products whose operands need not lie along K, as those of training do not."""

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
from fuzz.bench.row import Peers, Row, Tensors, random_of, together

Turned = tuple[bool, bool]
"""Whether A lies along M, and B along N."""


@dataclass(frozen=True)
class Layout(Row):
    """A row: out = a @ b of a `dtype`, [M, K] by [K, N], f32 by tf32; `shape` is (M, N, K).

    Both are matrices in row-major order, transposed where BLAS says T: A lies along M where it is
    `turned`, B along N.  What is `alone` has torch beside it, nobody else.
    """

    shape: tuple[int, int, int]
    turned: Turned
    alone: bool = False
    dtype: torch.dtype = torch.bfloat16
    tolerance = 0.01

    @property
    def says(self) -> str:
        """M x N x K, and how A and B lie, as BLAS says it of row-major matrices."""
        first, second = self.turned
        of = f", {DType.of(self.dtype)}" if self.dtype is not torch.bfloat16 else ""
        return f"{' x '.join(map(str, self.shape))} {'NT'[first]}{'TN'[second]}{of}"

    @property
    def flops(self) -> int:
        """Floating-point operations of the product, in those of 16 bits: tf32 takes two."""
        m, n, k = self.shape
        return m * n * k * self.dtype.itemsize

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors, each once."""
        m, n, k = self.shape
        return self.dtype.itemsize * (m * k + n * k + m * n)

    def inputs(self) -> Tensors:
        """Return random tensors in [-1, 1]."""
        m, n, k = self.shape
        first, second = self.turned
        shapes = (k, m) if first else (m, k), (k, n) if second else (n, k)
        return tuple(random_of(self.dtype, *one) for one in shapes)

    def error(self, given: Tensors, outs: Tensors) -> float:
        """Compare some rows with torch in f64, as part of the largest."""
        (out,), few = outs, 16
        a, b = given
        some = a[:, :few] if self.turned[0] else a[:few]
        (want,) = together(self.form(some.double(), b.double()))
        return float((out[:few].double() - want).abs().max() / want.abs().max())

    def candidates(self) -> Mapping[str, Params]:
        """Return schedules worth trying."""
        tiles = ((128, 256, 2), (128, 192, 2), (128, 128, 2), (64, 256, 1), (64, 128, 1))
        return cooperative(tiles, 128 // self.dtype.itemsize)

    def peers(self, outs: Tensors, *, compiled: bool) -> Peers:
        """Return torch."""
        return super().peers(outs, compiled=False)


def row(
    name: str, shape: tuple[int, int, int], turned: Turned, *, alone: bool = False,
    dtype: torch.dtype = torch.bfloat16,
) -> Layout:  # fmt: skip
    """Return the row of a product, (M, N, K)."""
    fusion, form = partial(_fusion, turned, DType.of(dtype)), partial(_torch, turned)
    return Layout(name, fusion, form, shape, turned, alone, dtype)


def rows() -> list[Row]:
    """Return the rows D: squares, gradients of inputs and of weights, and few rows."""
    half, single = torch.bfloat16, torch.float32
    told = {
        "D1": (half, (4096, 4096, 4096), (False, True)),
        "D2": (half, (8192, 4096, 14336), (False, True)),
        "D3": (half, (14336, 4096, 8192), (True, True)),
        "D4": (half, (2048, 2048, 8192), (True, False)),
        "D5": (half, (16, 8192, 8192), (False, True)),
        "D6": (single, (4096, 4096, 4096), (False, False)),
        "D7": (single, (4096, 4096, 4096), (False, True)),
        "D8": (single, (16, 8192, 8192), (False, True)),
    }
    return [row(name, shape, lie, dtype=of) for name, (of, shape, lie) in told.items()]


def _fusion(turned: Turned, dtype: DType) -> Fusion:
    fd = FusionDefinition()
    a, b = (fd.define_tensor([-1, -1], dtype) for _ in range(2))
    first, second = turned
    a = fd.ops.permute(a, [1, 0]) if first else a
    b = b if second else fd.ops.permute(b, [1, 0])
    fd.add_output(fd.ops.matmul(a, b, precision="tf32" if dtype is DType.F32 else None))
    return fd.fusion()


def _torch(turned: Turned, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    first, second = turned
    allowed = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = True  # of other types than f32 it says nothing
    try:
        return (a.mT if first else a) @ (b if second else b.mT)
    finally:
        torch.backends.cuda.matmul.allow_tf32 = allowed
