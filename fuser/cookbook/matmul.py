"""Recipes that multiply: `D = A @ B^T`, bf16 to f32, a tile of 64 x 8 in steps of 16 along K.

By one CTA a tile, or by several: split-K by turns on a semaphore, and clusters.
"""

from __future__ import annotations

from dataclasses import replace

from fuser.cookbook.ring import (
    BULK,
    CP_ASYNC,
    ELECT,
    PER_WARP,
    WGMMA,
    emptied,
    emptied_next,
    filled,
    k,
    p,
    q,
    ring,
    start,
    step,
    trips,
)
from fuser.dtype import DType
from fuser.expr import Expr, Var, ceildiv, eq
from fuser.kernel import ir as kir

M, N, K = Var("M"), Var("N"), Var("K")
t, tiles = Var("t"), Var("tiles")
TILE_M, TILE_N, STEP = 64, 8, 16
SWIZZLE = STEP * 2
A = kir.Tensor("A", DType.BF16, (M, K), (K, 1), 8)
B = kir.Tensor("B", DType.BF16, (N, K), (K, 1), 8)
D = kir.Tensor("D", DType.F32, (M, N), (N, 1), 4)
STRIPS = kir.Layout((TILE_M, TILE_N), 2, 128, kir.Deal.STRIPS)
ACC = kir.Fragment("acc", DType.F32, STRIPS)
A_NBYTES, B_NBYTES = TILE_M * STEP * 2, TILE_N * STEP * 2


def origin(number: Expr) -> tuple[Expr, Expr]:
    """First row and column of a tile of D."""
    across = ceildiv(N, TILE_N)
    return number // across * TILE_M, number % across * TILE_N


def a_box(number: Expr, at: Expr) -> kir.Box:
    """Rows of tile `number`, step `at` along K."""
    return kir.Box(A, (origin(number)[0], at * STEP), (TILE_M, STEP), (M, K))


def b_box(number: Expr, at: Expr) -> kir.Box:
    """Columns of tile `number`, step `at` along K."""
    return kir.Box(B, (origin(number)[1], at * STEP), (TILE_N, STEP), (N, K))


def d_box(tensor: kir.Tensor, number: Expr) -> kir.Box:
    """Tile `number` of D, or of a workspace of its shape."""
    return kir.Box(tensor, origin(number), (TILE_M, TILE_N), (M, N))


def operands(stages: int) -> tuple[kir.Buffer, kir.Buffer]:
    """Return rings of tiles of A and of B, swizzled as tensor cores want rows of 32 bytes."""
    a = kir.Buffer("SA", DType.BF16, (TILE_M, STEP), stages, 0, SWIZZLE)
    return a, kir.Buffer("SB", DType.BF16, (TILE_N, STEP), stages, a.end, SWIZZLE)


def zero(acc: kir.Fragment = ACC) -> kir.Compute:
    """Clear an accumulator."""
    return kir.Compute(acc, "cast", (kir.Literal(0.0, DType.F32),))


def loads(
    a: kir.Buffer, b: kir.Buffer, full: kir.MBarrier, at: Expr, number: Expr, along: Expr
) -> tuple[kir.Stmt, ...]:
    """Fill a slot of both rings, on one barrier with the sum of the bytes."""
    return (
        kir.MBarrierArriveExpectTx(full, at, A_NBYTES + B_NBYTES),
        kir.TmaLoad(kir.Slot(a, at), a_box(number, along), full, at),
        kir.TmaLoad(kir.Slot(b, at), b_box(number, along), full, at),
    )


def tile_count() -> Expr:
    """Return how many tiles D has."""
    return ceildiv(M, TILE_M) * ceildiv(N, TILE_N)


