"""Small kernels of one CTA around cp.async, tensor cores and named barriers."""

from __future__ import annotations

from random import Random

from fuser.cookbook.matmul import TILE_M, TILE_N, double_wgmma, wgmma_ring
from fuser.cookbook.ring import CP_ASYNC, emptied, filled, k, q, ring, start, trips
from fuser.expr import Expr, eq
from fuser.kernel import ir as kir
from fuzz.kernels.product import product
from fuzz.kernels.ring import freed
from fuzz.kernels.tile import (
    Pattern,
    Start,
    X,
    Y,
    add,
    box,
    fragment,
    layout,
    one_cta,
    over_tiles,
    slots,
)


def cp_async_ring(rng: Random) -> Pattern:
    """Every thread copies `stages - 1` tiles ahead, one group a step, and a block sync a step.

    Where each thread reads only what it copied itself, it goes without the sync.
    """
    stages, warps, private = rng.randint(2, 4), rng.randint(1, 2), rng.random() < 0.25
    s = slots("S", stages)
    vector = 1 if private else 2
    later = k + (stages - 1)

    def copy(number: Expr) -> kir.Stmt:
        deal = layout(warps, vector)
        return kir.CpAsync(kir.Slot(s, number % stages), box(X, number), deal, vector)

    sync = () if private else (kir.BlockSync(0, kir.WARP * warps),)
    loop = (
        kir.AsyncAwait(CP_ASYNC, stages - 2),
        *sync,
        kir.IfThenElse(later < trips, (copy(later),)),
        kir.AsyncCommit(CP_ASYNC),
        kir.Load(fragment("x", warps), kir.Slot(s, k % stages), 1),
        add(warps),
        kir.Store(box(Y, k), fragment("y", warps), 1),
    )
    ahead = (kir.IfThenElse(q < trips, (copy(q),)), kir.AsyncCommit(CP_ASYNC))
    body = (kir.ForLoop(q, stages - 1, ahead), kir.ForLoop(k, trips, loop))
    return Pattern(over_tiles("cp_async_ring", warps, body, (s,)), stages, one_cta)


def cp_async_mbarrier(rng: Random) -> Pattern:
    """Copy by cp.async in a warp; the copies arrive, with or without counts of their own."""
    stages, consumers = rng.randint(1, 4), rng.randint(1, 2)
    noinc, each = rng.random() < 0.5, rng.random() < 0.5
    s, full = slots("S", stages), ring("full", kir.WARP, stages)
    empty = ring("empty", consumers * (kir.WARP if each else 1), stages)
    slot = k % stages
    own = () if noinc else (kir.MBarrierArrive(full, slot),)
    produce = (
        emptied(empty, k, stages),
        kir.CpAsync(kir.Slot(s, slot), box(X, k), layout(1, 2), 2),
        kir.CpAsyncMBarrierArrive(full, slot, noinc=noinc),
        *own,
    )
    consume = (
        filled(full, k, stages),
        kir.Load(fragment("x", consumers), kir.Slot(s, slot), 1),
        *freed(empty, slot, each_thread=each),
        add(consumers),
        kir.Store(box(Y, k), fragment("y", consumers), 1),
    )
    body = (
        *start(full, empty, threads=kir.WARP * (consumers + 1)),
        kir.Role("compute", 0, consumers, (kir.ForLoop(k, trips, consume),)),
        kir.Role("load", consumers, 1, (kir.ForLoop(k, trips, produce),)),
    )
    kernel = over_tiles("cp_async_mbarrier", consumers + 1, body, (s,), (full, empty))
    return Pattern(kernel, stages, one_cta)


def wgmma(rng: Random) -> Pattern:
    """Keep groups of wgmma in flight on a ring, run two matmuls on one, or draw a whole kernel."""
    if rng.random() < 0.4:
        return product(rng)
    stages = rng.randint(1, 4)
    depth = rng.randint(0, stages - 1)
    kernel = double_wgmma(stages) if rng.random() < 0.2 else wgmma_ring(stages, depth)
    return Pattern(kernel, stages, one_product)


def one_product(count: int) -> tuple[Start, ...]:
    """One tile of D in `count` steps along K."""
    return ((1, {"M": TILE_M, "N": TILE_N, "K": 16 * count}),)


def named(rng: Random) -> Pattern:
    """Hand tiles from warp to warp over one or two slots, by named barriers both ways."""
    stages = rng.randint(1, 2)
    s, pair = slots("S", stages), 2 * kir.WARP

    def by_slot(body: list[tuple[kir.Stmt, ...]]) -> tuple[kir.Stmt, ...]:
        if stages == 1:
            return body[0]
        return tuple(kir.IfThenElse(eq(k % 2, i), inner) for i, inner in enumerate(body))

    def give(i: int) -> tuple[kir.Stmt, ...]:
        return (
            kir.IfThenElse(k >= stages, (kir.BlockSync(2 * i + 2, pair),)),
            kir.Load(fragment("x", 1), box(X, k), 1),
            kir.Store(kir.Slot(s, i), fragment("x", 1), 1),
            kir.NamedArrive(2 * i + 1, pair),
        )

    def take(i: int) -> tuple[kir.Stmt, ...]:
        return (
            kir.BlockSync(2 * i + 1, pair),
            kir.Load(fragment("x", 1), kir.Slot(s, i), 1),
            kir.IfThenElse(k + stages < trips, (kir.NamedArrive(2 * i + 2, pair),)),
            add(1),
            kir.Store(box(Y, k), fragment("y", 1), 1),
        )

    giver = kir.ForLoop(k, trips, by_slot([give(i) for i in range(stages)]))
    taker = kir.ForLoop(k, trips, by_slot([take(i) for i in range(stages)]))
    body = (kir.Role("give", 0, 1, (giver,)), kir.Role("take", 1, 1, (taker,)))
    return Pattern(over_tiles("named", 2, body, (s,)), stages, one_cta)
