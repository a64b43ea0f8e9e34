"""All of z3 behind one door: whether something follows, and whether it can hold.

Every expression handed to z3 is linear.  A product of two unknowns, and a quotient by an unknown,
becomes an unknown of its own with the facts about it that are linear; a weaker assumption can cost
a proof, never make a false one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Self

import z3

from fuser.expr import Expr, Kind, Op, Var, both, eq, fold, variables
from oracles.prover.arithmetic import Least, poly, tree
from oracles.prover.clock import working

LONG = 80
"""Characters of a term from which on it is written once, and has a name."""


class _Text:
    """What is asked of one plain solver, as SMT-LIB: read faster than terms are made one by one."""

    def __init__(self, rlimit: int) -> None:
        self._solver = z3.SimpleSolver()
        self._solver.set("rlimit", rlimit)
        self._new: list[str] = []
        self._count = 0

    def _name(self, sort: str, text: str = "") -> str:
        """Declare an unknown, or define a name for a term."""
        self._count += 1
        name = f"q{self._count}"
        how = f"(define-fun {name} () {sort} {text})" if text else f"(declare-const {name} {sort})"
        self._new.append(how)
        return name


class Question(_Text):
    """One question to z3: expressions, the facts about them, and a work limit.

    A plain solver is asked first: one for a logic takes longer to make than most questions.
    """

    LOGIC = "QF_LIA"

    def __init__(self, rlimit: int) -> None:
        super().__init__(rlimit)
        self._rlimit = rlimit
        self._terms: dict[Expr, str] = {}
        self._truths: dict[Expr, str] = {}
        self._divided: dict[tuple[Expr, Expr], tuple[str, str]] = {}

    def _assert(self, text: str) -> None:
        self._new.append(f"(assert {text})")

    def _read(self) -> None:
        self._solver.from_string("".join(self._new))
        self._new.clear()

    def _term(self, expr: Expr) -> str:
        """Return the term for an expression; every variable is >= 0."""
        if expr not in self._terms:
            made = self._made(expr)
            self._terms[expr] = made if len(made) < LONG else self._name("Int", made)
        return self._terms[expr]

    def _made(self, expr: Expr) -> str:
        match expr:
            case int():
                return str(expr) if expr >= 0 else f"(- {-expr})"
            case Var():
                name = self._name("Int")
                self._assert(f"(>= {name} 0)")
                return name
            case Op(Kind.LT | Kind.LE | Kind.EQ | Kind.AND):
                return f"(ite {self._truth(expr)} 1 0)"
            case Op(Kind.FLOORDIV | Kind.MOD as kind, a, b):
                if (a, b) not in self._divided:
                    self._divided[a, b] = self._quotient(a, b)
                return self._divided[a, b][kind is Kind.MOD]
            case Op(Kind.MUL, a, b) if not (isinstance(a, int) or isinstance(b, int)):
                return self._product(a, b)
            case Op(Kind.MIN | Kind.MAX as kind, a, b):
                left, right = self._term(a), self._term(b)
                return f"(ite ({'<=' if kind is Kind.MIN else '>='} {left} {right}) {left} {right})"
            case Op(kind, a, b):
                return f"({kind.value} {self._term(a)} {self._term(b)})"

    def _truth(self, expr: Expr) -> str:
        """Return the term for that an expression is not 0."""
        if expr not in self._truths:
            made = self._compared(expr)
            self._truths[expr] = made if len(made) < LONG else self._name("Bool", made)
        return self._truths[expr]

    def _compared(self, expr: Expr) -> str:
        match expr:
            case Op(Kind.EQ, Op(Kind.LT | Kind.LE | Kind.EQ | Kind.AND) as a, 0):
                return f"(not {self._truth(a)})"
            case Op(Kind.LT | Kind.LE | Kind.EQ as kind, a, b):
                sign = "=" if kind is Kind.EQ else kind.value
                return f"({sign} {self._term(a)} {self._term(b)})"
            case Op(Kind.AND, a, b):
                return f"(and {self._truth(a)} {self._truth(b)})"
            case _:
                return f"(not (= {self._term(expr)} 0))"

    def _product(self, left: Expr, right: Expr) -> str:
        a, b, made = self._term(left), self._term(right), self._name("Int")
        self._assert(f"(=> (and (>= {a} 0) (>= {b} 0)) (>= {made} 0))")
        for of, by in ((left, right), (right, left)):
            if isinstance(of, Op) and of.kind is Kind.FLOORDIV and of.b == by:
                whole, part = self._term(of.a), self._term(by)
                rest = f"(and (<= {made} {whole}) (< {whole} (+ {made} {part})))"
                self._assert(f"(=> (and (>= {whole} 0) (>= {part} 1)) {rest})")
        return made

    def _quotient(self, left: Expr, right: Expr) -> tuple[str, str]:
        """Return unknowns for a quotient, and for what is left."""
        a, b = self._term(left), self._term(right)
        quotient, rest = self._name("Int"), self._name("Int")
        if isinstance(right, int) and right > 0:
            whole = f"(= {a} (+ (* {b} {quotient}) {rest}))"
            self._assert(f"(and {whole} (>= {rest} 0) (< {rest} {b}))")
        else:
            inside = f"(and (>= {rest} 0) (< {rest} {b}) (>= {quotient} 0) (<= {quotient} {a}))"
            self._assert(f"(=> (and (>= {a} 0) (>= {b} 1)) {inside})")
        return quotient, rest

    def given(self, known: Iterable[Expr]) -> Self:
        """Assume conditions."""
        for one in known:
            self._assert(self._truth(one))
        return self

    def follows(self, condition: Expr) -> bool:
        """Whether a condition holds for all values, as far as z3 can tell."""
        return self.possible([eq(condition, 0)]) == "unsat"

    def possible(self, known: Iterable[Expr]) -> str:
        """Ask whether conditions can hold together: "sat", "unsat" or "unknown"."""
        working("a question to z3")
        self.given(known)._read()
        try:
            status = self._solver.check()
            if status == z3.unknown:
                solver = z3.SolverFor(self.LOGIC)
                solver.set("rlimit", self._rlimit)
                solver.add(self._solver.assertions())
                status = solver.check()
        except z3.Z3Exception:
            return "unknown"
        return str(status)


class Exact(Question):
    """A question about products and quotients of unknowns, too: slower, and asked last."""

    LOGIC = "QF_NIA"

    def _product(self, left: Expr, right: Expr) -> str:
        return f"(* {self._term(left)} {self._term(right)})"

    def _quotient(self, left: Expr, right: Expr) -> tuple[str, str]:
        a, b = self._term(left), self._term(right)
        quotient, rest = self._name("Int"), self._name("Int")
        whole = f"(= {a} (+ (* {quotient} {b}) {rest}))"
        self._assert(f"(=> (>= {b} 1) (and {whole} (>= {rest} 0) (< {rest} {b})))")
        self._assert(f"(=> (>= {a} 0) (>= {quotient} 0))")
        return quotient, rest


class Scenes(Exact):
    """Which answers conditions have together, in launches that are `given` and in others.

    `given` has values of some variables; `known` holds in all.
    """

    def __init__(
        self,
        known: Iterable[Expr],
        conditions: Iterable[Expr],
        given: Iterable[Mapping[Var, int]],
        rlimit: int,
    ) -> None:
        super().__init__(rlimit)
        self.given(known)
        self._holds = [self._flag(self._truth(one)) for one in conditions]
        each = ((f"(= {self._term(v)} {n})" for v, n in one.items()) for one in given)
        self._given = self._flag(f"(or false {' '.join(_every(one) for one in each)})")
        self._model: z3.ModelRef | None = None

    def _flag(self, text: str) -> str:
        name = self._name("Bool")
        self._assert(f"(= {name} {text})")
        return name

    def another(self) -> tuple[str, list[bool]]:
        """Ask for the answers of a launch that is not given: "sat", "unsat" or "unknown"."""
        status = self._ask([f"(not {self._given})"], keep=True)
        if self._model is None or status != "sat":
            return status, []
        found = (self._model.eval(z3.Bool(h), model_completion=True) for h in self._holds)
        return status, [z3.is_true(one) for one in found]

    def value(self, var: Var) -> str:
        """Return what a variable is in the launch that was found last."""
        assert self._model is not None, "asked of a launch that was found"
        return str(self._model.eval(z3.Int(self._term(var)), model_completion=True))

    def least(self, var: Var, answers: list[bool]) -> int:
        """Return the least that a variable is where the answers are those found last."""
        found = int(self.value(var))
        scene = self._scene(answers)
        while self._ask([*scene, f"(< {self._term(var)} {found})"], keep=True) == "sat":
            found = int(self.value(var))
        return found

    def among_given(self, answers: list[bool]) -> str:
        """Ask whether a launch that is given has these answers."""
        return self._ask([self._given, *self._scene(answers)])

    def leave(self, answers: list[bool]) -> None:
        """Ask about these answers no more."""
        self._assert(f"(not {_every(self._scene(answers))})")

    def _scene(self, answers: list[bool]) -> list[str]:
        pairs = zip(self._holds, answers, strict=True)
        return [one if yes else f"(not {one})" for one, yes in pairs]

    def _ask(self, more: list[str], *, keep: bool = False) -> str:
        self._read()
        self._solver.push()
        self._solver.from_string(f"(assert {_every(more)})")
        status = str(self._solver.check())
        if keep:
            self._model = self._solver.model() if status == "sat" else None
        self._solver.pop()
        return status


def _every(texts: Iterable[str]) -> str:
    return f"(and true {' '.join(texts)})"


@dataclass(frozen=True, slots=True, eq=False)
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
    rest = []
    for part in of:
        if not isinstance(part, int):
            rest.append(part)
        elif part:
            many -= 1
    if many <= 0 or many > len(rest):
        return int(many <= 0)
    return rest[0] if len(rest) == many == 1 else _at_least(many, tuple(rest))


_at_least = lru_cache(maxsize=1 << 14)(AtLeast)
"""Makes one object of what is built again and again: it is compared as such."""


def none_of(part: Formula) -> Formula:
    """Return that it does not hold."""
    return int(not part) if isinstance(part, int) else _at_least(1, (part,), never=True)


Written = tuple[str, frozenset[str]]
"""A term in SMT-LIB, and what is known of the unknowns in it."""


class Possible(_Text):
    """Whether formulas can hold together, beside what holds in every launch; each written once."""

    def __init__(self, facts: Iterable[Expr], rlimit: int) -> None:
        super().__init__(rlimit)
        self._terms: dict[Expr, Written] = {}
        self._divided: dict[tuple[Expr, Expr], tuple[str, str, frozenset[str]]] = {}
        self._formulas: dict[Formula, Written] = {}
        self._answers: dict[object, Answer] = {}
        self._assert(tree(poly(fact)) for fact in facts)

    def ask(self, formulas: Iterable[Formula], values: Iterable[Expr] = ()) -> Answer:
        """Ask whether all of the formulas can hold; with some values of a model if they do."""
        key = asked, shown = tuple(formulas), tuple(values)
        if key not in self._answers:
            self._answers[key] = self._asked(asked, shown)
        return self._answers[key]

    def _asked(self, formulas: Iterable[Formula], values: tuple[Expr, ...]) -> Answer:
        working("a question to z3")
        self._solver.push()
        self._assert(formulas)
        status = str(self._solver.check())
        found = {}
        if status == "sat" and values:
            model = self._solver.model()
            terms = {str(expr): z3.Int(self._term(expr)[0]) for expr in values}
            found = {n: model.eval(t, model_completion=True).as_long() for n, t in terms.items()}
        self._solver.pop()
        return Answer(status, found)

    def _assert(self, formulas: Iterable[Formula]) -> None:
        written = [self._holds(part) for part in formulas]
        said = dict.fromkeys(fact for _, needs in written for fact in sorted(needs))
        claims = (f"(assert {text})" for text in (*said, *(text for text, _ in written)))
        self._solver.from_string("".join((*self._new, *claims)))
        self._new.clear()

    def _holds(self, part: Formula) -> Written:
        if part not in self._formulas:
            if isinstance(part, AtLeast):
                made, needs = self._counted(part)
            else:
                made, needs = self._truth(part)
            self._formulas[part] = self._name("Bool", made), needs
        return self._formulas[part]

    def _counted(self, part: AtLeast) -> Written:
        inner = [self._holds(one) for one in part.of]
        text = " ".join(name for name, _ in inner)
        needs = frozenset().union(*(n for _, n in inner))
        if part.never:
            return f"(not {text})", needs
        if part.many == len(inner):
            return f"(and {text})", needs
        return (f"(or {text})" if part.many == 1 else f"((_ at-least {part.many}) {text})"), needs

    def _truth(self, expr: Expr) -> Written:
        match expr:
            case int():
                return "true" if expr else "false", frozenset()
            case Op(Kind.LT | Kind.LE | Kind.EQ as kind, a, b):
                (left, of), (right, by) = self._term(a), self._term(b)
                sign = "=" if kind is Kind.EQ else kind.value
                return f"({sign} {left} {right})", of | by
            case Op(Kind.AND, a, b):
                (left, of), (right, by) = self._truth(a), self._truth(b)
                return f"(and {left} {right})", of | by
            case _:
                text, needs = self._term(expr)
                return f"(not (= {text} 0))", needs

    def _term(self, expr: Expr) -> Written:
        """Return the term for an expression; every variable is >= 0."""
        if expr not in self._terms:
            self._terms[expr] = self._made(expr)
        return self._terms[expr]

    def _made(self, expr: Expr) -> Written:
        match expr:
            case int():
                return str(expr) if expr >= 0 else f"(- {-expr})", frozenset()
            case Var():
                name = self._name("Int")
                return name, frozenset({f"(>= {name} 0)"})
            case Op(Kind.LT | Kind.LE | Kind.EQ | Kind.AND):
                text, needs = self._truth(expr)
                return f"(ite {text} 1 0)", needs
            case Op(Kind.FLOORDIV | Kind.MOD as kind, a, b):
                if (a, b) not in self._divided:
                    self._divided[a, b] = self._quotient(a, b)
                quotient, rest, needs = self._divided[a, b]
                return quotient if kind is Kind.FLOORDIV else rest, needs
            case Op(kind, a, b):
                (left, of), (right, by) = self._term(a), self._term(b)
                match kind:
                    case Kind.MUL if not (isinstance(a, int) or isinstance(b, int)):
                        return self._product(a, b)
                    case Kind.MIN | Kind.MAX:
                        sign = "<=" if kind is Kind.MIN else ">="
                        text = f"(ite ({sign} {left} {right}) {left} {right})"
                        return self._name("Int", text), of | by
                    case _:
                        return f"({kind.value} {left} {right})", of | by

    def _product(self, left: Expr, right: Expr) -> Written:
        """Return an unknown for a product: of counts it is a count, and 0 times is 0."""
        (a, of), (b, by) = self._term(left), self._term(right)
        name = self._name("Int")
        said = {
            f"(=> (and (>= {a} 0) (>= {b} 0)) (>= {name} 0))",
            f"(=> (and (>= {a} 1) (>= {b} 1)) (and (>= {name} {a}) (>= {name} {b})))",
            f"(=> (or (= {a} 0) (= {b} 0)) (= {name} 0))",
        }
        for one, other in ((left, right), (right, left)):
            if isinstance(one, Op) and one.kind is Kind.FLOORDIV and one.b == other:
                whole, part = self._term(one.a)[0], self._term(other)[0]
                rest = f"(and (<= {name} {whole}) (< {whole} (+ {name} {part})))"
                said.add(f"(=> (and (>= {whole} 0) (>= {part} 1)) {rest})")
        return name, of | by | said

    def _quotient(self, left: Expr, right: Expr) -> tuple[str, str, frozenset[str]]:
        """Return unknowns for a quotient and what is left, and what is known of them."""
        (a, of), (b, by) = self._term(left), self._term(right)
        quotient, rest = self._name("Int"), self._name("Int")
        if isinstance(right, int) and right > 0:
            whole = f"(and (= {a} (+ (* {quotient} {b}) {rest})) (>= {rest} 0) (< {rest} {b}))"
            return quotient, rest, of | {whole}
        inside = f"(and (>= {rest} 0) (< {rest} {b}) (>= {quotient} 0) (<= {quotient} {a}))"
        return quotient, rest, of | by | {f"(=> (and (>= {a} 0) (>= {b} 1)) {inside})"}


@dataclass(frozen=True, slots=True)
class Answer:
    """What z3 says of one question: "sat", "unsat" or "unknown", and some values of a model."""

    status: str
    values: Mapping[str, int]


class Sequents:
    """Questions whether conditions follow from others; each is not 0 if it holds.

    Written as SMT-LIB: that is read faster than terms are made one by one.
    """

    def __init__(self, rlimit: int, always: Iterable[Expr] = ()) -> None:
        self._solver = z3.SimpleSolver()
        self._solver.set("rlimit", rlimit)
        self._names: dict[Expr, str] = {}
        self._texts: dict[Expr, str] = {}
        self._declared: set[str] = set()
        self._new: list[str] = []
        self._new += [f"(assert {self._truth(one)})" for one in always]
        self._known: list[str] = []

    def given(self, known: Iterable[Expr]) -> Sequents:
        """Take other conditions to be known, beside those that always are."""
        self._known = [self._truth(one) for one in known]
        return self

    def held(self, goals: Iterable[Expr]) -> set[Expr]:
        """Return the goals that follow: those that are left when no model refutes any more."""
        return self.held_after((), goals)[0]

    def held_after(
        self, steps: Iterable[tuple[bool, Expr]], goals: Iterable[Expr]
    ) -> tuple[set[Expr], bool]:
        """Return the goals that follow from what steps assume, and whether all is as they claim.

        That each claim follows from all before it, and goals from all of them, is asked at once;
        then goals that a model refutes are dropped, until none does.
        """
        left = dict(enumerate(goals))
        flags = {i: z3.Bool(f"g{i}") for i in left}
        texts = [(claims, self._truth(expr)) for claims, expr in steps]
        named = {f"g{i}": self._truth(goal) for i, goal in left.items()}
        named["wrong"] = _wrong([*texts, (True, f"(and true {' '.join(named)})")])
        named["way"] = f"(and true {' '.join(text for claims, text in texts if not claims)})"
        self._read([f"(assert (= {name} {text}))" for name, text in named.items()], named)
        way, answer = z3.Bool("way"), self._check(z3.Bool("wrong"))
        sure = bool(answer == z3.unsat)
        if answer == z3.sat and z3.is_true(self._solver.model().eval(way, model_completion=True)):
            left = self._unrefuted(left, flags)
        if not sure:
            self._solver.add(way)
        while left and not sure:
            answer = self._check(z3.Or([z3.Not(flags[i]) for i in left]))
            if answer == z3.unsat:
                break
            left = self._unrefuted(left, flags) if answer == z3.sat else {}
        self._solver.pop()
        return set(left.values()), sure

    def _unrefuted(self, goals: dict[int, Expr], flags: dict[int, z3.BoolRef]) -> dict[int, Expr]:
        """Return the goals that hold in the model that was found last."""
        model = self._solver.model()
        return {
            i: goal for i, goal in goals.items()
            if not z3.is_false(model.eval(flags[i], model_completion=True))
        }  # fmt: skip

    def first_open(self, steps: Iterable[tuple[bool, Expr]]) -> int | None:
        """Return the first claim (True) that does not follow from all steps before it, if any."""
        texts = [(claims, self._truth(expr)) for claims, expr in steps]
        if not any(claims for claims, _ in texts) or self._refutes(_wrong(texts)):
            return None
        for at, (claims, text) in enumerate(texts):
            if claims and not self._refutes(f"(not {text})"):
                return at
            self._known.append(text)
        return len(texts) - 1

    def _refutes(self, text: str) -> bool:
        self._read([f"(assert {text})"])
        refuted = self._check() == z3.unsat
        self._solver.pop()
        return bool(refuted)

    def _check(self, *assumed: z3.BoolRef) -> z3.CheckSatResult:
        working("a question to z3")
        return self._solver.check(*assumed)

    def _read(self, more: Iterable[str], flags: Iterable[str] = ()) -> None:
        """Push, and assert what is known and more; what always holds stays when that is popped."""
        names = [(name, "Int") for name in self._names.values()]
        new = [
            one for one in (*names, *((f, "Bool") for f in flags)) if one[0] not in self._declared
        ]
        if new or self._new:
            self._declared.update(name for name, _ in new)
            declared = [f"(declare-const {name} {of})" for name, of in new]
            self._solver.from_string("".join((*declared, *self._new)))
            self._new.clear()
        self._solver.push()
        known = [f"(assert {text})" for text in self._known]
        self._solver.from_string("".join((*known, *more)))

    def _truth(self, expr: Expr) -> str:
        if expr not in self._texts:
            self._texts[expr] = self._written(expr)
        return self._texts[expr]

    def _written(self, expr: Expr) -> str:
        match expr:
            case int():
                return "true" if expr else "false"
            case Op(Kind.LT | Kind.LE | Kind.EQ as kind, a, b):
                sign = {Kind.LT: "<", Kind.LE: "<=", Kind.EQ: "="}[kind]
                return f"({sign} {self._term(a)} {self._term(b)})"
            case Op(Kind.AND, a, b):
                return f"(and {self._truth(a)} {self._truth(b)})"
            case _:
                return f"(not (= {self._term(expr)} 0))"

    def _term(self, expr: Expr) -> str:
        match expr:
            case int():
                return str(expr) if expr >= 0 else f"(- {-expr})"
            case Op(Kind.LT | Kind.LE | Kind.EQ | Kind.AND):
                return f"(ite {self._truth(expr)} 1 0)"
            case Op(Kind.ADD | Kind.SUB as kind, a, b):
                return f"({kind.value} {self._term(a)} {self._term(b)})"
            case Op(Kind.MUL, a, b) if isinstance(a, int) or isinstance(b, int):
                return f"(* {self._term(a)} {self._term(b)})"
            case Op(Kind.MIN | Kind.MAX as kind, a, b):
                left, right = self._term(a), self._term(b)
                return f"(ite ({'<=' if kind is Kind.MIN else '>='} {left} {right}) {left} {right})"
            case Op(Kind.FLOORDIV | Kind.MOD as kind, a, int() as b) if b > 0:
                return f"({'div' if kind is Kind.FLOORDIV else 'mod'} {self._term(a)} {b})"
            case _:
                return self._named(expr)

    def _named(self, expr: Expr) -> str:
        """Return an unknown for what is not linear, and note what is said of it that is."""
        if expr in self._names:
            return self._names[expr]
        name = self._names[expr] = f"v{len(self._names)}"
        if isinstance(expr, Op):
            a, b = self._term(expr.a), self._term(expr.b)
            what = {
                Kind.MOD: f"(and (>= {name} 0) (< {name} {b}) (<= {name} {a}))",
                Kind.FLOORDIV: f"(and (>= {name} 0) (<= {name} {a}) (= (> {name} 0) (>= {a} {b})))",
                Kind.MUL: f"(and (>= {name} {a}) (>= {name} {b}))",
            }[expr.kind]
            least = 1 if expr.kind is Kind.MUL else 0
            self._new.append(f"(assert (=> (and (>= {a} {least}) (>= {b} 1)) {what}))")
            if expr.kind is Kind.MUL:
                self._new.append(f"(assert (=> (or (= {a} 0) (= {b} 0)) (= {name} 0)))")
        return name


def _wrong(steps: Sequence[tuple[bool, str]]) -> str:
    """Return that some claim fails: the first does so where all before it holds."""
    wrong = "false"
    for claims, text in reversed(steps):
        wrong = f"(or (not {text}) {wrong})" if claims else f"(and {text} {wrong})"
    return wrong


class Known:
    """What holds in every launch, and whether something follows from it."""

    def __init__(self, facts: Iterable[Expr], rlimit: int) -> None:
        self.facts = [tree(poly(fact)) for fact in facts]
        self.rlimit = rlimit
        self._least = Least(self.facts)
        self._answers: dict[tuple[Expr, tuple[Expr, ...]], bool] = {}

    def gives(self, claim: Expr, *more: Expr) -> bool:
        """Whether a claim follows from the facts and from `more`."""
        asked = claim, more
        if asked not in self._answers:
            self._answers[asked] = self._follows(tree(poly(claim)), [tree(poly(e)) for e in more])
        return self._answers[asked]

    def _follows(self, claim: Expr, more: list[Expr]) -> bool:
        if isinstance(claim, int) or self._least.holds(claim):
            return claim != 0
        # what shares no unknown with the claim, over others or not, is seldom needed
        near: list[Expr] = []
        named, left = variables(claim).union(*map(variables, more)), self.facts
        while touched := [fact for fact in left if variables(fact) & named]:
            near += touched
            named = named.union(*map(variables, touched))
            left = [fact for fact in left if fact not in near]
        if left and self._question([*near, *more], claim):
            return True
        return self._question([*self.facts, *more], claim)

    def _question(self, known: Iterable[Expr], claim: Expr) -> bool:
        assumed: Expr = 1
        for one in known:
            assumed = both(assumed, one)
        return Question(self.rlimit).follows(eq(both(assumed, eq(claim, 0)), 0))

    def same(self, a: Expr, b: Expr) -> bool:
        """Whether two expressions are equal in every launch."""
        return poly(a) == poly(b) or self.gives(eq(a, b))

    def at_most(self, a: Expr, b: Expr, *more: Expr) -> bool:
        """Whether a <= b in every launch."""
        return poly(a) == poly(b) or self.gives(fold(Kind.LE, a, b), *more)
