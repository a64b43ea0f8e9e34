"""Recipes in which CTAs meet: split-K by turns on a semaphore, and clusters."""

from __future__ import annotations

from dataclasses import replace

from fuser.cookbook.matmul import (
    A_NBYTES,
    ACC,
    B_NBYTES,
    STEP,
    STRIPS,
    TILE_M,
    TILE_N,
    A,
    B,
    D,
    K,
    M,
    N,
    a_box,
    b_box,
    d_box,
    loads,
    matmul,
    multiply,
    operands,
    tile_count,
    zero,
)
from fuser.cookbook.ring import (
    BULK,
    ELECT,
    WGMMA,
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

splits, tile, turn = Var("splits"), Var("tile"), Var("turn")
W = kir.Tensor("W", DType.F32, (M, N), (N, 1), 4)
"""Workspace: the partial sums of every tile of D."""
SEMAPHORE = kir.Semaphore("turns", tile_count())
PARTIAL = kir.Fragment("partial", DType.F32, STRIPS)
SUM = kir.Fragment("sum", DType.F32, STRIPS)


def partial(
    a: kir.Buffer, b: kir.Buffer, full: kir.MBarrier, empty: kir.MBarrier, stages: int
) -> tuple[kir.Stmt, ...]:
    """Multiply this CTA's share of K, each `splits`-th step, in one role of all 128 threads."""

    def load(number: Expr) -> tuple[kir.Stmt, ...]:
        return loads(a, b, full, number % stages, tile, turn + number * splits)

    ahead = kir.IfThenElse(q < trips, load(q))
    refill = kir.IfThenElse(k + stages < trips, (emptied_next(empty, stages), *load(k + stages)))
    loop = (
        *multiply(a, b, full, empty, k),
        kir.Elect(ELECT, (refill,)),
    )
    return (
        zero(),
        kir.ForLoop(q, stages, (kir.Elect(ELECT, (ahead,)),)),
        kir.ForLoop(k, trips, loop),
    )


def split_kernel(
    name: str, meeting: tuple[kir.Stmt, ...], buffers: tuple[kir.Buffer, ...], stages: int
) -> kir.Kernel:
    """Return a kernel in which `splits` CTAs share a tile and then meet."""
    a, b = operands(stages)
    full, empty = ring("full", 1, stages), ring("empty", 4, stages)
    body = (
        kir.Let(tile, kir.BLOCK // splits),
        kir.Let(turn, kir.BLOCK % splits),
        kir.Let(trips, ceildiv(ceildiv(K, STEP) - turn, splits)),
        *start(full, empty, threads=128),
        *partial(a, b, full, empty, stages),
        *meeting,
    )
    return kir.Kernel(
        name,
        (M, N, K, splits),
        (A, B, W, D),
        (),
        (a, b, *buffers),
        (full, empty),
        128,
        body,
        outputs=("D",),
        workspaces=("W",),
        semaphores=(SEMAPHORE,),
        requires=(splits >= 1, eq(kir.GRID, tile_count() * splits)),
        residency="ticket",
    )


def release() -> tuple[kir.Stmt, ...]:
    """Give the turn to the next CTA of the tile; the last one leaves the semaphore at 0."""
    following = kir.BlockSerializeRelease(SEMAPHORE, tile, (turn + 1) % splits)
    return kir.BlockSync(0, 128), kir.Elect(ELECT, (following,))


def split_k(stages: int = 2) -> kir.Kernel:
    """Partial sums meet by turns: wait, add the sum so far from the workspace, write, release."""
    first = (kir.Compute(SUM, "cast", (ACC,)),)
    later = (
        kir.Load(PARTIAL, d_box(W, tile), 2),
        kir.Compute(SUM, "add", (ACC, PARTIAL)),
    )
    meeting = (
        kir.BlockSerializeWait(SEMAPHORE, tile, turn),
        kir.IfThenElse(eq(turn, 0), first, later),
        kir.IfThenElse(
            turn + 1 < splits,
            (kir.Store(d_box(W, tile), SUM, 2),),
            (kir.Store(d_box(D, tile), SUM, 2),),
        ),
        *release(),
    )
    return split_kernel("split_k", meeting, (), stages)


def split_k_tma(stages: int = 2) -> kir.Kernel:
    """Partial sums meet by turns of TMA: store first, reductions after, drained before release."""
    _, b = operands(stages)
    staged = kir.Buffer("SD", DType.F32, (TILE_M, TILE_N), 1, -(-b.end // 128) * 128)
    slot = kir.Slot(staged, 0)
    reduce = (kir.FenceAsyncProxy(kir.Space.GLOBAL), kir.TmaReduce(d_box(W, tile), slot))
    issue = (
        kir.IfThenElse(eq(turn, 0), (kir.TmaStore(d_box(W, tile), slot),), reduce),
        kir.AsyncCommit(BULK),
        kir.AsyncAwait(BULK, 0),
    )
    last = (
        kir.BlockSync(0, 128),
        kir.Load(SUM, d_box(W, tile), 2),
        kir.Store(d_box(D, tile), SUM, 2),
    )
    meeting = (
        kir.Store(slot, ACC, 2),
        kir.FenceAsyncProxy(kir.Space.SHARED),
        kir.BlockSerializeWait(SEMAPHORE, tile, turn),
        kir.Elect(ELECT, issue),
        kir.IfThenElse(eq(turn + 1, splits), last),
        *release(),
    )
    return split_kernel("split_k_tma", meeting, (staged,), stages)


def cluster_multicast(stages: int = 2) -> kir.Kernel:
    """Two CTAs of a cluster share B: CTA 0 loads it for both, each loads its own A.

    A slot is free when the consumers of both CTAs say so, for CTA 0 writes into both.  They tell
    their own CTA first: what the other one then does in the next turn comes after both arrivals.
    One thread speaks for its warpgroup, so that no warp is a turn ahead of another.
    """
    (a, b), full = operands(stages), ring("full", 1, stages)
    empty, slot = ring("empty", 2, stages), k % stages
    pairs = ceildiv(M, 2 * TILE_M)
    down = kir.BLOCK // 2 % pairs * 2 + kir.RANK
    across = kir.BLOCK // 2 // pairs

    def at(box: kir.Box, row: Expr, col: Expr) -> kir.Box:
        return replace(box, origin=(row, col))

    free = tuple[kir.Stmt, ...](
        kir.MBarrierArrive(empty, slot, kir.Scope.CLUSTER, cta) for cta in (kir.RANK, 1 - kir.RANK)
    )
    loop = (
        filled(full, k, stages),
        kir.WgmmaFence(),
        kir.Wgmma(ACC, kir.Slot(a, slot), kir.Slot(b, slot)),
        kir.AsyncCommit(WGMMA),
        kir.AsyncAwait(WGMMA, 0),
        kir.BlockSync(1, 128),
        kir.Elect(ELECT, free),
    )
    room = replace(emptied(empty, k, stages), scope=kir.Scope.CLUSTER)
    shared_b = kir.TmaLoad(
        kir.Slot(b, slot), at(b_box(0, k), across * TILE_N, k * STEP), full, slot, multicast=3
    )
    fill = (
        room,
        kir.MBarrierArriveExpectTx(full, slot, A_NBYTES + B_NBYTES),
        kir.TmaLoad(kir.Slot(a, slot), at(a_box(0, k), down * TILE_M, k * STEP), full, slot),
        kir.IfThenElse(eq(kir.RANK, 0), (shared_b,)),
    )
    out = kir.Store(at(d_box(D, 0), down * TILE_M, across * TILE_N), ACC, 2)
    init, _ = start(full, empty, threads=160)
    body = (
        init,
        kir.ClusterArrive(),
        kir.ClusterWait(),
        kir.Role("mma", 0, 4, (zero(), kir.ForLoop(k, trips, loop), out)),
        kir.Role("load", 4, 1, (kir.ForLoop(k, trips, (kir.Elect(ELECT, fill),)),)),
        kir.ClusterArrive(),
        kir.ClusterWait(),
    )
    kernel = matmul("cluster_multicast", body, (a, b), (full, empty), 160)
    return replace(kernel, cluster=2, requires=(eq(kir.GRID, 2 * pairs * ceildiv(N, TILE_N)),))
