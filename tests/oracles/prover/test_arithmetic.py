"""How values repeat: every proof for all trip counts leans on it."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sample import often

from fuser.expr import Expr, Kind, Var, fold
from oracles.prover.arithmetic import UnsupportedError, cycle, function, period

K = Var("k")
N = Var("n")


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
