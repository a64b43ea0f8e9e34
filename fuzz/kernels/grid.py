"""Templates of several CTAs: split sums in the order of a semaphore, and clusters of two."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from fuser.cookbook.matmul import turn
from fuser.cookbook.ring import BULK, ELECT, PER_WARP, emptied, filled, k, ring, start, trips
from fuser.dtype import DType
from fuser.expr import Expr, Var, ceildiv, eq
from fuser.kernel import ir as kir
from fuzz.kernels.tile import (
    COLS,
    NBYTES,
    ROWS,
    C,
    R,
    Start,
    Template,
    X,
    Y,
    add,
    fragment,
    slots,
    tile,
)

splits, number = Var("splits"), Var("tile")
W = kir.Tensor("W", DType.F32, (R, C), (C, 1), 4)
_TILES = ceildiv(R, ROWS) * ceildiv(C, COLS)
_TURNS = kir.Semaphore("turns", _TILES)


def turnstile(rng: Random) -> Template:
    """Let `splits` CTAs add to a tile in turn, through registers or by TMA reductions."""
    warps, by_tma = rng.randint(1, 2), rng.random() < 0.5
    across = ceildiv(C, COLS)
    here = {tensor.name: tile(tensor, number // across, number % across) for tensor in (X, Y, W)}
    summed, buffers = (_by_tma if by_tma else _by_registers)(here, warps)
    load = kir.Load(fragment("x", warps), here["X"], 1)
    kernel = _split("turnstile", X, _TURNS, kir.WARP * warps, (load, *summed), buffers)
    kernel = replace(kernel, residency=rng.choice(("ticket", "co-resident")))
    return Template(kernel, 1, _splits)


def _split(
    name: str,
    x: kir.Tensor,
    turns: kir.Semaphore,
    threads: int,
    part: tuple[kir.Stmt, ...],
    buffers: tuple[kir.Buffer, ...],
    barriers: tuple[kir.MBarrier, ...] = (),
) -> kir.Kernel:
    """Return a kernel in which `splits` CTAs do their part of a tile in the order of `turns`."""
    body = (
        kir.Let(number, kir.BLOCK // splits),
        kir.Let(turn, kir.BLOCK % splits),
        *part,
        kir.BlockSync(0, threads),
        kir.Elect(ELECT, (kir.BlockSerializeRelease(turns, number, (turn + 1) % splits),)),
    )
    return kir.Kernel(
        name,
        (R, C, splits),
        (x, W, Y),
        (),
        buffers,
        barriers,
        threads,
        body,
        outputs=("Y",),
        workspaces=("W",),
        semaphores=(turns,),
        requires=(splits >= 1, eq(kir.GRID, turns.count * splits)),
        residency="ticket",
    )


def _splits(count: int) -> tuple[Start, ...]:
    """Let `count` CTAs share one tile."""
    return ((count, {"R": ROWS, "C": COLS, "splits": count}),) if count else ()


_Sum = tuple[tuple[kir.Stmt, ...], tuple[kir.Buffer, ...]]


def _by_registers(here: dict[str, kir.Box], warps: int) -> _Sum:
    x, y, w = fragment("x", warps), fragment("y", warps), fragment("w", warps)
    later = (kir.Load(w, here["W"], 1), kir.Compute(y, "add", (x, w)))
    return (
        kir.BlockSerializeWait(_TURNS, number, turn),
        kir.IfThenElse(eq(turn, 0), (kir.Compute(y, "cast", (x,)),), later),
        kir.IfThenElse(
            turn + 1 < splits, (kir.Store(here["W"], y, 1),), (kir.Store(here["Y"], y, 1),)
        ),
    ), ()


def _by_tma(here: dict[str, kir.Box], warps: int) -> _Sum:
    s = slots("S", 1)
    store = kir.Store(kir.Slot(s, 0), fragment("x", warps), 1)
    added = _added(_TURNS, kir.Slot(s, 0), here["W"], here["Y"], fragment("y", warps))
    return (store, kir.FenceAsyncProxy(kir.Space.SHARED), *added), (s,)


def _added(
    turns: kir.Semaphore, slot: kir.Slot, w: kir.Box, y: kir.Box, total: kir.Fragment
) -> tuple[kir.Stmt, ...]:
    """Store or add a slot to the workspace in order; the last CTA writes the sum."""
    threads, vector = total.layout.threads, total.layout.vector
    reduce = (kir.FenceAsyncProxy(kir.Space.GLOBAL), kir.TmaReduce(w, slot))
    issue = (
        kir.IfThenElse(eq(turn, 0), (kir.TmaStore(w, slot),), reduce),
        kir.AsyncCommit(BULK),
        kir.AsyncAwait(BULK, 0),
    )
    write = (kir.BlockSync(0, threads), kir.Load(total, w, vector), kir.Store(y, total, vector))
    return (
        kir.BlockSerializeWait(turns, number, turn),
        kir.Elect(ELECT, issue),
        kir.IfThenElse(eq(turn + 1, splits), write),
    )


WIDE, WIDE_THREADS = 128, 256
"""Rows and columns of a large tile, and threads of the CTA that adds it."""


def wide_turns() -> Template:
    """Add up tiles of 64 KB by bulk copies in the order of a semaphore: Y = X[0] + X[1] + ...

    The parts of X lie below each other.  Nearly all of its time is copies under way, so that a
    release that comes too early shows without delays.
    """
    wide, across = (WIDE, WIDE), ceildiv(C, WIDE)
    x = kir.Tensor("X", DType.F32, (R * splits, C), (C, 1), 4)
    turns = kir.Semaphore("turns", ceildiv(R, WIDE) * across)
    buffer, full = kir.Buffer("S", DType.F32, wide, 1, 0), ring("full", 1, 1)
    total = kir.Fragment("sum", DType.F32, kir.Layout(wide, 4, WIDE_THREADS))

    def here(tensor: kir.Tensor, below: Expr = 0) -> kir.Box:
        origin = (below + number // across * WIDE, number % across * WIDE)
        return kir.Box(tensor, origin, wide, tensor.extents)

    slot = kir.Slot(buffer, 0)
    load = (
        kir.MBarrierArriveExpectTx(full, 0, buffer.slot_nbytes),
        kir.TmaLoad(slot, here(x, turn * R), full, 0),
    )
    part = (
        *start(full, threads=WIDE_THREADS),
        kir.Elect(ELECT, load),
        kir.MBarrierWaitParity(full, 0, 0),
        *_added(turns, slot, here(W), here(Y), total),
    )
    kernel = _split("wide_turns", x, turns, WIDE_THREADS, part, (buffer,), (full,))

    def at(ctas: int) -> tuple[Start, ...]:
        return ((ctas, {"R": WIDE, "C": WIDE, "splits": ctas}),) if ctas else ()

    return Template(kernel, 2, at)


def cluster(rng: Random) -> Template:
    """Two CTAs: one loads for both by multicast, or one writes into the other's shared memory."""
    stages = rng.randint(1, 3)
    s, full = slots("S", stages), ring("full", 1, stages)
    multicast = rng.random() < 0.5
    empty = ring("empty", 2 if multicast else 1, stages)
    work = _multicast(s, full, empty) if multicast else _remote(s, full, empty)
    warps = 2 if multicast else 1
    init, _ = start(full, empty, threads=kir.WARP * warps)
    down = ceildiv(R, 2 * ROWS) if multicast else ceildiv(R, ROWS)
    body = (
        kir.Let(trips, down),
        init,
        kir.ClusterArrive(),
        kir.ClusterWait(),
        *work,
        kir.ClusterArrive(),
        kir.ClusterWait(),
    )
    kernel = kir.Kernel(
        "multicast" if multicast else "remote",
        (R, C),
        (X, Y),
        (),
        (s,),
        (full, empty),
        kir.WARP * warps,
        body,
        outputs=("Y",),
        requires=(eq(kir.GRID, 2 * ceildiv(C, COLS)),),
        cluster=2,
    )
    rows = 2 * ROWS if multicast else ROWS

    def at(count: int) -> tuple[Start, ...]:
        return ((2, {"R": rows * count, "C": COLS}),)

    return Template(kernel, stages, at)


