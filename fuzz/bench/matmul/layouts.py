"""Rows of plain products whose operands do not both lie along K, as those of training do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

import torch

from fuser.fusion.definition import FusionDefinition
from fuser.fusion.ir import Fusion
from fuser.schedule.shape_class import Params
from fuzz.bench.matmul.schedules import cooperative
from fuzz.bench.row import Peers, Row, Tensors, random_bf16, together

Turned = tuple[bool, bool]
"""Whether A lies along M, and B along N."""


@dataclass(frozen=True)
class Layout(Row):
    """A row: out = a @ b of bf16, [M, K] by [K, N]; `shape` is (M, N, K).

    Both are matrices in row-major order, transposed where BLAS says T: A lies along M where it is
    `turned`, B along N.  What is `alone` has torch beside it, nobody else.
    """

    shape: tuple[int, int, int]
    turned: Turned
    alone: bool = False
    tolerance = 0.01

    @property
    def says(self) -> str:
        """M x N x K, and how A and B lie, as BLAS says it of row-major matrices."""
        first, second = self.turned
        return f"{' x '.join(map(str, self.shape))} {'NT'[first]}{'TN'[second]}"

    @property
    def flops(self) -> int:
        """Floating-point operations of the product."""
        m, n, k = self.shape
        return 2 * m * n * k

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors, each once."""
        m, n, k = self.shape
        return 2 * (m * k + n * k + m * n)

    def inputs(self) -> Tensors:
        """Return random tensors in [-1, 1]."""
        m, n, k = self.shape
        first, second = self.turned
        return (
            random_bf16(*((k, m) if first else (m, k))),
            random_bf16(*((k, n) if second else (n, k))),
        )

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
        return cooperative(tiles)

    def peers(self, outs: Tensors, *, compiled: bool) -> Peers:
        """Return torch."""
        return super().peers(outs, compiled=False)


def row(name: str, shape: tuple[int, int, int], turned: Turned, *, alone: bool = False) -> Layout:
    """Return the row of a product, (M, N, K)."""
    return Layout(name, partial(_fusion, turned), partial(_torch, turned), shape, turned, alone)


def rows() -> list[Row]:
    """Return the rows D: squares, gradients of inputs and of weights, and few rows."""
    told = {
        "D1": ((4096, 4096, 4096), (False, True)),
        "D2": ((8192, 4096, 14336), (False, True)),
        "D3": ((14336, 4096, 8192), (True, True)),
        "D4": ((2048, 2048, 8192), (True, False)),
        "D5": ((16, 8192, 8192), (False, True)),
    }
    return [row(name, shape, turned) for name, (shape, turned) in told.items()]


def _fusion(turned: Turned) -> Fusion:
    fd = FusionDefinition()
    a, b = (fd.define_tensor([-1, -1], "bf16") for _ in range(2))
    first, second = turned
    a = fd.ops.permute(a, [1, 0]) if first else a
    b = b if second else fd.ops.permute(b, [1, 0])
    fd.add_output(fd.ops.matmul(a, b))
    return fd.fusion()


def _torch(turned: Turned, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    first, second = turned
    return (a.mT if first else a) @ (b if second else b.mT)
