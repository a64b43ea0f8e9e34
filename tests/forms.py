"""Kernels in the forms in which people write pipelines: all right; tests break them by one change.

Products are of the cookbook's sizes, `D = A @ B^T` in tiles of 64 x 8; those that hand tiles from
CTA to CTA are of a litmus' size.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from litmus.parts import (
    BULK,
    PER_WARP,
    SHARED,
    WGMMA,
    Body,
    box,
    elect,
    fragment,
    load,
    n,
    slots,
    store,
    tensor,
)

from fuser.cookbook.matmul import (
    A_NBYTES,
    ACC,
    B_NBYTES,
    STEP,
    TILE_M,
    TILE_N,
    A,
    B,
    D,
    M,
    N,
    a_box,
    b_box,
    d_box,
    loads,
    matmul,
    operands,
    origin,
    tile_count,
    zero,
)
from fuser.cookbook.ring import emptied, filled, k, p, q, ring, start, step, trips
from fuser.dtype import DType
from fuser.expr import Expr, Var, ceildiv, eq, maximum, minimum
from fuser.kernel import ir as kir

CTA = kir.BLOCK
OUT = kir.Store(d_box(D, CTA), ACC, 2)
main, e, t, tiles = Var("main"), Var("e"), Var("t"), Var("tiles")


def mma(a: kir.Buffer, b: kir.Buffer, at: Expr, acc: kir.Fragment = ACC) -> Body:
    """Fence, multiply by a slot, and close the group."""
    wgmma = kir.Wgmma(acc, kir.Slot(a, at), kir.Slot(b, at))
    return kir.WgmmaFence(), wgmma, kir.AsyncCommit(WGMMA)


def done(keep: int = 0) -> kir.AsyncAwait:
    """Wait for all groups of wgmma but the latest."""
    return kir.AsyncAwait(WGMMA, keep)


def freed(empty: kir.MBarrier, at: Expr) -> kir.Stmt:
    """Arrive by each warp."""
    return kir.Elect(PER_WARP, (kir.MBarrierArrive(empty, at),))


def fed(
    name: str,
    stages: int,
    use: Callable[[kir.Buffer, kir.Buffer, kir.MBarrier, kir.MBarrier], Body],
    feed: Callable[[kir.Buffer, kir.Buffer, kir.MBarrier, kir.MBarrier], Body] | None = None,
    arrivals: int = 4,
    out: Body = (OUT,),
) -> kir.Kernel:
    """Return a product in which a warp feeds a warpgroup."""
    (a, b), full, empty = operands(stages), ring("full", 1, stages), ring("empty", arrivals, stages)
    fill = (emptied(empty, k, stages), *loads(a, b, full, k % stages, CTA, k))
    produce = (kir.ForLoop(k, trips, (elect(*fill),)),) if feed is None else feed(a, b, full, empty)
    body = (
        *start(full, empty, threads=160),
        kir.Role("mma", 0, 4, (zero(), *use(a, b, full, empty), *out)),
        kir.Role("load", 4, 1, produce),
    )
    return matmul(name, body, (a, b), (full, empty), 160)


# --- how a ring is walked -----------------------------------------------------------------------


def epilogue(ahead: int = 2, *, moved: bool = True) -> kir.Kernel:
    """Prologue, main loop with refills, epilogue without; a position moves, or is worked out."""
    (a, b), full = operands(ahead), ring("full", 1, ahead)

    def at(pos: Expr) -> Body:
        return filled(full, pos, ahead), *mma(a, b, pos % ahead)

    def fill(pos: Expr) -> Body:
        return loads(a, b, full, pos % ahead, CTA, pos)

    one, two = (p, p) if moved else (k, main + e)

    def moves() -> Body:
        return (step(p),) if moved else ()

    refill = (done(), kir.BlockSync(0, 128), elect(*fill(k + ahead)))
    body = (
        kir.Let(main, maximum(trips - ahead, 0)),
        *((kir.Let(p, 0),) if moved else ()),
        *start(full, threads=128),
        zero(),
        kir.ForLoop(q, ahead, (elect(kir.IfThenElse(q < trips, fill(q))),)),
        kir.ForLoop(k, main, (*at(one), *refill, *moves())),
        kir.ForLoop(e, trips - main, (*at(two), *moves())),
        done(),
        OUT,
    )
    return matmul("epilogue", body, (a, b), (full,), 128)


def ahead(stages: int = 3) -> kir.Kernel:
    """The loader fills what fits without a look, then waits for room."""

    def feed(a: kir.Buffer, b: kir.Buffer, full: kir.MBarrier, empty: kir.MBarrier) -> Body:
        room = kir.MBarrierWaitParity(empty, k % stages, k // stages % 2)
        more = (room, *loads(a, b, full, k % stages, CTA, k + stages))
        return (
            kir.ForLoop(q, minimum(trips, stages), (elect(*loads(a, b, full, q, CTA, q)),)),
            kir.ForLoop(k, maximum(trips - stages, 0), (elect(*more),)),
        )

    return fed("ahead", stages, plainly(stages), feed)


def plainly(stages: int) -> Callable[[kir.Buffer, kir.Buffer, kir.MBarrier, kir.MBarrier], Body]:
    """Use each slot as soon as it is full."""

    def use(a: kir.Buffer, b: kir.Buffer, full: kir.MBarrier, empty: kir.MBarrier) -> Body:
        one = (filled(full, k, stages), *mma(a, b, k % stages), done(), freed(empty, k % stages))
        return (kir.ForLoop(k, trips, one),)

    return use


def unrolled(stages: int = 2) -> kir.Kernel:
    """Two steps an iteration, and a guard for the last one."""

    def use(a: kir.Buffer, b: kir.Buffer, full: kir.MBarrier, empty: kir.MBarrier) -> Body:
        def at(pos: Expr) -> Body:
            slot = pos % stages
            return filled(full, pos, stages), *mma(a, b, slot), done(), freed(empty, slot)

        tail = kir.IfThenElse(k * 2 + 1 < trips, at(k * 2 + 1))
        return (kir.ForLoop(k, ceildiv(trips, 2), (*at(k * 2), tail)),)

    return fed("unrolled", stages, use)


def late(stages: int = 4, depth: int = 2) -> kir.Kernel:
    """Slots are freed `depth` steps late, and the last ones behind the loop."""

    def use(a: kir.Buffer, b: kir.Buffer, full: kir.MBarrier, empty: kir.MBarrier) -> Body:
        old = k - depth
        one = (filled(full, k, stages), *mma(a, b, k % stages), done(depth))
        guard = kir.IfThenElse(k >= depth, (freed(empty, old % stages),))
        rest = maximum(trips - depth, 0) + q
        tail = kir.ForLoop(q, minimum(trips, depth), (freed(empty, rest % stages),))
        return kir.ForLoop(k, trips, (*one, guard)), done(), tail

    return fed("late", stages, use)


def backwards(stages: int = 3) -> kir.Kernel:
    """Slots are taken from the last to the first, and K from its end."""

    def slot(at: Expr) -> Expr:
        return stages - 1 - at % stages

    def use(a: kir.Buffer, b: kir.Buffer, full: kir.MBarrier, empty: kir.MBarrier) -> Body:
        wait = kir.MBarrierWaitParity(full, slot(k), k // stages % 2)
        return (kir.ForLoop(k, trips, (wait, *mma(a, b, slot(k)), done(), freed(empty, slot(k)))),)

    def feed(a: kir.Buffer, b: kir.Buffer, full: kir.MBarrier, empty: kir.MBarrier) -> Body:
        room = kir.MBarrierWaitParity(empty, slot(k), (k // stages + 1) % 2)
        fill = loads(a, b, full, slot(k), CTA, trips - 1 - k)
        return (kir.ForLoop(k, trips, (elect(room, *fill),)),)

    return fed("backwards", stages, use, feed)


def one_slot() -> kir.Kernel:
    """One slot, and a guard around the wait for room and one around the refill."""

    def feed(a: kir.Buffer, b: kir.Buffer, full: kir.MBarrier, empty: kir.MBarrier) -> Body:
        room = kir.MBarrierWaitParity(empty, 0, (k + 1) % 2)
        fill = (kir.IfThenElse(k >= 1, (room,)), *loads(a, b, full, 0, CTA, k))
        return (kir.ForLoop(k, trips, (elect(*fill),)),)

    return fed("one_slot", 1, plainly(1), feed)


def one_slot_alone() -> kir.Kernel:
    """One slot that its own readers refill, unless it was the last step."""
    (a, b), full = operands(1), ring("full", 1, 1)
    refill = kir.IfThenElse(k + 1 < trips, loads(a, b, full, 0, CTA, k + 1))
    one = (filled(full, k, 1), *mma(a, b, 0), done(), kir.BlockSync(0, 128), elect(refill))
    first = kir.IfThenElse(trips >= 1, (elect(*loads(a, b, full, 0, CTA, 0)),))
    body = (*start(full, threads=128), zero(), first, kir.ForLoop(k, trips, one), OUT)
    return matmul("one_slot_alone", body, (a, b), (full,), 128)


def nested(stages: int = 3, *, moved: bool = False) -> kir.Kernel:
    """Tile after tile, each of `trips` steps, of which there may be none."""
    at = p if moved else t * trips + k

    def moves() -> Body:
        return (step(p),) if moved else ()

    number = CTA + t * kir.GRID
    (a, b), full, empty = operands(stages), ring("full", 1, stages), ring("empty", 4, stages)
    use = (filled(full, at, stages), *mma(a, b, at % stages), done(), freed(empty, at % stages))
    fill = (emptied(empty, at, stages), *loads(a, b, full, at % stages, number, k))
    tile = (zero(), kir.ForLoop(k, trips, (*use, *moves())), kir.Store(d_box(D, number), ACC, 2))
    feed = (kir.ForLoop(k, trips, (elect(*fill), *moves())),)
    body = (
        kir.Let(tiles, ceildiv(tile_count() - CTA, kir.GRID)),
        *((kir.Let(p, 0),) if moved else ()),
        *start(full, empty, threads=160),
        kir.Role("mma", 0, 4, (kir.ForLoop(t, tiles, tile),)),
        kir.Role("load", 4, 1, (kir.ForLoop(t, tiles, feed),)),
    )
    return replace(matmul("nested", body, (a, b), (full, empty), 160), requires=())


def two_loops(stages: int = 2) -> kir.Kernel:
    """Two loops of different lengths, one behind the other, in one ring."""
    half = Var("half")

    def use(a: kir.Buffer, b: kir.Buffer, full: kir.MBarrier, empty: kir.MBarrier) -> Body:
        def at(pos: Expr) -> Body:
            slot = pos % stages
            return filled(full, pos, stages), *mma(a, b, slot), done(), freed(empty, slot)

        first = kir.ForLoop(k, half, at(k))
        return kir.Let(half, trips // 3), first, kir.ForLoop(q, trips - half, at(half + q))

    return fed("two_loops", stages, use)


# --- who fills, waits and reads -----------------------------------------------------------------


def two_loaders(stages: int = 2) -> kir.Kernel:
    """One warp loads A and another one B; both arrive on one mbarrier."""
    (a, b), full, empty = operands(stages), ring("full", 2, stages), ring("empty", 4, stages)
    at = k % stages
    one = (
        emptied(empty, k, stages),
        kir.MBarrierArriveExpectTx(full, at, A_NBYTES),
        kir.TmaLoad(kir.Slot(a, at), a_box(CTA, k), full, at),
    )
    two = (
        emptied(empty, k, stages),
        kir.MBarrierArriveExpectTx(full, at, B_NBYTES),
        kir.TmaLoad(kir.Slot(b, at), b_box(CTA, k), full, at),
    )
    body = (
        *start(full, empty, threads=192),
        kir.Role("mma", 0, 4, (zero(), *plainly(stages)(a, b, full, empty), OUT)),
        kir.Role("load_a", 4, 1, (kir.ForLoop(k, trips, (elect(*one),)),)),
        kir.Role("load_b", 5, 1, (kir.ForLoop(k, trips, (elect(*two),)),)),
    )
    return matmul("two_loaders", body, (a, b), (full, empty), 192)


def staged(stages: int = 2, *, joined: bool = False) -> kir.Kernel:
    """A role stores what it has loaded, fences, and each thread arrives; or one when all joined."""
    (a, b), at = operands(stages), k % stages
    full, empty = ring("full", 1 if joined else 128, stages), ring("empty", 4, stages)
    parts = [
        kir.Fragment(name, DType.BF16, kir.Layout(buffer.shape, 1, 128))
        for name, buffer in (("x", a), ("y", b))
    ]
    give = kir.MBarrierArrive(full, at)
    fill = (
        emptied(empty, k, stages),
        kir.Load(parts[0], a_box(CTA, k), 1), kir.Store(kir.Slot(a, at), parts[0], 1),
        kir.Load(parts[1], b_box(CTA, k), 1), kir.Store(kir.Slot(b, at), parts[1], 1),
        kir.FenceAsyncProxy(SHARED), *((kir.BlockSync(1, 128), elect(give)) if joined else (give,)),
    )  # fmt: skip
    body = (
        *start(full, empty, threads=256),
        kir.Role("mma", 0, 4, (zero(), *plainly(stages)(a, b, full, empty), OUT)),
        kir.Role("stage", 4, 4, (kir.ForLoop(k, trips, fill),)),
    )
    return matmul("staged", body, (a, b), (full, empty), 256)


def one_waits(stages: int = 2) -> kir.Kernel:
    """One thread waits for the data, and joins the others; one arrives for all."""

    def use(a: kir.Buffer, b: kir.Buffer, full: kir.MBarrier, empty: kir.MBarrier) -> Body:
        wait, free = elect(filled(full, k, stages)), elect(kir.MBarrierArrive(empty, k % stages))
        join, left = kir.BlockSync(1, 128), kir.BlockSync(1, 128)
        return (kir.ForLoop(k, trips, (wait, join, *mma(a, b, k % stages), done(), left, free)),)

    return fed("one_waits", stages, use, arrivals=1)


def by_parts(stages: int = 2) -> kir.Kernel:
    """A slot holds two steps of A and of B, which are read through views of it."""
    wide_a = kir.Buffer("SA", DType.BF16, (2, TILE_M, STEP), stages, 0)
    wide_b = kir.Buffer("SB", DType.BF16, (2, TILE_N, STEP), stages, wide_a.end)
    views = [
        tuple(
            kir.Buffer(f"{w.name}{i}", DType.BF16, w.shape[1:], stages,
                       w.offset + i * w.slot_nbytes // 2, pitch=w.slot_nbytes)
            for w in (wide_a, wide_b)
        )
        for i in range(2)
    ]  # fmt: skip
    full, empty = ring("full", 1, stages), ring("empty", 4, stages)
    parts = Var("K2")
    three_a = kir.Tensor("A", DType.BF16, (parts, M, STEP), (M * STEP, STEP, 1), 8)
    three_b = kir.Tensor("B", DType.BF16, (parts, N, STEP), (N * STEP, STEP, 1), 8)
    row, col = origin(CTA)
    at = k % stages
    (a0, b0), (a1, b1) = views
    use = (filled(full, k, stages), *mma(a0, b0, at), *mma(a1, b1, at), done(), freed(empty, at))
    fill = (
        emptied(empty, k, stages),
        kir.MBarrierArriveExpectTx(full, at, wide_a.slot_nbytes + wide_b.slot_nbytes),
        kir.TmaLoad(
            kir.Slot(wide_a, at),
            kir.Box(three_a, (k * 2, row, 0), wide_a.shape, three_a.extents),
            full,
            at,
        ),
        kir.TmaLoad(
            kir.Slot(wide_b, at),
            kir.Box(three_b, (k * 2, col, 0), wide_b.shape, three_b.extents),
            full,
            at,
        ),
    )
    body = (
        kir.Let(trips, ceildiv(parts, 2)),
        *start(full, empty, threads=160),
        kir.Role("mma", 0, 4, (zero(), kir.ForLoop(k, trips, use), OUT)),
        kir.Role("load", 4, 1, (kir.ForLoop(k, trips, (elect(*fill),)),)),
    )
    buffers = (wide_a, wide_b, a0, b0, a1, b1)
    made = matmul("by_parts", body, buffers, (full, empty), 160)
    return replace(made, params=(M, N, parts), tensors=(three_a, three_b, D), body=body)


# --- results ------------------------------------------------------------------------------------

ACC2 = replace(ACC, name="acc2")
W = kir.Tensor("W", DType.F32, (M, N), (N, 1), 4)


def two_results() -> kir.Kernel:
    """Two accumulators, each with a group of its own: the first is stored under the second."""

    def use(a: kir.Buffer, b: kir.Buffer, full: kir.MBarrier, empty: kir.MBarrier) -> Body:
        at = k % 3
        free = kir.IfThenElse(k >= 1, (freed(empty, (k + 2) % 3),))
        one = (filled(full, k, 3), *mma(a, b, at), *mma(a, b, at, ACC2), done(2), free)
        out = done(1), OUT, done(), kir.Store(d_box(W, CTA), ACC2, 2)
        return zero(), zero(ACC2), kir.ForLoop(k, trips, one), *out

    made = fed("two_results", 3, use, out=())
    return replace(made, tensors=(A, B, W, D), outputs=("D", "W"))


def flushed() -> kir.Kernel:
    """Groups run on over the end of the loop, and behind it one await is for all."""

    def use(a: kir.Buffer, b: kir.Buffer, full: kir.MBarrier, empty: kir.MBarrier) -> Body:
        one = (filled(full, k, 3), *mma(a, b, k % 3), done(1))
        free = kir.IfThenElse(k >= 1, (freed(empty, (k + 2) % 3),))
        return kir.ForLoop(k, trips, (*one, free)), done()

    return fed("flushed", 3, use)


# --- what is handed from CTA to CTA -------------------------------------------------------------

FLAGS = kir.Semaphore("flags", n)
XN, WN, YN = tensor("X", n), tensor("W", n), tensor("Y", n)
TILE, BACK = fragment("x", 64), fragment("y", 64)


def pair(name: str, put: Body, get: Body, *, threads: int = 64, buffers: int = 1) -> kir.Kernel:
    """Return two CTAs: one puts tiles into a workspace, the other one gets them."""
    return kir.Kernel(
        name, (n,), (XN, WN, YN), (), (slots("S", buffers),), (), threads,
        (kir.IfThenElse(eq(CTA, 0), put, get),),
        outputs=("Y",), workspaces=("W",), semaphores=(FLAGS,), requires=(eq(kir.GRID, 2),),
        residency="co-resident",
    )  # fmt: skip


def tell(at: Expr, value: int = 1) -> kir.Stmt:
    """Say of a tile that it is there; or that it has been taken."""
    return kir.BlockSerializeRelease(FLAGS, at, value)


def taken(threads: int = 64) -> Body:
    """Wait for each tile, and take it."""
    tile = fragment("y", threads)
    one = (
        kir.BlockSerializeWait(FLAGS, k, 1), load(tile, box(WN, k)), store(box(YN, k), tile),
        kir.BlockSync(0, threads), elect(tell(k, 0)),
    )  # fmt: skip
    return (kir.ForLoop(k, n, one),)


def sent(at: Expr, slot: Expr) -> Body:
    """Stage a tile by all threads, and send it by one."""
    send = (kir.TmaStore(box(WN, at), kir.Slot(slots("S", 2), slot)), kir.AsyncCommit(BULK))
    return (
        load(TILE, box(XN, at)), store(kir.Slot(slots("S", 2), slot), TILE),
        kir.FenceAsyncProxy(SHARED), kir.BlockSync(0, 64), elect(*send),
    )  # fmt: skip


def told_late() -> kir.Kernel:
    """A tile is told of an iteration later, while the next one is in flight."""
    room = elect(kir.AsyncAwait(BULK, 1, read_only=True))
    before = elect(kir.IfThenElse(k >= 1, (kir.AsyncAwait(BULK, 1), tell(k - 1))))
    last = elect(kir.AsyncAwait(BULK, 0), kir.IfThenElse(n >= 1, (tell(n - 1),)))
    put = (kir.ForLoop(k, n, (room, kir.BlockSync(0, 64), *sent(k, k % 2), before)), last)
    return pair("told_late", put, taken(), buffers=2)


def told_at_once() -> kir.Kernel:
    """Each tile is drained, then told of."""
    one = (*sent(k, 0), elect(kir.AsyncAwait(BULK, 0), tell(k)), kir.BlockSync(0, 64))
    return pair("told_at_once", (kir.ForLoop(k, n, one),), taken(), buffers=2)


def told_in_branches() -> kir.Kernel:
    """Even tiles leave by TMA, the others by ordinary stores; each is told of."""
    direct = (load(TILE, box(XN, k)), store(box(WN, k), TILE), kir.BlockSync(0, 64), elect(tell(k)))
    engine = (*sent(k, 0), elect(kir.AsyncAwait(BULK, 0), tell(k)), kir.BlockSync(0, 64))
    one = kir.IfThenElse(eq(k % 2, 0), engine, direct)
    return pair("told_in_branches", (kir.ForLoop(k, n, (one,)),), taken(), buffers=2)


def told_by_a_role() -> kir.Kernel:
    """One role sends and drains, and an mbarrier has another one tell of it."""
    here, heard = ring("sent", 1, 1), ring("heard", 1, 1)
    send = (kir.TmaStore(box(WN, k), kir.Slot(slots("S", 2), 0)), kir.AsyncCommit(BULK))
    write = (
        load(TILE, box(XN, k)), store(kir.Slot(slots("S", 2), 0), TILE),
        kir.FenceAsyncProxy(SHARED), kir.BlockSync(1, 64),
        elect(kir.MBarrierWaitParity(heard, 0, (k + 1) % 2), *send, kir.AsyncAwait(BULK, 0),
              kir.MBarrierArrive(here, 0)),
        kir.BlockSync(3, 64),
    )  # fmt: skip
    say = elect(kir.MBarrierWaitParity(here, 0, k % 2), tell(k), kir.MBarrierArrive(heard, 0))
    put = (
        kir.Role("send", 0, 2, (kir.ForLoop(k, n, write),)),
        kir.Role("tell", 2, 1, (kir.ForLoop(k, n, (say,)),)),
    )
    made = pair("told_by_a_role", put, taken(96), threads=96, buffers=2)
    body = (*start(here, heard, threads=96), *made.body)
    return replace(made, body=body, barriers=(here, heard))


def told_by_a_named_barrier() -> kir.Kernel:
    """One role stores, and arrives where another one, which tells of it, waits."""
    write = (
        load(TILE, box(XN, k)),
        store(box(WN, k), TILE),
        kir.NamedArrive(1, 96),
        kir.BlockSync(2, 96),
    )
    heard = (kir.BlockSync(1, 96), elect(tell(k)), kir.NamedArrive(2, 96))
    put = (
        kir.Role("store", 0, 2, (kir.ForLoop(k, n, write),)),
        kir.Role("tell", 2, 1, (kir.ForLoop(k, n, heard),)),
    )
    return pair("told_by_a_named_barrier", put, taken(96), threads=96)


FORMS = {
    "epilogue": epilogue,
    "epilogue of four": lambda: epilogue(4),
    "epilogue worked out": lambda: epilogue(moved=False),
    "ahead": ahead,
    "unrolled": unrolled,
    "unrolled over three": lambda: unrolled(3),
    "late": late,
    "backwards": backwards,
    "one slot": one_slot,
    "one slot alone": one_slot_alone,
    "nested": nested,
    "nested and moved": lambda: nested(moved=True),
    "two loops": two_loops,
    "two loaders": two_loaders,
    "staged": staged,
    "staged and joined": lambda: staged(joined=True),
    "one waits": one_waits,
    "by parts": by_parts,
    "two results": two_results,
    "flushed": flushed,
    "told late": told_late,
    "told at once": told_at_once,
    "told in branches": told_in_branches,
    "told by a role": told_by_a_role,
    "told by a named barrier": told_by_a_named_barrier,
}
