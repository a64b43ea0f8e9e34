"""How the value of a variable repeats for all that uses it: a threshold, and a period beyond.

States of different iterations can be the same only up to this.  What an assignment makes of a
value is a use of it too: two values that are told apart by nothing else may become two that are
(`carry`).
"""

from __future__ import annotations

from collections.abc import Mapping
from math import gcd, lcm

from fuser.expr import Expr, Kind, Op, Var, substitute, variables
from oracles.prover.arithmetic import UnsupportedError
from oracles.prover.reachability.program.linear import linear

Cycles = dict[str, tuple[int, int]]
"""Threshold and period by variable."""
ROUNDS = 8
"""Assignments in a row through which a use is followed back."""


def learn(
    cycles: Cycles, moving: frozenset[str], expr: Expr, ends: Mapping[str, int] | None = None
) -> None:
    """Widen the cycles of the variables that an expression uses.

    Those of loops that end by themselves are told apart up to there where nothing repeats.
    """
    for var in variables(expr):
        if var.name not in moving:
            continue
        threshold, period = cycles.get(var.name, (0, 1))
        try:
            after, _, of, _ = _cycle(expr, var, moving)
        except UnsupportedError:
            if ends is None or var.name not in ends:
                raise
            after, of = ends[var.name], 1
        cycles[var.name] = max(threshold, after), lcm(period, of)


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
        after, rise, of, _ = _cycle(expr, Var(name), moving)
        if rise:
            raise UnsupportedError(f"`{name} = {expr}` does not repeat along {name}")
        cycles[name] = max(threshold, after), lcm(period, of)
    elif threshold and times:
        grows = times > 0 and constant >= 0 and all(n > 0 for n in parts.values())
        if not grows:
            raise UnsupportedError(f"`{name} = {expr}` may fall below what {name} is compared with")
    others = moving - {name}
    learn(cycles, others, Op(Kind.MOD, expr, period))
    if threshold:
        added = substitute(expr, {Var(name): 0}) if times else expr
        learn(cycles, others, Op(Kind.MIN, added, threshold))


def _cycle(expr: Expr, var: Var, moving: frozenset[str]) -> tuple[int, int, int, bool]:
    """Return (threshold, increase per period, period, whether the rest is known)."""
    match expr:
        case int():
            return 0, 0, 1, True
        case Var():
            return (0, 1, 1, True) if expr == var else (0, 0, 1, False)
        case Op(kind, a, b):
            return _combined(
                expr, kind, var, _cycle(a, var, moving), _cycle(b, var, moving), moving
            )


def _combined(
    expr: Op,
    kind: Kind,
    var: Var,
    a: tuple[int, int, int, bool],
    b: tuple[int, int, int, bool],
    moving: frozenset[str],
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
                beside = {v.name for v in variables(expr)} - {var.name}
                if beside and beside <= moving:
                    raise UnsupportedError(f"`{expr}` need not repeat along {var}")
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
