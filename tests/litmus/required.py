"""Loops and guards that are right only because of what the kernel requires of its sizes."""

from __future__ import annotations

from fuser.expr import Expr, Var, ceildiv, eq, minimum
from fuser.kernel import ir as kir
from litmus.parts import (
    ONE_CTA,
    XN,
    YN,
    Body,
    Litmus,
    Run,
    box,
    broken,
    elect,
    fill,
    fragment,
    init,
    k,
    kernel,
    legal,
    load,
    m,
    n,
    q,
    slots,
    store,
    trips,
    wait,
)


def once(stages: int, *requires: Expr) -> kir.Kernel:
    """Return a kernel that fills a slot for each tile, and never one again."""
    buffer, full, tile = slots("S", stages), kir.MBarrier("full", 1, stages), fragment("x")
    use = (wait(full, k, 0), load(tile, kir.Slot(buffer, k)), store(box(YN, k), tile))
    feed = elect(*fill(kir.Slot(buffer, k), box(XN, k), full, k))
    body = (
        init(full),
        kir.BlockSync(0, 64),
        kir.Role("use", 0, 1, (kir.ForLoop(k, n, use),)),
        kir.Role("load", 1, 1, (kir.ForLoop(k, n, (feed,)),)),
    )
    wanted = (ONE_CTA, *requires)
    return kernel(body, threads=64, buffers=(buffer,), barriers=(full,), requires=wanted)


