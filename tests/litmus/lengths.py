"""Rings whose roles cut one length in different parts, of one CTA's tiles or of all."""

from __future__ import annotations

from collections.abc import Callable

from fuser.expr import Expr, Kind, Var, ceildiv, eq, fold, maximum, minimum
from fuser.kernel import ir as kir
from litmus.parts import ONE_CTA, Body, Litmus, Run, broken, k, legal, m, n, q
from litmus.unrolled import One, ring

e = Var("e")
Walk = Callable[[One], Body]


def each(total: Expr, start: Expr = 0) -> Walk:
    """Take so many tiles, one a turn."""
    return lambda one: (kir.ForLoop(k, total, one(start + k)),)


def parted(total: Expr, first: Expr, *, on: Expr = 0, less: int = 0) -> Walk:
    """Take some tiles, then the rest, which goes on a number of tiles too far or is too short."""
    rest = maximum(total - first - less, 0)
    return lambda one: (
        kir.ForLoop(q, minimum(total, first), one(q)),
        kir.ForLoop(e, rest, one(first + on + e)),
    )


def guarded(total: Expr, *, more: int = 0) -> Walk:
    """Take two tiles a turn, the second one where there is one, or might be."""
    return lambda one: (
        kir.ForLoop(
            k,
            ceildiv(total, 2),
            (*one(k * 2), kir.IfThenElse(fold(Kind.LT, k * 2 + 1, total + more), one(k * 2 + 1))),
        ),
    )


def in_threes(total: Expr, *, last: Expr = 0) -> Walk:
    """Take three tiles a turn, by a loop in a loop."""
    few = kir.ForLoop
    return lambda one: (
        few(k, ceildiv(total, 3), (few(q, minimum(total - k * 3 + last, 3), one(k * 3 + q)),)),
    )


