"""When something is over for others: positions of rings, and the hops from one thread to another.

The n-th use of slot s of a ring of S slots has *position* `n * S + s`: fills, waits, reads and
arrivals that mean the same use have the same one.  What a statement means is read off its slot and
parity, and off the waits around it; any reading will do of which z3 proves that, in the program of
one kind of threads, the positions of one slot rise from its first use on.  Then an arrival (or a
fill) is counted in no later phase than its position says.  A wait is taken to return in the phase
that its parity means: that arrivals and bytes add up, and none is lapped, is asked elsewhere.

`Order.leads` is the question that all named invariants have in common: whether a *work* (a bulk
write, a wgmma, an ordinary access) is over at some point of other threads.  It is over for its own
thread behind the await of its group; a join, an arrival and the wait for its phase, or a named
barrier tells the others.

Source: PTX ISA, "mbarrier", "bar / barrier", "wgmma.wait_group", "wgmma.commit_group".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from fuser.expr import Expr, Kind, Op, eq, fold, variables
from fuser.kernel import ir as kir
from oracles.prover.named.program import (
    Asked,
    Instance,
    Point,
    Program,
    UndecidedError,
    Vector,
    WitnessedError,
    difference,
    normal,
    repeated,
)
from oracles.prover.solver import Formula, all_of, any_of

JOINS = kir.BlockSync | kir.BlockSerializeWait | kir.GridSync | kir.LastArriving | kir.WarpSync
"""Statements at which threads that execute them wait for each other."""


@dataclass(frozen=True, slots=True)
class Work:
    """What threads have begun, and go on with behind it if it is of a kind of groups.

    `read` is whether it suffices that its sources have been read.
    """

    program: Program
    at: Instance
    kind: kir.AsyncKind | None = None
    read: bool = False


@dataclass(frozen=True, slots=True)
class Wait:
    """A wait on an mbarrier, with the position that it is for, as its slot and parity spell it.

    `number` is that of the executions before it, where that is known.
    """

    point: Point
    barrier: kir.MBarrier
    slot: Expr
    parity: Expr
    meant: Expr | None
    number: Expr | None


class Order:
    """The programs of a kernel, and what is proved of the order between them."""

    def __init__(self, asked: Asked, programs: list[Program]) -> None:
        self.asked, self.programs = asked, programs
        kernel = programs[0].kernel
        self._live = {s.barrier for s in kernel.walk() if isinstance(s, kir.MBarrierInit)}
        self._known: dict[object, Mapping[int, Expr]] = {}
        self._sorts = {p.kind.index: _sort(p) for p in programs}
        self._overs: dict[object, Formula] = {}
        self._arrivals: dict[object, list[tuple[Point, Expr]]] = {}
        self._waits = {p.kind.index: list(_waits(p)) for p in programs}

    # --- positions ------------------------------------------------------------------------------

    def readings(
        self, program: Program, point: Point, slots: int, index: Expr, shifts: Iterable[int] = (0,)
    ) -> Iterator[Expr]:
        """Give positions that a statement may mean by a slot, some phases more or less included."""
        slot = point.plain(index)
        match slot:
            case Op(Kind.MOD, inner, n) if n == slots:
                yield from (normal(inner + by * slots) for by in shifts)
                return
        for wait in reversed(self._waits[program.kind.index]):
            at = wait.point
            around = at.shared(point) == len(at.loops) and at.number < point.number
            if around and difference(wait.slot, slot) == 0:
                phase = _halves(wait.parity)
                if phase is not None and wait.barrier.slots == slots:
                    yield from (normal((phase + by) * slots + slot) for by in shifts)
        number = ordinal(point)
        if number is not None:
            yield normal(fold(Kind.FLOORDIV, number, slots) * slots + slot)
        yield slot

    def rising(
        self, program: Program, uses: Iterable[tuple[Point, Expr]], slots: int
    ) -> Mapping[int, Expr]:
        """Return positions of all uses of a ring by a program, by point; none if none is proved."""
        found = [(point, index, point.plain(index)) for point, index in uses]
        key = slots, tuple((p.number, at, *(f.test for f in p.frames)) for p, _, at in found)
        if key not in self._known:
            chosen: list[tuple[Point, Expr]] = []
            for point, index, _ in found:
                for at in dict.fromkeys(self.readings(program, point, slots, index, (-1, 0, 1))):
                    if self._rises(program, chosen, point, at, slots):
                        chosen.append((point, at))
                        break
                else:
                    chosen = []
                    break
            self._known[key] = {point.number: at for point, at in chosen}
        return self._known[key]

    def _rises(
        self, program: Program, before: list[tuple[Point, Expr]], point: Point, at: Expr, slots: int
    ) -> bool:
        """Whether a position is none of a slot that an earlier use of it has, nor below 0."""
        one = program.fresh(point, "a")

        def ask() -> None:
            here = normal(fold(Kind.LE, 0, program.at(point, one, at)))
            self.asked.holds(program.exists(point, one), lambda: here, "counted from 0 on")
            for other, there in (*before, (point, at)):
                pairs = [(other, there, point, at), (point, at, other, there)]
                for first, x, second, y in pairs[: 1 if other is point else 2]:
                    self._in_order(program, first, x, second, y, slots)

        return self.sure(ask)

    def _in_order(
        self, program: Program, first: Point, x: Expr, second: Point, y: Expr, slots: int
    ) -> None:
        def ask(*, slot: bool) -> None:
            def when(a: Instance, b: Instance) -> list[Formula]:
                one = program.at(a.point, a.vector, x)
                two = program.at(b.point, b.vector, y)
                return [at_most(two, one), *([alike(one, two, slots)] if slot else [])]

            self.asked.never(program, first, second, lambda a, b: 0, "out of order", when=when)

        if slots == 1 or not self.sure(lambda: ask(slot=False)):
            ask(slot=True)

    def sure(self, ask: Callable[[], None]) -> bool:
        """Whether all that is asked is proved; no answer is no."""
        try:
            ask()
        except (WitnessedError, UndecidedError):
            return False
        return True

    def arrivals(self, program: Program, barrier: kir.MBarrier) -> list[tuple[Point, Expr]]:
        """Return the arrivals of threads on an mbarrier, with their positions."""
        key = program.kind.index, barrier
        if key not in self._arrivals:
            self._arrivals[key] = self._placed(program, barrier)
        return self._arrivals[key]

    def _placed(self, program: Program, barrier: kir.MBarrier) -> list[tuple[Point, Expr]]:
        points = [
            (p, p.stmt.slot)
            for p in program.points
            if isinstance(p.stmt, kir.MBarrierArrive) and p.stmt.barrier == barrier
        ]
        by_cta: dict[object, list[tuple[Point, Expr]]] = {}
        for point, slot in points:
            by_cta.setdefault(getattr(point.stmt, "cta", None), []).append((point, slot))
        found = [self.rising(program, uses, barrier.slots) for uses in by_cta.values()]
        known = {number: at for one in found for number, at in one.items()}
        return [(point, known[point.number]) for point, _ in points if point.number in known]

    def near(
        self, program: Program, point: Point, at: Expr, target: Expr | None, one: Instance
    ) -> Iterator[Vector]:
        """Give instances of a point that may be at a position, or follow soon after another one."""
        deep = len(point.loops)
        found = (*one.vector, *(0,) * deep)[:deep]
        if deep and target is not None:
            outer = found[:-1]
            zero, step = (program.at(point, (*outer, number), at) for number in (0, 1))
            by = difference(step, zero)
            if by is not None and by > 0:
                last = normal(fold(Kind.FLOORDIV, fold(Kind.SUB, target, zero), by))
                found = (*outer, last)
        yield found
        for vector in program.following(one.point, one.vector, point, self.asked.reach):
            if vector != found:
                yield vector

    # --- kinds of threads of which the same is asked --------------------------------------------

    def sort(self, program: Program) -> object:
        """Return what tells threads apart by what they wait for, and by whom they join."""
        return self._sorts[program.kind.index]

    def different(
        self, how: Callable[[Program], object], first: Program | None = None
    ) -> list[Program]:
        """Return one program of each sort, and of each answer; one of them first."""
        programs = self.programs if first is None else [first, *self.programs]
        found = {(self.sort(p), how(p)): p for p in reversed(programs)}
        return list(reversed(found.values()))

    def waited(self, program: Program) -> Iterable[kir.MBarrier]:
        """Return the mbarriers that threads wait on."""
        return dict.fromkeys(wait.barrier for wait in self._waits[program.kind.index])

    def reported(
        self, program: Program, one: Instance, barrier: kir.MBarrier, target: Expr, lag: int,
        *, mine: bool = True,
    ) -> Iterator[tuple[Instance, Formula]]:  # fmt: skip
        """Give the waits before an instance for the phase of a position, less `lag` phases.

        If the position is its own, a wait in its iteration is for it where the parity is right.
        """
        slots = barrier.slots
        phase = fold(Kind.ADD, fold(Kind.FLOORDIV, target, slots), lag)
        for known in self._waits[program.kind.index] if barrier in self._live else ():
            if known.barrier != barrier:
                continue
            wait, meant, number = known.point, known.meant, known.number
            shared = wait.shared(one.point)
            for vector in program.preceding(one.point, one.vector, wait, self.asked.reach):
                now = vector[:shared] == one.vector[:shared] and shared == len(wait.loops)
                where = Instance(wait, vector)
                slot = program.at(wait, vector, known.slot)
                parity = program.at(wait, vector, known.parity)
                means: list[Formula] = [
                    equal(slot, normal(fold(Kind.MOD, target, slots))),
                    equal(parity, normal(fold(Kind.MOD, phase, 2))),
                ]
                if not (now and mine):
                    back = normal(fold(Kind.SUB, target, slots * lag))
                    if meant is None or (number is None and not mine):
                        continue
                    at = program.at(wait, vector, meant)
                    means.append(equal(at, back))
                    if not mine and number is not None:
                        means.append(at_most(at, program.at(wait, vector, number)))
                before = self.asked.before(where, one)
                holds = all_of(before, self.asked.exists(program, where), *means)
                if holds != 0:
                    yield where, holds

    def heard(
        self, program: Program, one: Instance, barrier: kir.MBarrier, target: Expr, lag: int = 0,
        *, mine: bool = True,
    ) -> Formula:  # fmt: skip
        """Return that threads, or some that they join, wait for the phase of a position."""
        ways: list[Formula] = []
        for mate in self.different(lambda p: p is program, first=program):
            for where, holds in self.reported(mate, one, barrier, target, lag, mine=mine):
                if mate is not program:
                    met = self.asked.between(program, where, one, joins(program, mate))
                    holds = all_of(holds, any_of(*(when for _, when in met)))
                ways.append(holds)
            if 1 in ways:
                return 1
        return any_of(*ways)

    # --- from one thread to another -------------------------------------------------------------

    def over(self, work: Work, end: Instance) -> Formula:
        """Return that work is over for its own threads at some point of theirs."""
        if work.kind is None:
            return self.asked.before(work.at, end)
        key = work.program.kind.index, work.at, work.kind, work.read, end, self.asked.looks
        if key not in self._overs:
            awaits = covered(self.asked, work.program, work.at, end, work.kind, read=work.read)
            self._overs[key] = any_of(*(when for _, when in awaits))
        return self._overs[key]

    def met(self, work: Work, other: Program, end: Instance, *, warp: bool = False) -> Formula:
        """Return that work is over before a join with other threads, or of each warp of theirs."""
        ways: list[Formula] = []
        theirs = {point.number: point for point in other.points}
        some = joins(work.program, other, warp=warp)
        for join, inside in self.asked.between(work.program, work.at, end, some):
            there = self.asked.exists(other, Instance(theirs[join.point.number], join.vector))
            done = 1 if work.kind is None else self.over(work, join)
            ways.append(all_of(inside, there, done))
            if ways[-1] == 1:
                return 1
        return any_of(*ways)

    def leads(self, work: Work, other: Program, end: Instance) -> Formula:
        """Return that work is over for other threads at some point of theirs."""
        program = work.program
        if other is program and program.kind.alone:
            return self.over(work, end)
        ways = [self.met(work, other, end)]
        for mid in self.different(lambda p: (p is program, p.numbers(arrives))):
            for barrier in program.kernel.barriers:
                for arrival, own in self.arrivals(mid, barrier):
                    for vector in self.near(mid, arrival, own, None, work.at):
                        there = Instance(arrival, vector)
                        here = work, mid, there
                        done = self.over(work, there) if mid is program else self.met(*here)
                        sure = all_of(done, goes(mid, there, None), self.asked.exists(mid, there))
                        if sure != 0:
                            at = mid.at(arrival, vector, own)
                            heard = self.heard(other, end, barrier, at, mine=False)
                            ways.append(all_of(sure, heard))
        for arrival, sync in _named(program, other):
            for vector in program.following(work.at.point, work.at.vector, arrival, 1):
                there = Instance(arrival, vector)
                for where in other.preceding(end.point, end.vector, sync, 1):
                    met = Instance(sync, where)
                    same = equal(
                        program.at(arrival, vector, ordinal(arrival) or 0),
                        other.at(sync, where, ordinal(sync) or 0),
                    )
                    both = self.asked.exists(program, there), self.asked.exists(other, met)
                    before = self.over(work, there), self.asked.before(met, end)
                    ways.append(all_of(same, *both, *before))
        return any_of(*ways)


def covered(
    asked: Asked,
    program: Program,
    first: Instance,
    last: Instance,
    kind: kir.AsyncKind,
    *,
    read: bool = False,
) -> list[tuple[Instance, Formula]]:
    """Return awaits of the threads that cover a group between two instances, and when they do.

    An await that keeps n groups covers it if n + 1 groups or more have been closed since; the first
    of them is its own, which in a queue is closed at once.  `read` is whether it suffices that its
    sources have been read.
    """
    commits, awaits = program.groups(kind)
    own = kind is not kir.AsyncKind.QUEUE
    found = []
    for point in awaits:
        stmt = point.stmt
        assert isinstance(stmt, kir.AsyncAwait), "these only"
        if stmt.read_only and not read:
            continue
        for await_, inside in asked.between(program, first, last, [point]):
            closed = asked.counted(program, first, await_, commits, stmt.keep + own)
            holds = all_of(inside, closed)
            if holds == 1:
                return [(await_, 1)]
            if holds != 0:
                found.append((await_, holds))
    return found


def _named(program: Program, other: Program) -> Iterator[tuple[Point, Point]]:
    """Give arrivals at named barriers and what they complete; each the only one of its threads."""
    kinds = kir.BlockSync | kir.NamedArrive
    for point in program.points:
        if not isinstance(point.stmt, kinds) or ordinal(point) is None:
            continue
        number = point.stmt.barrier, point.stmt.threads
        mine, theirs = (
            [q for q in p.points if isinstance(q.stmt, kinds) and q.stmt.barrier == number[0]]
            for p in (program, other)
        )
        one = len(mine) == len(theirs) == 1 and theirs[0].stmt == kir.BlockSync(*number)
        if one and ordinal(theirs[0]) is not None:
            yield point, theirs[0]


def joins(program: Program, other: Program, *, warp: bool = False) -> list[Point]:
    """Return where threads of two kinds join, or of each warp of theirs if that is enough."""
    theirs = {point.number for point in other.points}
    return [
        p
        for p in program.points
        if isinstance(p.stmt, JOINS) and p.number in theirs and _meets(p, program, other, warp=warp)
    ]


def _meets(point: Point, program: Program, other: Program, *, warp: bool) -> bool:
    """Whether a join of one kind of threads and another is one of all their threads."""
    one, two = program.kind.warps, other.kind.warps
    match point.stmt:
        case kir.BlockSync(_, threads):
            return threads >= point.place.warps * kir.WARP
        case kir.WarpSync():
            return one == two and (warp or len(one) == 1)
        case _:
            return True


def equal(a: Expr, b: Expr) -> Expr:
    """Return that two expressions are equal, at once where they differ by a number."""
    apart = difference(a, b)
    return normal(eq(a, b)) if apart is None else int(apart == 0)


def ordinal(point: Point) -> Expr | None:
    """Return the number of executions before one, where no branch decides about some of them."""
    number: Expr = 0
    indices = {frame.index for frame in point.loops}
    for frame in point.frames:
        if frame.index is not None:
            number = fold(Kind.ADD, fold(Kind.MUL, number, repeated(frame.test)), frame.index)
        elif any(var in indices or "?" in var.name for var in variables(frame.test)):
            return None
    return normal(number)


def goes(program: Program, one: Instance, by: Expr | None) -> Formula:
    """Return that an arrival is on an mbarrier of this CTA, or of the one of a rank."""
    stmt = one.point.stmt
    assert isinstance(stmt, kir.MBarrierArrive), "these only"
    mine = normal(fold(Kind.MOD, kir.BLOCK, program.kernel.cluster))
    to = mine
    if stmt.cta is not None:
        to = program.at(one.point, one.vector, one.point.plain(stmt.cta))
    return equal(to, mine if by is None else by)


def at_most(a: Expr, b: Expr) -> Expr:
    """Return a <= b, at once where they differ by a number."""
    apart = difference(a, b)
    return normal(fold(Kind.LE, a, b)) if apart is None else int(apart <= 0)


def alike(a: Expr, b: Expr, slots: int) -> Expr:
    """Return that two positions have one slot."""
    apart = difference(a, b)
    if apart is not None:
        return int(apart % slots == 0)
    return equal(normal(fold(Kind.MOD, a, slots)), normal(fold(Kind.MOD, b, slots)))


def _halves(parity: Expr) -> Expr | None:
    """Return the phase that a parity is that of, as it is written."""
    match parity:
        case int() | Op(Kind.MOD, _, 2):
            return parity if isinstance(parity, int) else parity.a
        case _:
            return None


def _sort(program: Program) -> object:
    """Return what tells threads apart by what they wait for, and by whom they join."""
    joined = any(isinstance(p.stmt, kir.WarpSync) for p in program.points)
    mates = program.kind.warps if joined else ()
    return program.numbers(_matters), program.kind.warpgroup, mates


def arrives(stmt: kir.Stmt | None) -> bool:
    """Whether it is an arrival on an mbarrier."""
    return isinstance(stmt, kir.MBarrierArrive)


def _matters(stmt: kir.Stmt | None) -> bool:
    match stmt:
        case kir.AsyncCommit(kind) | kir.AsyncAwait(kind):
            return kind is not kir.AsyncKind.BULK
        case kir.FenceAsyncProxy(space):
            return space is not kir.Space.GLOBAL
        case kir.MBarrierWaitParity() | kir.CpAsyncMBarrierArrive() | kir.Assign():
            return True
        case kir.QueueCopy():
            return True
        case _:
            return isinstance(stmt, JOINS)


def _waits(program: Program) -> Iterator[Wait]:
    """Give the waits of threads that do not give up."""
    for point in program.points:
        match point.stmt:
            case kir.MBarrierWaitParity(barrier, at, by, retry=True):
                slot, parity = point.plain(at), point.plain(by)
                match slot:
                    case Op(Kind.MOD, inner, n) if n == barrier.slots:
                        meant: Expr | None = inner
                    case _:
                        phase = _halves(parity)
                        meant = None if phase is None else normal(phase * barrier.slots + slot)
                yield Wait(point, barrier, slot, parity, meant, ordinal(point))
            case _:
                pass
