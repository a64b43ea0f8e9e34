"""Sizes that keep what a kernel requires and fulfil a wish, as z3 finds them.

What is not linear is left out of a question, but for products with a small factor: whoever asks
checks the answer.  So a question can cost a launch, never make one that is none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress

import z3

from fuser.expr import Expr, Kind, Op, Var, variables
from fuser.kernel import ir as kir
from oracles.launches.wishes import FAR, Path, Wish

WORK = 20_000
"""Limit of a question, in z3's own units: answers repeat on every machine."""
FACTOR_BITS = 4
"""Bits of the smaller factor of a product of two unknowns that is required to be something."""


class NotLinearError(Exception):
    """An expression that z3 is not asked about."""


class Solver:
    """One solver for all questions about a kernel.

    Parameters
    ----------
    conditions : iterable of Expr
        What every launch keeps.
    largest, turns : int
        Limits of a parameter, and of the number of CTAs.
    """

    def __init__(
        self, kernel: kir.Kernel, conditions: Iterable[Expr], largest: int, turns: int
    ) -> None:
        self.solver = z3.SimpleSolver()
        self.solver.set("rlimit", WORK)
        self._terms: dict[Expr, z3.ArithRef] = {}
        self._literals: dict[object, z3.BoolRef] = {}
        self._products = False
        grid = self._term(kir.GRID)
        self.solver.add(grid >= 1, grid <= turns, self._term(kir.BLOCK) < grid)
        if kernel.cluster > 1:
            self.solver.add(grid % kernel.cluster == 0)
        self.solver.add(*(self._term(p) <= largest for p in kernel.params))
        for condition in conditions:
            # The number of CTAs follows from the sizes; a product there would only cost time.
            self._products = kir.GRID not in variables(condition)
            with suppress(NotLinearError):
                self.solver.add(self._truth(condition))
        self._products = False

    def nearest(self, wish: Wish | None, wanted: Mapping[Var, int]) -> dict[Var, int] | None:
        """Return sizes that fulfil a wish and have as many of the wanted values as they can."""
        try:
            must = [] if wish is None else [self._wish(wish)]
        except NotLinearError:
            return None
        soft = [self._literal((p, n), self._term(p) == n) for p, n in wanted.items()]
        while True:
            answer = self.solver.check(*must, *soft)
            if answer == z3.sat:
                model = self.solver.model()
                values = {p: model.eval(self._term(p), model_completion=True) for p in wanted}
                return {p: value.as_long() for p, value in values.items()}
            core = {literal.get_id() for literal in self.solver.unsat_core()}
            given_up = [x for x in soft if answer == z3.unknown or x.get_id() in core]
            if not given_up:
                return None
            soft.remove(given_up[-1])

    def _wish(self, wish: Wish) -> z3.BoolRef:
        subject = self._term(wish.subject.expr)
        inside = [self._path(wish.subject.path)]
        inside += [subject >= wish.low] * (wish.low > -FAR)
        inside += [subject <= wish.high] * (wish.high < FAR)
        return self._literal(wish, z3.And(inside))

    def _path(self, path: Path) -> z3.BoolRef:
        """Return a literal for a place of the kernel that some thread reaches."""
        steps = [
            self._truth(step.value)
            if step.index is None
            else self._term(step.index) < self._term(step.value)
            for step in path
        ]
        return self._literal(path, z3.And(steps))

    def _literal(self, key: object, meaning: z3.BoolRef) -> z3.BoolRef:
        if key not in self._literals:
            self._literals[key] = z3.Bool(f"literal {len(self._literals)}")
            self.solver.add(z3.Implies(self._literals[key], meaning))
        return self._literals[key]

    # --- terms ----------------------------------------------------------------------------------

    def _term(self, expr: Expr) -> z3.ArithRef:
        """Return z3's term for an expression; every variable is >= 0."""
        if expr not in self._terms:
            self._terms[expr] = self._made(expr)
        return self._terms[expr]

    def _made(self, expr: Expr) -> z3.ArithRef:
        match expr:
            case int():
                return z3.IntVal(expr)
            case Var(name):
                made = z3.Int(name)
                self.solver.add(made >= 0)
                return made
            case Op(Kind.LT | Kind.LE | Kind.EQ | Kind.AND):
                return z3.If(self._truth(expr), z3.IntVal(1), z3.IntVal(0))
            case Op(kind, left, right):
                a, b = self._term(left), self._term(right)
                match kind:
                    case Kind.ADD:
                        return a + b
                    case Kind.SUB:
                        return a - b
                    case Kind.MUL:
                        linear = isinstance(left, int) or isinstance(right, int)
                        return a * b if linear else self._product(a, b)
                    case Kind.MIN:
                        return z3.If(a <= b, a, b)
                    case Kind.MAX:
                        return z3.If(a <= b, b, a)
                    case _:
                        return self._divided(kind, left, right)

    def _truth(self, expr: Expr) -> z3.BoolRef:
        match expr:
            case Op(Kind.LT, left, right):
                return self._term(left) < self._term(right)
            case Op(Kind.LE, left, right):
                return self._term(left) <= self._term(right)
            case Op(Kind.EQ, left, right):
                return self._term(left) == self._term(right)
            case Op(Kind.AND, left, right):
                return z3.And(self._truth(left), self._truth(right))
            case _:
                return self._term(expr) != 0

    def _divided(self, kind: Kind, left: Expr, right: Expr) -> z3.ArithRef:
        """Return a quotient or a remainder; both are defined at once."""
        a, b = self._term(left), self._term(right)
        quotient, rest = z3.FreshInt("quotient"), z3.FreshInt("rest")
        if isinstance(right, int) and right > 0:
            self.solver.add(a == quotient * right + rest, rest >= 0, rest < right)
        else:
            whole = self._product(quotient, b)
            self.solver.add(z3.Implies(b >= 1, z3.And(a == whole + rest, rest >= 0, rest < b)))
        self._terms[Op(Kind.FLOORDIV, left, right)] = quotient
        self._terms[Op(Kind.MOD, left, right)] = rest
        return quotient if kind is Kind.FLOORDIV else rest

    def _product(self, a: z3.ArithRef, b: z3.ArithRef) -> z3.ArithRef:
        """Return a product of which one factor is small: a sum over the bits of that one."""
        if not self._products:
            raise NotLinearError
        made, first = z3.FreshInt("product"), z3.FreshBool("first")
        for x, y, chosen in ((a, b, first), (b, a, z3.Not(first))):
            bits = [(1 << n, z3.FreshBool("bit")) for n in range(FACTOR_BITS)]
            factor = z3.Sum([z3.If(bit, z3.IntVal(many), z3.IntVal(0)) for many, bit in bits])
            whole = z3.Sum([z3.If(bit, many * y, z3.IntVal(0)) for many, bit in bits])
            self.solver.add(z3.Implies(chosen, z3.And(x == factor, made == whole)))
        return made
