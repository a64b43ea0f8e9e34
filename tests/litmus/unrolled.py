"""Rings whose roles take several tiles a turn: unrolled loops, guarded tails, tails behind them."""

from __future__ import annotations

from collections.abc import Callable

from fuser.expr import Expr, Var, ceildiv, eq, minimum
from fuser.kernel import ir as kir
from litmus.parts import (
    ONE_CTA,
    XN,
    YN,
    Body,
    Litmus,
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
    n,
    q,
    slots,
    store,
    trips,
    wait,
)

One = Callable[[Expr], Body]


def guarded(by: int, *, until: Expr = n, count: Expr | None = None) -> Callable[[One], Body]:
    """Take `by` tiles a turn, all but the first where there are so many."""

    def made(one: One) -> Body:
        later = (kir.IfThenElse(k * by + i < until, one(k * by + i)) for i in range(1, by))
        turns = ceildiv(n, by) if count is None else count
        return (kir.ForLoop(k, turns, (*one(k * by), *later)),)

    return made


def all_guarded(one: One) -> Body:
    """Take two tiles a turn, each where there is one."""
    both = (kir.IfThenElse(k * 2 + i < n, one(k * 2 + i)) for i in range(2))
    return (kir.ForLoop(k, ceildiv(n, 2), tuple(both)),)


def nested(one: One) -> Body:
    """Take four tiles a turn: the second pair where there is a third, the last where a fourth."""
    at = k * 4
    tail = (*one(at + 2), kir.IfThenElse(at + 3 < n, one(at + 3)))
    rest = kir.IfThenElse(at + 1 < n, (*one(at + 1), kir.IfThenElse(at + 2 < n, tail)))
    return (kir.ForLoop(k, ceildiv(n, 4), (*one(at), rest)),)


