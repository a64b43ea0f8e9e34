"""What one kind of threads executes, in program order, and questions about pairs of instances.

An *instance* of a point is a number for each loop around it; instances are ordered by these numbers
from the outside in, and by their place in the text where the loops are shared.  What a variable
holds is written over parameters and the indices of the loops around: one that a loop moves by the
same amount each time is that many times more.  Whatever has no such form is a value of its own in
each iteration, of which nothing is known (`opaque`); so is whether a CTA is the last to arrive.

A question, that no instance comes before another with nothing proper between, is asked once for
each way in which one can come before the other: at which loop their numbers first differ, or not at
all.  What may stand between them (an await, a commit, a join) is looked for among the instances
nearest to either end (`Program.following`, `preceding`); one that is not looked at can cost a
proof, never make a false one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache, partial
from itertools import accumulate

from fuser.expr import Expr, Kind, Var, eq, fold, substitute, variables
from fuser.kernel import ir as kir
from fuser.kernel.text import line, numbered
from oracles.prover.arithmetic import (
    Atom,
    Poly,
    constant,
    natural,
    operands,
    poly,
    single,
    tree,
)
from oracles.prover.sites import Place, Threads
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

Vector = tuple[Expr, ...]
"""A number for each loop around a point, outermost first."""


@dataclass(frozen=True, slots=True)
class Frame:
    """A loop (then it has an index) or a branch around a point; `test` is its end or condition."""

    number: int
    test: Expr
    index: Var | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Point:
    """A statement that a kind of threads executes, with what is around it.

    `number` is its place in the text; `held` are the values of variables here.  Points of one
    `spot` stand in one body, and all between them is data: what orders one of them and something
    else orders the others and it, as long as that does not stand between them.
    """

    number: int
    stmt: kir.Stmt | None
    line: int
    place: Place
    frames: tuple[Frame, ...]
    held: Mapping[Var, Expr]
    spot: tuple[int, int] = (-1, -1)
    loops: tuple[Frame, ...] = field(init=False)
    """The loops around it, outermost first."""

    def __post_init__(self) -> None:
        loops = tuple(frame for frame in self.frames if frame.index is not None)
        object.__setattr__(self, "loops", loops)

    @property
    def where(self) -> str:
        """Line number and text of the statement."""
        return "the end" if self.stmt is None else f"line {self.line}: {line(self.stmt)}"

    def plain(self, expr: Expr) -> Expr:
        """Return an expression of the statement over parameters and the indices of its loops."""
        return normal(substitute(expr, self.held))

    def shared(self, other: Point) -> int:
        """Return how many loops are around both."""
        many = 0
        for a, b in zip(self.loops, other.loops, strict=False):
            if a.number != b.number:
                break
            many += 1
        return many


_NORMAL: dict[Expr, Expr] = {}


def normal(expr: Expr) -> Expr:
    """Return the one form of all expressions that are equal as polynomials."""
    if isinstance(expr, int | Var):
        return expr
    if expr not in _NORMAL:
        if len(_NORMAL) > 1 << 14:
            _NORMAL.clear()
        _NORMAL[expr] = tree(poly(expr))
    return _NORMAL[expr]


def repeated(stop: Expr) -> Expr:
    """Return how many iterations a loop up to this has: none where it is negative."""
    return stop if natural(poly(stop)) else fold(Kind.MAX, stop, 0)


def difference(a: Expr, b: Expr) -> int | None:
    """Return a - b if it is the same number whatever the variables are."""
    if isinstance(a, int) and isinstance(b, int):
        return a - b
    return constant(poly(fold(Kind.SUB, a, b)))


@dataclass(eq=False)
class Program:
    """All points of one kind of threads; `opaque` says how many loops around fix such a value."""

    kernel: kir.Kernel
    kind: Threads
    points: list[Point] = field(default_factory=list)
    opaque: dict[Var, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._exists: dict[tuple[int, Vector], tuple[Expr, ...]] = {}
        self._at: dict[tuple[int, Vector, Expr], Expr] = {}
        self._lines = [number for number, _ in numbered(self.kernel)]
        orders = (not isinstance(stmt, kir.Data) for stmt in _walk(self.kernel.body))
        self._ranks = list(accumulate(orders))
        self._numbers: dict[Callable[[kir.Stmt | None], bool], tuple[int, ...]] = {}
        self._groups: dict[kir.AsyncKind, tuple[list[Point], list[Point]]] = {}
        self._number = 0
        self._follows = False
        self._apart = dict(_assigned_apart(self.kernel.body, self.kind))
        whole = Place(0, self.kernel.threads // kir.WARP)
        rank = fold(Kind.MOD, kir.BLOCK, self.kernel.cluster)
        held = self._body(self.kernel.body, whole, (), {kir.RANK: rank})
        self.end = Point(self._number, None, self._lines[-1], whole, (), held)

    # --- reading --------------------------------------------------------------------------------

    def _unknown(self, name: str, number: int, loops: int) -> Var:
        """Return a value that a statement makes unknown: one for kinds that all assign alike."""
        whose = f" of {self._apart[name]}" if name in self._apart else ""
        made = Var(f"{name} ?{number}{whose}")
        self.opaque[made] = loops
        return made

    def _body(
        self,
        body: tuple[kir.Stmt, ...],
        place: Place,
        frames: tuple[Frame, ...],
        held: Mapping[Var, Expr],
    ) -> Mapping[Var, Expr]:
        """Read a body; return what variables hold behind it.

        What others execute is passed over: nothing in it is for these threads, nor moves theirs.
        """
        if not place.has(self.kind):
            self._number += sum(1 for _ in _walk(body))
            return held
        begin = self._number
        loops = sum(frame.index is not None for frame in frames)
        for stmt in body:
            number = self._number
            self._number += 1
            if not self._follows:
                spot = begin, self._ranks[number]
                at = self._lines[number]
                self.points.append(Point(number, stmt, at, place, frames, held, spot))
            match stmt:
                case kir.Let(var, value) | kir.Assign(var, value):
                    held = {**held, var: normal(substitute(value, held))}
                case kir.ForLoop():
                    held = self._loop(stmt, number, place, frames, held)
                case kir.IfThenElse(condition, then, orelse):
                    test = normal(substitute(condition, held))
                    yes = self._branch(then, place, frames, held, number, test)
                    no = self._branch(orelse, place, frames, held, number, normal(eq(test, 0)))
                    held = self._either(test, yes, no, held, number, loops)
                case kir.LastArriving(_, _, _, inner):
                    test = self._unknown("last", number, loops)
                    inside = (*frames, Frame(number, test))
                    after = self._body(inner, place, inside, held)
                    held = self._either(test, after, held, held, number, loops)
                case kir.Role(_, first, warps, inner):
                    after = self._body(inner, Place(first, warps), frames, held)
                    held = _kept(after, held)
                case kir.Elect(per, inner):
                    held = _kept(self._body(inner, place.elect(per), frames, held), held)
                case _:
                    pass
        return held

    def _branch(
        self,
        body: tuple[kir.Stmt, ...],
        place: Place,
        frames: tuple[Frame, ...],
        held: Mapping[Var, Expr],
        number: int,
        test: Expr,
    ) -> Mapping[Var, Expr]:
        if not (isinstance(test, int) and test):
            frames = (*frames, Frame(number, test))
        return self._body(body, place, frames, held)

    def _either(
        self,
        test: Expr,
        yes: Mapping[Var, Expr],
        no: Mapping[Var, Expr],
        before: Mapping[Var, Expr],
        number: int,
        loops: int,
    ) -> Mapping[Var, Expr]:
        if isinstance(test, int):
            return _kept(yes if test else no, before)
        out = dict(before)
        for var in before:
            if yes[var] == no[var]:
                out[var] = yes[var]
            else:
                out[var] = self._unknown(var.name, number, loops)
        return out

    def _loop(
        self,
        stmt: kir.ForLoop,
        number: int,
        place: Place,
        frames: tuple[Frame, ...],
        held: Mapping[Var, Expr],
    ) -> Mapping[Var, Expr]:
        """Read a loop, and by how much it moves each variable.

        Where another loop only follows what variables hold, it is not read for its points.
        """
        index = Var(f"{stmt.index.name} {number}")
        stop = normal(substitute(stmt.stop, held))
        inner = (*frames, Frame(number, stop, index))
        loops = sum(frame.index is not None for frame in frames)
        body, first = list(_walk(stmt.body)), self._number
        moving = [s.var for s in body if isinstance(s, kir.Assign) and s.var in held]
        start: dict[Var, Expr] = {
            var: self._unknown(f"{var.name} in", number, loops + 1) for var in dict.fromkeys(moving)
        }
        times = repeated(stop)
        after = dict(held)
        if start:
            follows, self._follows = self._follows, True
            ends = self._body(stmt.body, place, inner, {**held, **start, stmt.index: index})
            self._number, self._follows = first, follows
            known: dict[Var, Expr] = {}
            for var, begin in start.items():
                by = normal(fold(Kind.SUB, ends[var], begin))
                if {v.name for v in variables(by)} & {index.name, *(f.name for f in self.opaque)}:
                    after[var] = self._unknown(var.name, number, loops)
                else:
                    known[var] = normal(held[var] + by * index)
                    after[var] = normal(held[var] + by * times)
            start = {**start, **known}
        if self._follows:
            self._number = first + len(body)
        else:
            self._body(stmt.body, place, inner, {**held, **start, stmt.index: index})
        return after

    def numbers(self, of: Callable[[kir.Stmt | None], bool]) -> tuple[int, ...]:
        """Return which points are of a sort."""
        if of not in self._numbers:
            self._numbers[of] = tuple(p.number for p in self.points if of(p.stmt))
        return self._numbers[of]

    def groups(self, kind: kir.AsyncKind) -> tuple[list[Point], list[Point]]:
        """Return where groups of a kind are closed, and where they are awaited."""
        if kind not in self._groups:
            queue = kind is kir.AsyncKind.QUEUE  # each copy is a group
            self._groups[kind] = (
                [p for p in self.points if p.stmt == kir.AsyncCommit(kind)
                 or (queue and isinstance(p.stmt, kir.QueueCopy))],
                [p for p in self.points if isinstance(p.stmt, kir.AsyncAwait)
                 and p.stmt.kind is kind],
            )  # fmt: skip
        return self._groups[kind]

    # --- instances ------------------------------------------------------------------------------

    def at(self, point: Point, vector: Vector, expr: Expr) -> Expr:
        """Return an expression (a plain one of this point) in one instance."""
        key = id(point.frames), vector, expr
        if key not in self._at:
            self._at[key] = self._value(point, vector, expr)
        return self._at[key]

    def _value(self, point: Point, vector: Vector, expr: Expr) -> Expr:
        values: dict[Var, Expr] = {}
        for frame, value in zip(point.loops, vector, strict=True):
            assert frame.index is not None, "loops have one"
            values[frame.index] = value
        for var in variables(expr):
            if var in self.opaque:
                key = ", ".join(map(str, vector[: self.opaque[var]]))
                name = f"{var.name} at {key}"  # of either sign, while variables are not negative
                values[var] = Var(name) - Var(f"minus {name}")
        return normal(substitute(expr, values))

    def exists(self, point: Point, vector: Vector) -> tuple[Expr, ...]:
        """Return the conditions under which an instance is executed."""
        key = id(point.frames), vector
        if key not in self._exists:
            self._exists[key] = tuple(self._conditions(point, vector))
        return self._exists[key]

    def _conditions(self, point: Point, vector: Vector) -> Iterator[Expr]:
        depth = 0
        for frame in point.frames:
            if frame.index is None:
                yield self.at(point, vector, frame.test)
                continue
            index = vector[depth]
            yield normal(fold(Kind.LT, index, self.at(point, vector, frame.test)))
            if not natural(poly(index)):
                yield normal(fold(Kind.LE, 0, index))
            depth += 1

    def fresh(self, point: Point, name: str, shared: Vector = ()) -> Vector:
        """Return any instance that has these first numbers."""
        rest = point.loops[len(shared) :]
        return (*shared, *(Var(f"{frame.index} {name}") for frame in rest))

    def last(self, point: Point, vector: Vector, short: int = 0) -> Vector:
        """Return the last instance with these first numbers, or one so many before it."""
        loops = point.loops
        while len(vector) < len(loops):
            frame = loops[len(vector)]
            by = short if len(vector) == len(loops) - 1 else 0
            stop = self.at(point, (*vector, *(0,) * (len(loops) - len(vector))), frame.test)
            vector = (*vector, normal(stop - 1 - by))
        return vector

    def following(self, anchor: Point, vector: Vector, of: Point, reach: int) -> Iterator[Vector]:
        """Give instances of a point near after one of another, each at most once."""
        shared, deep = anchor.shared(of), len(of.loops)
        if of.number > anchor.number:
            for step in range(reach if deep > shared else 1):
                tail = (*(0,) * (deep - shared - 1), step) if deep > shared else ()
                yield (*vector[:shared], *tail)
        for level in reversed(range(shared)):
            for by in range(1, reach + 1):
                rest = (0,) * (deep - level - 1)
                yield (*vector[:level], normal(vector[level] + by), *rest)

    def preceding(self, anchor: Point, vector: Vector, of: Point, reach: int) -> Iterator[Vector]:
        """Give instances of a point near before one of another, each at most once."""
        shared, deep = anchor.shared(of), len(of.loops)
        if of.number < anchor.number:
            for step in range(reach if deep > shared else 1):
                yield self.last(of, vector[:shared], step)
        for level in reversed(range(shared)):
            for by in range(1, reach + 1):
                yield self.last(of, (*vector[:level], normal(vector[level] - by)))


def _walk(body: tuple[kir.Stmt, ...]) -> Iterator[kir.Stmt]:
    """Give every statement that has a number: what a `Loop` around draws has inside has none."""
    for stmt in body:
        yield stmt
        for inner in () if isinstance(stmt, kir.Loop) else kir.bodies(stmt):
            yield from _walk(inner)


def _assigned_apart(
    body: tuple[kir.Stmt, ...], kind: Threads, whose: str = ""
) -> Iterator[tuple[str, str]]:
    """Give the variables that not all threads assign, and who of them these are."""
    for stmt in body:
        match stmt:
            case kir.Assign(var) if whose:
                yield from ((name, whose) for name in (var.name, f"{var.name} in"))
            case kir.Elect(_, inner):
                yield from _assigned_apart(inner, kind, str(kind.index))
            case kir.Role(_, _, _, inner):
                yield from _assigned_apart(inner, kind, whose or kind.role or "all")
            case _:
                for inner in kir.bodies(stmt):
                    yield from _assigned_apart(inner, kind, whose)


def _kept(after: Mapping[Var, Expr], before: Mapping[Var, Expr]) -> Mapping[Var, Expr]:
    """Return what the variables of the body around hold."""
    return {var: after[var] for var in before}


# --- questions ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Instance:
    """One execution of a point."""

    point: Point
    vector: Vector

    def __str__(self) -> str:
        names = (str(frame.index).split()[0] for frame in self.point.loops)
        at = ", ".join(f"{name}={value}" for name, value in zip(names, self.vector, strict=True))
        return self.point.where + (f" ({at})" if at else "")


@lru_cache(maxsize=1 << 14)
def _before(first: Vector, second: Vector, holds: Formula) -> Formula:
    """Return that loops have come less far; `holds` where they have come equally far."""
    for one, two in zip(reversed(first), reversed(second), strict=True):
        apart = difference(one, two)
        if apart is not None:
            holds = holds if apart == 0 else int(apart < 0)
        else:
            same = all_of(normal(eq(one, two)), holds)
            holds = any_of(normal(fold(Kind.LT, one, two)), same)
    return holds


class WitnessedError(Exception):
    """z3 has found a pair of instances that violates an invariant."""


class UndecidedError(Exception):
    """A question could not be put, or z3 gave up."""


@dataclass
class Asked:
    """The questions about one kernel: z3 with what holds in every launch, and how many so far."""

    possible: Possible
    most: int = 1
    strict: bool = False
    reach: int = 1
    count: int = 0
    _known: frozenset[Expr] = frozenset()
    _exists: dict[object, Formula] = field(default_factory=dict)

    def before(self, a: Instance, b: Instance) -> Formula:
        """Return that one instance comes before another, in the order of the text."""
        shared = a.point.shared(b.point)
        return _before(a.vector[:shared], b.vector[:shared], int(a.point.number < b.point.number))

    @property
    def looks(self) -> object:
        """What a formula depends on beside what it is about: how far it looks, what is assumed."""
        return self.reach, self._known

    def exists(self, program: Program, one: Instance) -> Formula:
        """Return that an instance is executed; what is assumed anyway is left out."""
        key = program, id(one.point.frames), one.vector, self._known
        if key not in self._exists:
            conditions = program.exists(one.point, one.vector)
            self._exists[key] = all_of(*(c for c in conditions if c not in self._known))
        return self._exists[key]

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
                inside = all_of(self.before(first, one), self.before(one, last) if last else 1)
                holds = all_of(inside, self.exists(program, one)) if inside != 0 else 0
                if holds != 0:
                    yield one, holds

    def counted(
        self, program: Program, first: Instance, last: Instance, of: Iterable[Point], least: int
    ) -> Formula:
        """Return that so many instances of points lie between two, as far as is looked for.

        Points of one body on the same side of both lie there together, and are counted as one.
        """
        low, high = first.point.number, last.point.number
        rows: dict[object, list[Point]] = {}
        for point in of:
            side = id(point.frames), low < point.number, point.number < high
            rows.setdefault(side, []).append(point)
        found: list[Formula] = []
        for anchor, near in ((first, program.following), (last, program.preceding)):
            inside: list[Formula] = []
            for row in rows.values():
                for vector in near(anchor.point, anchor.vector, row[0], self.reach):
                    one = Instance(row[0], vector)
                    # what is near to one end is on the right side of it
                    here = self.before(one, last) if anchor is first else self.before(first, one)
                    if here != 0:
                        inside += [all_of(here, self.exists(program, one))] * len(row)
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
            facts: list[Formula] = [
                *program.exists(earlier, vector),
                *other.exists(later, last.vector),
            ]
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

        More in reach is harder, and needed in few cases: it is tried last, but first where the case
        before has needed it.
        """
        given, claims, near = list(facts), dict[int, Formula](), 1
        self.count += 1
        outside = self.reach, self._known
        try:
            for case in cases:
                for reach in (*range(near, self.most + 1), *range(1, near)):
                    if reach not in claims:
                        self.reach = reach
                        self.assume(given)
                        claims[reach] = fine()
                    asked = [*given, case, none_of(claims[reach])]
                    if self.possible.ask(asked).status == "unsat":
                        near = reach
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
        far = Answer("unknown", {})
        for reach in dict.fromkeys((1, most, *range(2, most))):
            self.reach = reach
            self.assume(given)
            shown = names if reach == most else ()
            answer = self.possible.ask([*given, none_of(fine())], shown)
            if answer.status == "unsat":
                return answer
            if reach == most:
                far = answer
                if far.status == "sat":
                    break
        return far


def products(formulas: Iterable[Formula], low: Expr, high: Expr) -> list[Formula]:
    """Return what follows from `low < high` for their products with the same factor >= 0.

    z3 is given no products of unknowns, so that it is told this of each: they are one factor apart,
    or two at least.
    """
    found: dict[Formula, None] = {}
    for expr in formulas:
        if isinstance(expr, AtLeast):
            continue
        for factor in _factors(poly(expr), str(high)):
            one, more = low * factor + factor, high * factor
            found[normal(fold(Kind.LE, one, more))] = None
            far = normal(fold(Kind.LE, low + 2, high)), normal(fold(Kind.LE, one + factor, more))
            found[any_of(all_of(*far), normal(eq(one, more)))] = None
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
