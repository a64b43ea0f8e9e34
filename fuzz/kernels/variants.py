"""Small right kernels for the hazards that no recipe of the cookbook can show.

They are recipes with one thing more: operands in registers, a pool of registers, slots cleared
before a copy, cp.async that feeds tensor cores, atomic sums, two warpgroups on one ring.
"""

from __future__ import annotations

from dataclasses import replace

from fuser.cookbook.matmul import (
    A_FRAGMENT,
    ACC,
    B_NBYTES,
    D,
    a_box,
    b_box,
    copies,
    d_box,
    loads,
    matmul,
    multiply,
    operands,
    wgmma_ring,
    zero,
)
from fuser.cookbook.ring import (
    CP_ASYNC,
    ELECT,
    PER_WARP,
    WGMMA,
    emptied,
    filled,
    k,
    q,
    ring,
    start,
    trips,
)
from fuser.cookbook.sum import IN, tma_ring
from fuser.dtype import DType
from fuser.expr import ceildiv, eq
from fuser.kernel import ir as kir
from fuzz.kernels.tile import COLS, ROWS, C, R, X, fragment, tile

WARPGROUPS = 256
"""Threads of a kernel whose warpgroups share a pool of registers."""
AT_LAUNCH, OF_LOADER, OF_CONSUMER = 128, 40, 216
"""Registers per thread; loader and consumer together hold what both had at launch."""


def two_consumers(stages: int) -> kir.Kernel:
    """Return a ring that two warpgroups multiply from: a slot is free when both are done."""
    return replace(wgmma_ring(stages, 1, 2), name="two_consumers")


def register_a(stages: int) -> kir.Kernel:
    """Take A from registers and B from a ring, and double the sum before each step is added."""
    _, whole = operands(stages)
    b = replace(whole, offset=0)
    full, empty = ring("full", 1, stages), ring("empty", 4, stages)
    slot = k % stages
    loop = (
        filled(full, k, stages),
        kir.Load(A_FRAGMENT, a_box(kir.BLOCK, k), 2),
        kir.Compute(ACC, "add", (ACC, ACC)),
        kir.WgmmaFence(),
        kir.Wgmma(ACC, A_FRAGMENT, kir.Slot(b, slot)),
        kir.AsyncCommit(WGMMA),
        kir.AsyncAwait(WGMMA, 0),
        kir.Elect(PER_WARP, (kir.MBarrierArrive(empty, slot),)),
    )
    fill = (
        emptied(empty, k, stages),
        kir.MBarrierArriveExpectTx(full, slot, B_NBYTES),
        kir.TmaLoad(kir.Slot(b, slot), b_box(kir.BLOCK, k), full, slot),
    )
    out = kir.Store(d_box(D, kir.BLOCK), ACC, 2)
    body = (
        *start(full, empty, threads=160),
        kir.Role("mma", 0, 4, (zero(), kir.ForLoop(k, trips, loop), out)),
        kir.Role("load", 4, 1, (kir.ForLoop(k, trips, (kir.Elect(ELECT, fill),)),)),
    )
    return matmul("register_a", body, (b,), (full, empty), 160)


def pooled(stages: int) -> kir.Kernel:
    """Let a loading warpgroup hand registers to the one that multiplies."""
    (a, b), full = operands(stages), ring("full", 1, stages)
    empty = ring("empty", 4, stages)
    fill = (emptied(empty, k, stages), *loads(a, b, full, k % stages, kir.BLOCK, k))
    use = (
        kir.SetMaxNReg(OF_CONSUMER, increase=True),
        zero(),
        kir.ForLoop(k, trips, multiply(a, b, full, empty, k)),
        kir.Store(d_box(D, kir.BLOCK), ACC, 2),
    )
    feed = (
        kir.SetMaxNReg(OF_LOADER, increase=False),
        kir.ForLoop(k, trips, (kir.Elect(ELECT, fill),)),
    )
    body = (
        *start(full, empty, threads=WARPGROUPS),
        kir.Role("mma", 0, 4, use),
        kir.Role("load", 4, 4, feed),
    )
    kernel = matmul("pooled", body, (a, b), (full, empty), WARPGROUPS)
    return replace(kernel, registers=AT_LAUNCH)


