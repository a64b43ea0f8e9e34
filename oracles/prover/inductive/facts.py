"""Conditions on sums in one spelling, and what plainly follows from them: z3 is asked the rest."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from math import gcd, inf

from fuser.expr import Expr, Kind, Op, Var, fold, substitute, variables
from oracles.prover.arithmetic import linear


@lru_cache(maxsize=1 << 16)
def normal(expr: Expr) -> Expr:
    """Return the one spelling of a sum, or of a comparison: of unknowns with a number.

    Multiples and constants leave quotients and remainders by numbers.
    """
    match expr:
        case Op(Kind.MOD | Kind.FLOORDIV as kind, a, int() as by) if by > 0:
            constant, parts = linear(normal(a))
            inner = _sum(constant % by, {part: times % by for part, times in parts.items()})
            if kind is Kind.MOD:
                return fold(Kind.MOD, inner, by)
            whole = _sum(constant // by, {part: times // by for part, times in parts.items()})
            return _sum(*linear(fold(Kind.ADD, whole, fold(Kind.FLOORDIV, inner, by))))
        case Op(Kind.EQ, Op(Kind.LT | Kind.LE as kind, a, b), 0):
            return normal(fold(Kind.LE if kind is Kind.LT else Kind.LT, b, a))
        case Op(Kind.EQ | Kind.LT | Kind.LE as kind, a, b):
            return _compared(kind, *linear(fold(Kind.SUB, normal(a), normal(b))))
        case Op(Kind.ADD | Kind.SUB | Kind.MUL as kind, a, b):
            return _sum(*linear(fold(kind, normal(a), normal(b))))
        case Op(kind, a, b):
            return fold(kind, normal(a), normal(b))
        case _:
            return expr


def _sum(constant: int, parts: Mapping[Expr, int]) -> Expr:
    total: Expr = 0
    for part in sorted(parts, key=str) if len(parts) > 1 else parts:
        total = fold(Kind.ADD, total, fold(Kind.MUL, parts[part], part))
    return fold(Kind.ADD, total, constant)


def _compared(kind: Kind, constant: int, parts: Mapping[Expr, int]) -> Expr:
    """Return whether a sum is 0, less, or not more; the first unknown counts as more than 0."""
    if not parts:
        return fold(kind, constant, 0)
    by = gcd(*parts.values())
    if kind is Kind.EQ and constant % by:
        return 0
    least = -(constant + (kind is Kind.LT)) // by  # the sum of the unknowns is that, or not more
    back = parts[min(parts, key=str)] < 0
    total = _sum(0, {part: times // (-by if back else by) for part, times in parts.items()})
    if kind is Kind.EQ:
        return fold(kind, total, -least if back else least)
    return fold(Kind.LE, -least, total) if back else fold(Kind.LE, total, least)


def solved(facts: list[Expr]) -> dict[Var, Expr]:
    """Return what equations say of single variables, in terms of others."""
    out: dict[Var, Expr] = {}
    for fact in facts:
        match fact:
            case Op(Kind.EQ, Op(Kind.MOD, Var(name) as x, int() as by), 0) if x not in out:
                right = fold(Kind.MUL, by, Var(f"{name} / {by}"))
                out = {other: substitute(e, {x: right}) for other, e in out.items()}
                out[x] = right
            case Op(Kind.EQ, Var() as x, y):
                right = substitute(y, out)
                if x not in out and x not in variables(right):
                    out = {name: substitute(e, {x: right}) for name, e in out.items()}
                    out[x] = right
            case _:
                pass
    return out


class Bounds:
    """What sums are at least, and what adding up such facts says of others.

    A sum that is at most so much is the negative one that is at least as much below 0.
    """

    def __init__(self, beside: Bounds | None = None) -> None:
        self._told: set[Expr] = set() if beside is None else beside._told.copy()
        self._least: dict[Total, int] = {} if beside is None else beside._least.copy()
        self._of: dict[tuple[Expr, bool], tuple[Total, ...]]
        self._of = {} if beside is None else beside._of.copy()

    def know(self, facts: Iterable[Expr]) -> Bounds:
        """Take facts in their normal form to be known."""
        for fact in facts:
            self._told.add(fact)
            for total, n in inequalities(fact):
                if total not in self._least and len(total) > 1:
                    for part, times in total:
                        self._of[part, times > 0] = (*self._of.get((part, times > 0), ()), total)
                self._least[total] = max(n, self._least.get(total, n))
        return self

    def give(self, goal: Expr) -> bool:
        """Whether a condition in its normal form plainly follows."""
        if isinstance(goal, int) or goal in self._told:
            return goal != 0
        asked = inequalities(goal)
        return bool(asked) and all(self._at_least(total, n) for total, n in asked)

    def _at_least(self, total: Total, n: int) -> bool:
        """Whether a sum is at least n: by its unknowns alone, or one fact of some and the others."""
        if self._least.get(total, n - 1) >= n or self._by_parts(total) >= n:
            return True
        beside = (known for part, times in total for known in self._of.get((part, times > 0), ()))
        for known in beside:
            rest = dict(total)
            for part, times in known:
                rest[part] = rest.get(part, 0) - times
            if self._least[known] + self._by_parts(rest.items()) >= n:
                return True
        return False

    def _by_parts(self, total: Iterable[tuple[Expr, int]]) -> float:
        """Return what a sum is at least by what is known of each of its unknowns alone."""
        found = 0.0
        for part, times in total:
            if times:
                least = self._least.get(((part, 1 if times > 0 else -1),))
                if least is None:
                    return -inf
                found += abs(times) * least
        return found


Total = tuple[tuple[Expr, int], ...]


@lru_cache(maxsize=1 << 14)
def inequalities(condition: Expr) -> tuple[tuple[Total, int], ...]:
    """Return which sums are at least how much where a condition in its normal form holds.

    None if that is not all that it says.
    """
    match condition:
        case Op(Kind.LE, int() as n, total):
            return ((tuple(linear(total)[1].items()), n),)
        case Op(Kind.LE, total, int() as n):
            return ((tuple((part, -times) for part, times in linear(total)[1].items()), -n),)
        case Op(Kind.EQ, total, int() as n):
            sides = fold(Kind.LE, n, total), fold(Kind.LE, total, n)
            return tuple(one for side in sides for one in inequalities(side))
        case Op(Kind.AND, a, b):
            left, right = inequalities(a), inequalities(b)
            return (*left, *right) if left and right else ()
        case _:
            return ()