_PAIR = kir.BLOCK // 2


def _multicast(s: kir.Buffer, full: kir.MBarrier, empty: kir.MBarrier) -> tuple[kir.Stmt, ...]:
    """CTA 0 loads a tile for both, each stores a row of tiles of its own.

    Both say first to CTA 1, then to CTA 0, that a slot is free: only CTA 0's barrier lets CTA 0 run
    ahead, and its next arrival at CTA 1 must not come before the last one of CTA 1 itself.
    """
    stages, slot = s.slots, k % s.slots
    free = tuple[kir.Stmt, ...](
        kir.Elect(PER_WARP, (kir.MBarrierArrive(empty, slot, kir.Scope.CLUSTER, cta),))
        for cta in (1, 0)
    )
    loop = (
        filled(full, k, stages),
        kir.Load(fragment("x", 1), kir.Slot(s, slot), 1),
        kir.WarpSync(),
        *free,
        add(1),
        kir.Store(tile(Y, k * 2 + kir.RANK, _PAIR), fragment("y", 1), 1),
    )
    both = kir.TmaLoad(kir.Slot(s, slot), tile(X, k * 2, _PAIR), full, slot, multicast=3)
    fill = (
        replace(emptied(empty, k, stages), scope=kir.Scope.CLUSTER),
        kir.MBarrierArriveExpectTx(full, slot, NBYTES),
        kir.IfThenElse(eq(kir.RANK, 0), (both,)),
    )
    return (
        kir.Role("compute", 0, 1, (kir.ForLoop(k, trips, loop),)),
        kir.Role("load", 1, 1, (kir.ForLoop(k, trips, (kir.Elect(ELECT, fill),)),)),
    )


def _remote(s: kir.Buffer, full: kir.MBarrier, empty: kir.MBarrier) -> tuple[kir.Stmt, ...]:
    """CTA 0 writes tiles into the ring of CTA 1, which stores them."""
    stages, slot, wide = s.slots, k % s.slots, kir.Scope.CLUSTER
    give = (
        kir.Load(fragment("x", 1), tile(X, k, _PAIR), 1),
        replace(emptied(empty, k, stages), scope=wide),
        kir.Store(kir.Slot(s, slot, 1), fragment("x", 1), 1),
        kir.WarpSync(),
        kir.Elect(PER_WARP, (kir.MBarrierArrive(full, slot, wide, 1),)),
    )
    take = (
        replace(filled(full, k, stages), scope=wide),
        kir.Load(fragment("x", 1), kir.Slot(s, slot), 1),
        kir.WarpSync(),
        kir.Elect(PER_WARP, (kir.MBarrierArrive(empty, slot, wide, 0),)),
        add(1),
        kir.Store(tile(Y, k, _PAIR), fragment("y", 1), 1),
    )
    mine = (kir.ForLoop(k, trips, give),)
    return (kir.IfThenElse(eq(kir.RANK, 0), mine, (kir.ForLoop(k, trips, take),)),)
