"""Rows of batched products: many small squares, scores and sums of attention, one row each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from fuser.fusion.definition import FusionDefinition
from fuser.fusion.ir import Fusion
from fuser.schedule.matmul_params import MatmulParams
from fuser.schedule.shape_class import Params
from fuzz.bench.row import Row, Tensors, random_bf16, together


@dataclass(frozen=True)
class Batched(Row):
    """A row: out = a @ b of bf16, [B, M, K] by [B, K, N]; `shape` is (B, M, N, K).

    B lies along K in memory, as keys do, or where `turned` along N, as values do.
    """

    shape: tuple[int, int, int, int]
    turned: bool = False
    tolerance = 0.01

    @property
    def says(self) -> str:
        """B x M x N x K, and how B lies."""
        return f"{' x '.join(map(str, self.shape))}{', B by rows' if self.turned else ''}"

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
        return random_bf16(b, m, k), random_bf16(b, *((k, n) if self.turned else (n, k)))

    def error(self, given: Tensors, outs: Tensors) -> float:
        """Compare some matrices with torch in f64, as part of the largest."""
        (out,), few = outs, 4
        (want,) = together(self.form(*(t[:few].double() for t in given)))
        return float((out[:few].double() - want).abs().max() / want.abs().max())

    def candidates(self) -> Mapping[str, Params]:
        """Return schedules worth trying."""
        tiles = ((128, 256, 2), (128, 128, 2), (64, 128, 1), (64, 64, 1))
        return {
            f"cooperative {m}x{n}": MatmulParams(
                (m, n, 64), groups, "cooperative", 4, 2, persistent=True,
                registers=(40, 232) if groups == 2 else None,
            )
            for m, n, groups in tiles
        }  # fmt: skip


def rows() -> list[Row]:
    """Return the rows B: squares, scores of many queries, of one; and values by weights of one."""
    shapes = {
        "B1": ((64, 512, 512, 512), False),
        "B2": ((256, 1024, 1024, 128), False),
        "B3": ((256, 1, 4096, 128), False),
        "B4": ((256, 1, 128, 4096), True),
        "B5": ((1024, 64, 64, 64), False),
    }
    return [
        Batched(
            name, _turned if turned else _plain, _torch_turned if turned else _torch, shape, turned
        )
        for name, (shape, turned) in shapes.items()
    ]


def _plain() -> Fusion:
    fd = FusionDefinition()
    a, b = (fd.define_tensor([-1, -1, -1], "bf16") for _ in range(2))
    fd.add_output(fd.ops.matmul(a, fd.ops.permute(b, [0, 2, 1])))
    return fd.fusion()


def _turned() -> Fusion:
    fd = FusionDefinition()
    a, b = (fd.define_tensor([-1, -1, -1], "bf16") for _ in range(2))
    fd.add_output(fd.ops.matmul(a, b))
    return fd.fusion()


def _torch(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return torch.bmm(a, b.mT)


def _torch_turned(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return torch.bmm(a, b)
