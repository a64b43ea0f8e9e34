"""Recipes that add: `Y = X + X` over a tensor of R rows and C columns, in tiles of 4 x 64 f32."""

from __future__ import annotations

from fuser.cookbook.ring import (
    BULK,
    ELECT,
    PER_WARP,
    emptied,
    emptied_next,
    filled,
    k,
    q,
    ring,
    start,
    trips,
)
from fuser.dtype import DType
from fuser.expr import Expr, Var, ceildiv, eq
from fuser.kernel import ir as kir

R, C = Var("R"), Var("C")
TILE_R, TILE_C = 4, 64
X = kir.Tensor("X", DType.F32, (R, C), (C, 1), 4)
Y = kir.Tensor("Y", DType.F32, (R, C), (C, 1), 4)
ROUND = kir.Layout((TILE_R, TILE_C), 4, 128)
IN = kir.Fragment("x", DType.F32, ROUND)
OUT = kir.Fragment("y", DType.F32, ROUND)
SUM_NBYTES = TILE_R * TILE_C * 4


def sum_box(tensor: kir.Tensor, number: Expr) -> kir.Box:
    """Tile `number` of this CTA, which takes every GRID-th one."""
    across = ceildiv(C, TILE_C)
    at = kir.BLOCK + number * kir.GRID
    return kir.Box(tensor, (at // across * TILE_R, at % across * TILE_C), (TILE_R, TILE_C), (R, C))


def sum_kernel(
    name: str,
    body: tuple[kir.Stmt, ...],
    buffers: tuple[kir.Buffer, ...],
    barriers: tuple[kir.MBarrier, ...],
    threads: int,
) -> kir.Kernel:
    """Return a kernel over X and Y in which this CTA has `trips` tiles."""
    count = ceildiv(R, TILE_R) * ceildiv(C, TILE_C)
    let = kir.Let(trips, ceildiv(count - kir.BLOCK, kir.GRID))
    return kir.Kernel(name, (R, C), (X, Y), (), buffers, barriers, threads, (let, *body), ("Y",))


def sum_slots(name: str, stages: int, offset: int = 0) -> kir.Buffer:
    """Return a ring of tiles."""
    return kir.Buffer(name, DType.F32, (TILE_R, TILE_C), stages, offset)


def tma_ring(stages: int = 3) -> kir.Kernel:
    """TMA loads run `stages` tiles ahead; all threads compute, one of them also loads."""
    s, full, empty = sum_slots("S", stages), ring("full", 1, stages), ring("empty", 128, stages)

    def load(number: Expr) -> tuple[kir.Stmt, ...]:
        slot = number % stages
        return (
            kir.MBarrierArriveExpectTx(full, slot, SUM_NBYTES),
            kir.TmaLoad(kir.Slot(s, slot), sum_box(X, number), full, slot),
        )

    ahead = kir.IfThenElse(q < trips, load(q))
    refill = kir.IfThenElse(k + stages < trips, (emptied_next(empty, stages), *load(k + stages)))
    body = (
        *start(full, empty, threads=128),
        kir.ForLoop(q, stages, (kir.Elect(ELECT, (ahead,)),)),
        kir.ForLoop(
            k,
            trips,
            (
                filled(full, k, stages),
                kir.Load(IN, kir.Slot(s, k % stages), 4),
                kir.FenceAsyncProxy(kir.Space.SHARED),  # else the refill may overtake the load
                kir.MBarrierArrive(empty, k % stages),
                kir.Elect(ELECT, (refill,)),
                kir.Compute(OUT, "add", (IN, IN)),
                kir.Store(sum_box(Y, k), OUT, 4),
            ),
        ),
    )
    return sum_kernel("tma_ring", body, (s,), (full, empty), 128)


def specialized_ring(stages: int = 3, consumers: int = 1) -> kir.Kernel:
    """One warp loads, `consumers` groups of 128 threads compute every tile among them in turn."""
    s, full = sum_slots("S", stages), ring("full", 1, stages)
    empty = ring("empty", 4 * consumers, stages)
    load = (
        emptied(empty, k, stages),
        kir.MBarrierArriveExpectTx(full, k % stages, SUM_NBYTES),
        kir.TmaLoad(kir.Slot(s, k % stages), sum_box(X, k), full, k % stages),
    )

    def consume(number: int) -> tuple[kir.Stmt, ...]:
        mine = (kir.Compute(OUT, "add", (IN, IN)), kir.Store(sum_box(Y, k), OUT, 4))
        return (
            filled(full, k, stages),
            kir.Load(IN, kir.Slot(s, k % stages), 4),
            kir.FenceAsyncProxy(kir.Space.SHARED),  # else the refill may overtake the load
            kir.WarpSync(),
            kir.Elect(PER_WARP, (kir.MBarrierArrive(empty, k % stages),)),
            kir.IfThenElse(eq(k % consumers, number), mine),
        )

    threads = 128 * consumers + 32
    roles = [
        kir.Role(f"compute{i}", 4 * i, 4, (kir.ForLoop(k, trips, consume(i)),))
        for i in range(consumers)
    ]
    producer = kir.ForLoop(k, trips, (kir.Elect(ELECT, load),))
    roles.append(kir.Role("load", 4 * consumers, 1, (producer,)))
    body = (*start(full, empty, threads=threads), *roles)
    return sum_kernel("specialized_ring", body, (s,), (full, empty), threads)


def store_ring(stages: int = 2) -> kir.Kernel:
    """Results leave by TMA stores from a ring of slots, the last `stages - 1` still in flight."""
    s = sum_slots("S", stages)
    slot = k % stages
    issue = (
        kir.TmaStore(sum_box(Y, k), kir.Slot(s, slot)),
        kir.AsyncCommit(BULK),
    )
    loop = (
        kir.Load(IN, sum_box(X, k), 4),
        kir.Compute(OUT, "add", (IN, IN)),
        kir.Elect(ELECT, (kir.AsyncAwait(BULK, stages - 1, read_only=True),)),
        kir.BlockSync(0, 128),
        kir.Store(kir.Slot(s, slot), OUT, 4),
        kir.FenceAsyncProxy(kir.Space.SHARED),
        kir.BlockSync(1, 128),
        kir.Elect(ELECT, issue),
    )
    end = kir.Elect(ELECT, (kir.AsyncAwait(BULK, 0, read_only=True),))
    return sum_kernel("store_ring", (kir.ForLoop(k, trips, loop), end), (s,), (), 128)