def pairs(last: Expr) -> Walk:
    """Take pairs of tiles, and an odd one behind them."""
    return lambda one: (
        kir.ForLoop(k, n // 2, (*one(k * 2), *one(k * 2 + 1))),
        kir.IfThenElse(eq(n % 2, 1), one(last)),
    )


def one_way_for_few(total: Expr, *, on: int = 0) -> Walk:
    """Take the tiles in one of two loops, of which the second one may begin too far on."""
    return lambda one: (
        kir.IfThenElse(
            fold(Kind.LE, total, 2), each(total)(one), (kir.ForLoop(q, total, one(q + on)),)
        ),
    )


def while_any(rounds: Expr, *, more: int = 0) -> Walk:
    """Go round as often as the CTA with most tiles, and take one while there is any."""
    there = fold(Kind.LT, kir.BLOCK + k * kir.GRID, n + more)
    return lambda one: (kir.ForLoop(k, rounds, (kir.IfThenElse(there, one(k)),)),)


MOST = ceildiv(n, kir.GRID)
CHUNK, STRIDED = minimum(n - kir.BLOCK * 3, 3), ceildiv(n - kir.BLOCK, 3)
CHUNKS, STRIDES = (eq(kir.GRID, ceildiv(n, 3)),), (eq(kir.GRID, minimum(n, 3)),)


def chunks(use: Walk, feed: Walk) -> kir.Kernel:
    """Each CTA has three tiles in a row, the last one fewer."""
    return ring(use, feed, requires=CHUNKS, place=lambda at: kir.BLOCK * 3 + at)


def strided(use: Walk, feed: Walk) -> kir.Kernel:
    """Each of up to three CTAs has every third tile."""
    return ring(use, feed, requires=STRIDES, place=lambda at: kir.BLOCK + at * 3)


def dealt(use: Walk, feed: Walk) -> kir.Kernel:
    """Each of any number of CTAs has a tile in each round, while there are any."""
    return ring(use, feed, requires=(), place=lambda at: kir.BLOCK + at * kir.GRID)


def both(use: Walk, feed: Walk, *requires: Expr, stages: int = 2) -> kir.Kernel:
    """One CTA, and two parameters."""
    return ring(use, feed, stages=stages, requires=(ONE_CTA, *requires), params=(n, m))


def runs(*launches: tuple[int, ...]) -> tuple[Run, ...]:
    """Return launches of a grid, n and, if there is one, m."""
    return tuple(Run(grid, tuple(zip("nm", values, strict=False))) for grid, *values in launches)


DEALT = runs((1, 1), (1, 3), (2, 4), (2, 5), (3, 8))
ANY = runs((1, 0), (1, 3), (2, 3), (3, 4), (3, 8))
WIDE = runs((1, 1), (2, 2), (3, 3), (3, 4), (3, 8))
TWO = runs((1, 0, 0), (1, 1, 3), (1, 3, 1), (1, 5, 2), (1, 7, 7))
WHY = "However the length is cut, each side takes every tile once, in order."

LITMUS: tuple[Litmus, ...] = (
    legal("chunks_by_two_and_by_parts", "H10 H16", chunks(guarded(CHUNK), parted(CHUNK, 2)), WHY,
          launches=DEALT),
    broken("chunks_of_three_whatever_is_left", "H10 H16", chunks(guarded(CHUNK), parted(3, 2)),
           "exit deadlock", "chunks_by_two_and_by_parts",
           "The last CTA has fewer tiles than three, and its loader copies three.",
           launches=runs((2, 4), (1, 2))),
    legal("strides_in_threes_and_by_parts", "H10 H16",
          strided(in_threes(STRIDED), parted(STRIDED, 1)), WHY, launches=WIDE),
    broken("strides_of_which_one_cta_forgets_its_last", "H10 H16",
           strided(in_threes(STRIDED), parted(ceildiv(n - kir.BLOCK - 1, 3), 1)),
           "deadlock", "strides_in_threes_and_by_parts",
           "Where n is one more than a multiple of three from it on, a CTA waits for a tile.",
           launches=runs((3, 4), (1, 1))),
    legal("tiles_while_there_are_any", "H10 H16", dealt(while_any(MOST), while_any(n)), WHY,
          launches=ANY),
    broken("a_reader_without_its_guard", "H10 H16", dealt(each(MOST), while_any(MOST)),
           "deadlock", "tiles_while_there_are_any",
           "In the last round the CTAs that have no tile wait for one.", launches=ANY),
    broken("a_loader_with_one_tile_more", "H10 H16",
           dealt(while_any(MOST), while_any(MOST, more=1)), "exit deadlock",
           "tiles_while_there_are_any",
           "Where CTAs have none in the last round, the first of them copies one nobody reads.",
           launches=ANY),
    legal("parts_of_a_parameter", "H10 H16", both(each(n), parted(n, m)), WHY, launches=TWO),
    broken("parts_of_a_parameter_with_a_gap", "H10 H16", both(each(n), parted(n, m, on=1)),
           "parity deadlock RAW", "parts_of_a_parameter",
           "Behind the first m tiles the slots are those of one tile further on.",
           launches=runs((1, 3, 1), (1, 5, 2))),
    broken("parts_of_a_parameter_one_tile_short", "H10 H16", both(each(n), parted(n, m, less=1)),
           "deadlock", "parts_of_a_parameter",
           "If there are more than m tiles, the last one never comes.",
           launches=runs((1, 3, 1), (1, 5, 2))),
    legal("no_more_than_a_parameter", "H10 H16",
          both(parted(minimum(n, m), 3), in_threes(n), n <= m), WHY,
          launches=runs((1, 0, 0), (1, 2, 3), (1, 5, 5), (1, 4, 7))),
    broken("no_more_than_a_parameter_the_other_way", "H10 H16",
           both(parted(maximum(n, m), 3), in_threes(n), n <= m), "deadlock bounds",
           "no_more_than_a_parameter", "n is the lesser of both: for more nobody loads a tile.",
           launches=runs((1, 2, 3), (1, 4, 7))),
    legal("parts_beyond_the_ring", "H10 H16", ring(each(n), parted(n, 7), stages=3), WHY,
          launches=runs((1, 0), (1, 7), (1, 8), (1, 11))),
    broken("parts_beyond_the_ring_with_a_gap", "H10 H16",
           ring(each(n), parted(n, 7, on=3), stages=3), "arrivals deadlock",
           "parts_beyond_the_ring", "From the eighth tile on the loader is a phase further.",
           launches=runs((1, 8), (1, 11))),
    legal("pairs_and_an_odd_tile", "H10 H16", ring(pairs(n - 1), in_threes(n), stages=3), WHY,
          launches=runs((1, 0), (1, 1), (1, 4), (1, 7))),
    broken("pairs_and_another_odd_tile", "H10 H16", ring(pairs(n), in_threes(n), stages=3),
           "deadlock", "pairs_and_an_odd_tile",
           "Of an odd number the last tile is taken for the one behind it.",
           launches=runs((1, 1), (1, 7))),
    broken("threes_of_which_the_last_is_too_long", "H10 H16",
           ring(each(n), in_threes(n, last=1), stages=3), "exit deadlock",
           "pairs_and_an_odd_tile", "Where n is no multiple of three one more tile is copied.",
           launches=runs((1, 1), (1, 5))),
    legal("one_way_for_few_tiles", "H10 H16", ring(one_way_for_few(n), guarded(n), stages=3), WHY,
          launches=runs((1, 0), (1, 2), (1, 3), (1, 7))),
    broken("another_way_for_many_tiles", "H10 H16",
           ring(one_way_for_few(n, on=3), guarded(n), stages=3),
           "RAW", "one_way_for_few_tiles",
           "Of more than two tiles the reader begins a round later.",
           launches=runs((1, 3), (1, 7))),
    broken("two_a_turn_and_one_more", "H10 H16",
           ring(each(n), guarded(n, more=1), stages=3), "exit deadlock", "one_way_for_few_tiles",
           "Of an odd number of tiles one more is copied.", launches=runs((1, 1), (1, 5))),
)  # fmt: skip