def matmul(
    name: str,
    body: tuple[kir.Stmt, ...],
    buffers: tuple[kir.Buffer, ...],
    barriers: tuple[kir.MBarrier, ...],
    threads: int,
) -> kir.Kernel:
    """Return a kernel in which a tile of D takes `trips` steps along K, and a CTA one tile."""
    let = kir.Let(trips, ceildiv(K, STEP))
    return kir.Kernel(
        name,
        (M, N, K),
        (A, B, D),
        (),
        buffers,
        barriers,
        threads,
        (let, *body),
        ("D",),
        requires=(eq(kir.GRID, tile_count()),),
    )


def wgmma_ring(stages: int = 4, depth: int = 1, consumers: int = 1) -> kir.Kernel:
    """Feed warpgroups, which keep `depth` groups of wgmma in flight, by a producer warp.

    The slot of iteration k - depth is released when only `depth` groups are left; each consumer
    computes the same tile into registers of its own, and the first one stores it.
    """
    (a, b), full = operands(stages), ring("full", 1, stages)
    empty = ring("empty", 4 * consumers, stages)

    def consume() -> tuple[kir.Stmt, ...]:
        old = (k + (stages - depth)) % stages
        release = kir.Elect(PER_WARP, (kir.MBarrierArrive(empty, old),))
        return (
            filled(full, k, stages),
            kir.WgmmaFence(),
            kir.Wgmma(ACC, kir.Slot(a, k % stages), kir.Slot(b, k % stages)),
            kir.AsyncCommit(WGMMA),
            kir.AsyncAwait(WGMMA, depth),
            kir.IfThenElse(k >= depth, (release,)),
        )

    roles = []
    for i in range(consumers):
        flush: tuple[kir.Stmt, ...] = (kir.AsyncAwait(WGMMA, 0),)
        if i == 0:
            flush = (*flush, kir.Store(d_box(D, kir.BLOCK), ACC, 2))
        loop = kir.ForLoop(k, trips, consume())
        roles.append(kir.Role(f"mma{i}", 4 * i, 4, (zero(), loop, *flush)))
    fill = (emptied(empty, k, stages), *loads(a, b, full, k % stages, kir.BLOCK, k))
    producer = kir.ForLoop(k, trips, (kir.Elect(ELECT, fill),))
    roles.append(kir.Role("load", 4 * consumers, 1, (producer,)))
    threads = 128 * consumers + 32
    body = (*start(full, empty, threads=threads), *roles)
    return matmul("wgmma_ring", body, (a, b), (full, empty), threads)


def multiply(
    a: kir.Buffer, b: kir.Buffer, full: kir.MBarrier, empty: kir.MBarrier, at: Var
) -> tuple[kir.Stmt, ...]:
    """Wait for position `at` of a ring, multiply, finish, and free the slot by each warp."""
    slot = at % full.slots
    return (
        filled(full, at, full.slots),
        kir.WgmmaFence(),
        kir.Wgmma(ACC, kir.Slot(a, slot), kir.Slot(b, slot)),
        kir.AsyncCommit(WGMMA),
        kir.AsyncAwait(WGMMA, 0),
        kir.Elect(PER_WARP, (kir.MBarrierArrive(empty, slot),)),
    )


