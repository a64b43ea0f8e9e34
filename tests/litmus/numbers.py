"""Numbers beside what no thread knows: in minima, sums of conditions, places, and requirements."""

from __future__ import annotations

from dataclasses import replace

from fuser.expr import Expr, eq, maximum, minimum
from fuser.kernel import ir as kir
from litmus.meetings import meeting
from litmus.parts import (
    XN,
    YN,
    Litmus,
    Run,
    box,
    broken,
    fragment,
    k,
    kernel,
    legal,
    load,
    m,
    n,
    s,
    slots,
    store,
    t,
    trips,
)
from litmus.rings import ring
from litmus.turnstiles import LAST, turnstile

JOIN, OTHER = kir.BlockSync(0, 64), kir.BlockSync(1, 64)


def exchange(
    joins: Expr, *requires: Expr, others: tuple[kir.Stmt, ...] = (), counts: bool = False
) -> kir.Kernel:
    """Exchange a tile between two warps in every round, joined where a condition holds."""
    buffer, wide, thin = slots("S"), fragment("x", 64), fragment("x", 64, 1)
    loop = (
        load(wide, box(XN, k)),
        store(kir.Slot(buffer, 0), wide),
        kir.IfThenElse(joins, (JOIN,), others),
        load(thin, kir.Slot(buffer, 0)),
        store(box(YN, k), thin),
        kir.BlockSync(2, 64),
    )
    params = (n, m) if counts else (n,)
    made = kernel((kir.ForLoop(k, n, loop),), threads=64, buffers=(buffer,), params=params)
    return replace(made, requires=(*made.requires, *requires))


def turns(
    joins: Expr | None = None,
    *requires: Expr,
    others: tuple[kir.Stmt, ...] = (),
    turn: Expr = kir.BLOCK,
    counts: bool = False,
    sums: bool = False,
) -> kir.Kernel:
    """CTAs take turns, and join their warps where a condition holds before they release."""
    maybe = JOIN if joins is None else kir.IfThenElse(joins, (JOIN,), others)
    made = turnstile("turn add maybe release", turn=turn, to=LAST, maybe=maybe)
    if sums:
        zero = kir.Compute(fragment("z", 64), "cast", (kir.Literal(0.0, fragment("z").dtype),))
        made = replace(made, body=(kir.ForLoop(t, m, (zero,)), *made.body))
    return replace(
        made,
        params=(s, m) if counts else (s,),
        requires=(*made.requires, *requires),
    )


def waiting(test: Expr, *requires: Expr) -> kir.Kernel:
    """CTAs wait for their turns where a condition holds."""
    wait = turnstile("turn").body[-1]
    made = turnstile("maybe add join release", maybe=kir.IfThenElse(test, (wait,)))
    return replace(made, requires=(*made.requires, *requires))


def runs(*pairs: tuple[int, int]) -> tuple[Run, ...]:
    """Return launches of one CTA by `n` and `m`."""
    return tuple(Run(1, (("n", a), ("m", b))) for a, b in pairs)


def shared(*pairs: tuple[int, int]) -> tuple[Run, ...]:
    """Return launches of CTAs that share a tile, by their number and `m`."""
    return tuple(Run(a, (("s", a), ("m", b))) for a, b in pairs)


def groups(*counts: int) -> tuple[Run, ...]:
    """Return launches of so many CTAs."""
    return tuple(Run(count, (("s", count),)) for count in counts)


