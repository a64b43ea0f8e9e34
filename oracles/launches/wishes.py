"""What launches of a kernel have to show: its own expressions on both sides of each turn.

A *subject* is an expression whose value decides which way a kernel goes: the end of a loop, the
difference of the two sides of a comparison or minimum, what a division leaves, what a box has left
of its tensor, a parameter, the difference of two.  A *wish* is an interval of its values.  Launches
are judged by the wishes they fulfil; nothing here is about what threads do to each other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, product, zip_longest
from operator import floordiv, mod

from fuser.expr import Expr, Kind, Op, Var, eq, fold, substitute, variables
from fuser.kernel import ir as kir

MOVING = Var("?")
"""What an `Assign` may have changed: nothing is asked of it."""
LOOPS = 4
"""Ends of loops that are compared with each other."""
TURNS = 3
"""Turns at either end of a loop, and CTAs at either end of a grid, at which subjects are read."""
LATE = 60
"""Turns that a loop is to have if its index is held against such a number."""
SORTS = (
    "loops", "pairs of loops", "parameters", "grids", "conditions", "remainders", "lengths",
    "boxes", "places", "requirements", "sizes",
)  # fmt: skip
"""Sorts of wishes; of each the next is met in turn."""
DECIDING = ("conditions", "lengths")
"""Sorts for which a launch of many CTAs is worth its cost."""
FAR = 1 << 30
"""No bound of an interval."""


@dataclass(frozen=True, slots=True)
class Step:
    """What leads to a place of the kernel: a guard, or with `index` a loop that ends at `value`."""

    value: Expr
    index: Var | None = None


Path = tuple[Step, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Subject:
    """An expression of parameters, `GRID`, `BLOCK` and loop indices of its path, kept once."""

    expr: Expr
    path: Path = ()


@dataclass(frozen=True, slots=True, eq=False)
class Wish:
    """Some thread finds the value of a subject from `low` to `high`."""

    subject: Subject
    low: int
    high: int


Interval = tuple[int, int]


class Reading:
    """The subjects of a kernel, what is wished of them, and which values a launch gives them.

    Attributes
    ----------
    ends, numbers, grid : list of Subject, list of Subject, Subject
        The ends of loops, parameters that are no sizes of tensors, and the number of CTAs.
    counts : set of int
        Numbers of turns: around those of the rings, and around what an index is held against.
    late : set of int
        Those of them by which the latter shows, in that turn or once its ring has gone round.
    marks : dict of Var to set of int
        What each parameter is divided by, cut into and compared with.
    tiles : dict of Var to int
        The smallest of these boxes.
    wishes : list of Wish
        The most telling ones first, of every sort in turn.
    lasting : set of Wish
        Those for so many turns.
    deciding : set of Wish
        Those about guards, ends of loops, and what statements are told.
    """

    def __init__(self, kernel: kir.Kernel) -> None:
        self.kernel = kernel
        rings = {1, *(b.slots for b in kernel.buffers), *(m.slots for m in kernel.barriers)}
        self.ring = max(rings)
        self.counts = {n for s in rings for n in (0, 1, 2, s - 1, s, s + 1, 2 * s + 1)}
        self.counts |= _overrun(kernel)
        self.unit = max((t.aligned for t in kernel.tensors), default=1)
        self.late: set[int] = set()
        self.ends: list[Subject] = []
        self.marks: dict[Var, set[int]] = {}
        self.tiles: dict[Var, int] = {}
        self._moving = {stmt.var for stmt in kernel.walk() if isinstance(stmt, kir.Assign)}
        self._sorts: dict[str, dict[tuple[Subject, int, int], Wish]] = {sort: {} for sort in SORTS}
        self._indices: dict[tuple[Path, Expr], Var] = {}
        self._names = {p: f"p{i}" for i, p in enumerate((*kernel.params, kir.GRID, kir.BLOCK))}
        self._turning: set[Var] = set()
        self._subjects: dict[tuple[Expr, Path], Subject] = {}
        self._sinks: dict[Subject, int] = {}
        self.grid = self._subject(kir.GRID)
        self._first: list[str] = []
        self._lines: list[str] = []
        self._body(kernel.body, {kir.RANK: fold(Kind.MOD, kir.BLOCK, kernel.cluster)}, ())
        self._sizes()
        some = zip_longest(*(wishes.values() for wishes in self._sorts.values()))
        self.wishes = [wish for row in some for wish in row if wish is not None]
        self.lasting = {w for w in self.wishes if w.subject in self.ends and w.low in self.late}
        self.deciding = {w for sort in DECIDING for w in self._sorts[sort].values()}
        self._seen = self._function()

    def seen(self, values: Sequence[int]) -> dict[Subject, set[int]]:
        """Return what subjects are near the ends of a launch (parameters, then `GRID`)."""
        found: list[set[int]] = [set() for _ in self._sinks]
        self._seen(values, found)
        return dict(zip(self._sinks, found, strict=True))

    # --- statements -----------------------------------------------------------------------------

    def _body(self, body: tuple[kir.Stmt, ...], outer: Mapping[Var, Expr], path: Path) -> None:
        lets = dict(outer)
        self._put(path, "pass")
        for stmt in body:
            match stmt:
                case kir.Let(var, value):
                    lets[var] = MOVING if var in self._moving else substitute(value, lets)
                case kir.ForLoop():
                    self._loop(stmt, lets, path)
                case kir.Loop(index, inner):
                    self._drawn(index, inner, lets, path)
                case kir.IfThenElse(condition, then, orelse):
                    test = substitute(condition, lets)
                    for truth in (1, 0):
                        self._wish("conditions", self._subject(test, path), (truth, truth))
                    self._turns("conditions", test, path)
                    for guard, inner in ((test, then), (eq(test, 0), orelse)):
                        if inner:
                            self._branch(guard, inner, lets, path)
                case _:
                    for expr in kir.expressions(stmt):
                        self._marks(substitute(expr, lets))
                    self._told(stmt, lets, path)
                    for inner in kir.bodies(stmt):
                        self._body(inner, lets, path)
                    for side in (getattr(stmt, "dst", None), getattr(stmt, "src", None)):
                        if isinstance(side, kir.Box):
                            self._box(side, lets, path)
                            if side.index is not None:
                                self._box(side.index.src, lets, path)

    def _told(self, stmt: kir.Stmt, lets: Mapping[Var, Expr], path: Path) -> None:
        """Read the numbers that a statement is told: how many CTAs, and whose turn."""
        match stmt:
            case kir.LastArriving() | kir.GridSync():
                number = stmt.ctas
            case kir.BlockSerializeWait() | kir.BlockSerializeRelease():
                number = stmt.turn
            case _:
                return
        self._turns("conditions", substitute(number, lets), path)

    def _branch(
        self, guard: Expr, body: tuple[kir.Stmt, ...], lets: Mapping[Var, Expr], path: Path
    ) -> None:
        """Read a branch; where it is taken is not known if its guard is not."""
        if guard == 0:
            return
        if not variables(guard) or MOVING in variables(guard):
            self._body(body, lets, path)
            return
        self._put(path, f"if {python(guard, self._names)}:")
        self._body(body, lets, (*path, Step(guard)))

    def _loop(self, stmt: kir.ForLoop, lets: Mapping[Var, Expr], path: Path) -> None:
        """Read a loop; two that stand alike have one index, so that subjects of both are one."""
        stop = substitute(stmt.stop, lets)
        if MOVING in variables(stop):
            self._body(stmt.body, {**lets, stmt.index: MOVING}, path)
            return
        self._turns("lengths", stop, path)
        if variables(stop):
            end = self._subject(stop, path)
            self._wish("loops", end, (2, FAR))
            if end not in self.ends:
                self._compared(end)
                self.ends.append(end)
        index = self._indices.setdefault((path, stop), Var(f"turn {len(self._indices)}"))
        self._turning.add(index)
        name = self._names.setdefault(index, f"i{len(self._names)}")
        self._put(path, f"for {name} in some({python(stop, self._names)}):")
        self._body(stmt.body, {**lets, stmt.index: index}, (*path, Step(stop, index)))

    def _drawn(
        self, index: Var, body: tuple[kir.Stmt, ...], lets: Mapping[Var, Expr], path: Path
    ) -> None:
        """Read a loop that ends by a number it fetches as if this CTA drew all numbers."""
        rest = tuple(s for s in body if not isinstance(s, kir.Fetch | kir.Leave))
        var = next((s.var for s in body if isinstance(s, kir.Fetch)), index)
        stop = next((s.stop for s in body if isinstance(s, kir.Leave)), 0)
        self._loop(kir.ForLoop(var, stop, (kir.Let(index, var), *rest)), lets, path)

    def _compared(self, end: Subject) -> None:
        """Wish for one loop that is longer than another, by a turn and by more than a ring."""
        more = self.ring + 1
        for other in self.ends[:LOOPS]:
            if not end.path and not other.path:
                apart = self._subject(fold(Kind.SUB, end.expr, other.expr))
                for interval in ((1, 1), (-1, -1), (more, FAR), (-FAR, -more)):
                    self._wish("pairs of loops", apart, interval)

    def _box(self, box: kir.Box, lets: Mapping[Var, Expr], path: Path) -> None:
        """Wish for boxes that end before, at and behind the end of their tensor, as it is cut."""
        for at, size, limit, extent in zip(
            box.origin, box.shape, box.limit, box.tensor.extents, strict=True
        ):
            origin = substitute(at, lets)
            for held in (limit, extent):
                for var in variables(held):
                    tile = max(1, size // _step(held, var))
                    self._mark(tile, var)
                    if held is extent:
                        self.tiles[var] = min(tile, self.tiles.get(var, tile))
            self._turns("places", origin, path)
            for end in {substitute(limit, lets): None, extent: None}:
                left = self._subject(fold(Kind.SUB, end, origin), path)
                for interval in self._around(size, 0) if extent != 1 else ():
                    self._wish("boxes", left, interval)

    def _sizes(self) -> None:
        """Wish for sizes that are small, equal and unequal, and for few CTAs and several."""
        kernel = self.kernel
        for end, count in product(self.ends, sorted(self.counts)):
            self._wish("loops", end, (count, count))
        for condition in kernel.requires:
            match condition:
                case Op(Kind.EQ, left, right):
                    for side, other in ((left, right), (right, left)):
                        self._mark(side, other)
                        self._turns("requirements", side, ())
                case _:
                    self._turns("requirements", condition, ())
        free = [p for p in kernel.params if p not in strides(kernel)]
        self.numbers = [self._subject(p) for p in free if p not in extents(kernel)]
        for a, b in combinations(free, 2):
            for interval in ((1, FAR), (-FAR, -1), (0, 0)):
                self._wish("sizes", self._subject(fold(Kind.SUB, a, b)), interval)
        for p in free:
            for value in (0, 1, 2, 3):
                self._wish("parameters", self._subject(p), (value, value))
        for many in (1, 2, 3):
            self._wish("grids", self.grid, (many * kernel.cluster,) * 2)

    # --- expressions ----------------------------------------------------------------------------

    def _turns(self, sort: str, expr: Expr, path: Path) -> None:
        """Wish for both sides of every place at which an expression changes its course."""
        if not isinstance(expr, Op):
            return
        self._turns(sort, expr.a, path)
        self._turns(sort, expr.b, path)
        if expr.kind in (Kind.LT, Kind.LE, Kind.EQ, Kind.MIN, Kind.MAX):
            apart = self._subject(fold(Kind.SUB, expr.b, expr.a), path)
            for a, b in ((expr.a, expr.b), (expr.b, expr.a)):
                self._mark(a, b)
            for interval in self._around(0):
                self._wish(sort, apart, interval)
        elif expr.kind in (Kind.FLOORDIV, Kind.MOD):
            rest = self._subject(fold(Kind.MOD, expr.a, expr.b), path)
            whole = expr.b if isinstance(expr.b, int) else 0
            self._mark(whole, expr.a)
            for low, high in self._around(0, whole):
                if low >= 0 and (high < whole or not whole):
                    self._wish("remainders", rest, (low, high))

    def _marks(self, expr: Expr) -> None:
        """Note what is divided by what and compared with what to find a slot, or a parity."""
        if isinstance(expr, Op):
            self._marks(expr.a)
            self._marks(expr.b)
            told = expr.kind in (Kind.FLOORDIV, Kind.MOD, Kind.LT, Kind.LE, Kind.EQ)
            if told and isinstance(expr.b, int) and expr.b > self.ring:
                self._mark(expr.b, expr.a)

    def _mark(self, number: Expr, *held: Expr) -> None:
        if isinstance(number, int) and number > 0:
            for var in (v for expr in held for v in variables(expr)):
                self.marks.setdefault(var, {1}).add(number)
                if var in self._turning and number < LATE:
                    shows = {number + 1, number + self.ring + 1}
                    self.late |= shows if number > self.ring else set()
                    self.counts |= {number, *shows}

    def _around(self, *points: int) -> Iterator[Interval]:
        """Yield points and their neighbours, and the neighbours that alignment allows."""
        for point in points:
            yield point, point
            yield point + 1, point + 1
            yield point - 1, point - 1
            if self.unit > 1:
                yield point + 2, point + self.unit
                yield point - self.unit, point - 2

    def _subject(self, expr: Expr, path: Path = ()) -> Subject:
        """Return the subject at a place; one that is the same in all of a CTA has none."""
        at = path if path and variables(expr) & self._turning else ()
        return self._subjects.setdefault((expr, at), Subject(expr, at))

    def _wish(self, sort: str, subject: Subject, interval: Interval) -> None:
        """Note a wish, if a launch has a say in it."""
        used = variables(subject.expr)
        if not used or MOVING in used:
            return
        if subject not in self._sinks:
            self._sinks[subject] = number = len(self._sinks)
            lines = self._lines if subject.path else self._first
            line = f"s[{number}].add({python(subject.expr, self._names)})"
            lines.append(_indented(subject.path, line))
        self._sorts[sort].setdefault((subject, *interval), Wish(subject, *interval))

    # --- a look at a launch ---------------------------------------------------------------------

    def _put(self, path: Path, line: str) -> None:
        self._lines.append(_indented(path, line))

    def _function(self) -> Callable[[Sequence[int], list[set[int]]], None]:
        """Return the walk through the kernel that reads every subject where it stands."""
        *names, grid, block = (self._names[v] for v in (*self.kernel.params, kir.GRID, kir.BLOCK))
        head = (
            f"def walk(p, s):\n  {', '.join([*names, grid])}, = p\n  for {block} in some({grid}):"
        )
        space: dict[str, Callable[..., None]] = {}
        known = {"some": _some, "quotient": _quotient, "rest": _rest}
        exec("\n".join([head, *self._first, *self._lines]), known, space)  # a text of our own
        return space["walk"]


def _overrun(kernel: kir.Kernel) -> set[int]:
    """Return turns after which arrivals beyond a barrier's count may have made up a whole phase."""
    many = Counter[str]()

    def read(body: tuple[kir.Stmt, ...], threads: int) -> None:
        for stmt in body:
            inner = threads
            match stmt:
                case kir.Role():
                    inner = 32 * stmt.warps
                case kir.Elect(per):
                    lanes = {kir.Per.WARP: 32, kir.Per.WARPGROUP: 128}.get(per, threads)
                    inner = -(-threads // lanes)
                case kir.MBarrierArrive():
                    many[stmt.barrier.name] += threads * stmt.count
                case kir.MBarrierArriveExpectTx():
                    many[stmt.barrier.name] += threads
                case _:
                    pass
            for part in kir.bodies(stmt):
                read(part, inner)

    read(kernel.body, kernel.threads)
    over = (b.arrivals * b.slots + 1 for b in kernel.barriers if many[b.name] > b.arrivals)
    return {turns for turns in over if turns < LATE}


def _indented(path: Path, line: str) -> str:
    return f"{'  ' * (2 + len(path))}{line}"


Calculator = Callable[[Sequence[int]], list[int]]


def calculator(given: Sequence[Var], exprs: Iterable[Expr]) -> Calculator:
    """Return the function that computes expressions from values of variables, in their order.

    It raises `ZeroDivisionError` where one divides by 0.
    """
    names = {var: f"p{i}" for i, var in enumerate(given)}
    body = ", ".join(python(expr, names) for expr in exprs)
    text = f"lambda p: (lambda {', '.join(names.values())}: [{body}])(*p)"
    made: Calculator = eval(text, {"quotient": floordiv, "rest": mod})
    return made


def _step(size: Expr, var: Var) -> int:
    """Return by how much a size grows with a parameter."""
    ones: dict[Var, Expr] = dict.fromkeys(variables(size), 1)
    more = fold(Kind.SUB, substitute(size, ones | {var: 2}), substitute(size, ones))
    return more if isinstance(more, int) and more > 0 else 1


def _some(stop: int) -> list[int]:
    if stop <= 2 * TURNS:
        return [*range(stop)]
    return [*range(TURNS), *range(stop - TURNS, stop)]


def _quotient(a: int, b: int) -> int:
    return a // b if b else 0


def _rest(a: int, b: int) -> int:
    return a % b if b else 0


def python(expr: Expr, names: Mapping[Var, str]) -> str:
    """Write an expression in Python; divisions are calls, for a divisor may be 0."""
    match expr:
        case int():
            return str(expr)
        case Var():
            return names[expr]
        case Op(kind, left, right):
            a, b = python(left, names), python(right, names)
            match kind:
                case Kind.FLOORDIV | Kind.MOD:
                    return f"{'quotient' if kind is Kind.FLOORDIV else 'rest'}({a}, {b})"
                case Kind.MIN | Kind.MAX:
                    return f"{kind.value}({a}, {b})"
                case Kind.AND:
                    return f"({a} != 0 and {b} != 0)"
                case _:
                    return f"({a} {kind.value} {b})"


def extents(kernel: kir.Kernel) -> frozenset[Var]:
    """Return the parameters that sizes of tensors are made of."""
    return frozenset(v for t in kernel.tensors for e in t.extents for v in variables(e))


def strides(kernel: kir.Kernel) -> frozenset[Var]:
    """Return the parameters that are strides and nothing else."""
    only = {e for t in kernel.tensors for e in t.strides if isinstance(e, Var)}
    asked = {v for e in kernel.requires for v in variables(e)}
    return frozenset(only & set(kernel.params)) - extents(kernel) - asked
