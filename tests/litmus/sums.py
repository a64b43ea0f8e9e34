"""Sums over CTAs and warps: engines drained, tiles relayed, clipped, rounded, residency."""

from __future__ import annotations

from fuser.expr import eq
from fuser.kernel import ir as kir
from litmus.parts import (
    W1,
    Y1,
    Litmus,
    Run,
    box,
    broken,
    elect,
    fragment,
    legal,
    load,
    s,
    store,
)
from litmus.turnstiles import (
    ALONE_TOO,
    SHARES,
    SPLITS,
    TURNS,
    XS,
    added,
    by_engine,
    grid,
    partial,
    relay,
    turnstile,
)

TWO = (Run(2),)
FLUSHED = "fence add commit"


def reversed_turns(residency: str) -> kir.Kernel:
    """Turns run from the last CTA down to CTA 0, which writes the output."""
    tile, before, total = (fragment(name, 64) for name in ("x", "before", "total"))
    turn = s - 1 - kir.BLOCK
    body = (
        load(tile, box(XS, kir.BLOCK)),
        kir.BlockSerializeWait(TURNS, 0, turn),
        kir.IfThenElse(
            eq(turn, 0),
            (kir.Compute(total, "cast", (tile,)),),
            (load(before, box(W1)), kir.Compute(total, "add", (tile, before))),
        ),
        kir.IfThenElse(
            turn + 1 < s,
            (store(box(W1), total),),
            (store(box(Y1), total),),
        ),
        kir.BlockSync(0, 64),
        elect(kir.BlockSerializeRelease(TURNS, 0, (turn + 1) % s)),
    )
    return grid(body, (XS, W1, Y1), residency=residency)


LITMUS: tuple[Litmus, ...] = (
    legal(
        "sums_by_the_engine",
        "H41 H34 H46",
        by_engine(),
        "Performed before the release; fenced in global memory after the turn.",
        launches=SPLITS,
    ),
    broken(
        "released_when_sources_are_read",
        "H41",
        by_engine("store commit read", "fence add commit read"),
        "drain RAW WAW",
        "sums_by_the_engine",
        "The engine's writes may still be on their way (PTX ISA, cp.async.bulk.wait_group.read).",
        launches=SHARES,
    ),
    broken(
        "released_right_after_the_commit",
        "H41",
        by_engine("store commit", FLUSHED, after="join release late"),
        "drain RAW WAW",
        "sums_by_the_engine",
        "Nothing of the group is known to be done when the turn is given away.",
        launches=SHARES,
    ),
    broken(
        "first_store_not_drained",
        "H41",
        by_engine("store commit read", "fence add commit done"),
        "drain RAW WAW",
        "sums_by_the_engine",
        "Only the first CTA releases too early; the others add to what may not be there.",
        launches=SHARES,
    ),
    broken(
        "reduction_without_a_fence_after_the_turn",
        "H34 H33",
        by_engine(later="add commit done"),
        "proxy",
        "sums_by_the_engine",
        "Asynchronous work on what another CTA wrote needs a fence of global memory after the "
        "acquire.",
        launches=SHARES,
    ),
    broken(
        "reduction_with_a_fence_of_shared_memory",
        "H34 H33",
        by_engine(later="fence_shared add commit done"),
        "proxy",
        "sums_by_the_engine",
        "A fence of shared memory says nothing of global memory.",
        launches=SHARES,
    ),
    broken(
        "sum_read_back_without_a_barrier",
        "H43 H34",
        by_engine(last="back out"),
        "RAW",
        "sums_by_the_engine",
        "Only the elected thread knows that the last addition is performed.",
        launches=ALONE_TOO,
    ),
    legal(
        "tile_relayed_to_an_engine",
        "H34 H81",
        relay(),
        "Stored, collected, released, acquired, fenced in global memory, loaded.",
        launches=TWO,
    ),
    broken(
        "tile_relayed_without_a_fence",
        "H34",
        relay(""),
        "proxy",
        "tile_relayed_to_an_engine",
        "The load engine of another CTA may read what was there before.",
        launches=TWO,
    ),
    broken(
        "tile_relayed_with_a_fence_of_shared_memory",
        "H34 H33",
        relay("fence_shared"),
        "proxy",
        "tile_relayed_to_an_engine",
        "A fence of shared memory says nothing of global memory.",
        launches=TWO,
    ),
    broken(
        "tile_relayed_without_waiting",
        "H34 H80",
        relay(wait_for=""),
        "RAW semaphore",
        "tile_relayed_to_an_engine",
        "Nothing orders the load after the store of the other CTA.",
        launches=TWO,
    ),
    broken(
        "tile_relayed_without_collecting",
        "H81 H34",
        relay(keep="release"),
        "RAW",
        "tile_relayed_to_an_engine",
        "The stores of the other warp are not covered by the release.",
        launches=TWO,
    ),
    legal(
        "partial_tile_clipped",
        "H82",
        partial(6),
        "Rows past the end are not written.",
        launches=TWO,
    ),
    broken(
        "partial_tile_not_clipped",
        "H82",
        partial(8),
        "bounds coverage",
        "partial_tile_clipped",
        "Two rows are written past the end (seen as a lost predicate of a split that does not "
        "divide).",
        launches=TWO,
    ),
    broken(
        "partial_tile_clipped_too_early",
        "H82",
        partial(5),
        "coverage",
        "partial_tile_clipped",
        "The last row is written by nobody.",
        launches=TWO,
    ),
    legal(
        "atomic_sums_declared_unordered",
        "H83",
        added(),
        "Atomics of several warps round in any order, and the kernel says so.",
    ),
    broken(
        "atomic_sums_declared_bitwise",
        "H83",
        added(determinism="bitwise"),
        "determinism",
        "atomic_sums_declared_unordered",
        "The order of three additions to a base is open, and so are the last bits.",
    ),
    legal(
        "atomic_sums_in_turn",
        "H83",
        added(determinism="bitwise", joined="yes"),
        "A barrier between the additions leaves one order.",
    ),
    broken(
        "turnstile_without_residency",
        "H84",
        turnstile(residency="any"),
        "residency deadlock",
        "turnstile",
        "Nothing says that the CTA of the turn before ever runs.",
        launches=SHARES,
    ),
    legal(
        "turnstile_of_co_resident_ctas",
        "H84",
        turnstile(residency="co-resident"),
        "All CTAs run at once, so each turn comes.",
        launches=SPLITS,
    ),
    legal(
        "reversed_turns_of_co_resident_ctas",
        "H84 H80",
        reversed_turns("co-resident"),
        "Turns may run down where all CTAs run at once.",
        launches=SPLITS,
    ),
    broken(
        "reversed_turns_by_ticket",
        "H84",
        reversed_turns("ticket"),
        "residency deadlock",
        "reversed_turns_of_co_resident_ctas",
        "A CTA with a smaller ticket waits for one that may start only when it has left.",
        launches=SHARES,
    ),
)
