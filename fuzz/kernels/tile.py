"""What the small kernels share: a tile of 2 x 32 f32, tensors of R rows and C columns, launches.

All of them compute `Y = X + X`, tile by tile, by as few warps as show the pattern.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from fuser.cookbook.ring import trips
from fuser.dtype import DType
from fuser.expr import Expr, Var, ceildiv
from fuser.kernel import ir as kir

R, C = Var("R"), Var("C")
ROWS, COLS = 2, 32
NBYTES = ROWS * COLS * 4
X = kir.Tensor("X", DType.F32, (R, C), (C, 1), 4)
Y = kir.Tensor("Y", DType.F32, (R, C), (C, 1), 4)

Start = tuple[int, Mapping[str, int]]
"""A launch: CTAs, and a value for every parameter."""


@dataclass(frozen=True, slots=True)
class Template:
    """A kernel without a fault, and how to launch it; its mutants are launched alike.

    It is legal by construction, and its rings begin again after `slots` trips.  `at` returns the
    launches in which a loop (or a semaphore) has the given number of trips, if there are any.
    """

    kernel: kir.Kernel
    slots: int
    at: Callable[[int], tuple[Start, ...]]


def box(tensor: kir.Tensor, number: Expr) -> kir.Box:
    """Tile `number` of this CTA, which takes every GRID-th one."""
    across = ceildiv(C, COLS)
    at = kir.BLOCK + number * kir.GRID
    return kir.Box(tensor, (at // across * ROWS, at % across * COLS), (ROWS, COLS), (R, C))


def tile(tensor: kir.Tensor, row: Expr, col: Expr) -> kir.Box:
    """Tile in row `row` and column `col` of tiles."""
    return kir.Box(tensor, (row * ROWS, col * COLS), (ROWS, COLS), (R, C))


def layout(warps: int, vector: int = 1) -> kir.Layout:
    """Deal a tile to the threads of some warps."""
    return kir.Layout((ROWS, COLS), vector, kir.WARP * warps)


def fragment(name: str, warps: int) -> kir.Fragment:
    """Hold a tile in the registers of some warps."""
    return kir.Fragment(name, DType.F32, layout(warps))


def slots(name: str, count: int, offset: int = 0) -> kir.Buffer:
    """Return a ring of tiles."""
    return kir.Buffer(name, DType.F32, (ROWS, COLS), count, offset)


def add(warps: int) -> kir.Compute:
    """`y = x + x` in the registers of some warps."""
    x = fragment("x", warps)
    return kir.Compute(fragment("y", warps), "add", (x, x))


def over_tiles(
    name: str,
    warps: int,
    body: tuple[kir.Stmt, ...],
    buffers: tuple[kir.Buffer, ...] = (),
    barriers: tuple[kir.MBarrier, ...] = (),
) -> kir.Kernel:
    """Return a kernel over X and Y in which this CTA has `trips` tiles."""
    count = ceildiv(R, ROWS) * ceildiv(C, COLS)
    let = kir.Let(trips, ceildiv(count - kir.BLOCK, kir.GRID))
    threads = kir.WARP * warps
    return kir.Kernel(name, (R, C), (X, Y), (), buffers, barriers, threads, (let, *body), ("Y",))


def one_cta(count: int) -> tuple[Start, ...]:
    """Give all of `count` tiles to one CTA."""
    return ((1, {"R": ROWS * count, "C": COLS}),)


def strides(tensor: kir.Tensor, row: int) -> dict[str, int]:
    """Give the strides that are parameters: rows lie `row` elements apart."""
    unknown = [s for s in tensor.strides if isinstance(s, Var)]
    return {s.name: row ** (len(unknown) - n) for n, s in enumerate(unknown)}
