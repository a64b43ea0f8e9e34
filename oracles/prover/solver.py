"""All of z3 behind one door: whether something follows, and what a text in SMT-LIB says.

`Known` takes expressions, `Script` a text of difference constraints.  Every expression handed to
z3 is linear.  A product of two unknowns, and a quotient by an unknown, becomes an unknown of its
own with the facts about it that are linear; a weaker assumption can cost a proof, never make a
false one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import z3

from fuser.expr import Expr, Kind, Op, Var, both, eq, fold
from oracles.prover.arithmetic import poly, tree

BELLMAN_FORD = 1
"""z3's arithmetic solver for differences; "unknown" if it is given anything else."""


class Question:
    """One question to z3: expressions, the facts about them, and a work limit."""

    def __init__(self, rlimit: int) -> None:
        self.solver = z3.SolverFor("QF_LIA")
        self.solver.set("rlimit", rlimit)
        self._terms: dict[Expr, z3.ArithRef] = {}

    def term(self, expr: Expr) -> z3.ArithRef:
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
            case Op(kind, left, right):
                return self._operation(kind, left, right)

    def _operation(self, kind: Kind, left: Expr, right: Expr) -> z3.ArithRef:
        a, b = self.term(left), self.term(right)
        match kind:
            case Kind.ADD:
                return a + b
            case Kind.SUB:
                return a - b
            case Kind.MUL:
                if isinstance(left, int) or isinstance(right, int):
                    return a * b
                return z3.FreshInt("product")
            case Kind.FLOORDIV | Kind.MOD:
                return self._divided(kind, a, b, right)
            case Kind.MIN:
                return z3.If(a <= b, a, b)
            case Kind.MAX:
                return z3.If(a <= b, b, a)
            case Kind.LT:
                return z3.If(a < b, z3.IntVal(1), z3.IntVal(0))
            case Kind.LE:
                return z3.If(a <= b, z3.IntVal(1), z3.IntVal(0))
            case Kind.EQ:
                return z3.If(a == b, z3.IntVal(1), z3.IntVal(0))
            case Kind.AND:
                return z3.If(z3.And(a != 0, b != 0), z3.IntVal(1), z3.IntVal(0))

    def _divided(self, kind: Kind, a: z3.ArithRef, b: z3.ArithRef, by: Expr) -> z3.ArithRef:
        quotient, rest = z3.FreshInt("quotient"), z3.FreshInt("rest")
        if isinstance(by, int) and by > 0:
            self.solver.add(a == quotient * by + rest, rest >= 0, rest < by)
        else:
            inside = z3.And(rest >= 0, rest < b, quotient >= 0, quotient <= a)
            self.solver.add(z3.Implies(z3.And(a >= 0, b >= 1), inside))
        return quotient if kind is Kind.FLOORDIV else rest

    def follows(self, condition: Expr) -> bool:
        """Whether a condition holds for all values, as far as z3 can tell."""
        try:
            return bool(self.solver.check(self.term(condition) == 0) == z3.unsat)
        except z3.Z3Exception:
            return False


@dataclass(frozen=True, slots=True)
class AtLeast:
    """So many of some formulas hold; an expression holds where it is not 0."""

    many: int
    of: tuple[Formula, ...]
    never: bool = False


Formula = Expr | AtLeast


def all_of(*parts: Formula) -> Formula:
    """Return that all of them hold."""
    return at_least(len(parts), parts)


def any_of(*parts: Formula) -> Formula:
    """Return that one of them holds."""
    return at_least(1, parts)


def at_least(many: int, of: Iterable[Formula]) -> Formula:
    """Return that so many of them hold; numbers are counted at once."""
    parts = tuple(of)
    sure = sum(1 for part in parts if isinstance(part, int) and part)
    rest = tuple(part for part in parts if not isinstance(part, int))
    many -= sure
    if many <= 0 or many > len(rest):
        return int(many <= 0)
    return rest[0] if len(rest) == many == 1 else AtLeast(many, rest)


def none_of(part: Formula) -> Formula:
    """Return that it does not hold."""
    return int(not part) if isinstance(part, int) else AtLeast(1, (part,), never=True)


class _Counts(Question):
    """A question that knows more of products: of counts they are counts, and 0 times is 0."""

    @contextmanager
    def forgetting(self) -> Iterator[None]:
        """Forget the terms that are made meanwhile, and so what is said of them."""
        known = dict(self._terms)
        yield
        self._terms = known

    def _operation(self, kind: Kind, left: Expr, right: Expr) -> z3.ArithRef:
        made = super()._operation(kind, left, right)
        if kind is Kind.MUL and not (isinstance(left, int) or isinstance(right, int)):
            a, b = self.term(left), self.term(right)
            some = z3.And(a >= 1, b >= 1)
            self.solver.add(z3.Implies(some, z3.And(made >= a, made >= b)))
            self.solver.add(z3.Implies(z3.Or(a == 0, b == 0), made == 0))
        return made


