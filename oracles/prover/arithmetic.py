"""The prover's own reading of integer expressions: values, and how they repeat along a loop.

Control expressions (slots, parities, guards, loop ends) are functions of the iteration `k` and the
trip count `n`.  `function` makes one callable; `Drift` says how it repeats.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import gcd, lcm

from fuser.expr import Expr, Kind, Op, Var

K = Var("k of the prover")
"""Iteration of the one symbolic loop a thread runs."""
N = Var("n of the prover")
"""The symbolic trip count that all loops of the kernel share."""
Function = Callable[[int, int], int]
"""A control expression as a function of (iteration, trip count)."""


class UnsupportedError(Exception):
    """The kernel holds something this judge does not model; the message names it."""


_PYTHON = {
    Kind.ADD: "({} + {})",
    Kind.SUB: "({} - {})",
    Kind.MUL: "({} * {})",
    Kind.FLOORDIV: "({} // {})",
    Kind.MOD: "({} % {})",
    Kind.MIN: "min({}, {})",
    Kind.MAX: "max({}, {})",
    Kind.LT: "int({} < {})",
    Kind.LE: "int({} <= {})",
    Kind.EQ: "int({} == {})",
    Kind.AND: "int(bool({}) and bool({}))",
}


class NegativeError(Exception):
    """A division or remainder of a negative number, which the languages disagree about."""


def _natural(value: int) -> int:
    if value < 0:
        raise NegativeError(str(value))
    return value


def spell(expr: Expr, names: Mapping[Var, str], *, checked: bool = True) -> str:
    """Return `expr` in Python; `natural` refuses negative operands of a division if `checked`."""
    match expr:
        case int():
            return f"({expr})"
        case Var():
            if expr not in names:
                raise UnsupportedError(f"control depends on {expr}, which is no trip count")
            return names[expr]
        case Op(kind, a, b):
            left = spell(a, names, checked=checked)
            if checked and kind in (Kind.FLOORDIV, Kind.MOD) and _may_be_negative(a):
                left = f"natural({left})"
            return _PYTHON[kind].format(left, spell(b, names, checked=checked))


def _may_be_negative(expr: Expr) -> bool:
    match expr:
        case int():
            return expr < 0
        case Var():
            return False
        case Op(kind, a, b):
            return kind is Kind.SUB or _may_be_negative(a) or _may_be_negative(b)


def function(expr: Expr, *, checked: bool = True) -> Function:
    """Return an expression over `K` and `N` as a function."""
    if isinstance(expr, int):
        constant = expr
        return lambda k, n: constant
    source = spell(expr, {K: "k", N: "n"}, checked=checked)
    scope = {"min": min, "max": max, "natural": _natural}
    made: Function = eval(f"lambda k, n: {source}", scope)
    return made


@dataclass(frozen=True, slots=True)
class Drift:
    """How `f(k, n)` repeats, beyond the ends of the loop.

    `f(k + period, n) = f(k, n) + along_k` and `f(k, n + period) = f(k, n) + along_n` for every
    `k >= start` with `n - k >= end` and every `n >= trips`.
    """

    period: int = 1
    along_k: int = 0
    along_n: int = 0
    start: int = 0
    end: int = 0
    trips: int = 0

    @property
    def steady(self) -> bool:
        """Whether the values themselves repeat."""
        return self.along_k == 0 and self.along_n == 0


def drift(expr: Expr) -> Drift:
    """Say how an expression over `K` and `N` repeats.

    Raises
    ------
    UnsupportedError
        If it does not repeat up to a constant away from the ends, such as `2 * k < n`.
    """
    match expr:
        case int():
            return Drift()
        case Var():
            return Drift(along_k=int(expr == K), along_n=int(expr == N))
        case Op(kind, a, b):
            return _operation(expr, kind, drift(a), drift(b))


def _operation(expr: Op, kind: Kind, a: Drift, b: Drift) -> Drift:
    match kind:
        case Kind.ADD:
            return _joined(a, b, 1)
        case Kind.SUB:
            return _joined(a, b, -1)
        case Kind.MUL:
            if isinstance(expr.a, int):
                return _times(b, expr.a)
            if isinstance(expr.b, int):
                return _times(a, expr.b)
            if a.steady and b.steady:
                return _joined(a, b, 1)
        case Kind.FLOORDIV | Kind.MOD:
            if isinstance(expr.b, int) and expr.b > 0:
                return _divided(a, expr.b, whole=kind is Kind.FLOORDIV)
        case Kind.LT | Kind.LE | Kind.EQ:
            return _compared(expr, _joined(a, b, -1))
        case Kind.AND:
            if a.steady and b.steady:
                return _joined(a, b, 1)
        case Kind.MIN | Kind.MAX:
            gap = _joined(a, b, -1)
            if gap.along_k == 0:
                return _least(expr, kind, a, b, gap)
    raise UnsupportedError(f"`{expr}` does not repeat along the loop")


def _least(expr: Op, kind: Kind, a: Drift, b: Drift, gap: Drift) -> Drift:
    """Return the drift of the side that wins in the end, where that depends on `n` alone."""
    trips = gap.trips
    if gap.along_n:
        trips = _settled(expr, gap, "trips")
    first = gap.along_n == 0 or (gap.along_n < 0) == (kind is Kind.MIN)
    winner = _stretched(a if first else b, gap.period)
    return Drift(gap.period, winner.along_k, winner.along_n, gap.start, gap.end, trips)


def _stretched(a: Drift, period: int) -> Drift:
    times = period // a.period
    return Drift(period, a.along_k * times, a.along_n * times, a.start, a.end, a.trips)


def _joined(a: Drift, b: Drift, sign: int) -> Drift:
    period = lcm(a.period, b.period)
    a, b = _stretched(a, period), _stretched(b, period)
    return Drift(
        period,
        a.along_k + sign * b.along_k,
        a.along_n + sign * b.along_n,
        max(a.start, b.start),
        max(a.end, b.end),
        max(a.trips, b.trips),
    )


def _times(a: Drift, factor: int) -> Drift:
    return Drift(a.period, a.along_k * factor, a.along_n * factor, a.start, a.end, a.trips)


def _divided(a: Drift, by: int, *, whole: bool) -> Drift:
    times = lcm(by // gcd(by, a.along_k), by // gcd(by, a.along_n))
    a = _stretched(a, a.period * times)
    if whole:
        return Drift(a.period, a.along_k // by, a.along_n // by, a.start, a.end, a.trips)
    return Drift(a.period, 0, 0, a.start, a.end, a.trips)


def _settled(expr: Op, how: Drift, axis: str) -> int:
    """Return the `start`, `end` or `trips` from which on the sides of `expr` keep their order.

    Along that axis, everything else being far from where it may differ, the difference of the
    sides changes by a constant a period; so it has settled before it could have drifted by all it
    was at first.
    """
    value = function(Op(Kind.SUB, expr.a, expr.b), checked=False)
    period = how.period
    base = {"start": how.start, "end": how.end, "trips": how.start + how.end + period}[axis]
    if axis == "trips":
        base = max(base, how.trips)
    reach, settled = 2 * period, base
    while True:
        rows = [_row(value, how, axis, residue, base, reach) for residue in range(period)]
        most = max(abs(row[t]) for row in rows for t in range(period))
        rate = max(abs(how.along_k), abs(how.along_n))
        if reach >= period * (2 + most // rate):
            break
        reach = period * (2 + most // rate)
    for row in rows:
        for first in range(period):
            signs = [_sign(x) for x in row[first::period]]
            late = max((i + 1 for i, sign in enumerate(signs) if sign != signs[-1]), default=0)
            if late:
                settled = max(settled, base + first + (late - 1) * period + 1)
    return settled


def _row(value: Function, how: Drift, axis: str, residue: int, base: int, reach: int) -> list[int]:
    """Return the values along an axis, from `base` on."""
    far = how.start + how.end + how.trips + base + reach
    far += -far % how.period + residue
    span = range(base, base + reach + how.period)
    match axis:
        case "start":
            return [value(t, far + how.period * (1 + reach)) for t in span]
        case "end":
            return [value(far, far + t) for t in span]
        case _:
            return [value(how.start + residue, t) for t in span]


def _sign(value: int) -> int:
    return (value > 0) - (value < 0)


def _compared(expr: Op, gap: Drift) -> Drift:
    """Settle a comparison by the sign of the difference of its sides."""
    if gap.steady:
        return gap
    start, end, trips = gap.start, gap.end, gap.trips
    if gap.along_n == 0:
        start = _settled(expr, gap, "start")
    elif gap.along_k == 0:
        trips = _settled(expr, gap, "trips")
    elif gap.along_k == -gap.along_n:
        end = _settled(expr, gap, "end")
    else:
        raise UnsupportedError(f"`{expr}` does not repeat along the loop")
    return Drift(gap.period, 0, 0, start, end, trips)


def replace_tree(expr: Expr, old: Expr, new: Expr) -> Expr:
    """Put `new` in place of every subtree equal to `old`."""
    if expr == old:
        return new
    match expr:
        case Op(kind, a, b):
            return Op(kind, replace_tree(a, old, new), replace_tree(b, old, new))
        case _:
            return expr
