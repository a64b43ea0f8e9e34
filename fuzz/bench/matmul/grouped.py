"""Rows of grouped products: blocks of rows, each multiplied by the matrix that a number names."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil

import torch

from fuser.fusion.definition import FusionDefinition
from fuser.fusion.ir import Fusion
from fuser.schedule.matmul_params import MatmulParams
from fuser.schedule.shape_class import Params
from fuzz.bench.matmul.schedules import cooperative
from fuzz.bench.row import Form, Peers, Row, Tensors, kept, random_bf16, together

Shape = tuple[int, int, int, int, int]
"""Blocks of rows, rows of each, matrices, N and K."""

COMPARED = 8
"""Blocks that are compared with what they should be, at most."""
FEW = 64
"""Rows of a block that fill a tile; with fewer the tiles that are tried are transposed, too."""


@dataclass(frozen=True)
class Grouped(Row):
    """A row: out [T, R, N] = x [T, R, K], each block times one matrix of [G, K, N], bf16.

    `shape` is (T, R, G, N, K).  The matrices lie along K in memory, as weights of linear layers do,
    or where `turned` along N.  Which one a block is multiplied by is random, and sorted, as a
    router leaves it.  What is `alone` has torch beside it, nobody else.
    """

    shape: Shape
    turned: bool = False
    alone: bool = False
    tolerance = 0.01

    @property
    def says(self) -> str:
        """T x R x G x N x K, and how the matrices lie."""
        return f"{' x '.join(map(str, self.shape))}{', by rows' if self.turned else ''}"

    @property
    def numbers(self) -> list[int]:
        """Number of the matrix of each block, always the same."""
        many, _, groups, _, _ = self.shape
        return sorted(random.Random(str(self.shape)).choices(range(groups), k=many))

    @property
    def flops(self) -> int:
        """Floating-point operations of the products."""
        many, rows, _, n, k = self.shape
        return 2 * many * rows * n * k

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors, each once; of the matrices those that some block names."""
        many, rows, _, n, k = self.shape
        return 2 * (many * rows * (n + k) + len({*self.numbers}) * n * k) + 4 * many

    def inputs(self) -> Tensors:
        """Return random numbers in [-1, 1], and the numbers of matrices."""
        many, rows, groups, n, k = self.shape
        w = random_bf16(groups, *((k, n) if self.turned else (n, k)))
        return (
            random_bf16(many, rows, k),
            w,
            torch.tensor(self.numbers, dtype=torch.int32, device=w.device),
        )

    def error(self, given: Tensors, outs: Tensors) -> float:
        """Compare blocks all over with torch in f64, as part of the largest."""
        x, w, groups = given
        some = slice(None, None, ceil(len(groups) / COMPARED))
        (want,) = together(self.form(x[some].double(), w, groups[some]))
        return float((outs[0][some].double() - want).abs().max() / want.abs().max())

    def candidates(self) -> Mapping[str, Params]:
        """Return schedules worth trying."""
        tiles = ((128, 256, 2), (128, 128, 2), (64, 256, 1), (64, 128, 1))
        found = cooperative(tiles)
        rows = min(ceil(self.shape[1] / 8) * 8, FEW)
        if rows < FEW:
            found |= {
                f"transposed {m}x{rows}": MatmulParams(
                    (m, rows, 64), m // 64, "cooperative", 6, 4, persistent=False,
                    columns=rows, transpose=True,
                )
                for m in (64, 128)
            }  # fmt: skip
        return found

    def peers(self, outs: Tensors, *, compiled: bool) -> Peers:
        """Return torch's grouped product; bmm of matrices that are taken first, torch.compile."""
        found = super().peers(outs, compiled=compiled and not self.alone)
        if not hasattr(torch, "_grouped_mm"):
            return found
        by_torch: Peers = {"torch": self._grouped()}
        return by_torch | ({} if self.alone else {f"{who}, bmm": of for who, of in found.items()})

    def _grouped(self) -> Form:
        """Return torch's grouped product, which is told where the rows of each matrix end."""
        ends = kept(self._ends)

        def product(x: torch.Tensor, w: torch.Tensor, groups: torch.Tensor) -> torch.Tensor:
            matrices = w if self.turned else w.mT
            made = torch._grouped_mm(x.flatten(0, 1), matrices, offs=ends(groups))
            return made.view(*x.shape[:2], -1)

        return product

    def _ends(self, groups: torch.Tensor) -> torch.Tensor:
        _, rows, many, _, _ = self.shape
        every = torch.arange(many, dtype=groups.dtype, device=groups.device)
        return torch.searchsorted(groups, every, right=True).to(torch.int32) * rows


def row(name: str, shape: Shape, *, turned: bool = False, alone: bool = False) -> Grouped:
    """Return the row of a grouped product, (T, R, G, N, K)."""
    fusion, form = (_turned, _torch_turned) if turned else (_plain, _torch)
    return Grouped(name, fusion, form, shape, turned, alone)


def rows() -> list[Row]:
    """Return the rows Y: layers of experts of many tokens, by rows, and of few tokens."""
    told = {
        "Y1": ((64, 128, 8, 14336, 4096), False),
        "Y2": ((64, 128, 8, 4096, 14336), False),
        "Y3": ((128, 128, 64, 1536, 4096), False),
        "Y4": ((128, 128, 64, 4096, 1536), True),
        "Y5": ((32, 64, 32, 2048, 4096), False),
        "Y6": ((32, 16, 32, 2048, 4096), False),
    }
    return [row(name, shape, turned=turned) for name, (shape, turned) in told.items()]


def _plain() -> Fusion:
    return _fusion(turned=False)


def _turned() -> Fusion:
    return _fusion(turned=True)


def _fusion(*, turned: bool) -> Fusion:
    fd = FusionDefinition()
    x, w = (fd.define_tensor([-1, -1, -1], "bf16") for _ in range(2))
    groups = fd.define_tensor([-1], "i32")
    matrices = w if turned else fd.ops.permute(w, [0, 2, 1])
    fd.add_output(fd.ops.grouped_matmul(x, matrices, groups))
    return fd.fusion()


def _torch(x: torch.Tensor, w: torch.Tensor, groups: torch.Tensor) -> torch.Tensor:
    return torch.bmm(x, w[groups].to(x.dtype).mT)


def _torch_turned(x: torch.Tensor, w: torch.Tensor, groups: torch.Tensor) -> torch.Tensor:
    return torch.bmm(x, w[groups].to(x.dtype))
