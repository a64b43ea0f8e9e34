"""CTAs that take turns on a semaphore: turns awaited, released and left as they were."""

from __future__ import annotations

from dataclasses import replace

from fuser.expr import eq
from fuser.kernel import ir as kir
from fuser.kernel.ir import LaunchSequence
from litmus.parts import (
    Y1,
    Litmus,
    Run,
    box,
    broken,
    elect,
    fragment,
    legal,
    load,
    store,
    tensor,
)
from litmus.turnstiles import (
    ALONE_TOO,
    LAST,
    SHARES,
    SPLITS,
    TURNS,
    XS,
    grid,
    turnstile,
)


def unshared() -> kir.Kernel:
    """Every CTA stores the whole output, as if it were alone."""
    tile = fragment("x", 64)
    made = grid((load(tile, box(XS, kir.BLOCK)), store(box(Y1), tile)), (XS, Y1), workspaces=())
    return replace(made, semaphores=())


def two_tiles(*, own: bool) -> kir.Kernel:
    """Two tiles, two CTAs each: a semaphore of its own for each tile, or one for both."""
    turns = kir.Semaphore("turns", 2)
    x, w, y = tensor("X", 4), tensor("W", 2), tensor("Y", 2)
    number, turn = kir.BLOCK // 2, kir.BLOCK % 2
    tile, before, total = (fragment(name, 64) for name in ("x", "before", "total"))
    index = number if own else 0
    body = (
        load(tile, box(x, kir.BLOCK)),
        kir.BlockSerializeWait(turns, index, turn),
        kir.IfThenElse(
            eq(turn, 0),
            (store(box(w, number), tile),),
            (
                load(before, box(w, number)),
                kir.Compute(total, "add", (tile, before)),
                store(box(y, number), total),
            ),
        ),
        kir.BlockSync(0, 64),
        elect(kir.BlockSerializeRelease(turns, index, (turn + 1) % 2)),
    )
    made = grid(body, (x, w, y))
    return replace(
        made, params=(), requires=(eq(kir.GRID, 4),), semaphores=(turns,), residency="ticket"
    )


def launches(*, dirty: bool) -> LaunchSequence:
    """Launch the turnstile twice, with the semaphore left as it should be or not."""
    kernels = tuple(turnstile(to=kir.BLOCK + 1 if dirty else LAST) for _ in range(2))
    return LaunchSequence("litmus", kernels)


def guarded(*, everywhere: bool) -> kir.Kernel:
    """Wait for the turn in every CTA, or only in those that read what came before."""
    made = turnstile()
    if everywhere:
        return made
    wait = kir.IfThenElse(kir.BLOCK % 2, (kir.BlockSerializeWait(TURNS, 0, kir.BLOCK),))
    return turnstile("maybe add join release", maybe=wait)


