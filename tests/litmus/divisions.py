"""Quotients by what may be 0, and of what may be negative, wherever a statement has one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from fuser.expr import Expr, both, eq, maximum
from fuser.kernel import ir as kir
from litmus.parts import (
    ONE_CTA,
    TILE,
    X1,
    Y1,
    Body,
    Litmus,
    Run,
    box,
    broken,
    elect,
    fragment,
    init,
    k,
    kernel,
    legal,
    load,
    m,
    n,
    p,
    q,
    s,
    slots,
    store,
    tensor,
)

X, S, BAR = fragment("x"), slots("S"), kir.MBarrier("bar", 1, 1)
IN, OUT, JOIN = load(X, box(X1)), store(box(Y1), X), kir.WarpSync()
ZERO = (n % m) // (n + m + 1)
"""Is 0 in any launch in which it is anything."""


def of(*body: kir.Stmt, requires: tuple[Expr, ...] = ()) -> kir.Kernel:
    """Return a kernel of one CTA that copies a tile, with some statements between."""
    return kernel(
        (init(BAR), kir.BlockSync(0, 32), IN, *body, OUT),
        buffers=(S,),
        barriers=(BAR,),
        tensors=(X1, Y1),
        params=(n, m),
        requires=(ONE_CTA, *requires),
    )


def only(test: Expr, *body: kir.Stmt) -> kir.IfThenElse:
    """Execute statements under a condition."""
    return kir.IfThenElse(test, body)


def waits(parity: Expr, *, retry: bool = True) -> Body:
    """Arrive at a barrier, and wait for the phase, or try once."""
    wait = kir.MBarrierWaitParity(BAR, 0, parity, retry=retry)
    return kir.Elect(kir.Per.ROLE, (kir.MBarrierArrive(BAR, 0),)), wait


PLACES: dict[str, Body] = {
    "a_coordinate": (load(X, box(X1, ZERO)),),
    "a_limit": (kir.Load(X, kir.Box(X1, (0, 0), TILE, (4 + ZERO, 32)), 4),),
    "a_slot": (store(kir.Slot(S, ZERO), X), load(X, kir.Slot(S, 0))),
    "a_parity": waits(ZERO),
    "a_single_try": waits(ZERO, retry=False),
    "a_condition": (only(n // m < 3, JOIN),),
    "the_end_of_a_loop": (kir.ForLoop(k, n // m, (JOIN,)),),
    "a_let": (kir.Let(q, n // m),),
}
"""Where a kernel divides by `m`."""
UNDECIDED = "a_limit", "a_slot", "a_parity", "a_single_try"
"""Where the prover does not follow a parameter: what divides by at least 1 there is unknown."""


def by_place() -> Iterator[Litmus]:
    """Yield kernels that divide by a parameter, which is at least 1 in the twin."""
    for name, body in PLACES.items():
        twin = "a_coordinate" if name in UNDECIDED else name
        if twin == name:
            yield legal(
                f"{name}_divides_by_a_parameter_of_at_least_1",
                "H71",
                of(*body, requires=(m >= 1,)),
                "The kernel requires that there is something to divide by.",
                launches=(run(0, 1), run(3, 2)),
            )
        yield broken(
            f"{name}_divides_by_any_parameter",
            "H71",
            of(*body),
            "bounds",
            f"{twin}_divides_by_a_parameter_of_at_least_1",
            "A launch may have 0 there, and C++ says nothing of what that gives.",
            launches=(run(3, 0),),
        )


def run(first: int, second: int) -> Run:
    """Return a launch of one CTA."""
    return Run(1, (("n", first), ("m", second)))


def turned(then: Expr, *, orelse: Body = (), small: bool = True) -> kir.Kernel:
    """Return a kernel of `s` CTAs, each of which gives the turn on, under a condition if it can."""
    give = kir.BlockSerializeRelease(TURNS, 0, then)
    body = (
        load(X, box(XS, kir.BLOCK)),
        store(box(YS, kir.BLOCK), X),
        kir.Let(q, 1),
        kir.BlockSync(0, 32),
        kir.BlockSerializeWait(TURNS, 0, kir.BLOCK),
        elect(kir.IfThenElse(s > 1, (give,), orelse) if orelse else give),
    )
    few = (s >= 1, s <= 1) if small else (s >= 1,)
    requires = (*few, eq(kir.GRID, s))
    made = kernel(body, tensors=(XS, YS), params=(s,), requires=requires)
    return replace(made, semaphores=(TURNS,), residency="ticket")


TURNS, XS, YS = kir.Semaphore("turns", 1), tensor("X", s), tensor("Y", s)
ALONE = (Run(1, (("s", 1),)),)
STAYS: Body = (kir.BlockSerializeRelease(TURNS, 0, 0),)
BOTH = run(0, 0), run(1, 0), run(5, 2)

LITMUS: tuple[Litmus, ...] = (
    *by_place(),
    legal(
        "a_condition_that_asks_before_it_divides",
        "H71",
        of(only(both(m > 0, n // m < 3), JOIN)),
        "The right part of && is evaluated only where the left one holds.",
        launches=BOTH,
    ),
    broken(
        "a_condition_that_asks_after_it_divides",
        "H71",
        of(only(both(n // m < 3, m > 0), JOIN)),
        "bounds",
        "a_condition_that_asks_before_it_divides",
        "The left part of && is evaluated in any case.",
        launches=(run(1, 0),),
    ),
    legal(
        "a_tile_that_is_loaded_where_something_divides",
        "H71",
        of(kir.ForLoop(k, m, (load(X, box(X1, (k % m) // m)),))),
        "Of 0 tiles none is loaded, so that nothing is divided by their number.",
        launches=BOTH,
    ),
    broken(
        "a_tile_that_is_loaded_once_more_where_something_divides",
        "H71",
        of(kir.ForLoop(k, m + 1, (load(X, box(X1, (k % m) // (m + 1))),))),
        "bounds",
        "a_tile_that_is_loaded_where_something_divides",
        "With 0 tiles the round too many divides by their number.",
        launches=(run(1, 0),),
    ),
    legal(
        "a_quotient_of_what_is_left",
        "H71",
        of(kir.ForLoop(k, maximum(n - m, 0) // 2, (JOIN,))),
        "Where nothing is left it is 0.",
        launches=BOTH,
    ),
    broken(
        "a_quotient_of_what_is_lacking",
        "H71",
        of(kir.ForLoop(k, (n - m) // 2, (JOIN,))),
        "bounds",
        "a_quotient_of_what_is_left",
        "Of a negative number C++ rounds towards 0, and Python down.",
        launches=(run(0, 3),),
    ),
    legal(
        "a_turn_by_a_let_of_1",
        "H71",
        turned((kir.BLOCK + q) % s, small=False),
        "What is divided by the number of CTAs is at least 1.",
        launches=(*ALONE, Run(2, (("s", 2),))),
    ),
    broken(
        "a_turn_below_0_by_a_let_of_1",
        "H71",
        turned((kir.BLOCK - 1) % q),
        "bounds",
        "a_turn_by_a_let_of_1",
        "The first CTA divides a negative number; that 1 divides it makes no difference.",
        launches=ALONE,
    ),
    broken(
        "a_turn_below_0_times_0",
        "H71",
        turned((kir.BLOCK + q) % s + (kir.BLOCK - 1) // s * (q - 1), small=False),
        "bounds",
        "a_turn_by_a_let_of_1",
        "A quotient that a let multiplies by 0 is evaluated all the same.",
        launches=ALONE,
    ),
    legal(
        "a_turn_of_others_where_there_are_some",
        "H71 H80",
        turned((kir.BLOCK + 1) % (s - 1), orelse=STAYS),
        "The only CTA is on the other branch, and divides by nothing.",
        launches=ALONE,
    ),
    broken(
        "a_turn_of_others_where_there_are_none",
        "H71",
        turned((kir.BLOCK + 1) % (s - 1)),
        "bounds",
        "a_turn_of_others_where_there_are_some",
        "The only CTA divides by the number of the others, which is 0.",
        launches=ALONE,
    ),
    broken(
        "a_turn_of_others_given_where_there_are_none",
        "H80",
        turned(kir.BLOCK + 1),
        "semaphore",
        "a_turn_of_others_where_there_are_some",
        "The only CTA leaves 1, and the next launch expects 0.",
        launches=ALONE,
    ),
    legal(
        "a_remainder_by_a_let_of_1",
        "H71",
        of(kir.Let(q, 1), kir.Let(p, 5 % q), only(p < 1, JOIN)),
        "It is 0.",
        launches=BOTH,
    ),
    broken(
        "a_remainder_by_a_let_of_0",
        "H71",
        of(kir.Let(q, 0), kir.Let(p, 5 % q), only(p < 1, JOIN)),
        "bounds",
        "a_remainder_by_a_let_of_1",
        "Every launch divides a number by 0.",
        launches=(run(1, 1),),
    ),
)
