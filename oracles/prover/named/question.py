"""Questions about pairs of instances: no one comes before another with nothing proper between.

A question is asked once for each way in which one instance can come before another: at which loop
their numbers first differ, or not at all.  What may stand between them (an await, a commit, a join)
is looked for among the instances nearest to either end (`Program.following`, `preceding`); one that
is not looked at can cost a proof, never make a false one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial

from fuser.expr import Expr, Kind, eq, fold, variables
from oracles.prover.arithmetic import Atom, Poly, natural, operands, poly, single, tree
from oracles.prover.named.program import Point, Program, Vector, difference, normal
from oracles.prover.solver import (
    Answer,
    AtLeast,
    Formula,
    Possible,
    all_of,
    any_of,
    at_least,
    none_of,
)


@dataclass(frozen=True, slots=True)
class Instance:
    """One execution of a point."""

    point: Point
    vector: Vector

    def __str__(self) -> str:
        names = (str(frame.index).split()[0] for frame in self.point.loops)
        at = ", ".join(f"{name}={value}" for name, value in zip(names, self.vector, strict=True))
        return self.point.where + (f" ({at})" if at else "")


class WitnessedError(Exception):
    """z3 has found a pair of instances that violates an invariant."""


class UndecidedError(Exception):
    """A question could not be put, or z3 gave up."""


@dataclass
class Asked:
    """The questions about one kernel: z3 with what holds in every launch, and how many so far."""

    possible: Possible
    most: int = 1
    reach: int = 1
    count: int = 0
    _known: frozenset[Expr] = frozenset()
    _proved: set[object] = field(default_factory=set)

    def before(self, a: Instance, b: Instance) -> Formula:
        """Return that one instance comes before another, in the order of the text."""
        shared = a.point.shared(b.point)
        holds: Formula = int(a.point.number < b.point.number)
        for level in reversed(range(shared)):
            one, two = a.vector[level], b.vector[level]
            apart = difference(one, two)
            if apart is not None:
                holds = holds if apart == 0 else int(apart < 0)
            else:
                same = all_of(normal(eq(one, two)), holds)
                holds = any_of(normal(fold(Kind.LT, one, two)), same)
        return holds

    @property
    def looks(self) -> object:
        """What a formula depends on beside what it is about: how far it looks, what is assumed."""
        return self.reach, self._known

    def exists(self, program: Program, one: Instance) -> Formula:
        """Return that an instance is executed; what is assumed anyway is left out."""
        conditions = program.exists(one.point, one.vector)
        return all_of(*(c for c in conditions if c not in self._known))

    def between(
        self, program: Program, first: Instance, last: Instance | None, of: Iterable[Point]
    ) -> Iterator[tuple[Instance, Formula]]:
        """Give instances of points near the ends of a stretch, and that each lies in it."""
        for point in of:
            vectors = dict.fromkeys(program.following(first.point, first.vector, point, self.reach))
            if last is not None:
                vectors |= dict.fromkeys(
                    program.preceding(last.point, last.vector, point, self.reach)
                )
            for vector in vectors:
                one = Instance(point, vector)
                ends = self.before(one, last) if last is not None else 1
                holds = all_of(self.before(first, one), ends, self.exists(program, one))
                if holds != 0:
                    yield one, holds

    def counted(
        self, program: Program, first: Instance, last: Instance, of: Iterable[Point], least: int
    ) -> Formula:
        """Return that so many instances of points lie between two, as far as is looked for."""
        points = tuple(of)
        found: list[Formula] = []
        for anchor, near in ((first, program.following), (last, program.preceding)):
            inside = []
            for point in points:
                for vector in near(anchor.point, anchor.vector, point, self.reach):
                    one = Instance(point, vector)
                    where = self.before(first, one), self.before(one, last)
                    inside.append(all_of(*where, self.exists(program, one)))
            found.append(at_least(least, inside))
            if found[-1] == 1:
                break
        return any_of(*found)

    def never(
        self,
        program: Program,
        earlier: Point,
        later: Point,
        fine: Callable[[Instance, Instance], Formula],
        says: str,
        then: Program | None = None,
        when: Callable[[Instance, Instance], Iterable[Formula]] | None = None,
    ) -> None:
        """Ask that no instance of one point comes before one of another unless that is fine.

        The later one is of the program `then`, if of another kind of threads; `when` says which
        pairs are meant.
        """
        other = then or program
        vector = program.fresh(earlier, "a")
        first = Instance(earlier, vector)
        shared = earlier.shared(later)
        for level in range(shared + 1):
            if level == shared and earlier.number >= later.number:
                continue
            last = Instance(later, other.fresh(later, "b", vector[:level]))
            facts = [*program.exists(earlier, vector), *other.exists(later, last.vector)]
            if level < shared:
                facts.append(normal(fold(Kind.LT, vector[level], last.vector[level])))
            meant = tuple(when(first, last)) if when is not None else ()
            if level < shared:
                facts += products(meant, vector[level], last.vector[level])
            self.holds([*facts, *meant], partial(fine, first, last), f"{says}: {first}", last)

    def assume(self, facts: Iterable[Formula]) -> None:
        """Leave these conditions out of what is built next: they hold anyway."""
        self._known = frozenset(fact for fact in facts if not isinstance(fact, AtLeast))

    def holds(
        self,
        facts: Iterable[Formula],
        fine: Callable[[], Formula],
        says: str,
        last: Instance | None = None,
        most: int = 0,
    ) -> None:
        """Ask that something holds wherever some facts do, looking so far for it, at most.

        Raises
        ------
        WitnessedError
            If z3 finds values for which it does not; `UndecidedError` if it gives up.
        """
        given = list(facts)
        if 0 in given:
            return
        self.count += 1
        outside = self.reach, self._known
        try:
            answer = self._answer(given, fine, most or self.most)
        finally:
            self.reach, self._known = outside  # what is asked on the way assumes other facts
        if answer.status == "unsat":
            return
        text = says + (f", then {last}" if last is not None else "")
        if answer.status != "sat":
            raise UndecidedError(f"z3 gives up: {text}")
        values = ", ".join(f"{n}={v}" for n, v in answer.values.items() if "?" not in n)
        raise WitnessedError(f"{text}; {values}")

    def holds_in(
        self, cases: Iterable[Expr], facts: Iterable[Formula], fine: Callable[[], Formula]
    ) -> bool:
        """Whether something holds in each of some cases, as far as z3 can tell.

        More in reach is harder, and needed in few cases: it is tried last.
        """
        given, claims = list(facts), dict[int, Formula]()
        self.count += 1
        outside = self.reach, self._known
        try:
            for case in cases:
                for reach in range(1, self.most + 1):
                    if reach not in claims:
                        self.reach = reach
                        self.assume(given)
                        claims[reach] = fine()
                    asked = [*given, case, none_of(claims[reach])]
                    if self.possible.ask(asked).status == "unsat":
                        break
                else:
                    return False
        finally:
            self.reach, self._known = outside
        return True

    def _answer(self, given: list[Formula], fine: Callable[[], Formula], most: int) -> Answer:
        """Ask whether facts can hold and something not.

        What holds with little in reach holds with more: little is tried first, as it mostly does,
        then all, and what lies between only if z3 gives up on that.
        """
        exprs = [fact for fact in given if not isinstance(fact, AtLeast)]
        names = sorted({v for fact in exprs for v in variables(fact)}, key=str)
        answers: dict[Formula, Answer] = {}
        far = Answer("unknown", {})
        for reach in dict.fromkeys((1, most, *range(2, most))):
            self.reach = reach
            self.assume(given)
            claim = fine()
            asked = tuple(given), claim
            if asked in self._proved:
                return Answer("unsat", {})
            if claim not in answers:
                answers[claim] = self.possible.ask([*given, none_of(claim)], names)
            if answers[claim].status == "unsat":
                self._proved.add(asked)
                return answers[claim]
            if reach == most:
                far = answers[claim]
                if far.status == "sat":
                    break
        return far


def products(formulas: Iterable[Formula], low: Expr, high: Expr) -> list[Expr]:
    """Return what follows from `low < high` for their products with the same factor >= 0.

    z3 is given no products of unknowns, so that it is told this of each.
    """
    found: dict[Expr, None] = {}
    for expr in formulas:
        if isinstance(expr, AtLeast):
            continue
        for factor in _factors(poly(expr), str(high)):
            found[normal(fold(Kind.LE, low * factor + factor, high * factor))] = None
    return list(found)


def _factors(form: Poly, name: str) -> Iterator[Expr]:
    """Give what a variable is multiplied by, wherever it is, and is not negative."""
    for monomial, _ in form:
        rest = [atom for atom in monomial if atom != (name,)]
        if rest and len(rest) == len(monomial) - 1:
            factor = frozenset({(tuple(rest), 1)})
            if all(_counts(atom) for atom in rest):
                yield tree(factor)
        for atom in monomial:
            for part in atom:
                if isinstance(part, frozenset):
                    yield from _factors(part, name)


def _counts(atom: Atom) -> bool:
    """Whether the value of an atom is not negative: a count, or the larger of it and something."""
    if len(atom) == 1 or natural(single(atom)):
        return True
    kind, a, b = operands(atom)
    return kind == Kind.MAX.value and (natural(a) or natural(b))
