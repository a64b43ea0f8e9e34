"""Registers that are written on some ways to where they are read, and not on others."""

from __future__ import annotations

from dataclasses import replace

from fuser.expr import Expr, both, eq, minimum
from fuser.kernel import ir as kir
from litmus.parts import (
    ONE_CTA,
    X1,
    XN,
    Y1,
    YN,
    Body,
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
    p,
    q,
    store,
    trips,
    zero,
)
from litmus.products import ACC, SLOT, STAGES, ZERO, product, tiles

X, Z = fragment("x"), fragment("z")
IN, OUT, CLEAR = load(X, box(X1)), store(box(Y1), X), zero(X)
ADD = kir.Compute(Z, "add", (Z, X))


def once(*body: kir.Stmt) -> kir.Kernel:
    """Return a kernel that stores one tile, in launches of any `n` and `m`."""
    return kernel(body, tensors=(X1, Y1), params=(n, m))


def each(*body: kir.Stmt) -> kir.Kernel:
    """Return a kernel that stores a tile in each of `n` iterations."""
    return kernel((kir.ForLoop(k, n, body),))


def only(test: Expr, *body: kir.Stmt, orelse: Body = ()) -> kir.IfThenElse:
    """Execute statements under a condition."""
    return kir.IfThenElse(test, body, orelse)


def run(first: int, second: int) -> Run:
    """Return a launch of one CTA."""
    return Run(1, (("n", first), ("m", second)))


SOME = run(0, 0), run(1, 0), run(0, 1), run(3, 2)
SLOT_A, SLOT_B = (kir.Slot(buffer, SLOT) for buffer in tiles(STAGES))
FRESH = product(
    before="",
    loop="wait fence fresh commit await free",
    fresh=kir.Wgmma(ACC, SLOT_A, SLOT_B, accumulate=k >= 1),
)
GET, PUT = load(X, box(XN, k)), store(box(YN, k), X)

LITMUS: tuple[Litmus, ...] = (
    legal(
        "a_tile_that_is_loaded_or_cleared",
        "H12",
        once(only(m > 0, IN, orelse=(CLEAR,)), OUT),
        "One of the branches writes the registers.",
        launches=SOME,
    ),
    broken(
        "a_tile_that_is_loaded_under_a_condition",
        "H12",
        once(only(m > 0, IN), OUT),
        "RAW",
        "a_tile_that_is_loaded_or_cleared",
        "Where the condition does not hold nobody has written what is stored.",
        launches=(run(1, 0),),
    ),
    legal(
        "a_condition_that_gives_another",
        "H12",
        once(CLEAR, only(n > m, load(Z, box(X1))), only(both(n > m + 1, m > 0), ADD), OUT),
        "Registers are read only where the wider condition held.",
        launches=SOME,
    ),
    broken(
        "a_condition_that_gives_no_other",
        "H12",
        once(CLEAR, only(n > m + 1, load(Z, box(X1))), only(both(n > m, m > 0), ADD), OUT),
        "RAW",
        "a_condition_that_gives_another",
        "With n = m + 1 they are read and have not been written.",
        launches=(run(2, 1),),
    ),
    legal(
        "a_sum_that_a_loop_begins_behind_a_clear",
        "H12",
        once(CLEAR, kir.ForLoop(k, n // 2, (IN,)), OUT),
        "A loop without an iteration leaves the registers cleared.",
        launches=SOME,
    ),
    broken(
        "a_sum_that_a_loop_begins",
        "H12",
        once(kir.ForLoop(k, n // 2, (IN,)), OUT),
        "RAW",
        "a_sum_that_a_loop_begins_behind_a_clear",
        "A loop without an iteration writes no registers.",
        launches=(run(0, 1), run(1, 0)),
    ),
    legal(
        "a_tile_that_the_first_iteration_loads",
        "H12",
        each(only(eq(k, 0), load(X, box(XN, k))), PUT),
        "The registers keep what the first iteration wrote.",
    ),
    broken(
        "a_tile_that_the_second_iteration_loads",
        "H12",
        each(only(eq(k, 1), load(X, box(XN, k))), PUT),
        "RAW",
        "a_tile_that_the_first_iteration_loads",
        "The first iteration stores registers that nobody has written.",
    ),
    legal(
        "a_tile_of_the_iteration_before",
        "H12",
        each(only(eq(k, 0), load(Z, box(XN, k))), GET, ADD, load(Z, box(XN, k)), PUT),
        "The first iteration loads what later ones have from the one before.",
    ),
    broken(
        "a_tile_of_no_iteration_before",
        "H12",
        each(only(eq(k, 1), load(Z, box(XN, k))), GET, only(k < 3, ADD), load(Z, box(XN, k)), PUT),
        "RAW",
        "a_tile_of_the_iteration_before",
        "Nothing comes before the first iteration.",
    ),
    legal(
        "a_loop_that_is_as_long_as_another",
        "H12",
        once(
            CLEAR,
            kir.ForLoop(q, n, (load(Z, box(X1)),)),
            kir.ForLoop(p, minimum(n, m), (ADD,)),
            OUT,
        ),
        "The loop that reads has an iteration only if the one that writes has.",
        launches=SOME,
    ),
    broken(
        "a_loop_that_is_longer_than_another",
        "H12",
        once(
            CLEAR,
            kir.ForLoop(q, minimum(n, m), (load(Z, box(X1)),)),
            kir.ForLoop(p, n, (ADD,)),
            OUT,
        ),
        "RAW",
        "a_loop_that_is_as_long_as_another",
        "With m = 0 the loop that writes has no iteration.",
        launches=(run(2, 0),),
    ),
    broken(
        "sums_that_some_launches_clear",
        "H20 H22",
        product(before="some", some=only(n > 2, kir.Compute(ACC, "cast", (ZERO,)))),
        "RAW",
        "product",
        "The first product adds to registers that nobody has cleared.",
        launches=trips(1, 2),
    ),
    legal(
        "sums_of_at_least_one_product",
        "H20 H22",
        replace(FRESH, requires=(ONE_CTA, n >= 1)),
        "The first product writes the sums, later ones add to them.",
        launches=trips(1, 2, 5),
    ),
    broken(
        "sums_of_no_product",
        "H20 H22",
        FRESH,
        "RAW",
        "sums_of_at_least_one_product",
        "Without a product nobody writes the sums that are stored.",
        launches=trips(0),
    ),
)
