"""Matmuls as the compiler writes them: persistent tiles, warp-specialised, left chunk by chunk.

`D = A @ B^T`, or with operands stored the other way round, bf16 to bf16.  Of one shape they are
what a judge has to bear in daily work, of another a small template.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random
from typing import TypeVar

from fuser.cookbook.ring import (
    BULK,
    ELECT,
    PER_WARP,
    WGMMA,
    emptied,
    filled,
    k,
    p,
    ring,
    start,
    step,
    trips,
)
from fuser.dtype import DType
from fuser.expr import Expr, Var, ceildiv
from fuser.kernel import ir as kir
from fuzz.kernels.tile import Start, Template

T = TypeVar("T")

M, N, K, t, tiles = (Var(name) for name in ("M", "N", "K", "t", "tiles"))
AT_LAUNCH = {1: (128, 24, 216), 2: (168, 24, 240)}
"""Per number of consumer warpgroups: registers per thread at launch, of the loading warpgroup, and
of the others, which together hold what all had at launch."""


@dataclass(frozen=True, slots=True)
class Matmul:
    """The shape of a kernel; by default the largest that the compiler builds.

    A step is a `tile` of rows, columns and depth, in a ring of `stages` slots, for so many consumer
    warpgroups (`groups`).  `chunk` columns leave at a time: all of them, or an even part; through
    shared memory if `staged`, where `stmatrix` puts them if `matrix`.  `depth` groups of wgmma stay
    in flight, fewer than `stages`.  Operands are stored along M, or N, if `transposed`, and so is
    the result, if `d_transposed`: staged by `stmatrix.trans`.
    With `batch` everything has an axis of extent 1 in front.  A loading warpgroup gives registers
    away if `pooled`; else one warp loads.
    """

    tile: tuple[int, int, int] = (128, 256, 64)
    stages: int = 4
    groups: int = 2
    chunk: int = 64
    depth: int = 1
    a_transposed: bool = False
    b_transposed: bool = False
    d_transposed: bool = False
    batch: bool = False
    staged: bool = True
    matrix: bool = True
    pooled: bool = True

    def result(self, rows: T, columns: T) -> tuple[T, T]:
        """Return rows and columns of the result as they lie in memory."""
        return (columns, rows) if self.d_transposed else (rows, columns)

    def shape(self, *shape: int) -> tuple[int, ...]:
        """Put the axis of the batch before a shape."""
        return (1, *shape) if self.batch else shape

    def tensor(self, name: str, rows: Expr, columns: Expr) -> kir.Tensor:
        """Return a dense matrix."""
        ones: tuple[Expr, ...] = (1,) if self.batch else ()
        strides: tuple[Expr, ...] = (0,) if self.batch else ()
        return kir.Tensor(name, DType.BF16, (*ones, rows, columns), (*strides, columns, 1), 8)

    def box(self, tensor: kir.Tensor, at: tuple[Expr, Expr], *shape: int) -> kir.Box:
        """Return a tile of a matrix."""
        origin: tuple[Expr, ...] = (0, *at) if self.batch else at
        return kir.Box(tensor, origin, self.shape(*shape), tensor.extents)

    def fragment(self, name: str, dtype: DType, columns: int) -> kir.Fragment:
        """Return columns of an accumulator."""
        shape = self.shape(self.tile[0], columns)
        return kir.Fragment(name, dtype, kir.Layout(shape, 2, 128 * self.groups, kir.Deal.STRIPS))

    def origin(self) -> tuple[Expr, Expr]:
        """First row and column of tile `t` of this CTA."""
        across = ceildiv(N, self.tile[1])
        number = kir.BLOCK + t * kir.GRID
        return number // across * self.tile[0], number % across * self.tile[1]


def matmul(how: Matmul) -> kir.Kernel:
    """Return a kernel in which a CTA computes every GRID-th tile."""
    bm, bn, bk = how.tile
    shape_a = (bk, bm) if how.a_transposed else (bm, bk)
    shape_b = (bk, bn) if how.b_transposed else (bn, bk)
    sa = swizzled("SA", how.shape(*shape_a), how.stages, 0)
    sb = swizzled("SB", how.shape(*shape_b), how.stages, sa.end)
    sd = swizzled("SD", how.shape(*how.result(bm, how.chunk)), min(2, bn // how.chunk), sb.end)
    a = how.tensor("A", *((K, M) if how.a_transposed else (M, K)))
    b = how.tensor("B", *((K, N) if how.b_transposed else (N, K)))
    d = how.tensor("D", *how.result(M, N))
    warps, loaders = 4 * how.groups, 4 if how.pooled else 1
    full, empty = ring("full", 1, how.stages), ring("empty", warps, how.stages)
    (row, column), along, slot = how.origin(), k * bk, p % how.stages
    at_a = (along, row) if how.a_transposed else (row, along)
    at_b = (along, column) if how.b_transposed else (column, along)
    fill = (
        emptied(empty, p, how.stages),
        kir.MBarrierArriveExpectTx(full, slot, sa.slot_nbytes + sb.slot_nbytes),
        kir.TmaLoad(kir.Slot(sa, slot), how.box(a, at_a, *shape_a), full, slot),
        kir.TmaLoad(kir.Slot(sb, slot), how.box(b, at_b, *shape_b), full, slot),
    )
    produce = kir.ForLoop(k, trips, (kir.Elect(ELECT, fill), step(p)))
    leave = _staged(how, d, sd) if how.staged else _direct(how, d)
    tile = (*_multiplied(how, sa, sb, full, empty), *leave)
    end = (kir.Elect(ELECT, (kir.AsyncAwait(BULK, 0, read_only=True),)),) if how.staged else ()
    registers, fewer, more = AT_LAUNCH[how.groups] if how.pooled else (0, 0, 0)
    take = (kir.SetMaxNReg(more, increase=True),) if how.pooled else ()
    give = (kir.SetMaxNReg(fewer, increase=False),) if how.pooled else ()
    threads = kir.WARP * (warps + loaders)
    body = (
        kir.Let(trips, ceildiv(K, bk)),
        kir.Let(tiles, ceildiv(ceildiv(M, bm) * ceildiv(N, bn) - kir.BLOCK, kir.GRID)),
        kir.Let(p, 0),
        *start(full, empty, threads=threads),
        kir.Role("mma", 0, warps, (*take, kir.ForLoop(t, tiles, tile), *end)),
        kir.Role("load", warps, loaders, (*give, kir.ForLoop(t, tiles, (produce,)))),
    )
    buffers = (sa, sb, sd) if how.staged else (sa, sb)
    return kir.Kernel(
        "matmul", (M, N, K), (a, b, d), (), buffers, (full, empty), threads, body,
        outputs=("D",), registers=registers,
    )  # fmt: skip


def _multiplied(
    how: Matmul, sa: kir.Buffer, sb: kir.Buffer, full: kir.MBarrier, empty: kir.MBarrier
) -> tuple[kir.Stmt, ...]:
    """Add up the steps of a tile; slots are free `depth` steps later."""
    acc = how.fragment("acc", DType.F32, how.tile[1])
    a, b = kir.Slot(sa, p % how.stages), kir.Slot(sb, p % how.stages)

    def free(ago: int) -> kir.Stmt:
        at = (p + (how.stages - ago)) % how.stages if ago else p % how.stages
        return kir.Elect(PER_WARP, (kir.MBarrierArrive(empty, at),))

    loop = (
        filled(full, p, how.stages),
        kir.WgmmaFence(),
        kir.Wgmma(acc, a, b, k >= 1, how.b_transposed, how.a_transposed),
        kir.AsyncCommit(WGMMA),
        kir.AsyncAwait(WGMMA, how.depth),
        kir.IfThenElse(k >= how.depth, (free(how.depth),)) if how.depth else free(0),
        step(p),
    )
    zero = kir.Compute(acc, "cast", (kir.Literal(0.0, DType.F32),))
    late = [kir.IfThenElse(trips >= ago, (free(ago),)) for ago in range(how.depth, 0, -1)]
    return (zero, kir.ForLoop(k, trips, loop), kir.AsyncAwait(WGMMA, 0), *late)


def _chunks(how: Matmul) -> list[tuple[int, tuple[kir.Stmt, ...]]]:
    acc = how.fragment("acc", DType.F32, how.tile[1])
    part = how.fragment("part", DType.F32, how.chunk)
    out = how.fragment("out", DType.BF16, how.chunk)
    return [
        (c, (kir.Slice(part, acc, c), kir.Compute(out, "cast", (part,))))
        for c in range(0, how.tile[1], how.chunk)
    ]


def _direct(how: Matmul, d: kir.Tensor) -> tuple[kir.Stmt, ...]:
    (row, column), out = how.origin(), how.fragment("out", DType.BF16, how.chunk)
    leave: list[kir.Stmt] = []
    for c, made in _chunks(how):
        box = how.box(d, (row, column + c), how.tile[0], how.chunk)
        leave += [*made, kir.Store(box, out, 2)]
    return tuple(leave)


def _staged(how: Matmul, d: kir.Tensor, sd: kir.Buffer) -> tuple[kir.Stmt, ...]:
    """Store chunks by an engine, from slots in turn."""
    (row, column), out = how.origin(), how.fragment("out", DType.BF16, how.chunk)
    threads = 128 * how.groups
    leave: list[kir.Stmt] = []
    for i, (c, made) in enumerate(_chunks(how)):
        slot = kir.Slot(sd, i % sd.slots)
        box = how.box(d, how.result(row, column + c), *how.result(how.tile[0], how.chunk))
        room = kir.AsyncAwait(BULK, sd.slots - 1, read_only=True)
        leave += [
            *made,
            kir.Elect(ELECT, (room,)),
            kir.BlockSync(1, threads),
            kir.Store(slot, out, 2, how.matrix or how.d_transposed, how.d_transposed),
            kir.FenceAsyncProxy(kir.Space.SHARED),
            kir.BlockSync(2, threads),
            kir.Elect(ELECT, (kir.TmaStore(box, slot), kir.AsyncCommit(BULK))),
        ]
    return tuple(leave)


def swizzled(name: str, shape: tuple[int, ...], slots: int, after: int) -> kir.Buffer:
    """Return bf16 tiles behind a byte, with the widest swizzle that their rows allow."""
    swizzle = next((n for n in (128, 64, 32) if shape[-1] * 2 % n == 0), 0)
    unit = max(8 * swizzle, 128)
    return kir.Buffer(name, DType.BF16, shape, slots, -(-after // unit) * unit, swizzle)


def product(rng: Random) -> Template:
    """Draw a small one: either order of operands, and either way out."""
    stages, columns = rng.randint(1, 4), rng.choice((8, 16, 32))
    how = Matmul(
        (64, columns, 16),
        stages,
        groups=1,
        chunk=columns if columns == 8 or rng.random() < 0.3 else columns // 2,
        depth=rng.randint(0, min(2, stages - 1)),
        a_transposed=rng.random() < 0.5,
        b_transposed=rng.random() < 0.3,
        batch=rng.random() < 0.3,
        staged=rng.random() < 0.7,
        matrix=rng.random() < 0.5,
        pooled=False,
    )
    if how.staged and rng.random() < 0.4:
        how = replace(how, d_transposed=True)

    def at(count: int) -> tuple[Start, ...]:
        """One tile, and three, of `count` steps along K; `count` tiles of one step, and of two."""
        pairs = dict.fromkeys([(1, count), (3, count), (count, 1), (count, 2)])
        return tuple((1, {"M": 64 * many, "N": columns, "K": 16 * steps}) for many, steps in pairs)

    return Template(matmul(how), stages, at)
