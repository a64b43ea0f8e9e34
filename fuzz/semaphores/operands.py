"""What the release family is launched on: shapes, integers, and what has to come out."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from fuser.expr import Expr, Var
from fuser.runtime.call import number
from fuzz.semaphores.family import BASES, COMPILED, WIDE, Member


@dataclass(frozen=True, slots=True)
class Shape:
    """Extents of a result, the depth of a product, and the number of CTAs that share a tile."""

    m: int
    n: int
    k: int
    splits: int

    def __str__(self) -> str:
        return f"{self.m} x {self.n} x {self.k} by {self.splits}"


_PRODUCTS = (
    Shape(64, 16, 96, 3),
    Shape(100, 24, 200, 5),
    Shape(256, 64, 512, 4),
    Shape(512, 128, 256, 8),
)
_SUMS = (
    Shape(128, 128, 1, 3),
    Shape(200, 136, 1, 5),
    Shape(512, 512, 1, 4),
    Shape(1024, 1024, 1, 8),
)
SHAPES = {base: _SUMS if base == WIDE else _PRODUCTS for base in BASES}
"""One tile, tails along every axis, about a CTA for each SM, and many CTAs on each."""


@dataclass(frozen=True, slots=True)
class Operands:
    """Tensors on the host.

    Parameters
    ----------
    turns : list of torch.Tensor
        The first operand, which changes from launch to launch.
    fixed : dict
        The other operands, by name.
    want : list of torch.Tensor
        The result for each of `turns`.
    """

    turns: list[torch.Tensor]
    fixed: dict[str, torch.Tensor]
    want: list[torch.Tensor]


def params_of(member: Member, shape: Shape) -> tuple[int, dict[str, int]]:
    """Return grid and parameters of a launch."""
    match member.base:
        case base if base == WIDE:
            params = {"R": shape.m, "C": shape.n}
        case base if base == COMPILED:
            params = {"n0": shape.m, "n1": shape.n, "n2": shape.k, "raster": 1}
            params |= {"T0_s0": shape.k, "T1_s1": shape.k, "T6_s0": shape.n}
        case _:
            params = {"M": shape.m, "N": shape.n, "K": shape.k}
    params |= {"splits": shape.splits}
    values: dict[Var, Expr] = {p: params[p.name] for p in member.kernel.params}
    (turns,) = member.kernel.semaphores
    return number(turns.count, values) * shape.splits, params


def operands(member: Member, shape: Shape) -> Operands:
    """Return small integers, and the exact result of each set."""
    made = torch.Generator().manual_seed(shape.m)

    def integers(rows: int, cols: int) -> torch.Tensor:
        return torch.randint(-2, 3, (rows, cols), generator=made, dtype=torch.int8).float()

    if member.base == WIDE:
        parts = [integers(shape.m * shape.splits, shape.n) for _ in range(2)]
        sums = [one.view(shape.splits, shape.m, shape.n).sum(0) for one in parts]
        return Operands(parts, {}, sums)
    lefts = [integers(shape.m, shape.k) for _ in range(2)]
    right, bias = integers(shape.n, shape.k), integers(1, shape.n)
    sums = [one @ right.T for one in lefts]
    _, second, third, *_ = member.kernel.tensors
    fixed = {second.name: right.bfloat16()}
    if member.base == COMPILED:
        fixed[third.name] = bias.bfloat16()
        sums = [(one + bias).relu().bfloat16() for one in sums]
    return Operands([one.bfloat16() for one in lefts], fixed, sums)