def whole(by: int) -> Callable[[One], Body]:
    """Take `by` tiles a turn, and leave a rest."""
    return lambda one: (
        kir.ForLoop(k, n // by, tuple(stmt for i in range(by) for stmt in one(k * by + i))),
    )


def then_one(one: One) -> Body:
    """Take two tiles a turn, and an odd one behind them."""
    return (*whole(2)(one), kir.IfThenElse(eq(n % 2, 1), one(n - 1)))


def then_some(by: int, *, first: Expr | None = None) -> Callable[[One], Body]:
    """Take `by` tiles a turn, and the rest one by one behind them."""
    start = n // by * by if first is None else first
    return lambda one: (*whole(by)(one), kir.ForLoop(q, n % by, one(start + q)))


def each(one: One) -> Body:
    """Take a tile a turn."""
    return (kir.ForLoop(k, n, one(k)),)


def ring(
    use: Callable[[One], Body] = each,
    feed: Callable[[One], Body] = each,
    *,
    stages: int = 2,
    behind: int = 0,
    early: bool = False,
    requires: tuple[Expr, ...] = (ONE_CTA,),
    place: Callable[[Expr], Expr] = lambda at: at,
    params: tuple[Var, ...] = (n,),
) -> kir.Kernel:
    """Return a ring with both walks; the user waits for a phase `behind`, or frees too `early`.

    Step by step a CTA has the tiles at `place`.
    """
    buffer = slots("S", stages)
    full, empty = kir.MBarrier("full", 1, stages), kir.MBarrier("empty", 32, stages)

    def used(at: Expr) -> Body:
        slot, turn = at % stages, at // stages
        tile = fragment("x")
        read, free = load(tile, kir.Slot(buffer, slot)), kir.MBarrierArrive(empty, slot)
        pair: Body = (free, read) if early else (read, free)
        return (wait(full, slot, turn + behind), *pair, store(box(YN, place(at)), tile))

    def filled(at: Expr) -> Body:
        slot, turn = at % stages, at // stages
        room = wait(empty, slot, turn + 1)
        return (elect(room, *fill(kir.Slot(buffer, slot), box(XN, place(at)), full, slot)),)

    body = (
        init(full, empty),
        kir.BlockSync(0, 64),
        kir.Role("use", 0, 1, use(used)),
        kir.Role("load", 1, 1, feed(filled)),
    )
    return kernel(
        body,
        threads=64,
        buffers=(buffer,),
        barriers=(full, empty),
        params=params,
        requires=requires,
    )


EVEN, SIXES = (ONE_CTA, eq(n % 2, 0)), (ONE_CTA, eq(n % 6, 0))

LITMUS: tuple[Litmus, ...] = (
    legal(
        "two_tiles_a_turn_the_second_guarded",
        "H10 H16",
        ring(guarded(2), stages=2),
        "Each tile is taken once, in order; of an odd number the last turn has one.",
    ),
    legal(
        "two_tiles_a_turn_of_three_slots",
        "H10 H16",
        ring(guarded(2), stages=3),
        "Slots come round every three turns of two tiles.",
    ),
    legal(
        "two_tiles_a_turn_of_five_slots",
        "H10 H16",
        ring(guarded(2), stages=5),
        "Slots come round every five turns of two tiles.",
    ),
    legal(
        "two_tiles_a_turn_of_one_slot",
        "H10 H16",
        ring(guarded(2), stages=1),
        "The second tile of a turn comes when the first one has been freed.",
    ),
    legal(
        "three_tiles_a_turn_two_guarded",
        "H10 H16",
        ring(guarded(3), stages=2),
        "One guard after the other closes.",
    ),
    legal(
        "three_tiles_a_turn_of_four_slots",
        "H10 H16",
        ring(guarded(3), stages=4),
        "Slots come round every four turns of three tiles.",
    ),
    legal(
        "four_tiles_a_turn_guards_in_guards",
        "H10 H16",
        ring(nested, stages=3),
        "Each guard stands in the one before it.",
    ),
    legal(
        "two_tiles_a_turn_both_guarded",
        "H10 H16",
        ring(all_guarded, stages=3),
        "The first guard always holds.",
    ),
    legal(
        "both_roles_take_two_tiles_a_turn",
        "H10 H16",
        ring(guarded(2), guarded(2), stages=3),
        "The loader is guarded like the user.",
    ),
    legal(
        "user_takes_two_tiles_a_turn_and_loader_three",
        "H10 H16",
        ring(guarded(2), guarded(3), stages=2),
        "They differ in how they count, not in what they count.",
    ),
    legal(
        "loader_takes_two_tiles_a_turn",
        "H10 H16",
        ring(each, guarded(2), stages=2),
        "The user counts one by one.",
    ),
    legal(
        "two_tiles_a_turn_then_an_odd_one",
        "H10 H16",
        ring(then_one, stages=2),
        "The odd tile is the last.",
    ),
    legal(
        "two_tiles_a_turn_of_three_slots_then_an_odd_one",
        "H10 H16",
        ring(then_one, stages=3),
        "The slot of the odd tile depends on how many came before.",
    ),
    legal(
        "three_tiles_a_turn_then_the_rest",
        "H10 H16",
        ring(then_some(3), stages=2),
        "The rest begins behind the last whole turn.",
    ),
    legal(
        "both_roles_take_two_tiles_then_an_odd_one",
        "H10 H16",
        ring(then_one, then_one, stages=2),
        "Both leave the odd tile for the end.",
    ),
    legal(
        "two_tiles_a_turn_of_an_even_number",
        "H10 H16",
        ring(whole(2), stages=2, requires=EVEN),
        "No launch has an odd one.",
        launches=trips(0, 2, 4, 6),
    ),
    legal(
        "two_tiles_a_turn_of_an_even_number_three_slots",
        "H10 H16",
        ring(whole(2), stages=3, requires=EVEN),
        "No launch has an odd one.",
        launches=trips(0, 2, 4, 6),
    ),
    legal(
        "user_by_two_and_loader_by_three_of_a_multiple_of_six",
        "H10 H16",
        ring(whole(2), whole(3), stages=4, requires=SIXES),
        "Both come out even.",
        launches=trips(0, 6, 12),
    ),
    broken(
        "two_tiles_a_turn_of_any_number",
        "H10 H16",
        ring(whole(2), stages=2),
        "exit coverage",
        "two_tiles_a_turn_of_an_even_number",
        "An odd tile is loaded and left alone.",
        launches=trips(1, 5),
    ),
    broken(
        "user_by_two_and_loader_by_three_of_an_even_number",
        "H10 H16",
        ring(whole(2), whole(3), stages=4, requires=EVEN),
        "deadlock",
        "user_by_two_and_loader_by_three_of_a_multiple_of_six",
        "The user waits for tiles that the loader leaves.",
        launches=trips(2, 8),
    ),
    broken(
        "two_tiles_a_turn_none_guarded",
        "H10 H16",
        ring(guarded(2, until=n + 1), stages=2),
        "deadlock",
        "two_tiles_a_turn_the_second_guarded",
        "Of an odd number the last one is waited for and never loaded.",
        launches=trips(1, 5),
    ),
    broken(
        "two_tiles_a_turn_the_last_never_taken",
        "H10 H16",
        ring(guarded(2, until=n - 1), stages=3),
        "exit coverage",
        "two_tiles_a_turn_of_three_slots",
        "Of an even number the last one is loaded and left alone.",
        launches=trips(2, 6),
    ),
    broken(
        "three_tiles_a_turn_a_phase_behind",
        "H10 H16",
        ring(guarded(3), stages=4, behind=1),
        "RAW parity deadlock",
        "three_tiles_a_turn_of_four_slots",
        "The user waits for the phase before its own.",
    ),
    broken(
        "four_tiles_a_turn_freed_before_they_are_read",
        "H10 H16",
        ring(nested, stages=3, early=True),
        "WAR RAW",
        "four_tiles_a_turn_guards_in_guards",
        "The loader may refill what is not read yet.",
        launches=trips(5),
    ),
    broken(
        "two_tiles_a_turn_and_one_turn_too_few",
        "H10 H16",
        ring(guarded(2, count=n // 2), stages=5),
        "exit coverage",
        "two_tiles_a_turn_of_five_slots",
        "Turns are rounded down, and of an odd number the last one is left.",
    ),
    broken(
        "loader_takes_two_tiles_a_turn_none_guarded",
        "H10 H16",
        ring(each, guarded(2, until=n + 1), stages=2),
        "exit",
        "loader_takes_two_tiles_a_turn",
        "Of an odd number one more is loaded than is taken.",
    ),
    broken(
        "three_tiles_a_turn_then_the_rest_one_off",
        "H10 H16",
        ring(then_some(3, first=n // 3 * 3 + 1), stages=2),
        "deadlock parity RAW coverage",
        "three_tiles_a_turn_then_the_rest",
        "The rest begins one tile too far on.",
    ),
    broken(
        "three_tiles_a_turn_then_the_rest_from_the_end",
        "H10 H16",
        ring(then_some(3, first=n - minimum(n, 2)), stages=2),
        "deadlock parity RAW WAW coverage arrivals",
        "three_tiles_a_turn_then_the_rest",
        "The rest is one tile or two, and two are counted back.",
        launches=trips(4, 7),
    ),
)
