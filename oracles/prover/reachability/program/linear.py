"""Conditions of a program, ready to be decided: what is known of them, and what is not.

What a thread's variables decide is a function of them; a trip count that no thread knows stands
alone, and is compared with such a function.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fuser.expr import Expr, Kind, Op, Var, variables
from fuser.kernel import ir as kir
from oracles.prover.arithmetic import Function, function, linear


@dataclass(frozen=True, slots=True, eq=False)
class Known:
    """The variables decide."""

    value: Function


@dataclass(frozen=True, slots=True, eq=False)
class AtLeast:
    """Whether an unknown is at least so much, or less than that."""

    atom: int
    bound: Function
    less: bool


@dataclass(frozen=True, slots=True, eq=False)
class Several:
    """Whether all (or any) of two conditions hold, asked in this order."""

    first: Condition
    second: Condition
    every: bool


@dataclass(frozen=True, slots=True, eq=False)
class Asked:
    """A condition that is decided once for all threads, as a whole."""

    test: Expr


Condition = Known | AtLeast | Several | Asked


@dataclass(slots=True)
class Atoms:
    """The unknowns of a kernel by number; `names` are the parameters and `BLOCK`."""

    names: frozenset[str]
    found: dict[Expr, int]

    def number(self, atom: Expr) -> int:
        """Return the number of an unknown."""
        return self.found.setdefault(atom, len(self.found))

    def split(self, expr: Expr) -> tuple[Function, dict[Expr, int]]:
        """Return what the variables decide of a sum, and the multiples of unknowns in it."""
        constant, parts = linear(expr)
        known: Expr = constant
        unknown: dict[Expr, int] = {}
        for atom, times in parts.items():
            if any(v.name in self.names for v in variables(atom)):
                unknown[atom] = times
            else:
                known = known + times * atom
        return function(known), unknown

    def condition(self, expr: Expr) -> Condition:
        """Return a condition ready to be decided."""
        match expr:
            case Op(Kind.AND, left, right):
                return Several(self.condition(left), self.condition(right), every=True)
            case Op(Kind.LT | Kind.LE as kind, left, right):
                return self._less(left, right, int(kind is Kind.LE))
            case Op(Kind.EQ, left, right):
                value, unknown = self.split(left - right)
                if not unknown:
                    return Known(lambda env: int(value(env) == 0))
                if len(unknown) > 1 and linear(left - right)[0] > 0:
                    return self.condition(Op(Kind.EQ, right, left))
                _, times = joined(unknown)
                bound = linear(-times * (left - right))
                found = self._counted(unknown, bound) if times in (1, -1) else None
                if found is not None:
                    number, more = found
                    low = AtLeast(number, lambda env: more - times * value(env), less=False)
                    high = AtLeast(number, lambda env: more + 1 - times * value(env), less=True)
                    return Several(low, high, every=True)
            case _:
                value, unknown = self.split(expr)
                if not unknown:
                    return Known(value)
        return Asked(expr)

    def _less(self, left: Expr, right: Expr, slack: int) -> Condition:
        """Return whether `left < right + slack`."""
        if isinstance(left, Op) and left.kind in (Kind.MIN, Kind.MAX):
            return Several(
                self._less(left.a, right, slack),
                self._less(left.b, right, slack),
                every=left.kind is Kind.MAX,
            )
        if isinstance(right, Op) and right.kind in (Kind.MIN, Kind.MAX):
            return Several(
                self._less(left, right.a, slack),
                self._less(left, right.b, slack),
                every=right.kind is Kind.MIN,
            )
        value, unknown = self.split(right - left)
        if not unknown:
            return Known(lambda env: int(value(env) + slack > 0))
        _, times = joined(unknown)
        bound = linear(-times * (right - left + slack) + (times == 1))
        found = self._counted(unknown, bound) if times in (1, -1) else None
        if found is not None:
            number, more = found
            if times == 1:
                return AtLeast(number, lambda env: more + 1 - slack - value(env), less=False)
            return AtLeast(number, lambda env: more + value(env) + slack, less=True)
        return Asked(Op(Kind.LE if slack else Kind.LT, left, right))

    def _counted(
        self, unknown: Mapping[Expr, int], bound: tuple[int, Mapping[Expr, int]]
    ) -> tuple[int, int] | None:
        """Return the number of what unknowns are joined to, and what was added to it.

        What is followed counts from 0, so that a sum that may be negative is 0 there, too: only
        bounds of 1 or more say the same of it.  For others so much is added to both; None if there
        is a bound that may be less, whatever is added.
        """
        atom, _ = joined(unknown)
        least, parts = bound
        if _counts(unknown):
            return self.number(atom), 0
        if not _natural({part: n for part, n in parts.items() if part not in unknown}):
            return None
        more = max(1 - least, 0)
        return self.number(Var(f"{atom} + {more}") if more else atom), more


def _counts(unknown: Mapping[Expr, int]) -> bool:
    """Whether unknowns, joined to one, are never negative."""
    alone = len(unknown) == 1
    return all(_never_negative(atom) and (times > 0 or alone) for atom, times in unknown.items())


def _natural(parts: Mapping[Expr, int], constant: int = 0) -> bool:
    """Whether a sum of multiples is never negative, as far as is plain to see.

    The number of a CTA is less than how many there are.
    """
    left = dict(parts)
    ctas = min(-left.get(kir.BLOCK, 0), left.get(kir.GRID, 0))
    if ctas > 0:
        left[kir.BLOCK] += ctas
        left[kir.GRID] -= ctas
        constant += ctas
    counted = all(n == 0 or (n > 0 and _never_negative(part)) for part, n in left.items())
    return constant >= 0 and counted


def _never_negative(expr: Expr) -> bool:
    match expr:
        case int():
            return expr >= 0
        case Op(Kind.MUL | Kind.FLOORDIV | Kind.MIN | Kind.MAX, a, b):
            return _never_negative(a) and _never_negative(b)
        case Op(Kind.ADD | Kind.SUB):
            constant, parts = linear(expr)
            return _natural(parts, constant)
        case _:
            return True


def compared(test: Condition) -> frozenset[int]:
    """Return the unknowns that a condition compares with, by number."""
    match test:
        case AtLeast(atom):
            return frozenset({atom})
        case Several(first, second):
            return compared(first) | compared(second)
        case _:
            return frozenset()


def joined(parts: Mapping[Expr, int]) -> tuple[Expr, int]:
    """Return a sum of unknowns as a multiple of one; a sum of several counts as one of its own."""
    if len(parts) == 1:
        ((atom, times),) = parts.items()
        return atom, times
    ordered = sorted(parts.items(), key=str)
    return Var(" + ".join(f"{times} * {atom}" for atom, times in ordered)), 1
