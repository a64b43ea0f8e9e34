"""How values repeat along a variable: from a threshold on, with a period.

States of different iterations can be the same only up to this.  `learn` collects it for all
variables of a program from the expressions that use them.  What an assignment makes of a value is a
use of it too: two values that nothing else tells apart may become two that are (`carry`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import gcd, lcm

from fuser.expr import Expr, Kind, Op, Var, substitute, variables
from oracles.prover.arithmetic import UnsupportedError, linear

Cycles = dict[str, tuple[int, int]]
"""Threshold and period by variable."""
ROUNDS = 8
"""Assignments in a row through which a use is followed back."""


@dataclass(frozen=True, slots=True)
class Cycle:
    """`f(x + period) = f(x) + rise` for every x >= start; `alone` is whether f is one of x only."""

    start: int = 0
    rise: int = 0
    period: int = 1
    alone: bool = True


def cycle(expr: Expr, var: Var, moving: frozenset[str] = frozenset()) -> Cycle:
    """Return how an expression repeats along a variable, other variables being fixed.

    Parameters
    ----------
    expr : Expr
        The expression.
    var : Var
        The variable.
    moving : frozenset of str
        Variables that change along with it.

    Raises
    ------
    UnsupportedError
        If it does not repeat, such as a comparison of two variables that move.
    """
    match expr:
        case int():
            return Cycle()
        case Var():
            return Cycle(rise=1) if expr == var else Cycle(alone=False)
        case Op(_, left, right):
            return _operation(
                expr, var, cycle(left, var, moving), cycle(right, var, moving), moving
            )


def _operation(expr: Op, var: Var, a: Cycle, b: Cycle, moving: frozenset[str]) -> Cycle:
    period = lcm(a.period, b.period)
    up, down = a.rise * (period // a.period), b.rise * (period // b.period)
    start, alone = max(a.start, b.start), a.alone and b.alone
    match expr.kind:
        case Kind.ADD:
            return Cycle(start, up + down, period, alone)
        case Kind.SUB:
            return Cycle(start, up - down, period, alone)
        case Kind.MUL if isinstance(expr.b, int):
            return Cycle(start, up * expr.b, period, alone)
        case Kind.MUL if isinstance(expr.a, int):
            return Cycle(start, down * expr.a, period, alone)
        case Kind.FLOORDIV | Kind.MOD if isinstance(expr.b, int) and expr.b > 0:
            times = expr.b // gcd(expr.b, up)
            rise = up * times // expr.b if expr.kind is Kind.FLOORDIV else 0
            return Cycle(start, rise, period * times, alone)
        case Kind.LT | Kind.LE | Kind.EQ | Kind.MIN | Kind.MAX as kind:
            least = kind in (Kind.MIN, Kind.MAX)
            if up == down:
                return Cycle(start, up if least else 0, period, alone)
            if alone:
                after = _settles(expr, var, up - down, period, start)
                wins = max(up, down) if kind is Kind.MAX else min(up, down)
                return Cycle(after, wins if least else 0, period)
            beside = {v.name for v in variables(expr)} - {var.name}
            if beside and beside <= moving:
                raise UnsupportedError(f"`{expr}` need not repeat along {var}")
            return Cycle(start, 0, period, alone=False)
        case _ if up == 0 and down == 0:
            return Cycle(start, 0, period, alone)
        case _:
            raise UnsupportedError(f"`{expr}` does not repeat along {var}")


def _settles(expr: Op, var: Var, rise: int, period: int, start: int) -> int:
    """Return from which value on the sides of a comparison with numbers keep their order."""
    worst = max(
        abs(linear(expr.a, {var.name: v})[0] - linear(expr.b, {var.name: v})[0])
        for v in range(start, start + period)
    )
    return start + period * (2 + worst // abs(rise))


def period(expr: Expr, var: Var) -> int | None:
    """Return the period of an expression of one variable; None if it does not repeat from 0 on."""
    try:
        how = cycle(expr, var)
    except UnsupportedError:
        return None
    return how.period if how.alone and not (how.start or how.rise) else None


def learn(
    cycles: Cycles, moving: frozenset[str], expr: Expr, ends: Mapping[str, int] | None = None
) -> None:
    """Widen the cycles of the variables that an expression uses.

    Those of loops that end by themselves are told apart up to there where nothing repeats.
    """
    for var in variables(expr):
        if var.name not in moving:
            continue
        try:
            how = cycle(expr, var, moving)
        except UnsupportedError:
            if ends is None or var.name not in ends:
                raise
            how = Cycle(ends[var.name])
        threshold, period = cycles.get(var.name, (0, 1))
        cycles[var.name] = max(threshold, how.start), lcm(period, how.period)


def carry(cycles: Cycles, moving: frozenset[str], sets: list[tuple[str, Expr]]) -> None:
    """Widen the cycles of variables by what assignments make of them.

    Parameters
    ----------
    sets : list of (name, expression)
        All assignments.

    Raises
    ------
    UnsupportedError
        If values that are the same to all uses become values that are not.
    """
    for _ in range(ROUNDS):
        before = dict(cycles)
        for name, expr in sets:
            if cycles.get(name, (0, 1)) != (0, 1):
                _carry(cycles, moving, name, expr)
        if cycles == before:
            return
    names = ", ".join(sorted({name for name, _ in sets}))
    raise UnsupportedError(f"what {names} are used for does not settle in {ROUNDS} assignments")


def _carry(cycles: Cycles, moving: frozenset[str], name: str, expr: Expr) -> None:
    """Widen cycles by one assignment."""
    threshold, period = cycles[name]
    constant, parts = linear(expr)
    times = parts.pop(Var(name), 0)
    if any(v.name == name for part in parts for v in variables(part)):
        how = cycle(expr, Var(name), moving)
        if how.rise:
            raise UnsupportedError(f"`{name} = {expr}` does not repeat along {name}")
        cycles[name] = max(threshold, how.start), lcm(period, how.period)
    elif threshold and times:
        grows = times > 0 and constant >= 0 and all(n > 0 for n in parts.values())
        if not grows:
            raise UnsupportedError(f"`{name} = {expr}` may fall below what {name} is compared with")
    others = moving - {name}
    learn(cycles, others, Op(Kind.MOD, expr, period))
    if threshold:
        added = substitute(expr, {Var(name): 0}) if times else expr
        learn(cycles, others, Op(Kind.MIN, added, threshold))