def double_wgmma(stages: int = 3) -> kir.Kernel:
    """Two matmuls share A in one loop: two wgmmas, one commit, one flush for both results."""
    (a, b), full = operands(stages), ring("full", 1, stages)
    b2 = replace(b, name="SB2", offset=b.end)
    empty = ring("empty", 4, stages)
    gate = kir.Tensor("B2", DType.BF16, (N, K), (K, 1), 8)
    acc2 = kir.Fragment("acc2", DType.F32, STRIPS)
    product = kir.Fragment("product", DType.F32, STRIPS)
    slot = k % stages
    loop = (
        filled(full, k, stages),
        kir.WgmmaFence(),
        kir.Wgmma(ACC, kir.Slot(a, slot), kir.Slot(b, slot)),
        kir.Wgmma(acc2, kir.Slot(a, slot), kir.Slot(b2, slot)),
        kir.AsyncCommit(WGMMA),
        kir.AsyncAwait(WGMMA, 0),
        kir.Elect(PER_WARP, (kir.MBarrierArrive(empty, slot),)),
    )
    epilogue = (
        kir.Compute(product, "mul", (ACC, acc2)),
        kir.Store(d_box(D, kir.BLOCK), product, 2),
    )
    fill = (
        emptied(empty, k, stages),
        kir.MBarrierArriveExpectTx(full, slot, A_NBYTES + 2 * B_NBYTES),
        kir.TmaLoad(kir.Slot(a, slot), a_box(kir.BLOCK, k), full, slot),
        kir.TmaLoad(kir.Slot(b, slot), b_box(kir.BLOCK, k), full, slot),
        kir.TmaLoad(kir.Slot(b2, slot), replace(b_box(kir.BLOCK, k), tensor=gate), full, slot),
    )
    body = (
        *start(full, empty, threads=160),
        kir.Role("mma", 0, 4, (zero(), zero(acc2), kir.ForLoop(k, trips, loop), *epilogue)),
        kir.Role("load", 4, 1, (kir.ForLoop(k, trips, (kir.Elect(ELECT, fill),)),)),
    )
    kernel = matmul("double_wgmma", body, (a, b, b2), (full, empty), 160)
    return replace(kernel, tensors=(A, B, gate, D))