def ring(
    used: Expr,
    fed: Expr,
    *requires: Expr,
    each: int = 1,
    guard: Expr | None = None,
    stages: int = 2,
    params: tuple[Var, ...] = (n, m),
) -> kir.Kernel:
    """Return a ring whose roles run to ends of their own; the user takes `each` tiles a turn.

    With a `guard` the user takes a tile only where that holds.
    """
    buffer, tile = slots("S", stages), fragment("x")
    full, empty = kir.MBarrier("full", 1, stages), kir.MBarrier("empty", 32, stages)

    def use(at: Expr) -> Body:
        slot = at % stages
        return (
            wait(full, slot, at // stages),
            load(tile, kir.Slot(buffer, slot)),
            kir.MBarrierArrive(empty, slot),
            store(box(YN, at), tile),
        )

    room = wait(empty, k % stages, k // stages + 1)
    feed = elect(room, *fill(kir.Slot(buffer, k % stages), box(XN, k), full, k % stages))
    turn = tuple(stmt for i in range(each) for stmt in use(k * each + i))
    user = turn if guard is None else (kir.IfThenElse(guard, turn),)
    body = (
        init(full, empty),
        kir.BlockSync(0, 64),
        kir.Role("use", 0, 1, (kir.ForLoop(k, used, user),)),
        kir.Role("load", 1, 1, (kir.ForLoop(k, fed, (feed,)),)),
    )
    return kernel(
        body,
        threads=64,
        buffers=(buffer,),
        barriers=(full, empty),
        params=params,
        requires=(ONE_CTA, *requires),
    )


def started(first: int, *requires: Expr) -> kir.Kernel:
    """Return a kernel of one warp that copies `first` tiles without asking how many there are."""
    buffer, full, tile = slots("S", first), kir.MBarrier("full", 1, first), fragment("x")

    def copy(number: Expr) -> kir.Stmt:
        at = number % first
        return elect(*fill(kir.Slot(buffer, at), box(XN, number), full, at))

    turn = (
        wait(full, k % first, k // first),
        load(tile, kir.Slot(buffer, k % first)),
        store(box(YN, k), tile),
        kir.WarpSync(),
        kir.IfThenElse(k + first < n, (copy(k + first),)),
    )
    body = (
        init(full),
        kir.BlockSync(0, 32),
        kir.ForLoop(q, first, (copy(q),)),
        kir.ForLoop(k, n, turn),
    )
    return kernel(body, buffers=(buffer,), barriers=(full,), requires=(ONE_CTA, *requires))


def pairs(*counts: tuple[int, int]) -> tuple[Run, ...]:
    """Return launches by two counts."""
    return tuple(Run(1, (("n", a), ("m", b))) for a, b in counts)


def alone(*counts: int) -> tuple[Run, ...]:
    """Return launches by a count, with another that is not used."""
    return pairs(*((count, 1) for count in counts))


LITMUS: tuple[Litmus, ...] = (
    legal(
        "a_slot_for_each_of_eight_tiles",
        "H10 H21",
        once(8, n <= 8),
        "There are no more tiles than slots, and none is filled twice.",
        launches=trips(0, 1, 5, 8),
    ),
    legal(
        "a_slot_for_each_of_three_tiles",
        "H10 H21",
        once(3, eq(n, 3)),
        "There are three tiles in every launch.",
        launches=trips(3),
    ),
    legal(
        "a_slot_for_each_of_less_than_five_tiles",
        "H10 H21",
        once(4, n < 5),
        "There are no more tiles than slots.",
        launches=trips(0, 2, 4),
    ),
    broken(
        "a_slot_for_each_tile_and_one_tile_more",
        "H10 H21",
        once(8, n <= 9),
        "bounds",
        "a_slot_for_each_of_eight_tiles",
        "The ninth tile has no slot.",
        launches=trips(9),
    ),
    legal(
        "two_sizes_that_are_required_to_be_equal",
        "H16",
        ring(n, m, eq(m, n)),
        "Both roles go through all tiles.",
        launches=pairs((0, 0), (1, 1), (5, 5)),
    ),
    broken(
        "two_sizes_that_are_required_to_be_ordered",
        "H16",
        ring(n, m, m <= n),
        "deadlock exit",
        "two_sizes_that_are_required_to_be_equal",
        "The user waits for more tiles than are loaded.",
        launches=pairs((3, 1), (5, 4)),
    ),
    legal(
        "two_sizes_that_are_required_to_differ_by_two",
        "H16",
        ring(n, m + 2, eq(n, m + 2)),
        "The loader counts from the other size.",
        launches=pairs((2, 0), (3, 1), (7, 5)),
    ),
    broken(
        "two_sizes_that_differ_by_one_too_many",
        "H16",
        ring(n, m + 2, eq(n, m + 3)),
        "deadlock",
        "two_sizes_that_are_required_to_differ_by_two",
        "The last tile is never loaded.",
        launches=pairs((3, 0), (6, 3)),
    ),
    legal(
        "one_size_that_is_twice_another",
        "H16",
        ring(m, n, eq(n, 2 * m), each=2, stages=3),
        "The user takes two tiles a turn, of twice as many as it has turns.",
        launches=pairs((0, 0), (2, 1), (8, 4)),
    ),
    broken(
        "one_size_that_is_twice_another_and_one",
        "H16",
        ring(m, n, eq(n, 2 * m + 1), each=2, stages=3),
        "exit coverage",
        "one_size_that_is_twice_another",
        "The odd tile is loaded and left alone.",
        launches=pairs((1, 0), (7, 3)),
    ),
    legal(
        "turns_of_four_of_a_multiple_of_four",
        "H16",
        ring(n // 4, n, eq(n % 4, 0), each=4, stages=2),
        "Turns come out even.",
        launches=alone(0, 4, 12),
    ),
    broken(
        "turns_of_four_of_a_multiple_of_two",
        "H16",
        ring(n // 4, n, eq(n % 2, 0), each=4, stages=2),
        "exit coverage",
        "turns_of_four_of_a_multiple_of_four",
        "Two tiles may be left over.",
        launches=alone(2, 6),
    ),
    legal(
        "turns_rounded_up_of_a_multiple_of_three",
        "H16",
        ring(ceildiv(n, 3), n, eq(n % 3, 0), each=3, stages=4),
        "Rounding up changes nothing.",
        launches=alone(0, 3, 9),
    ),
    broken(
        "turns_rounded_up_of_any_number",
        "H16",
        ring(ceildiv(n, 3), n, n >= 3, each=3, stages=4),
        "deadlock",
        "turns_rounded_up_of_a_multiple_of_three",
        "The last turn waits for tiles that there are not.",
        launches=alone(4, 8),
    ),
    legal(
        "a_limit_that_is_never_reached",
        "H16",
        ring(minimum(n, 8), n, n <= 8),
        "The lesser of both is always the size.",
        launches=alone(0, 3, 8),
    ),
    broken(
        "a_limit_that_is_reached",
        "H16",
        ring(minimum(n, 8), n, n <= 12, stages=3),
        "deadlock exit coverage",
        "a_limit_that_is_never_reached",
        "Tiles behind the limit are loaded and never taken.",
        launches=alone(9, 12),
    ),
    legal(
        "tiles_copied_before_they_are_counted",
        "H10 H16",
        started(3, n >= 3),
        "There are at least as many as are copied first.",
        launches=trips(3, 4, 7),
    ),
    legal(
        "tiles_copied_before_they_are_counted_of_four",
        "H10 H16",
        started(2, eq(n, 4)),
        "There are four in every launch.",
        launches=trips(4),
    ),
    broken(
        "tiles_copied_before_they_are_counted_of_too_few",
        "H10 H16",
        started(3, n >= 2),
        "exit",
        "tiles_copied_before_they_are_counted",
        "Of two tiles three are copied, and nobody waits for the last.",
        launches=trips(2),
    ),
    legal(
        "turns_of_two_of_no_more_than_forty_tiles",
        "H16",
        ring(ceildiv(n, 2), n, n <= 40, eq(n % 2, 0), each=2, guard=k < 20, stages=3),
        "There are no more than twenty turns, so the guard always holds.",
        launches=alone(0, 2, 6, 40),
    ),
    broken(
        "turns_of_two_of_more_than_forty_tiles",
        "H16",
        ring(ceildiv(n, 2), n, n <= 42, eq(n % 2, 0), each=2, guard=k < 20, stages=3),
        "exit coverage deadlock",
        "turns_of_two_of_no_more_than_forty_tiles",
        "The last turn of 42 tiles is left out.",
        launches=alone(42),
    ),
    legal(
        "a_guard_that_always_holds",
        "H16",
        ring(n, n, n <= 6, guard=k < 6, stages=2),
        "No counter reaches the number.",
        launches=alone(0, 3, 6),
    ),
    broken(
        "a_guard_that_holds_for_the_first_tiles",
        "H16",
        ring(n, n, n <= 7, guard=k < 6, stages=2),
        "exit coverage",
        "a_guard_that_always_holds",
        "The seventh tile is loaded and left alone.",
        launches=alone(7),
    ),
)
