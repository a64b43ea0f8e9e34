"""The kernels of the cookbook and variants, with launches of few trips, to judge their mutants."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache

from fuser.cookbook import recipes
from fuser.cookbook.matmul import STEP, TILE_M, TILE_N
from fuser.cookbook.sum import TILE_C, TILE_R
from fuser.kernel import ir as kir
from fuzz.kernels.draw import Skeleton, skeleton
from fuzz.kernels.tile import COLS, ROWS, Pattern, Start
from fuzz.kernels.variants import (
    atomic_sum,
    cp_async_wgmma,
    pooled,
    register_a,
    two_consumers,
    zero_filled,
)
from fuzz.mutation.operators import Mutant, all_mutants

STAGES = (2, 3, 4)
"""Numbers of stages for which every recipe is judged."""


def _sum(count: int) -> tuple[Start, ...]:
    return ((1, {"R": TILE_R * count, "C": TILE_C}),)


def _product(count: int) -> tuple[Start, ...]:
    return ((1, {"M": TILE_M, "N": TILE_N, "K": STEP * count}),)


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


def _added(count: int) -> tuple[Start, ...]:
    return ((1, {"R": ROWS * count, "C": COLS}),)


def _pair(count: int) -> tuple[Start, ...]:
    return ((2, {"M": 2 * TILE_M, "N": TILE_N, "K": STEP * count}),)


_RECIPES: dict[str, tuple[Callable[[int], kir.Kernel], Callable[[int], tuple[Start, ...]]]] = {
    "tma_ring": (recipes.tma_ring, _sum),
    "specialized_ring": (recipes.specialized_ring, _sum),
    "store_ring": (recipes.store_ring, _sum),
    "wgmma_ring": (recipes.wgmma_ring, _product),
    "double_wgmma": (recipes.double_wgmma, _product),
    "persistent": (recipes.persistent, _tiles),
    "ping_pong": (recipes.ping_pong, _tiles),
    "cp_async_ring": (recipes.cp_async_ring, _product),
    "cp_async_mbarrier": (recipes.cp_async_mbarrier, _product),
    "split_k": (recipes.split_k, _splits),
    "split_k_tma": (recipes.split_k_tma, _splits),
    "cluster_multicast": (recipes.cluster_multicast, _pair),
    "two_consumers": (two_consumers, _product),
    "register_a": (register_a, _product),
    "pooled": (pooled, _product),
    "cp_async_wgmma": (cp_async_wgmma, _product),
    "zero_filled": (zero_filled, _sum),
    "atomic_sum": (atomic_sum, _added),
}
"""The cookbook, and the variants that show what it cannot."""
SEEDS = (
    "tma_ring",
    "wgmma_ring",
    "double_wgmma",
    "store_ring",
    "split_k",
    "split_k_tma",
    "ping_pong",
    "persistent",
)
"""Recipes whose sync mutants both judges have to kill, each one that is not redundant."""


def recipe(name: str, stages: int) -> Skeleton:
    """Return a recipe of the cookbook, or a variant, without a fault."""
    build, at = _RECIPES[name]
    return skeleton(Pattern(build(stages), stages, at), build(stages), name)


@cache
def recipe_mutants(name: str, stages: int) -> tuple[Mutant, ...]:
    """Return every mutant of a recipe, in the order of the operators."""
    return tuple(all_mutants(recipe(name, stages).kernel))


def mutated(name: str, stages: int, number: int) -> Skeleton:
    """Return mutant `number` of a recipe, with the launches of the recipe."""
    build, at = _RECIPES[name]
    mutant = recipe_mutants(name, stages)[number]
    fault = f"{mutant.operator}: {mutant.change}"
    pattern = Pattern(build(stages), stages, at)
    return skeleton(pattern, mutant.kernel, name, (fault,), mutant.hazards)


def subjects(stages: tuple[int, ...]) -> Iterator[tuple[str, int, int]]:
    """Name, stages and number of every mutant of every recipe."""
    for name in _RECIPES:
        for count in stages:
            for number in range(len(recipe_mutants(name, count))):
                yield name, count, number