def persistent(stages: int = 3) -> kir.Kernel:
    """Compute every GRID-th tile by a CTA; ring and staged TMA stores run on across tiles."""
    (a, b), full = operands(stages), ring("full", 1, stages)
    empty = ring("empty", 4, stages)
    staged = kir.Buffer("SD", DType.F32, (TILE_M, TILE_N), 1, -(-b.end // 128) * 128)
    number = kir.BLOCK + t * kir.GRID
    loop = (*multiply(a, b, full, empty, p), step(p))
    leave = (kir.TmaStore(d_box(D, number), kir.Slot(staged, 0)), kir.AsyncCommit(BULK))
    consume = (
        zero(),
        kir.ForLoop(k, trips, loop),
        kir.Elect(ELECT, (kir.AsyncAwait(BULK, 0, read_only=True),)),
        kir.BlockSync(1, 128),
        kir.Store(kir.Slot(staged, 0), ACC, 2),
        kir.FenceAsyncProxy(kir.Space.SHARED),
        kir.BlockSync(2, 128),
        kir.Elect(ELECT, leave),
    )
    fill = (emptied(empty, p, stages), *loads(a, b, full, p % stages, number, k))
    produce = kir.ForLoop(k, trips, (kir.Elect(ELECT, fill), step(p)))
    end = kir.Elect(ELECT, (kir.AsyncAwait(BULK, 0, read_only=True),))
    body = (
        kir.Let(tiles, ceildiv(tile_count() - kir.BLOCK, kir.GRID)),
        kir.Let(p, 0),
        *start(full, empty, threads=160),
        kir.Role("mma", 0, 4, (kir.ForLoop(t, tiles, consume), end)),
        kir.Role("load", 4, 1, (kir.ForLoop(t, tiles, (produce,)),)),
    )
    kernel = matmul("persistent", body, (a, b, staged), (full, empty), 160)
    return replace(kernel, requires=())


def ping_pong(stages: int = 3) -> kir.Kernel:
    """Two warpgroups take tiles in turn: one multiplies while the other stores.

    `order` lets one in at a time: each arrives on the other's when its own steps are issued.  The
    warp sync keeps lane 0 from letting the other group lap lanes that still wait, where K is 0.
    """
    (a, b), full = operands(stages), ring("full", 1, stages)
    empty, order = ring("empty", 4, stages), ring("order", 4, 2)
    number = kir.BLOCK + t * kir.GRID

    def consume(me: int) -> tuple[kir.Stmt, ...]:
        loop = (*multiply(a, b, full, empty, p), step(p))
        mine = (
            kir.MBarrierWaitParity(order, me, (t // 2 + 1 + me) % 2),
            zero(),
            kir.ForLoop(k, trips, loop),
            kir.WarpSync(),
            kir.Elect(PER_WARP, (kir.MBarrierArrive(order, 1 - me),)),
            kir.Store(d_box(D, number), ACC, 2),
        )
        return (kir.IfThenElse(eq(t % 2, me), mine, (step(p, trips),)),)

    fill = (emptied(empty, p, stages), *loads(a, b, full, p % stages, number, k))
    produce = kir.ForLoop(k, trips, (kir.Elect(ELECT, fill), step(p)))
    body = (
        kir.Let(tiles, ceildiv(tile_count() - kir.BLOCK, kir.GRID)),
        kir.Let(p, 0),
        *start(full, empty, order, threads=288),
        kir.Role("mma0", 0, 4, (kir.ForLoop(t, tiles, consume(0)),)),
        kir.Role("mma1", 4, 4, (kir.ForLoop(t, tiles, consume(1)),)),
        kir.Role("load", 8, 1, (kir.ForLoop(t, tiles, (produce,)),)),
    )
    kernel = matmul("ping_pong", body, (a, b), (full, empty, order), 288)
    return replace(kernel, requires=())


# --- Ampere -------------------------------------------------------------------------------------

A_FRAGMENT = kir.Fragment("a", DType.BF16, kir.Layout((TILE_M, STEP), 2, 128, kir.Deal.STRIPS))
B_FRAGMENT = kir.Fragment("b", DType.BF16, kir.Layout((TILE_N, STEP), 2, 128, kir.Deal.EACH_WARP))


def copies(
    a: kir.Buffer, b: kir.Buffer, at: Expr, along: Expr, threads: int
) -> tuple[kir.Stmt, ...]:
    """Fill a slot of both rings by cp.async."""
    by_a = kir.Layout((TILE_M, STEP), 8, threads)
    by_b = kir.Layout((TILE_N, STEP), 8, threads)
    return (
        kir.CpAsync(kir.Slot(a, at), a_box(kir.BLOCK, along), by_a, 8),
        kir.CpAsync(kir.Slot(b, at), b_box(kir.BLOCK, along), by_b, 8),
    )


def fragments(a: kir.Buffer, b: kir.Buffer, at: Expr) -> tuple[kir.Stmt, ...]:
    """Load a step's operands into registers and multiply."""
    return (
        kir.Load(A_FRAGMENT, kir.Slot(a, at), 2),
        kir.Load(B_FRAGMENT, kir.Slot(b, at), 2),
        kir.Mma(ACC, A_FRAGMENT, B_FRAGMENT),
    )


def cp_async_ring(stages: int = 3) -> kir.Kernel:
    """Ampere's way: every thread copies ahead, one group a step, and a `BlockSync` a step."""
    a, b = operands(stages)
    ahead = kir.IfThenElse(q < trips, copies(a, b, q, q, 128))
    later = k + (stages - 1)
    refill = kir.IfThenElse(later < trips, copies(a, b, later % stages, later, 128))
    body = (
        zero(),
        kir.ForLoop(q, stages - 1, (ahead, kir.AsyncCommit(CP_ASYNC))),
        kir.ForLoop(
            k,
            trips,
            (
                kir.AsyncAwait(CP_ASYNC, stages - 2),
                kir.BlockSync(0, 128),
                refill,
                kir.AsyncCommit(CP_ASYNC),
                *fragments(a, b, k % stages),
            ),
        ),
        kir.Store(d_box(D, kir.BLOCK), ACC, 2),
    )
    return matmul("cp_async_ring", body, (a, b), (), 128)


def cp_async_mbarrier(stages: int = 3) -> kir.Kernel:
    """Copy by cp.async in a warp, and let the copies arrive on the mbarrier themselves."""
    (a, b), full = operands(stages), ring("full", 32, stages)
    empty = ring("empty", 128, stages)
    produce = (
        emptied(empty, k, stages),
        *copies(a, b, k % stages, k, 32),
        kir.CpAsyncMBarrierArrive(full, k % stages, noinc=True),
    )
    consume = (
        filled(full, k, stages),
        *fragments(a, b, k % stages),
        kir.MBarrierArrive(empty, k % stages),
    )
    store = kir.Store(d_box(D, kir.BLOCK), ACC, 2)
    body = (
        *start(full, empty, threads=160),
        kir.Role("mma", 0, 4, (zero(), kir.ForLoop(k, trips, consume), store)),
        kir.Role("load", 4, 1, (kir.ForLoop(k, trips, produce),)),
    )
    return matmul("cp_async_mbarrier", body, (a, b), (full, empty), 160)


# --- CTAs that share a tile, or operands --------------------------------------------------------

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
    loop = (*multiply(a, b, full, empty, k), kir.Elect(ELECT, (refill,)))
    return (
        zero(),
        kir.ForLoop(q, stages, (kir.Elect(ELECT, (ahead,)),)),
        kir.ForLoop(k, trips, loop),
    )


def split_kernel(
    name: str, reduction: tuple[kir.Stmt, ...], buffers: tuple[kir.Buffer, ...], stages: int
) -> kir.Kernel:
    """Return a kernel in which `splits` CTAs share a tile and then reduce it."""
    a, b = operands(stages)
    full, empty = ring("full", 1, stages), ring("empty", 4, stages)
    body = (
        kir.Let(tile, kir.BLOCK // splits),
        kir.Let(turn, kir.BLOCK % splits),
        kir.Let(trips, ceildiv(ceildiv(K, STEP) - turn, splits)),
        *start(full, empty, threads=128),
        *partial(a, b, full, empty, stages),
        *reduction,
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
    """Partial sums are added up in turns: wait, add the sum so far from memory, write, release."""
    first = (kir.Compute(SUM, "cast", (ACC,)),)
    later = (
        kir.Load(PARTIAL, d_box(W, tile), 2),
        kir.Compute(SUM, "add", (ACC, PARTIAL)),
    )
    reduction = (
        kir.BlockSerializeWait(SEMAPHORE, tile, turn),
        kir.IfThenElse(eq(turn, 0), first, later),
        kir.IfThenElse(
            turn + 1 < splits,
            (kir.Store(d_box(W, tile), SUM, 2),),
            (kir.Store(d_box(D, tile), SUM, 2),),
        ),
        *release(),
    )
    return split_kernel("split_k", reduction, (), stages)


def split_k_tma(stages: int = 2) -> kir.Kernel:
    """Partial sums are added up by TMA in turns: store, then reductions, drained before release."""
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
    reduction = (
        kir.Store(slot, ACC, 2),
        kir.FenceAsyncProxy(kir.Space.SHARED),
        kir.BlockSerializeWait(SEMAPHORE, tile, turn),
        kir.Elect(ELECT, issue),
        kir.IfThenElse(eq(turn + 1, splits), last),
        *release(),
    )
    return split_kernel("split_k_tma", reduction, (staged,), stages)


def cluster_multicast(stages: int = 2) -> kir.Kernel:
    """Two CTAs of a cluster share B: CTA 0 loads it for both, each loads its own A.

    A slot is free when the consumers of both CTAs say so, for CTA 0 writes into both.  They tell
    their own CTA first: what the other one then does in the next iteration comes after both
    arrivals.  One thread arrives for its warpgroup, so that no warp is an iteration ahead of
    another.
    """
    (a, b), full = operands(stages), ring("full", 1, stages)
    empty, slot = ring("empty", 2, stages), k % stages
    pairs = ceildiv(M, 2 * TILE_M)
    down = kir.BLOCK // 2 % pairs * 2 + kir.RANK
    across = kir.BLOCK // 2 // pairs

    def at(box: kir.Box, row: Expr, col: Expr) -> kir.Box:
        return replace(box, origin=(row, col))

    free = tuple[kir.Stmt, ...](
        kir.MBarrierArrive(empty, slot, kir.Scope.CLUSTER, cta, space=kir.Space.SHARED)
        for cta in (kir.RANK, 1 - kir.RANK)
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
