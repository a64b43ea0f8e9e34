"""How the value of a variable repeats for all that uses it: a threshold, and a period beyond.

States of different iterations can be the same only up to this.
"""

from __future__ import annotations

from math import gcd, lcm

from fuser.expr import Expr, Kind, Op, Var, variables
from oracles.arithmetic import UnsupportedError
from oracles.closure_linear import linear

Cycles = dict[str, tuple[int, int]]
"""Threshold and period by variable."""


def learn(cycles: Cycles, moving: frozenset[str], expr: Expr) -> None:
    """Widen the cycles of the variables that an expression uses."""
    for var in variables(expr):
        if var.name not in moving:
            continue
        threshold, period = cycles.get(var.name, (0, 1))
        after, _, of, _ = _cycle(expr, var)
        cycles[var.name] = max(threshold, after), lcm(period, of)


def _cycle(expr: Expr, var: Var) -> tuple[int, int, int, bool]:
    """Return (threshold, increase per period, period, whether the rest is known)."""
    match expr:
        case int():
            return 0, 0, 1, True
        case Var():
            return (0, 1, 1, True) if expr == var else (0, 0, 1, False)
        case Op(kind, a, b):
            return _combined(expr, kind, var, _cycle(a, var), _cycle(b, var))


def _combined(
    expr: Op,
    kind: Kind,
    var: Var,
    a: tuple[int, int, int, bool],
    b: tuple[int, int, int, bool],
) -> tuple[int, int, int, bool]:
    period = lcm(a[2], b[2])
    up, down = a[1] * (period // a[2]), b[1] * (period // b[2])
    after, known = max(a[0], b[0]), a[3] and b[3]
    match kind:
        case Kind.ADD:
            return after, up + down, period, known
        case Kind.SUB:
            return after, up - down, period, known
        case Kind.MUL if isinstance(expr.b, int):
            return after, up * expr.b, period, known
        case Kind.MUL if isinstance(expr.a, int):
            return after, down * expr.a, period, known
        case Kind.FLOORDIV | Kind.MOD if isinstance(expr.b, int) and expr.b > 0:
            times = expr.b // gcd(expr.b, up)
            rise = up * times // expr.b if kind is Kind.FLOORDIV else 0
            return after, rise, period * times, known
        case Kind.LT | Kind.LE | Kind.EQ | Kind.MIN | Kind.MAX if up != down:
            if not known:
                return after, 0, period, False
            return (
                _settles(expr, var, up - down, period, after),
                up
                if kind
                in (
                    Kind.MIN,
                    Kind.MAX,
                )
                else 0,
                period,
                True,
            )
        case _ if up == 0 and down == 0:
            return after, 0, period, known
        case Kind.LT | Kind.LE | Kind.EQ | Kind.MIN | Kind.MAX:
            return after, up if kind in (Kind.MIN, Kind.MAX) else 0, period, known
        case _:
            pass
    raise UnsupportedError(f"`{expr}` does not repeat along {var}")


def _settles(expr: Op, var: Var, rise: int, period: int, after: int) -> int:
    """Return from which value on the sides of a comparison with numbers keep their order."""
    worst = max(
        abs(linear(expr.a, {var.name: v})[0] - linear(expr.b, {var.name: v})[0])
        for v in range(after, after + period)
    )
    return after + period * (2 + worst // abs(rise))
