"""How values repeat: every proof for all trip counts leans on it."""

from __future__ import annotations

from itertools import product
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sample import often

from fuser.expr import Expr, Kind, Var, eq, fold
from oracles.prover.arithmetic import Least, UnsupportedError, cycle, function, period

K = Var("k")
N = Var("n")
M = Var("m")


@st.composite
def controls(draw: st.DrawFn, depth: int = 3) -> Expr:
    """Control expressions over `K` and `N`; shrink towards a number."""
    if depth == 0 or draw(st.booleans()):
        leaves: list[Expr] = [1, K, N, 2, 5]
        return draw(st.sampled_from(leaves))
    kind = draw(st.sampled_from(list(Kind)))
    a: Expr = draw(controls(depth=depth - 1))
    if kind in (Kind.FLOORDIV, Kind.MOD, Kind.MUL):
        return fold(kind, a, draw(st.integers(1, 4)))
    return fold(kind, a, draw(controls(depth=depth - 1)))


@settings(max_examples=often(300, 120))
@given(controls())
def test_a_value_of_one_variable_repeats_with_its_period(expr: Expr) -> None:
    """Away from the threshold; a value that repeats from 0 on has none."""
    try:
        how = cycle(expr, K)
    except UnsupportedError:
        assert period(expr, K) is None
        return
    value = function(expr)
    if not how.alone:
        assert period(expr, K) is None
        return
    for k in range(how.start, how.start + how.period + 3):
        assert value({"k": k + how.period}) == value({"k": k}) + how.rise
    if period(expr, K) is not None:
        assert [value({"k": k}) for k in range(how.period)] == [
            value({"k": k + how.period}) for k in range(how.period)
        ]


def test_what_does_not_repeat_is_refused() -> None:
    """A guard on half the trips moves with every iteration."""
    with pytest.raises(UnsupportedError, match="need not repeat"):
        cycle(fold(Kind.LT, K * 2, N), K, frozenset({"k", "n"}))
    assert period(fold(Kind.LT, K * 2, N), K) is None


LAUNCHES = [{"k": k, "n": n, "m": m} for k, n, m in product(range(5), repeat=3)]
KINDS = Kind.ADD, Kind.SUB, Kind.MUL, Kind.FLOORDIV, Kind.MOD, Kind.MIN, Kind.MAX


def answers(expr: Expr) -> list[int | None]:
    """Return the values of an expression in all launches; None where it divides by 0."""
    value, out = function(expr), list[int | None]()
    for launch in LAUNCHES:
        try:
            out.append(value(launch))
        except ZeroDivisionError:
            out.append(None)
    return out


@pytest.mark.parametrize("seed", range(3))
def test_no_expression_is_below_what_is_said_to_be_its_least(seed: int) -> None:
    """In no launch that keeps the conditions."""
    draw = Random(seed)
    leaves: list[Expr] = [K, N, M, 1, 2, K - 1, N - 2]
    small = [fold(kind, a, b) for kind in KINDS for a in leaves for b in leaves if b not in (0, 1)]
    some = [(draw.choice(KINDS), draw.choice(small), draw.choice(leaves)) for _ in range(150)]
    more = [fold(kind, *draw.sample((a, b), 2)) for kind, a, b in some]
    exprs = {expr: answers(expr) for expr in (*leaves, *small, *more)}
    for _ in range(500):
        pairs = [(draw.choice(leaves + small), draw.choice(small)) for _ in range(3)]
        known = [fold(draw.choice((Kind.LT, Kind.LE, Kind.EQ)), *pair) for pair in pairs]
        known[0] = draw.choice((known[0], K < N, eq(M, 2)))
        known = known[: draw.randint(0, 3)]
        least = Least(known)
        held = [answers(one) for one in known]
        kept = [at for at in range(len(LAUNCHES)) if all(of[at] for of in held)]
        for expr in draw.sample(list(exprs), 60):
            values = [(n, LAUNCHES[at]["m"]) for at in kept if (n := exprs[expr][at]) is not None]
            says = f"{expr} where {' and '.join(map(str, known))}"
            low, above = least.of(expr), least.holds(expr > M)
            assert all(low <= n and (n > m or not above) for n, m in values), says


def test_grid_strides_divide_numbers_that_are_not_negative() -> None:
    """What is subtracted is below the grid, or a part of it; whoever is in the loop has a tile."""
    block, grid, tiles = Var("block"), Var("grid"), fold(Kind.FLOORDIV, N + 15, 16) * M
    for facts, low, high in (
        ([], block, grid),
        ([eq(grid % 2, 0)], block // 2, grid // 2),
        ([eq(grid, K * Var("j"))], block % K, K),
        ([eq(grid, K * Var("j"))], block // K, Var("j")),
    ):
        least = Least([block < grid, *facts])
        stop = tiles - low + high - 1
        assert least.of(stop) == 0
        assert least.of(low - high) < 0
        assert least.of(N - K % (N - 2)) < 0
        either = (K - 2) // (N - 2)  # of two negative numbers, maybe
        assert Least([either >= 1]).of((K - 2) - (N - 2)) < 0
        assert Least([K < N, N < M]).of(M * 2 - K - N) == 3
        inside = Least([block < grid, *facts, Var("t") < stop // high])
        assert least.of(N) == least.of(M) == 0
        assert inside.of(N) == inside.of(M) == 1
