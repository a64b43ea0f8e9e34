"""The prover's own reading of integer expressions: as functions, as sums, and how they repeat.

Along a variable a value repeats from a threshold on, with a period (`cycle`).  States of different
iterations can be the same only up to this.  `learn` collects it for all variables of a program from
the expressions that use them.  What an assignment makes of a value is a use of it too: two values
that nothing else tells apart may become two that are (`carry`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import gcd, lcm

from fuser.expr import Expr, Kind, Op, Var, fold, substitute, variables

K = Var("k of the prover")
"""Iteration of the one symbolic loop that a thread runs."""
N = Var("n of the prover")
"""The symbolic trip count that all loops of a kernel share."""
Values = Mapping[str, int]
"""Values of variables by name."""
Function = Callable[[Values], int]


class UnsupportedError(Exception):
    """The kernel holds something this judge does not model; the message names it."""


class NegativeError(Exception):
    """A division or remainder of a negative number, which the languages disagree about."""


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


def _natural(value: int) -> int:
    if value < 0:
        raise NegativeError(str(value))
    return value


@lru_cache(maxsize=1 << 14)
def function(expr: Expr, *, checked: bool = False) -> Function:
    """Return an expression as a function of its variables.

    Parameters
    ----------
    expr : Expr
        Over any variables.
    checked : bool
        Whether the function raises `NegativeError` where it would divide a negative number.
    """
    if isinstance(expr, int):
        constant = expr
        return lambda v: constant
    scope = {"min": min, "max": max, "natural": _natural}
    made: Function = eval(f"lambda v: {_python(expr, checked=checked)}", scope)
    return made


def _python(expr: Expr, *, checked: bool) -> str:
    match expr:
        case int():
            return f"({expr})"
        case Var(name):
            return f"v[{name!r}]"
        case Op(kind, a, b):
            left = _python(a, checked=checked)
            if checked and kind in (Kind.FLOORDIV, Kind.MOD) and _may_be_negative(a):
                left = f"natural({left})"
            return _PYTHON[kind].format(left, _python(b, checked=checked))


def _may_be_negative(expr: Expr) -> bool:
    match expr:
        case int():
            return expr < 0
        case Var():
            return False
        case Op(kind, a, b):
            return kind is Kind.SUB or _may_be_negative(a) or _may_be_negative(b)


def linear(expr: Expr, env: Mapping[str, int] | None = None) -> tuple[int, dict[Expr, int]]:
    """Return an expression as a constant and a sum of multiples of what is not known."""
    match expr:
        case int():
            return expr, {}
        case Var(name):
            if env is not None and name in env:
                return env[name], {}
            return 0, {expr: 1}
        case Op(Kind.ADD | Kind.SUB as kind, a, b):
            sign = 1 if kind is Kind.ADD else -1
            left, right = linear(a, env), linear(b, env)
            sums = dict(left[1])
            for atom, times in right[1].items():
                sums[atom] = sums.get(atom, 0) + sign * times
            return left[0] + sign * right[0], {x: n for x, n in sums.items() if n}
        case Op(kind, a, b):
            left, right = linear(a, env), linear(b, env)
            if not left[1] and not right[1]:
                value = fold(kind, left[0], right[0])
                assert isinstance(value, int), "numbers make a number"
                return value, {}
            if kind is Kind.MUL and not left[1]:
                return left[0] * right[0], {x: n * left[0] for x, n in right[1].items()}
            if kind is Kind.MUL and not right[1]:
                return left[0] * right[0], {x: n * right[0] for x, n in left[1].items()}
            return 0, {expr: 1}


def replace_tree(expr: Expr, old: Expr, new: Expr) -> Expr:
    """Put `new` in place of every subtree equal to `old`."""
    if expr == old:
        return new
    match expr:
        case Op(kind, a, b):
            return Op(kind, replace_tree(a, old, new), replace_tree(b, old, new))
        case _:
            return expr


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