ALWAYS = "Whatever the numbers are, the condition holds."
LITMUS: tuple[Litmus, ...] = (
    legal("joined_up_to_the_larger", "H70", exchange(k < maximum(n, 3)), ALWAYS),
    broken(
        "joined_up_to_the_smaller",
        "H70",
        exchange(k < minimum(n, 3)),
        "RAW",
        "joined_up_to_the_larger",
        "From the fourth round on nothing joins the warps.",
    ),
    legal("joined_from_no_round_on", "H70", exchange(minimum(n - k, 1) <= n), ALWAYS),
    broken(
        "joined_but_in_the_last_rounds",
        "H70",
        exchange(k < maximum(n - 2, 0)),
        "RAW",
        "joined_from_no_round_on",
        "The last two rounds go without.",
    ),
    legal(
        "joined_either_way",
        "H70 H71",
        exchange(minimum(n, m) < 4, others=(OTHER,), counts=True),
        "One join or the other.",
        launches=runs((3, 5), (5, 3)),
    ),
    broken(
        "joined_where_one_of_two_is_small",
        "H70",
        exchange(minimum(n, m) < 4, counts=True),
        "RAW",
        "joined_either_way",
        "Where both counts are 4 there is no join.",
        launches=runs((5, 5)),
    ),
    legal("joined_by_a_sum_of_conditions", "H70", exchange((k < n) + (n < 3) >= 1), ALWAYS),
    broken(
        "joined_by_both_of_a_sum",
        "H70",
        exchange((k < 2) + (k + 1 < n) >= 1),
        "RAW",
        "joined_by_a_sum_of_conditions",
        "In the last of three rounds neither holds.",
        launches=trips(4),
    ),
    legal("joined_in_quarters", "H70", exchange(k // 2 < minimum(n, n + 3)), ALWAYS),
    broken(
        "joined_in_few_quarters",
        "H70",
        exchange(k // 2 < minimum(n, 2)),
        "RAW",
        "joined_in_quarters",
        "The fifth round is in the third pair of rounds.",
    ),
    legal(
        "ring_fed_in_two_parts",
        "H53",
        ring(fed=maximum(n - 3, 0) + minimum(n, 3)),
        "The first three rounds and those beyond are all rounds.",
    ),
    broken(
        "ring_fed_up_to_a_number",
        "H53",
        ring(fed=minimum(n, 4)),
        "deadlock arrivals",
        "ring_fed_in_two_parts",
        "The fifth load never comes.",
    ),
    legal(
        "joined_up_to_what_is_required",
        "H70",
        exchange(k < 4, n <= 4),
        "There are at most four rounds.",
        launches=trips(0, 1, 4),
    ),
    broken(
        "joined_up_to_less_than_required",
        "H70",
        exchange(k < 3, n <= 4),
        "RAW",
        "joined_up_to_what_is_required",
        "A launch of four rounds is legal.",
        launches=trips(4),
    ),
    # --- which CTAs there are -------------------------------------------------------------------
    legal(
        "turns_up_to_their_number",
        "H62",
        turns(turn=minimum(kir.BLOCK, s)),
        "No CTA has as large a number.",
        launches=groups(1, 3),
    ),
    broken(
        "turns_up_to_a_number",
        "H62",
        turns(turn=minimum(kir.BLOCK, 5)),
        "RAW WAW WAR semaphore deadlock",
        "turns_up_to_their_number",
        "The sixth and the seventh CTA take the same turn.",
        launches=groups(7),
    ),
    legal(
        "turns_joined_or_joined_otherwise",
        "H62 H70",
        turns(m // 2 + 4 > kir.BLOCK, others=(OTHER,), counts=True),
        "One join or the other.",
        launches=shared((1, 0), (3, 2)),
    ),
    broken(
        "turns_joined_below_a_scaled_count",
        "H62 H70",
        turns(m // 2 + 4 > kir.BLOCK, counts=True),
        "RAW WAW WAR",
        "turns_joined_or_joined_otherwise",
        "With m = 0 the fifth CTA releases what its other warp has not written.",
        launches=shared((6, 0)),
    ),
    legal(
        "turns_joined_either_way_from_the_middle_on",
        "H62 H70",
        turns(s // 2 > kir.BLOCK, others=(OTHER,)),
        "One join or the other, in each half.",
        launches=groups(1, 2, 5),
    ),
    broken(
        "turns_joined_a_little_beyond_the_middle",
        "H62 H70",
        turns(s // 2 + 1 >= kir.BLOCK),
        "RAW WAW WAR",
        "turns_joined_either_way_from_the_middle_on",
        "Of seven CTAs the last two are without.",
        launches=groups(7),
    ),
    legal(
        "turns_joined_either_way_in_one_long_period",
        "H62 H70",
        turns(eq(kir.BLOCK // 9, m), others=(OTHER,), counts=True),
        "One join or the other: that takes more CTAs in all than are followed.",
        launches=shared((1, 0), (2, 1)),
    ),
    broken(
        "turns_joined_but_in_one_long_period",
        "H62 H70",
        turns(eq(eq(kir.BLOCK // 9, m), 0), counts=True),
        "RAW WAW WAR",
        "turns_joined_either_way_in_one_long_period",
        "Nine CTAs in a row are without.",
        launches=shared((2, 0)),
    ),
    legal(
        "turns_joined_in_all_of_each_period",
        "H62 H70",
        turns(kir.BLOCK // 3 % 3 < 3),
        ALWAYS,
        launches=groups(1, 3),
    ),
    broken(
        "turns_joined_in_parts_of_a_period",
        "H62 H70",
        turns(kir.BLOCK // 3 % 3 < 2),
        "RAW WAW WAR",
        "turns_joined_in_all_of_each_period",
        "The seventh to ninth CTAs of nine are without.",
        launches=groups(8),
    ),
    legal(
        "turns_joined_whatever_is_added",
        "H62 H70",
        turns(eq(m + (s < kir.BLOCK), m), counts=True),
        ALWAYS,
        launches=shared((1, 0), (3, 2)),
    ),
    broken(
        "turns_joined_where_nothing_is_added",
        "H62 H70",
        turns(eq(m + (kir.BLOCK > 5), m), counts=True),
        "RAW WAW WAR",
        "turns_joined_whatever_is_added",
        "The seventh CTA adds 1.",
        launches=shared((8, 1)),
    ),
    legal(
        "turns_joined_after_sums",
        "H62 H70",
        turns(m < 3, others=(OTHER,), counts=True, sums=True),
        "One join or the other.",
        launches=shared((1, 0), (2, 3)),
    ),
    broken(
        "turns_joined_after_few_sums",
        "H62 H70",
        turns(m < 3, counts=True, sums=True),
        "RAW WAW WAR",
        "turns_joined_after_sums",
        "A loop in which CTAs do not meet runs as often as something else asks for.",
        launches=shared((2, 3)),
    ),
    legal(
        "ctas_meet_up_to_their_number",
        "H64",
        meeting(ctas=minimum(s, s + 3), residency="co-resident", together=1),
        "All of them meet.",
        launches=groups(1, 3),
    ),
    broken(
        "ctas_meet_up_to_a_number",
        "H64",
        meeting(ctas=minimum(s, 5), residency="co-resident", together=1),
        "collective deadlock RAW WAR",
        "ctas_meet_up_to_their_number",
        "Of six CTAs five meet.",
        launches=groups(6),
    ),
    legal(
        "turns_awaited_by_all_that_may_be",
        "H62",
        waiting(s < 9, s <= 8),
        "No launch has more CTAs.",
        launches=groups(1, 3),
    ),
    broken(
        "turns_awaited_by_fewer_than_may_be",
        "H62",
        waiting(s < 4, s <= 4),
        "RAW WAW WAR semaphore",
        "turns_awaited_by_all_that_may_be",
        "A launch of four CTAs is legal.",
        launches=groups(4),
    ),
)