def cp_async_wgmma(stages: int) -> kir.Kernel:
    """Copy ahead by cp.async of all threads, and multiply from there by tensor cores.

    The block sync of a step tells of the copies of this step and of the product of the one before,
    whose slot is then filled again.
    """
    a, b = operands(stages)
    ahead = kir.IfThenElse(q < trips, copies(a, b, q, q, 128))
    later = k + (stages - 1)
    refill = kir.IfThenElse(later < trips, copies(a, b, later % stages, later, 128))
    loop = (
        kir.AsyncAwait(CP_ASYNC, stages - 2),
        kir.FenceAsyncProxy(kir.Space.SHARED),
        kir.BlockSync(0, 128),
        refill,
        kir.AsyncCommit(CP_ASYNC),
        kir.WgmmaFence(),
        kir.Wgmma(ACC, kir.Slot(a, k % stages), kir.Slot(b, k % stages)),
        kir.AsyncCommit(WGMMA),
        kir.AsyncAwait(WGMMA, 0),
    )
    body = (
        zero(),
        kir.ForLoop(q, stages - 1, (ahead, kir.AsyncCommit(CP_ASYNC))),
        kir.ForLoop(k, trips, loop),
        kir.Store(d_box(D, kir.BLOCK), ACC, 2),
    )
    return matmul("cp_async_wgmma", body, (a, b), (), 128)


def zero_filled(stages: int) -> kir.Kernel:
    """Clear all slots by ordinary stores before copies fill them."""
    kernel = tma_ring(stages)
    (s,) = kernel.buffers
    clear = (
        kir.Compute(IN, "cast", (kir.Literal(0.0, DType.F32),)),
        kir.ForLoop(q, stages, (kir.Store(kir.Slot(s, q), IN, 4),)),
        kir.FenceAsyncProxy(kir.Space.SHARED),
        kir.BlockSync(1, 128),
    )
    body = (*kernel.body[:3], *clear, *kernel.body[3:])
    return replace(kernel, name="zero_filled", body=body)


def atomic_sum(stages: int) -> kir.Kernel:
    """Add tiles to a base by atomics of `stages` warps, in an order that the kernel leaves open."""
    base = kir.Tensor("W", DType.F32, (ROWS, COLS), (COLS, 1), 4)
    out = kir.Tensor("Y", DType.F32, (ROWS, COLS), (COLS, 1), 4)
    every, one = fragment("x", stages), fragment("p", 1)

    def add(number: int) -> kir.Role:
        step = (kir.Load(one, tile(X, k, 0), 1), kir.AtomicAdd(_whole(base), one))
        return kir.Role(f"add{number}", number, 1, (kir.ForLoop(k, trips, step),))

    body: tuple[kir.Stmt, ...] = (
        kir.Let(trips, ceildiv(R, ROWS)),
        kir.Compute(every, "cast", (kir.Literal(0.0, DType.F32),)),
        kir.Store(_whole(base), every, 1),
        kir.BlockSync(0, kir.WARP * stages),
        *(add(number) for number in range(stages)),
        kir.BlockSync(0, kir.WARP * stages),
        kir.Load(every, _whole(base), 1),
        kir.Store(_whole(out), every, 1),
    )
    return kir.Kernel(
        "atomic_sum",
        (R, C),
        (X, base, out),
        (),
        (),
        (),
        kir.WARP * stages,
        body,
        outputs=("Y",),
        workspaces=("W",),
        requires=(eq(kir.GRID, 1),),
        determinism="unordered",
    )


def _whole(tensor: kir.Tensor) -> kir.Box:
    return kir.Box(tensor, (0, 0), (ROWS, COLS), (ROWS, COLS))
