"""All litmus kernels, and what is asked of the suite itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fuser.kernel import ir as kir
from fuser.kernel.ir import LaunchSequence
from litmus import (
    aliases,
    arrivals,
    bugs,
    bugs_matmul,
    bulk,
    by_hand,
    clusters,
    collectives,
    columns,
    counts,
    cp_async,
    dependents,
    destinations,
    distributed,
    divisions,
    drawn,
    flags,
    found,
    grid,
    in_place,
    lengths,
    lives,
    matmul,
    mbarriers,
    meetings,
    named,
    numbers,
    operands,
    orders,
    passes,
    phases,
    places,
    prologues,
    proxies,
    published,
    queues,
    reductions,
    released,
    required,
    rules,
    rules_phases,
    rules_turns,
    runs,
    scans,
    sent,
    several,
    shared_rows,
    sizes,
    slices,
    spaces,
    sums,
    swizzled,
    tensor_maps,
    threads,
    transposed,
    unrolled,
    vectors,
    views,
    walks,
    wgmma,
    written,
)
from litmus.parts import Litmus

_MODULES = (
    mbarriers, counts, phases, lives, places, vectors, views, wgmma, operands, proxies, spaces,
    bulk, destinations, cp_async, queues, published, clusters, distributed, threads, named, numbers,
    aliases, grid, in_place, sums, meetings, arrivals, walks, bugs, bugs_matmul, found,
    sizes, divisions, unrolled, prologues, required, orders, flags, collectives, slices, rules,
    rules_phases, rules_turns, matmul, columns, reductions, dependents, written, passes, several,
    lengths, released, scans, sent, drawn, runs, shared_rows, tensor_maps, by_hand,
    transposed, swizzled,
)  # fmt: skip

LITMUS: tuple[Litmus, ...] = tuple(one for module in _MODULES for one in module.LITMUS)
"""Every litmus, group by group."""

RECIPES = {one.name: one.kernel for one in LITMUS if not one.refused}
"""What the file offers to `python -m oracles`, and to `python -m fuzz.crosscheck --of`."""

EXPECT: dict[str, Callable[..., Any]] = {
    "product": lambda A, B: A.float() @ B.float().T,
    "an_output_updated_in_place": lambda Y: Y + Y,
    "an_output_updated_in_place_by_engines": lambda Y: Y + Y,
    "a_tile_is_told_of_while_the_next_one_is_sent": lambda X: X,
    "sums_by_the_engine": lambda X, s: X.view(s, 4, 32).sum(0),
    "tile_relayed_to_an_engine": lambda X: X,
}
"""What some of them compute."""

_SPANS = (1, 17), (20, 27), (30, 36), (40, 46), (50, 55), (60, 65), (70, 76), (80, 85)
ROWS = frozenset(f"H{number:02}" for first, last in _SPANS for number in range(first, last + 1))
"""Rows of the table of hazards that a kernel can express."""


def by_name(name: str) -> Litmus:
    """Return the litmus of a name."""
    return next(one for one in LITMUS if one.name == name)


def kernels(one: Litmus) -> tuple[kir.Kernel, ...]:
    """Return the kernels of a litmus: several where it is a program."""
    return one.kernel.launches if isinstance(one.kernel, LaunchSequence) else (one.kernel,)
