"""Sizes that keep what a kernel requires and fulfil a wish, as z3 finds them.

Questions are linear: what is a factor or a divisor in one has the value that is wanted of it.  So a
question can miss a launch; whoever asks checks that the answer is one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import z3

from fuser.expr import Expr, Kind, Op, Var, substitute, variables
from fuser.kernel import ir as kir
from oracles.launches.wishes import FAR, Wish

WORK = 20_000
"""Limit of a question, in z3's own units: answers repeat on every machine."""


class Solver:
    """One solver for all questions about a kernel.

    Parameters
    ----------
    conditions : iterable of Expr
        What every launch keeps.
    largest, ctas : int
        Limits of a parameter, and of the number of CTAs.
    """

    def __init__(
        self, kernel: kir.Kernel, conditions: Iterable[Expr], largest: int, ctas: int
    ) -> None:
        self.z3 = z3.Context()  # Of its own: what was asked before would change the answers.
        self.solver = z3.SimpleSolver(self.z3)
        self.solver.set("rlimit", WORK)
        self._terms: dict[Expr, z3.ArithRef] = {}
        self._literals: dict[object, z3.BoolRef] = {}
        self.cluster = kernel.cluster
        self.rough: list[Expr] = []
        grid = self._term(kir.GRID)
        self.solver.add(grid >= 1, grid <= ctas, self._term(kir.BLOCK) < grid)
        if kernel.cluster > 1:
            self.solver.add(grid % kernel.cluster == 0)
        self.solver.add(*(self._term(p) <= largest for p in kernel.params))
        for condition in conditions:
            if not _factors(condition):
                self.solver.add(self._truth(condition))
            elif kir.GRID not in variables(condition):  # The CTAs follow from the other sizes.
                self.rough.append(condition)

    def nearest(self, wish: Wish | None, wanted: Mapping[Var, int]) -> dict[Var, int] | None:
        """Return sizes, and CTAs, that fulfil a wish; of wanted values the first count most."""
        must = [] if wish is None else self._wish(wish, wanted)
        told = frozenset[Var]() if wish is None else variables(wish.subject.expr)
        for condition in self.rough:
            if not _factors(condition) & told:
                must += self._linear((condition,), wanted, lambda held: self._truth(*held))
        soft = [self._literal((p, n), self._term(p) == n) for p, n in wanted.items()]
        if self.solver.check(*must, *soft) != z3.sat:
            if self.solver.check(*must) != z3.sat:
                return None
            for literal in soft:
                if self.solver.check(*must, literal) == z3.sat:
                    must.append(literal)
            self.solver.check(*must)
        model, terms = self.solver.model(), {v: self._term(v) for v in (*wanted, kir.GRID)}
        return {v: model.eval(e, model_completion=True).as_long() for v, e in terms.items()}

    def _wish(self, wish: Wish, wanted: Mapping[Var, int]) -> list[z3.BoolRef]:
        path = wish.subject.path

        def meaning(held: tuple[Expr, ...]) -> z3.BoolRef:
            subject = self._term(held[0])
            inside = [subject >= wish.low] * (wish.low > -FAR)
            inside += [subject <= wish.high] * (wish.high < FAR)
            for step, value in zip(path, held[1:], strict=True):
                if step.index is None:
                    inside.append(self._truth(value))
                else:
                    inside.append(self._term(step.index) < self._term(value))
            return z3.And([z3.BoolVal(True, self.z3), *inside])

        exprs = (wish.subject.expr, *(step.value for step in path))
        return self._linear(exprs, wanted, meaning, wish)

    def _linear(
        self,
        exprs: tuple[Expr, ...],
        wanted: Mapping[Var, int],
        meaning: Callable[[tuple[Expr, ...]], z3.BoolRef],
        *key: object,
    ) -> list[z3.BoolRef]:
        """Return literals for what expressions mean; the factors in them have wanted values."""
        factors = frozenset[Var]().union(*map(_factors, exprs))
        values: dict[Var, Expr] = {v: n for v, n in wanted.items() if v in factors}
        if kir.GRID in factors:
            values[kir.GRID] = self.cluster
        fixed = [self._literal((v, n), self._term(v) == n) for v, n in values.items()]
        held = tuple(substitute(expr, values) for expr in exprs)
        if any(map(_meaningless, held)):
            return [*fixed, z3.BoolVal(val=False, ctx=self.z3)]
        return [*fixed, self._literal(key or held, meaning(held))]

    def _literal(self, key: object, meaning: z3.BoolRef) -> z3.BoolRef:
        if key not in self._literals:
            self._literals[key] = z3.Bool(f"literal {len(self._literals)}", self.z3)
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
                return z3.IntVal(expr, self.z3)
            case Var(name):
                made = z3.Int(name, self.z3)
                self.solver.add(made >= 0)
                return made
            case Op(Kind.LT | Kind.LE | Kind.EQ | Kind.AND):
                return z3.If(self._truth(expr), z3.IntVal(1, self.z3), z3.IntVal(0, self.z3))
            case Op(Kind.FLOORDIV | Kind.MOD as kind, left, right):
                return self._divided(kind, left, right)
            case Op(kind, left, right):
                a, b = self._term(left), self._term(right)
                match kind:
                    case Kind.ADD:
                        return a + b
                    case Kind.SUB:
                        return a - b
                    case Kind.MUL:
                        return a * b
                    case Kind.MIN:
                        return z3.If(a <= b, a, b)
                    case _:
                        return z3.If(a <= b, b, a)

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
        """Return a quotient or a remainder, anything where the divisor is not known."""
        a = self._term(left)
        quotient, rest = (z3.FreshInt(name, self.z3) for name in ("quotient", "rest"))
        if isinstance(right, int) and right > 0:
            self.solver.add(a == quotient * right + rest, rest >= 0, rest < right)
        self._terms[Op(Kind.FLOORDIV, left, right)] = quotient
        self._terms[Op(Kind.MOD, left, right)] = rest
        return quotient if kind is Kind.FLOORDIV else rest


def _factors(expr: Expr) -> frozenset[Var]:
    """Return what has to be known for an expression to be linear in all else."""
    if not isinstance(expr, Op):
        return frozenset()
    inside = _factors(expr.a) | _factors(expr.b)
    scales = expr.kind in (Kind.MUL, Kind.FLOORDIV, Kind.MOD) and variables(expr.a)
    return inside | variables(expr.b) if scales else inside


def _meaningless(expr: Expr) -> bool:
    match expr:
        case Op(Kind.FLOORDIV | Kind.MOD, int(), 0):
            return True
        case Op(_, a, b):
            return _meaningless(a) or _meaningless(b)
        case _:
            return False
