"""Rows of batched products: many small squares, scores and sums of attention, one row each."""

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


@dataclass(frozen=True)
class Batched(Row):
    """A row: out = a @ b of bf16, [B, M, K] by [B, K, N]; `shape` is (B, M, N, K).

    B lies along K in memory, as keys do, or where `turned` along N, as values do.  Where matrices
    are `between`, they lie side by side: rows of a batch of heads, [M, B, K], as they come from a
    layer.  What is `alone` has torch beside it, nobody else.
    """

    shape: tuple[int, int, int, int]
    turned: bool = False
    between: bool = False
    alone: bool = False
    tolerance = 0.01

    @property
    def says(self) -> str:
        """B x M x N x K, and how B lies."""
        ways = ", B by rows" * self.turned + ", side by side" * self.between
        return f"{' x '.join(map(str, self.shape))}{ways}"

    @property
    def flops(self) -> int:
        """Floating-point operations of the products."""
        b, m, n, k = self.shape
        return 2 * b * m * n * k

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors, each once."""
        b, m, n, k = self.shape
        return 2 * b * (m * k + n * k + m * n)

    def inputs(self) -> Tensors:
        """Return random tensors in [-1, 1]."""
        b, m, n, k = self.shape
        whole = (b, m, k), (b, k, n) if self.turned else (b, n, k)
        if self.between:
            return tuple(random_bf16(rows, b, wide) for b, rows, wide in whole)
        return tuple(random_bf16(*one) for one in whole)

    def error(self, given: Tensors, outs: Tensors) -> float:
        """Compare some matrices with torch in f64, as part of the largest."""
        (out,), few = outs, 4
        some = (t[:, :few] if self.between else t[:few] for t in given)
        (want,) = together(self.form(*(t.double() for t in some)))
        return float((out[:few].double() - want).abs().max() / want.abs().max())

    def candidates(self) -> Mapping[str, Params]:
        """Return schedules worth trying."""
        tiles = ((128, 256, 2), (128, 128, 2), (64, 128, 1), (64, 64, 1))
        return cooperative(tiles)

    def peers(self, outs: Tensors, *, compiled: bool) -> Peers:
        """Return torch and torch.compile."""
        return super().peers(outs, compiled=compiled and not self.alone)


def row(
    name: str, shape: tuple[int, int, int, int], *, turned: bool = False, between: bool = False,
    alone: bool = False,
) -> Batched:  # fmt: skip
    """Return the row of a batched product, (B, M, N, K)."""
    fusion = partial(_fusion, turned=turned, between=between)
    form = partial(_torch, turned=turned, between=between)
    return Batched(name, fusion, form, shape, turned, between, alone)


def rows() -> list[Row]:
    """Return the rows B: squares, scores of many queries, of one; and values by weights of one."""
    shapes = {
        "B1": ((64, 512, 512, 512), False),
        "B2": ((256, 1024, 1024, 128), False),
        "B3": ((256, 1, 4096, 128), False),
        "B4": ((256, 1, 128, 4096), True),
        "B5": ((1024, 64, 64, 64), False),
    }
    return [row(name, shape, turned=turned) for name, (shape, turned) in shapes.items()]


def _fusion(*, turned: bool, between: bool) -> Fusion:
    fd = FusionDefinition()
    a, b = (fd.define_tensor([-1, -1, -1], "bf16") for _ in range(2))
    if between:
        a, b = (fd.ops.permute(one, [1, 0, 2]) for one in (a, b))
    fd.add_output(fd.ops.matmul(a, b if turned else fd.ops.permute(b, [0, 2, 1])))
    return fd.fusion()


def _torch(a: torch.Tensor, b: torch.Tensor, *, turned: bool, between: bool) -> torch.Tensor:
    if between:
        a, b = a.transpose(0, 1), b.transpose(0, 1)
    return torch.bmm(a, b if turned else b.mT)
