"""Matmuls as fast kernels are: warp-specialised, swizzled, staged out by TMA; written by hand.

`D = A @ B^T` in bf16, every CTA one tile.  One role of `consumers` warpgroups multiplies, a
warpgroup of its own feeds it.
"""

from __future__ import annotations

from dataclasses import dataclass

from fuser.cookbook.ring import BULK, ELECT, PER_WARP, WGMMA, emptied, filled, k, ring, start, trips
from fuser.dtype import DType
from fuser.expr import Expr, Var, ceildiv, eq
from fuser.kernel import ir as kir

M, N, K = Var("M"), Var("N"), Var("K")


@dataclass(frozen=True)
class Shape:
    """What is varied.

    `tile` is (M, N, K) of a stage, `strip` the columns of D that leave at once; with
    `a_in_registers` A passes a relu on its way to the tensor core.
    """

    tile: tuple[int, int, int] = (128, 256, 64)
    stages: int = 4
    consumers: int = 2
    swizzle: int = 128
    a_transposed: bool = False
    b_transposed: bool = False
    a_in_registers: bool = False
    strip: int = 64
    matrix: bool = True
    depth: int = 0
    dtype: DType = DType.BF16

    @property
    def registers(self) -> tuple[int, int, int] | None:
        """Registers per thread: at launch, of the producer, of a consumer; None: no change."""
        return {2: (168, 40, 232)}.get(self.consumers)


def operand(name: str, shape: Shape, rows: Expr, many: int, *, transposed: bool) -> kir.Tensor:
    """A or B: `rows` times K, or the other way round."""
    extents = (K, rows) if transposed else (rows, K)
    return kir.Tensor(name, shape.dtype, extents, (extents[1], 1), 8)


