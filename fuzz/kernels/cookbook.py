"""The kernels of the cookbook and variants, with launches of few trips, to judge their mutants.

Variants are for the hazards that no recipe can show: recipes with one thing more, such as operands
in registers, a pool of registers, slots cleared before a copy, cp.async that feeds tensor cores,
atomic sums, two warpgroups on one ring.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache

from fuser.cookbook import recipes
from fuser.cookbook.matmul import (
    A_FRAGMENT,
    ACC,
    B_NBYTES,
    STEP,
    TILE_M,
    TILE_N,
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
from fuser.cookbook.sum import IN, TILE_C, TILE_R, tma_ring
from fuser.dtype import DType
from fuser.expr import ceildiv, eq
from fuser.kernel import ir as kir
from fuzz.kernels.draw import Subject, mutated, subject
from fuzz.kernels.template import one_product
from fuzz.kernels.tile import COLS, ROWS, C, R, Start, Template, X, fragment, one_cta, tile
from fuzz.mutation.operators import Mutant, all_mutants

STAGES = (2, 3, 4)
"""Numbers of stages for which every recipe is judged."""
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
        "atomic_sum", (R, C), (X, base, out), (), (), (), kir.WARP * stages, body, outputs=("Y",),
        workspaces=("W",), requires=(eq(kir.GRID, 1),), determinism="unordered",
    )  # fmt: skip


def _whole(tensor: kir.Tensor) -> kir.Box:
    return kir.Box(tensor, (0, 0), (ROWS, COLS), (ROWS, COLS))


# --- launches, and subjects ---------------------------------------------------------------------


def _sum(count: int) -> tuple[Start, ...]:
    return ((1, {"R": TILE_R * count, "C": TILE_C}),)


def _tiles(count: int) -> tuple[Start, ...]:
    """Few tiles of `count` steps, and `count` tiles of one step and of none."""
    pairs = dict.fromkeys([(1, count), (2, count), (3, count), (count, 1), (count, 0)])
    return tuple(
        (1, {"M": TILE_M * tiles, "N": TILE_N, "K": STEP * steps}) for tiles, steps in pairs
    )


def _splits(count: int) -> tuple[Start, ...]:
    """One to three CTAs of `count` steps each, and `count` CTAs of one step."""
    pairs = dict.fromkeys([(1, count), (2, count), (3, count), (count, 1)])
    return tuple(
        (cta, {"M": TILE_M, "N": TILE_N, "K": STEP * steps * cta, "splits": cta})
        for cta, steps in pairs
        if cta
    )


def _pair(count: int) -> tuple[Start, ...]:
    return ((2, {"M": 2 * TILE_M, "N": TILE_N, "K": STEP * count}),)


_RECIPES: dict[str, tuple[Callable[[int], kir.Kernel], Callable[[int], tuple[Start, ...]]]] = {
    "tma_ring": (recipes.tma_ring, _sum),
    "specialized_ring": (recipes.specialized_ring, _sum),
    "store_ring": (recipes.store_ring, _sum),
    "wgmma_ring": (recipes.wgmma_ring, one_product),
    "double_wgmma": (recipes.double_wgmma, one_product),
    "persistent": (recipes.persistent, _tiles),
    "ping_pong": (recipes.ping_pong, _tiles),
    "cp_async_ring": (recipes.cp_async_ring, one_product),
    "cp_async_mbarrier": (recipes.cp_async_mbarrier, one_product),
    "split_k": (recipes.split_k, _splits),
    "split_k_tma": (recipes.split_k_tma, _splits),
    "cluster_multicast": (recipes.cluster_multicast, _pair),
    "two_consumers": (two_consumers, one_product),
    "register_a": (register_a, one_product),
    "pooled": (pooled, one_product),
    "cp_async_wgmma": (cp_async_wgmma, one_product),
    "zero_filled": (zero_filled, _sum),
    "atomic_sum": (atomic_sum, one_cta),
}
"""The cookbook, and the variants that show what it cannot."""
SEEDS = (
    "tma_ring", "wgmma_ring", "double_wgmma", "store_ring", "split_k", "split_k_tma", "ping_pong",
    "persistent",
)  # fmt: skip
"""Recipes whose sync mutants both judges have to kill, each one that is not redundant."""


@cache
def _template(name: str, stages: int) -> Template:
    build, at = _RECIPES[name]
    return Template(build(stages), stages, at)


def recipe(name: str, stages: int) -> Subject:
    """Return a recipe of the cookbook, or a variant, without a fault."""
    return subject(_template(name, stages), name)


@cache
def recipe_mutants(name: str, stages: int) -> tuple[Mutant, ...]:
    """Return every mutant of a recipe, in the order of the operators."""
    return tuple(all_mutants(_template(name, stages).kernel))


def recipe_mutant(name: str, stages: int, number: int) -> Subject:
    """Return mutant `number` of a recipe, with the launches of the recipe."""
    return mutated(_template(name, stages), name, recipe_mutants(name, stages)[number])


def subjects(stages: tuple[int, ...]) -> Iterator[tuple[str, int, int]]:
    """Name, stages and number of every mutant of every recipe."""
    for name in _RECIPES:
        for count in stages:
            for number in range(len(recipe_mutants(name, count))):
                yield name, count, number