LITMUS: tuple[Litmus, ...] = (
    legal(
        "turnstile",
        "H80 H81 H84",
        turnstile(),
        "Waited for, collected by a barrier, released at gpu scope, left at 0 "
        "(PTX ISA, memory consistency model, release patterns).",
        launches=SPLITS,
    ),
    broken(
        "turn_not_awaited",
        "H80",
        turnstile("add join release"),
        "RAW WAR WAW semaphore",
        "turnstile",
        "The sum so far is read before it is written.",
        launches=SHARES,
    ),
    broken(
        "turn_awaited_by_every_other_cta",
        "H80",
        guarded(everywhere=False),
        "RAW WAR WAW semaphore deadlock",
        "turnstile",
        "A CTA of even number takes its turn unasked (seen as a wait under a predicate).",
        launches=(Run(3, (("s", 3),)),),
    ),
    broken(
        "turn_of_the_next_cta",
        "H80 H16",
        turnstile(turn=kir.BLOCK + 1),
        "deadlock semaphore",
        "turnstile",
        "Nobody releases the turn that the first CTA waits for.",
        launches=ALONE_TOO,
    ),
    broken(
        "turn_never_released",
        "H80 H16",
        turnstile("turn add join"),
        "deadlock",
        "turnstile",
        "The second CTA waits forever.",
        launches=SHARES,
    ),
    broken(
        "semaphore_not_reset",
        "H80",
        turnstile(to=kir.BLOCK + 1),
        "semaphore",
        "turnstile",
        "The next launch finds the number of splits instead of 0 (seen with a reused arena).",
        launches=ALONE_TOO,
    ),
    legal(
        "two_launches_of_a_clean_turnstile",
        "H80",
        launches(dirty=False),
        "The first launch leaves 0 for the second; the boundary orders everything.",
        launches=SPLITS,
    ),
    broken(
        "two_launches_of_a_dirty_turnstile",
        "H80",
        launches(dirty=True),
        "semaphore deadlock",
        "two_launches_of_a_clean_turnstile",
        "The second launch waits for a turn 0 that is gone.",
        launches=ALONE_TOO,
    ),
    legal(
        "a_semaphore_for_each_tile",
        "H80",
        two_tiles(own=True),
        "Tiles have turns of their own.",
        launches=(Run(4),),
    ),
    broken(
        "one_semaphore_for_two_tiles",
        "H80",
        two_tiles(own=False),
        "semaphore RAW deadlock",
        "a_semaphore_for_each_tile",
        "A CTA of one tile takes the turn that one of the other tile released.",
        launches=(Run(4),),
    ),
    broken(
        "every_cta_writes_the_output",
        "H80 H46",
        unshared(),
        "WAW coverage",
        "turnstile",
        "A kernel without turns is launched with several CTAs per tile.",
        launches=SHARES,
    ),
    broken(
        "released_without_a_barrier",
        "H81",
        turnstile("turn add release"),
        "RAW WAW WAR",
        "turnstile",
        "The release covers the writes of its own thread, not of the other warp.",
        launches=SHARES,
    ),
    broken(
        "released_before_the_barrier",
        "H81",
        turnstile("turn add release join"),
        "RAW WAW WAR",
        "turnstile",
        "The barrier collects the writes after the release.",
        launches=SHARES,
    ),
    broken(
        "released_before_the_writes",
        "H81 H80",
        turnstile("turn join release add"),
        "RAW WAW WAR",
        "turnstile",
        "The release stands before what it should publish.",
        launches=SHARES,
    ),
    broken(
        "released_relaxed",
        "H81",
        turnstile("turn add join relaxed"),
        "scope RAW",
        "released_relaxed_behind_a_fence",
        "A relaxed store orders nothing (seen in a fusion compiler's serial reductions).",
        launches=SHARES,
    ),
    legal(
        "released_relaxed_behind_a_fence",
        "H81",
        turnstile("turn add join fenced"),
        "A cumulative fence at gpu scope behind the barrier covers what the thread has observed.",
        launches=SPLITS,
    ),
    broken(
        "released_relaxed_behind_a_narrow_fence",
        "H81",
        turnstile("turn add join fenced_cta"),
        "scope RAW",
        "released_relaxed_behind_a_fence",
        "A fence at cta scope does not reach the next CTA.",
        launches=SHARES,
    ),
    broken(
        "released_relaxed_before_the_fence",
        "H81",
        turnstile("turn add join fenced_late"),
        "scope RAW",
        "released_relaxed_behind_a_fence",
        "The fence stands behind the store that it should hold back.",
        launches=SHARES,
    ),
    legal(
        "released_relaxed_when_all_have_fenced",
        "H81",
        turnstile("turn add all_fence join fenced"),
        "Every writer fences, and the releasing thread once more.",
        launches=SPLITS,
    ),
    broken(
        "released_at_cta_scope",
        "H81",
        turnstile("turn add join narrow"),
        "scope RAW",
        "turnstile",
        "A release at cta scope does not reach the next CTA.",
        launches=SHARES,
    ),
    broken(
        "turn_acquired_at_cta_scope",
        "H81",
        turnstile("turn_cta add join release"),
        "scope RAW",
        "turnstile",
        "An acquire at cta scope sees nothing of another CTA.",
        launches=SHARES,
    ),
)
