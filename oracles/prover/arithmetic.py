"""The prover's own reading of integer expressions: as functions, and as sums of unknowns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache

from fuser.expr import Expr, Kind, Op, Var, fold

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