def matmul(shape: Shape = Shape()) -> kir.Kernel:
    """One tile a CTA, K in steps, D by strips of columns through two staging slots."""
    m, n, step = shape.tile
    a_tensor = operand("A", shape, M, m, transposed=shape.a_transposed)
    b_tensor = operand("B", shape, N, n, transposed=shape.b_transposed)
    d_tensor = kir.Tensor("D", shape.dtype, (M, N), (N, 1), 8)

    def tile(rows: int, transposed: bool) -> tuple[int, int]:
        return (step, rows) if transposed else (rows, step)

    a = kir.Buffer("SA", shape.dtype, tile(m, shape.a_transposed), shape.stages, 0, shape.swizzle)
    b = kir.Buffer(
        "SB", shape.dtype, tile(n, shape.b_transposed), shape.stages, a.end, shape.swizzle
    )
    span = min(128, shape.strip * 2)
    staged = kir.Buffer("SD", shape.dtype, (m, shape.strip), 2, -(-b.end // 1024) * 1024, span)
    many = shape.consumers * 128
    full, empty = ring("full", 1, shape.stages), ring("empty", 4 * shape.consumers, shape.stages)
    across = ceildiv(N, n)
    down_at, across_at = kir.BLOCK // across * m, kir.BLOCK % across * n
    slot = k % shape.stages

    def box(tensor: kir.Tensor, at: Expr, size: int, transposed: bool) -> kir.Box:
        origin: tuple[Expr, Expr] = (k * step, at) if transposed else (at, k * step)
        return kir.Box(tensor, origin, tile(size, transposed), tensor.extents)

    fill = (
        emptied(empty, k, shape.stages),
        kir.MBarrierArriveExpectTx(full, slot, a.slot_nbytes + b.slot_nbytes),
        kir.TmaLoad(kir.Slot(a, slot), box(a_tensor, down_at, m, shape.a_transposed), full, slot),
        kir.TmaLoad(kir.Slot(b, slot), box(b_tensor, across_at, n, shape.b_transposed), full, slot),
    )
    acc = kir.Fragment("acc", DType.F32, kir.Layout((m, n), 2, many, kir.Deal.STRIPS))
    left: kir.Slot | kir.Fragment = kir.Slot(a, slot)
    prologue: tuple[kir.Stmt, ...] = ()
    if shape.a_in_registers:
        strips = kir.Layout((m, step), 2, many, kir.Deal.STRIPS)
        raw, left = (kir.Fragment(name, shape.dtype, strips) for name in ("raw", "a"))
        prologue = (
            kir.Load(raw, kir.Slot(a, slot), 2, matrix=shape.matrix),
            kir.WarpSync(),  # the lane that hands the slot back arrives for all lanes' reads
            kir.Compute(left, "relu", (raw,)),
        )
    old = (k + (shape.stages - shape.depth)) % shape.stages
    free: kir.Stmt = kir.Elect(PER_WARP, (kir.MBarrierArrive(empty, old),))
    if shape.depth:
        free = kir.IfThenElse(k >= shape.depth, (free,))
    multiply = kir.Wgmma(
        acc,
        left,
        kir.Slot(b, slot),
        k > 0,
        shape.b_transposed,
        shape.a_transposed,
    )
    loop = (
        filled(full, k, shape.stages),
        *prologue,
        kir.WgmmaFence(),
        multiply,
        kir.AsyncCommit(WGMMA),
        kir.AsyncAwait(WGMMA, shape.depth),
        free,
    )
    part_layout = kir.Layout((m, shape.strip), 2, many, kir.Deal.STRIPS)
    part = kir.Fragment("part", DType.F32, part_layout)
    half = kir.Fragment("half", shape.dtype, part_layout)
    leave: list[kir.Stmt] = [kir.AsyncAwait(WGMMA, 0)]
    for i in range(n // shape.strip):
        out = kir.Slot(staged, i % 2)
        where = kir.Box(d_tensor, (down_at, across_at + i * shape.strip), staged.shape, (M, N))
        leave += [
            kir.Slice(part, acc, i * shape.strip),
            kir.Compute(half, "cast", (part,)),
            kir.Elect(ELECT, (kir.AsyncAwait(BULK, 1, read_only=True),)),
            kir.BlockSync(1, many),
            kir.Store(out, half, 2, matrix=shape.matrix),
            kir.FenceAsyncProxy(kir.Space.SHARED),
            kir.BlockSync(1, many),
            kir.Elect(ELECT, (kir.TmaStore(where, out), kir.AsyncCommit(BULK))),
        ]
    leave.append(kir.Elect(ELECT, (kir.AsyncAwait(BULK, 0, read_only=True),)))
    more: tuple[kir.Stmt, ...] = ()
    fewer: tuple[kir.Stmt, ...] = ()
    if shape.registers:
        _, few, many_registers = shape.registers
        fewer = (kir.SetMaxNReg(few, increase=False),)
        more = (kir.SetMaxNReg(many_registers, increase=True),)
    threads = many + 128
    body = (
        kir.Let(trips, ceildiv(K, step)),
        *start(full, empty, threads=threads),
        kir.Role("mma", 0, 4 * shape.consumers, (*more, kir.ForLoop(k, trips, loop), *leave)),
        kir.Role(
            "load",
            4 * shape.consumers,
            4,
            (*fewer, kir.ForLoop(k, trips, (kir.Elect(ELECT, fill),))),
        ),
    )
    return kir.Kernel(
        "matmul",
        (M, N, K),
        (a_tensor, b_tensor, d_tensor),
        (),
        (a, b, staged),
        (full, empty),
        threads,
        body,
        ("D",),
        requires=(eq(kir.GRID, ceildiv(M, m) * across), K >= 1),
        registers=shape.registers[0] if shape.registers else 0,
    )


SHAPES: dict[str, Shape] = {
    "128x256": Shape(),
    "128x256-deep": Shape(depth=1),
    "nt": Shape(b_transposed=True),
    "tn": Shape(a_transposed=True, b_transposed=True),
    "tn-swizzle-64": Shape((128, 96, 64), 4, 2, 64, a_transposed=True, b_transposed=True, strip=32),
    "tn-swizzle-32": Shape((64, 48, 32), 4, 1, 32, a_transposed=True, b_transposed=True, strip=16),
    "nn-swizzle-32": Shape((64, 32, 64), 4, 1, 32, a_transposed=True, strip=32),
    "64x64": Shape((64, 64, 64), 6, 1),
    "64x64-swizzle-64": Shape((64, 64, 32), 6, 1, swizzle=64, strip=32),
    "64x64-swizzle-32": Shape((64, 64, 64), 6, 1, swizzle=32, strip=16),
    "two-panels": Shape((64, 64, 128), 4, 1),
    "256x128": Shape((256, 128, 64), 3),
    "a-in-registers": Shape((128, 128, 64), a_in_registers=True),
    "f16": Shape((128, 128, 64), dtype=DType.F16),
    "plain-stores": Shape((128, 128, 64), matrix=False),
}
"""Every way in which operands lie, and both budgets of registers."""
