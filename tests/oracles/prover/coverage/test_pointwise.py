"""One element that stands for all tells what covers an output, and never that something else does.

Loops are drawn at random; launches of a few sizes are counted by hand.
"""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from litmus.parts import YN, box, fragment, k, kernel, n, p, store

from fuser.expr import Expr, Kind, Var, eq, fold, maximum, minimum, substitute
from fuser.kernel import ir as kir
from oracles.prover import sites
from oracles.prover.coverage.pointwise import partitioned
from oracles.prover.solver import Known

RLIMIT = 400_000
SIZES = range(8)
CTAS = minimum(n, 3)
Loops = tuple[tuple[Var, Expr], ...]


def stored(tile: Expr, loops: Loops, *guards: Expr, grid: Expr = 1) -> kir.Kernel:
    """Store a tile in loops, under guards."""
    body: tuple[kir.Stmt, ...] = (store(box(YN, tile), fragment("x")),)
    for guard in guards:
        body = (kir.IfThenElse(guard, body),)
    for index, stop in reversed(loops):
        body = (kir.ForLoop(index, stop, body),)
    return kernel(body, requires=(eq(kir.GRID, grid),))


def covers(*kernels: kir.Kernel) -> bool:
    """Whether the stores of kernels of one grid are shown to cover the output."""
    written = [
        (site, found)
        for one in kernels
        for site in sites.read(one)
        if (found := sites.writes(site.stmt)) is not None
    ]
    return partitioned(written, YN, Known(sites.facts(kernels[0]), RLIMIT))


def evaluate(expr: Expr, at: dict[Var, int]) -> int:
    """Return the value of an expression of known variables."""
    value = substitute(expr, at)
    assert isinstance(value, int), value
    return value


def counted(tile: Expr, loops: Loops, guards: tuple[Expr, ...], grid: Expr, size: int) -> bool:
    """Whether one launch stores each of its tiles once."""
    many = evaluate(grid, {n: size})
    found: Counter[int] = Counter()

    def enter(at: dict[Var, int], left: Loops) -> None:
        if left:
            for i in range(evaluate(left[0][1], at)):
                enter({**at, left[0][0]: i}, left[1:])
        elif all(evaluate(guard, at) for guard in guards):
            found[evaluate(tile, at)] += 1

    for block in range(many):
        enter({n: size, kir.GRID: many, kir.BLOCK: block}, loops)
    inside = {tile: times for tile, times in found.items() if tile < size}
    return inside == dict.fromkeys(range(size), 1)


STRIDED = kir.BLOCK + 3 * k, ((k, (n - kir.BLOCK + 2) // 3),)
RIGHT = {
    "one loop": (k, ((k, n),), (), 1),
    "backwards": (n - 1 - k, ((k, n),), (), 1),
    "few CTAs": (*STRIDED, (), CTAS),
    "pairs": (2 * k + p, ((k, (n + 1) // 2), (p, minimum(n - 2 * k, 2))), (), 1),
    "an empty loop around": (k + p, ((k, n), (p, minimum(n - k, 1))), (), 1),
    "one CTA of many": (k, ((k, n),), (eq(kir.BLOCK, 0),), maximum(n, 1)),
}
WRONG = {
    "the last is left out": (k, ((k, n - 1),), (), 1),
    "a CTA too many": (*STRIDED, (), minimum(n, 4)),
    "a CTA too few": (*STRIDED, (), minimum(n, 2)),
    "pairs that meet": (2 * k + p, ((k, (n + 1) // 2), (p, minimum(n - 2 * k, 3))), (), 1),
    "twice around": (k + p, ((k, n), (p, minimum(n - k, 2))), (), 1),
    "no CTA": (k, ((k, n),), (eq(kir.BLOCK, -1),), maximum(n, 1)),
    "a CTA that may not be": (k, ((k, n),), (eq(kir.BLOCK, 1),), maximum(n, 1)),
}


@pytest.mark.parametrize("name", RIGHT)
def test_a_cover_in_several_indices_is_shown(name: str) -> None:
    """Each is a way to deal tiles that digits alone do not tell."""
    tile, loops, guards, grid = RIGHT[name]
    assert all(counted(tile, loops, guards, grid, size) for size in SIZES)
    assert covers(stored(tile, loops, *guards, grid=grid))


@pytest.mark.parametrize("name", WRONG)
def test_no_cover_is_shown_where_there_is_none(name: str) -> None:
    """Each misses a tile, or stores one twice, in some launch."""
    tile, loops, guards, grid = WRONG[name]
    assert not all(counted(tile, loops, guards, grid, size) for size in SIZES)
    assert not covers(stored(tile, loops, *guards, grid=grid))


def test_two_stores_cover_what_neither_does() -> None:
    """Even and odd tiles; all of them; even ones twice."""
    halves = [(k, ((k, n),), (fold(Kind.EQ, k % 2, part),)) for part in (0, 1)]
    kernels = [stored(tile, loops, *guards) for tile, loops, guards in halves]
    assert covers(*kernels)
    assert not covers(kernels[0])
    assert not covers(*kernels, kernels[1])


few = st.integers(1, 3)


@settings(max_examples=20)
@given(few, few, few, st.sampled_from([0, 1]), st.booleans())
def test_what_is_shown_holds_in_small_launches(
    step: int, width: int, ctas: int, off: int, cut: bool
) -> None:
    """However steps, widths and grids fit, and mostly they do not."""
    tile = kir.BLOCK + ctas * (step * k + p) + off
    rest = fold(Kind.FLOORDIV, n - kir.BLOCK + ctas - 1, ctas)
    inner = minimum(rest - step * k, width) if cut else width
    loops: Loops = (k, (rest + step - 1) // step), (p, inner)
    grid = minimum(n, ctas)
    if covers(stored(tile, loops, grid=grid)):
        assert all(counted(tile, loops, (), grid, size) for size in SIZES)
