"""What one kind of threads executes, in program order: points of the code and their instances.

An *instance* of a point is a number for each loop around it; instances are ordered by these numbers
from the outside in, and by their place in the text where the loops are shared.  What a variable
holds is written over parameters and the indices of the loops around: one that a loop moves by the
same amount each time is that many times more.  Whatever has no such form is a value of its own in
each iteration, of which nothing is known (`opaque`); so is whether a CTA is the last to arrive.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from fuser.expr import Expr, Kind, Var, eq, fold, substitute, variables
from fuser.kernel import ir as kir
from fuser.kernel.text import line, numbered
from oracles.prover.arithmetic import constant, natural, poly, tree
from oracles.prover.sites import Place, Threads

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

    `number` is its place in the text; `held` are the values of variables here.
    """

    number: int
    stmt: kir.Stmt | None
    line: int
    place: Place
    frames: tuple[Frame, ...]
    held: Mapping[Var, Expr]
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


@dataclass
class Program:
    """All points of one kind of threads; `opaque` says how many loops around fix such a value."""

    kernel: kir.Kernel
    kind: Threads
    points: list[Point] = field(default_factory=list)
    opaque: dict[Var, int] = field(default_factory=dict)
    relevant: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        self._exists: dict[tuple[Point, Vector], tuple[Expr, ...]] = {}
        self._lines = [number for number, _ in numbered(self.kernel)]
        self._number = 0
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
        """Read a body; return what variables hold behind it."""
        for stmt in body:
            number = self._number
            self._number += 1
            mine = place.has(self.kind)
            if mine:
                self.points.append(Point(number, stmt, self._lines[number], place, frames, held))
            loops = sum(frame.index is not None for frame in frames)
            match stmt:
                case kir.Let(var, value) | kir.Assign(var, value):
                    if mine:
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
        """Read a loop, and by how much it moves each variable."""
        index = Var(f"{stmt.index.name} {number}")
        stop = normal(substitute(stmt.stop, held))
        inner = (*frames, Frame(number, stop, index))
        loops = sum(frame.index is not None for frame in frames)
        moving = [s.var for s in kir.walk(stmt.body) if isinstance(s, kir.Assign) and s.var in held]
        start: dict[Var, Expr] = {
            var: self._unknown(f"{var.name} in", number, loops + 1) for var in dict.fromkeys(moving)
        }
        times = repeated(stop)
        after = dict(held)
        if start:
            seen, points = self._number, len(self.points)
            ends = self._body(stmt.body, place, inner, {**held, **start, stmt.index: index})
            self._number = seen
            del self.points[points:]
            known: dict[Var, Expr] = {}
            for var, first in start.items():
                by = normal(fold(Kind.SUB, ends[var], first))
                if {v.name for v in variables(by)} & {index.name, *(f.name for f in self.opaque)}:
                    after[var] = self._unknown(var.name, number, loops)
                else:
                    known[var] = normal(held[var] + by * index)
                    after[var] = normal(held[var] + by * times)
            start = {**start, **known}
        self._body(stmt.body, place, inner, {**held, **start, stmt.index: index})
        return after

    # --- instances ------------------------------------------------------------------------------

    def at(self, point: Point, vector: Vector, expr: Expr) -> Expr:
        """Return an expression (a plain one of this point) in one instance."""
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
        key = point, vector
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