class Possible:
    """Whether formulas can hold together, beside what holds in every launch."""

    def __init__(self, facts: Iterable[Expr], rlimit: int) -> None:
        self._question = _Counts(rlimit)
        self._known: dict[Expr, z3.BoolRef] = {}
        for fact in facts:
            self._question.solver.add(self._holds(tree(poly(fact))))

    def _holds(self, part: Formula) -> z3.BoolRef:
        if isinstance(part, AtLeast):
            inner = [self._holds(one) for one in part.of]
            if part.never:
                return z3.Not(inner[0])
            if part.many == len(inner):
                return z3.And(inner)
            return z3.Or(inner) if part.many == 1 else z3.AtLeast(*inner, part.many)
        if part not in self._known:
            self._known[part] = self._compared(part)
        return self._known[part]

    def _compared(self, expr: Expr) -> z3.BoolRef:
        term = self._question.term
        match expr:
            case Op(Kind.LT, a, b):
                return term(a) < term(b)
            case Op(Kind.LE, a, b):
                return term(a) <= term(b)
            case Op(Kind.EQ, a, b):
                return term(a) == term(b)
            case Op(Kind.AND, a, b):
                return z3.And(self._holds(a), self._holds(b))
            case _:
                return term(expr) != 0

    def ask(self, formulas: Iterable[Formula], values: Iterable[Expr] = ()) -> Answer:
        """Ask whether all of the formulas can hold; with some values of a model if they do."""
        solver, known = self._question.solver, dict(self._known)
        solver.push()
        with self._question.forgetting():
            solver.add([self._holds(part) for part in formulas])
            status = str(solver.check())
            found = {}
            if status == "sat":
                model = solver.model()
                terms = {str(expr): self._question.term(expr) for expr in values}
                found = {
                    n: model.eval(t, model_completion=True).as_long() for n, t in terms.items()
                }
        solver.pop()
        self._known = known
        return Answer(status, found)


@dataclass(frozen=True, slots=True)
class Answer:
    """What z3 says of one question: "sat", "unsat" or "unknown", and some values of a model."""

    status: str
    values: Mapping[str, int]


class Script:
    """Difference constraints in SMT-LIB; a question is a Boolean constant of the text.

    The work limit is one of z3's own units, and the seed is fixed: answers repeat.
    """

    def __init__(self, text: str, rlimit: int) -> None:
        self.solver = z3.SimpleSolver()
        self.solver.set("rlimit", rlimit)
        self.solver.set("arith.solver", BELLMAN_FORD)
        self.solver.from_string(text)

    def ask(self, *questions: str, values: Iterable[str] = ()) -> Answer:
        """Ask whether the text and these constants of it can hold together."""
        status = str(self.solver.check(*(z3.Bool(name) for name in questions)))
        names = tuple(values)
        if status != "sat" or not names:
            return Answer(status, {})
        model = self.solver.model()
        found = {name: model.eval(z3.Int(name), model_completion=True) for name in names}
        return Answer(status, {name: value.as_long() for name, value in found.items()})

    def least(self, question: str, name: str, most: int) -> int:
        """Return the least value >= 0 of an unknown where a question holds, or more than `most`.

        Up to `most` it is the least as far as the solver can tell.
        """
        asked = [z3.Bool(question)] if question else []
        low, high = 0, most + 1
        while low < high:
            middle = (low + high) // 2
            if self.solver.check(*asked, z3.Int(name) <= middle) == z3.sat:
                high = middle
            else:
                low = middle + 1
        return low


class Known:
    """What holds in every launch, and whether something follows from it."""

    def __init__(self, facts: Iterable[Expr], rlimit: int) -> None:
        self.facts = [tree(poly(fact)) for fact in facts]
        self.rlimit = rlimit

    def gives(self, claim: Expr, *more: Expr) -> bool:
        """Whether a claim follows from the facts and from `more`."""
        normal = tree(poly(claim))
        if isinstance(normal, int):
            return normal != 0
        assumed: Expr = 1
        for fact in (*self.facts, *(tree(poly(fact)) for fact in more)):
            assumed = both(assumed, fact)
        return Question(self.rlimit).follows(eq(both(assumed, eq(normal, 0)), 0))

    def same(self, a: Expr, b: Expr) -> bool:
        """Whether two expressions are equal in every launch."""
        return poly(a) == poly(b) or self.gives(eq(a, b))

    def at_most(self, a: Expr, b: Expr, *more: Expr) -> bool:
        """Whether a <= b in every launch."""
        return poly(a) == poly(b) or self.gives(fold(Kind.LE, a, b), *more)
