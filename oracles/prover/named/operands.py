"""`mma-operand-coverage`: a slot that an mma reads is full, and is not refilled before it is read.

The slots of a ring are used in the order of *positions*: slot `p % S`, phase `p // S`.  What a
statement means by its slot and parity is read as a position; z3 is asked whether

- each read has a fill of its position, in a program that fills positions in order;
- a wait for the phase of that position stands before the read, or the await of the fill's own group
  and a join; where ordinary stores or cp.async fill what wgmma reads, a proxy fence, too;
- a refill waits for the phase by which the readers have freed the slot, each of which arrives only
  behind the await of the wgmma that reads it, or behind its own reads; in one role, a join leads
  from that await or those reads to the refill.

That phases mean to everybody what their positions say (arrivals and bytes add up, no wait is
lapped) and what lies in the same bytes under another name are not asked here.

Source: PTX ISA, "mbarrier", "wgmma.wait_group", "cp.async.wait_group".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from fuser.expr import Expr, Kind, Op, eq, fold, variables
from fuser.kernel import ir as kir
from oracles.prover.named.drain import JOINS, joins
from oracles.prover.named.program import Point, Program, Vector, difference, normal, repeated
from oracles.prover.named.question import Asked, Instance, UndecidedError, WitnessedError
from oracles.prover.named.results import covered
from oracles.prover.sites import Overlaps, every, fragments, operand, ordinary, storage
from oracles.prover.solver import Formula, all_of, any_of

NAME = "mma-operand-coverage"
WGMMA, CP_ASYNC = kir.AsyncKind.WGMMA, kir.AsyncKind.CP_ASYNC


@dataclass(frozen=True, slots=True)
class Read:
    """A point that reads a slot for an mma; a wgmma does so until it is awaited."""

    program: Program
    point: Point
    slot: kir.Slot

    @property
    def runs_on(self) -> bool:
        """Whether it may go on behind its own point."""
        return isinstance(self.point.stmt, kir.Wgmma)


@dataclass(frozen=True, slots=True)
class Fill:
    """A point that fills a slot, with the mbarrier slot on which that is reported, if any."""

    program: Program
    point: Point
    slot: kir.Slot
    barrier: kir.MBarrier | None
    at: Expr
    report: Point


def subject(kernel: kir.Kernel) -> bool:
    """Whether a kernel has an mma that reads shared memory."""
    return bool(_operands(kernel))


def _operands(kernel: kir.Kernel) -> list[tuple[kir.Stmt, kir.Slot]]:
    """Return the statements that read a slot for an mma."""
    feeding: set[str] = set()
    found: list[tuple[kir.Stmt, kir.Slot]] = []
    statements = list(kernel.walk())
    for stmt in statements:
        match stmt:
            case kir.Wgmma(_, a):
                found += [(stmt, slot) for slot in stmt.columns]
                if isinstance(a, kir.Slot):
                    found.append((stmt, a))
                else:
                    feeding.add(a.name)
            case kir.Mma(_, a, b):
                feeding |= {a.name, b.name}
            case _:
                pass
    many = -1
    while many != len(feeding):
        many = len(feeding)
        for stmt in statements:
            reads, writes = fragments(stmt)
            if isinstance(stmt, kir.Compute | kir.Slice) and writes[0].name in feeding:
                feeding |= {fragment.name for fragment in reads}
    for stmt in statements:
        match stmt:
            case kir.Load(dst, kir.Slot() as slot) if dst.name in feeding:
                found.append((stmt, slot))
            case _:
                pass
    return found


def check(asked: Asked, programs: list[Program], *, strict: bool = False) -> None:
    """Ask z3 about each read of each operand.

    Unless `strict`, one warp's arrival may stand for all four that wgmma has started together.
    """
    kernel = programs[0].kernel
    operands = _operands(kernel)
    rings = _Rings(asked, programs, strict=strict)
    seen: set[object] = set()
    for program in programs:
        for point in program.points:
            for stmt, slot in operands:
                if stmt is not point.stmt:
                    continue
                read = Read(program, point, slot)
                key = rings.relevant(read)
                if key not in seen:
                    seen.add(key)
                    rings.read(read)


def equal(a: Expr, b: Expr) -> Expr:
    """Return that two expressions are equal, at once where they differ by a number."""
    apart = difference(a, b)
    return normal(eq(a, b)) if apart is None else int(apart == 0)


def position(point: Point, slots: int, slot: Expr, parity: Expr | None = None) -> Expr | None:
    """Return the position that a statement means by a slot, and a parity if it has one."""
    index = point.plain(slot)
    match index:
        case Op(Kind.MOD, inner, n) if n == slots:
            return inner
        case _:
            pass
    if parity is not None:
        match point.plain(parity):
            case int() as phase:
                return (
                    normal(index + slots * phase)
                    if not isinstance(index, int)
                    else (index + slots * phase)
                )
            case Op(Kind.MOD, phase, 2):
                return normal(fold(Kind.ADD, fold(Kind.MUL, phase, slots), index))
            case _:
                return None
    if slots == 1:
        return _ordinal(point)
    own = {frame.index for frame in point.loops}
    return index if len(own) <= 1 and variables(index) == own else None


def _ordinal(point: Point) -> Expr | None:
    """Return the number of executions before one, where no branch decides about some of them."""
    number: Expr = 0
    indices = {frame.index for frame in point.loops}
    for frame in point.frames:
        if frame.index is not None:
            number = fold(Kind.ADD, fold(Kind.MUL, number, repeated(frame.test)), frame.index)
        elif any(var in indices or "?" in var.name for var in variables(frame.test)):
            return None
    return normal(number)


class _Rings:
    """The fills and waits of a kernel, and the questions about them."""

    def __init__(self, asked: Asked, programs: list[Program], *, strict: bool) -> None:
        self.asked, self.programs, self.strict = asked, programs, strict
        self.fills = [fill for program in programs for fill in _fills(program)]
        self._ordered: set[tuple[int, int]] = set()
        self._doers = Counter(point.number for program in programs for point in program.points)
        self._sites = every(programs[0].kernel)
        self._storage = storage(programs[0].kernel.buffers)
        self._overlaps = Overlaps(tuple(p.kind for p in programs), programs[0].kernel.threads)

    def _alone(self, point: Point, *programs: Program) -> bool:
        """Whether one thread executes a point, and these are all that one."""
        one = self._doers[point.number] == 1 and programs[0].kind.alone
        return one and all(program is programs[0] for program in programs)

    def _apart(self, read: Read, fill: Fill) -> bool:
        """Whether a warpgroup reads nothing of an operand that threads of another have filled."""
        site, stmt = self._sites[read.point.number], read.point.stmt
        mine, theirs = read.program.kind.warpgroup, fill.program.kind.warpgroup
        if not isinstance(stmt, kir.Wgmma) or stmt.a != read.slot or mine is None or theirs is None:
            return False
        rows, filled = (
            operand(site, self._storage),
            ordinary(self._sites[fill.point.number], self._storage),
        )
        if rows is None or filled is None:
            return False
        found = self._overlaps.between(filled, rows[1])
        kinds = {p.kind.index for p in self.programs if p.kind.warpgroup in (mine, None)}
        return not any((fill.program.kind.index, kind) in found for kind in kinds)

    def relevant(self, read: Read) -> object:
        """Return what the questions about a read depend on."""
        kind, slot = read.program.kind, read.slot
        fills = tuple(
            (
                _waits_of(f.program),
                self._where(f),
                type(f.point.stmt),
                f.barrier,
                f.at,
                f.slot.index,
            )
            for f in self.of(slot.buffer)
        )
        rows = isinstance(read.point.stmt, kir.Wgmma) and read.point.stmt.a == slot
        apart = rows and any(fill.barrier is None for fill in self.of(slot.buffer))
        mine = read.point.number, slot.index, slot.buffer.slots, _waits_of(read.program)
        speak = tuple(self._speaker(read, barrier) for barrier in read.program.kernel.barriers)
        role = read.point.place.first, read.point.place.warps
        near = any(
            f.barrier is None or (f.point.place.first, f.point.place.warps) == role
            for f in self.of(slot.buffer)
        )
        return (
            mine,
            kind.warpgroup,
            fills,
            apart,
            speak,
            _joined_by_warp(read.program) if near else 0,
        )

    def _speaker(self, read: Read, barrier: kir.MBarrier) -> object:
        """Return what tells apart the threads that arrive on an mbarrier for a read."""
        how, other = self._spoken_for(read, barrier)
        if other is None:
            return None
        alike = read.runs_on and how <= 2  # all lanes of a warp await a wgmma at once
        arrivals = tuple(p.number for p in _arrivals(other, barrier))
        return arrivals, _waits_of(other), () if alike else (how, other.kind.index)

    def _spoken_for(self, read: Read, barrier: kir.MBarrier) -> tuple[int, Program | None]:
        """Return the nearest threads that arrive on an mbarrier for readers, and how near."""
        near = [(self._speaks_for(o, read), n, o) for n, o in enumerate(self._mates(read.program))]
        speak = [(how, n, o) for how, n, o in near if how and _arrivals(o, barrier)]
        how, _, other = min(speak, key=lambda one: one[:2], default=(0, 0, None))
        return how, other

    @staticmethod
    def _where(fill: Fill) -> object:
        """Return where a fill stands among the syncs of its threads."""
        before = sum(n < fill.point.number for n in _waits_of(fill.program))
        return before, tuple((frame.number, frame.test) for frame in fill.point.frames)

    def of(self, buffer: kir.Buffer) -> list[Fill]:
        """Return the fills of a buffer, one for kinds of threads that fill it alike."""
        found: dict[object, Fill] = {}
        for fill in self.fills:
            if fill.slot.buffer == buffer:
                kind, warps = fill.program.kind.warpgroup, _joined_by_warp(fill.program)
                key = fill.point.number, _waits_of(fill.program), kind, warps
                found.setdefault(key, fill)
        return list(found.values())

    # --- a read ---------------------------------------------------------------------------------

    def read(self, read: Read) -> None:
        """Ask all about one read."""
        fills = self.of(read.slot.buffer)
        if not fills:
            raise UndecidedError(f"{read.point.where}: no fill of {read.slot.buffer.name} is known")
        for fill in fills:
            if fill.barrier is not None and fill.barrier.slots != fill.slot.buffer.slots:
                raise UndecidedError(f"{fill.point.where}: as many slots of the mbarrier are not")
        at = self._position(read, fills)
        self._exists(read, fills, at)
        barriers = {f.barrier for f in fills}
        if None not in barriers:
            for barrier in barriers:
                assert barrier is not None, "all have one"
                self._waited(read, barrier, at)
        fills = [fill for fill in fills if not self._apart(read, fill)]
        for fill in fills:
            if fill.barrier is None:
                self._joined(read, fill, at)
            elif not isinstance(fill.point.stmt, kir.TmaLoad) and read.runs_on:
                self._fenced(read, fill, at)
            self._in_order(fill, fills)
        for fill in fills:
            self._refilled(read, fill, fills, at)

    def _position(self, read: Read, fills: list[Fill]) -> Expr:
        slots = read.slot.buffer.slots
        at = position(read.point, slots, read.slot.index)
        single = slots == 1 or isinstance(read.point.plain(read.slot.index), int)
        if at is None or single:
            barriers = {fill.barrier for fill in fills}
            for barrier in barriers - {None}:
                for wait in reversed(self._waits(read.program, barrier)):
                    shared = wait.shared(read.point)
                    stmt = wait.stmt
                    assert isinstance(stmt, kir.MBarrierWaitParity), "a wait"
                    if wait.number < read.point.number and shared == len(wait.loops):
                        found = position(wait, slots, stmt.slot, stmt.parity)
                        if found is not None:
                            return found
        if at is None:
            raise UndecidedError(f"{read.point.where}: its slot is no position of a ring")
        return at

    @staticmethod
    def _waits(program: Program, barrier: kir.MBarrier | None) -> list[Point]:
        return [
            p
            for p in program.points
            if isinstance(p.stmt, kir.MBarrierWaitParity)
            and p.stmt.retry
            and (barrier is None or p.stmt.barrier == barrier)
        ]

    def _filled(self, fill: Fill) -> Expr:
        slots = fill.slot.buffer.slots
        index = fill.slot.index if fill.barrier is None else fill.at
        point = fill.point if fill.barrier is None else fill.report
        at = position(point, slots, index)
        if at is None and slots == 1:
            # a branch may leave some out: positions are then told by the wait before it
            for wait in reversed(self._waits(fill.program, None)):
                stmt = wait.stmt
                assert isinstance(stmt, kir.MBarrierWaitParity), "a wait"
                if wait.frames == fill.point.frames and wait.number < fill.point.number:
                    found = position(wait, slots, stmt.slot, stmt.parity)
                    return normal(found - 1) if isinstance(found, Op) else self._none(fill)
        if at is None:
            self._none(fill)
        assert at is not None, "else it is refused"
        if fill.barrier is not None:
            same = position(fill.point, slots, fill.slot.index)
            if slots > 1 and (same is None or difference(same, at) != 0):
                raise UndecidedError(f"{fill.point.where}: its slot is not that of its mbarrier")
        return at

    @staticmethod
    def _none(fill: Fill) -> Expr:
        raise UndecidedError(f"{fill.point.where}: its slot is no position of a ring")

    def _solved(
        self, program: Program, point: Point, at: Expr, target: Expr, like: Vector
    ) -> Iterator[tuple[Vector, Formula]]:
        """Give instances of a point at a position, near one with other numbers."""
        deep = len(point.loops)
        near = (*like, *(0,) * deep)[:deep]
        if deep:
            outer = near[:-1]
            zero, one = (program.at(point, (*outer, n), at) for n in (0, 1))
            if difference(one, zero) == 1:
                near = (*outer, normal(fold(Kind.SUB, target, zero)))
        same = equal(program.at(point, near, at), target)
        if same != 0:
            yield near, all_of(same, *self._sure(program, point, near))

    @staticmethod
    def _sure(program: Program, point: Point, vector: Vector) -> Iterator[Formula]:
        """Give the conditions of an instance; a multicast is by the CTA that does it."""
        cast = isinstance(point.stmt, kir.TmaLoad) and point.stmt.multicast is not None
        own = normal(fold(Kind.MOD, kir.BLOCK, program.kernel.cluster))
        for condition in program.exists(point, vector):
            if not (cast and variables(condition) == {kir.BLOCK} and _mentions(condition, own)):
                yield condition

    def _exists(self, read: Read, fills: list[Fill], at: Expr) -> None:
        """Ask that each read has a fill of its position."""
        program = read.program
        vector = program.fresh(read.point, "a")
        target = program.at(read.point, vector, at)
        facts = list(program.exists(read.point, vector))
        self.asked.holds(
            facts,
            lambda: any_of(*(self._there(fill, target, vector) for fill in fills)),
            f"nothing fills what is read: {Instance(read.point, vector)}",
        )

    def _there(self, fill: Fill, target: Expr, vector: Vector) -> Formula:
        solved = self._solved(fill.program, fill.point, self._filled(fill), target, vector)
        return any_of(*(holds for _, holds in solved))

    def _in_order(self, fill: Fill, fills: list[Fill]) -> None:
        """Ask that positions are filled in order."""
        for other in fills:
            key = fill.point.number, other.point.number
            if other.program is not fill.program or key in self._ordered:
                continue
            self._ordered.add(key)
            one, two = self._filled(fill), self._filled(other)
            self.asked.never(
                fill.program,
                fill.point,
                other.point,
                lambda a, b: 0,
                "positions are filled out of order",
                when=lambda a, b, p=fill.program, x=one, y=two: [  # type: ignore[misc]
                    _at_most(p.at(b.point, b.vector, y), p.at(a.point, a.vector, x))
                ],
            )

    # --- full before it is read -----------------------------------------------------------------

    def _reported(
        self, program: Program, one: Instance, barrier: kir.MBarrier, at: Expr, lag: int
    ) -> Iterator[tuple[Instance, Formula]]:
        """Give the waits before an instance for the phase of a position, less `lag` phases."""
        target = program.at(one.point, one.vector, at)
        slots = barrier.slots
        phase = fold(Kind.ADD, fold(Kind.FLOORDIV, target, slots), lag)
        for wait in self._waits(program, barrier):
            stmt = wait.stmt
            assert isinstance(stmt, kir.MBarrierWaitParity), "a wait"
            shared = wait.shared(one.point)
            vectors = list(program.preceding(one.point, one.vector, wait, self.asked.reach))
            for vector in vectors:
                now = vector[:shared] == one.vector[:shared] and shared == len(wait.loops)
                where = Instance(wait, vector)
                slot = program.at(wait, vector, wait.plain(stmt.slot))
                parity = program.at(wait, vector, wait.plain(stmt.parity))
                means = [
                    equal(slot, normal(fold(Kind.MOD, target, slots))),
                    equal(parity, normal(fold(Kind.MOD, phase, 2))),
                ]
                if not now:
                    meant = position(wait, slots, stmt.slot, stmt.parity)
                    if meant is None:
                        continue
                    back = normal(fold(Kind.SUB, target, slots * lag))
                    means.append(equal(program.at(wait, vector, meant), back))
                holds = all_of(
                    self.asked.before(where, one), self.asked.exists(program, where), *means
                )
                if holds != 0:
                    yield where, holds

    def _mates(self, program: Program) -> Iterator[Program]:
        """Give programs that may wait in place of one, it first."""
        yield program
        for other in self.programs:
            if other is not program:
                yield other

    def _waited(self, read: Read, barrier: kir.MBarrier, at: Expr) -> None:
        """Ask that the threads, or some that they join, have waited for a fill."""
        program, point = read.program, read.point
        one = Instance(point, program.fresh(point, "a"))

        def fine() -> Formula:
            ways: list[Formula] = []
            for other in self._mates(program):
                for where, holds in self._reported(other, one, barrier, at, 0):
                    if other is program:
                        ways.append(holds)
                    else:
                        met = (
                            when
                            for _, when in self.asked.between(
                                program, where, one, joins(program, other)
                            )
                        )
                        ways.append(all_of(holds, any_of(*met)))
                if 1 in ways:
                    return 1
            return any_of(*ways)

        self.asked.holds(
            program.exists(point, one.vector), fine, f"no wait covers what is read: {one}"
        )

    def _joined(self, read: Read, fill: Fill, at: Expr) -> None:
        """Ask that a fill by threads is complete, and its threads join the readers."""
        program, filler = read.program, fill.program
        copies = isinstance(fill.point.stmt, kir.CpAsync)
        own = self._filled(fill) if copies or fill.slot.buffer.slots > 1 else None

        def when(a: Instance, b: Instance) -> list[Formula]:
            if own is None:
                return []
            return [equal(filler.at(a.point, a.vector, own), program.at(b.point, b.vector, at))]

        def fine(a: Instance, b: Instance) -> Formula:
            alike = self._alone(fill.point, filler, program)
            ways: list[Formula] = []
            ends: list[tuple[Instance, Formula]] = [(b, 1)] if alike else []
            if not alike:
                ends += self.asked.between(program, a, b, joins(program, filler))
            for end, inside in ends:
                start: list[tuple[Instance, Formula]] = [(a, 1)]
                if copies:
                    start = covered(self.asked, filler, a, end, CP_ASYNC)
                for done, holds in start:
                    fenced: Formula = 1
                    if read.runs_on:
                        sides = [self._fences(filler, done, end), self._fences(program, end, b)]
                        fenced = any_of(*(w for side in sides for _, w in side))
                    ways.append(all_of(inside, holds, fenced))
                    if ways[-1] == 1:
                        return 1
            return any_of(*ways)

        self.asked.never(
            filler, fill.point, read.point, fine, "no await, fence and join leads from a fill",
            then=program, when=when,
        )  # fmt: skip
        if own is not None:
            self.asked.never(
                program, read.point, fill.point, lambda a, b: 0, "read before it is filled",
                then=filler, when=lambda a, b: when(b, a),
            )  # fmt: skip

    def _fences(
        self, program: Program, first: Instance, last: Instance
    ) -> Iterable[tuple[Instance, Formula]]:
        fences = [
            p
            for p in program.points
            if isinstance(p.stmt, kir.FenceAsyncProxy) and p.stmt.space is not kir.Space.GLOBAL
        ]
        return self.asked.between(program, first, last, fences)

    def _fenced(self, read: Read, fill: Fill, at: Expr) -> None:
        """Ask that what threads have filled is fenced by them, or by the readers behind the wait.

        What cp.async reports on an mbarrier can be fenced by the readers only.
        """
        program, point = read.program, read.point
        one = Instance(point, program.fresh(point, "a"))
        assert fill.barrier is not None, "it is reported"

        def behind() -> Formula:
            assert fill.barrier is not None, "it is reported"
            ways = [
                all_of(holds, any_of(*(w for _, w in self._fences(program, where, one))))
                for where, holds in self._reported(program, one, fill.barrier, at, 0)
            ]
            return any_of(*ways)

        if isinstance(fill.point.stmt, kir.Store):
            self.asked.never(
                fill.program, fill.point, fill.report,
                lambda a, b: any_of(*(w for _, w in self._fences(fill.program, a, b))),
                "no proxy fence behind a fill",
            )  # fmt: skip
        else:
            self.asked.holds(
                program.exists(point, one.vector),
                behind,
                f"no proxy fence covers what is read: {one}",
            )

    # --- not refilled before it is read ---------------------------------------------------------

    def _refilled(self, read: Read, fill: Fill, fills: list[Fill], at: Expr) -> None:
        """Ask that a fill waits for earlier reads of its slot."""
        slots = read.slot.buffer.slots
        try:
            own: Expr | None = self._filled(fill)
        except UndecidedError:
            own = None
        free = self._freed_by(fill, own) if own is not None else []
        if not free:
            if own is None or not self._first(fill, own):
                self._in_turn(read, fill, own, at)
            return
        assert own is not None, "it waits for a position"
        if not any(self._released(read, barrier, fills, at, slots) for barrier in free):
            raise UndecidedError(f"{fill.point.where}: what it waits for is not freed by the reads")
        stmt = fill.point.stmt
        if isinstance(stmt, kir.TmaLoad) and stmt.multicast is not None:
            self._everywhere(free, fill)

    def _first(self, fill: Fill, own: Expr) -> bool:
        """Whether a fill is never a refill."""
        program = fill.program
        vector = program.fresh(fill.point, "a")
        at = program.at(fill.point, vector, own)
        return self._proved(
            program.exists(fill.point, vector),
            normal(fold(Kind.LT, at, fill.slot.buffer.slots)),
        )

    def _proved(self, facts: Iterable[Formula], claim: Formula) -> bool:
        """Whether z3 proves a claim; no answer is no."""
        try:
            self.asked.holds(facts, lambda: claim, "", most=1)
        except (WitnessedError, UndecidedError):
            return False
        return True

    def _freed_by(self, fill: Fill, own: Expr) -> list[kir.MBarrier]:
        """Return the mbarriers whose phase before that of its position a fill waits for."""
        program, slots = fill.program, fill.slot.buffer.slots
        one = Instance(fill.point, program.fresh(fill.point, "a"))
        later = normal(fold(Kind.LE, slots, program.at(fill.point, one.vector, own)))
        facts = [*program.exists(fill.point, one.vector), later]
        others = [b for b in program.kernel.barriers if b != fill.barrier and b.slots == slots]
        for reach in sorted({1, self.asked.most}):
            self.asked.reach = reach
            self.asked.assume(facts)
            claims = {barrier: self._waits_for(program, one, barrier, own) for barrier in others}
            sure = [barrier for barrier, claim in claims.items() if claim == 1]
            open_ = sure or [barrier for barrier, claim in claims.items() if claim != 0]
            if found := [barrier for barrier in open_ if self._proved(facts, claims[barrier])]:
                return found
        return []

    def _waits_for(
        self, program: Program, one: Instance, barrier: kir.MBarrier, own: Expr
    ) -> Formula:
        """Return that threads, or some that they join, wait for the phase before a position's."""
        ways: list[Formula] = []
        for mate in self._mates(program):
            for where, holds in self._reported(mate, one, barrier, own, 1):
                if mate is not program:
                    met = self.asked.between(program, where, one, joins(program, mate))
                    holds = all_of(holds, any_of(*(when for _, when in met)))
                ways.append(holds)
        return any_of(*ways)

    def _in_turn(self, read: Read, fill: Fill, own: Expr | None, at: Expr) -> None:
        """Ask of a refill in the same role that a join leads from each read of the slot to it."""
        program, filler = read.program, fill.program
        shared = joins(program, filler)
        alone = self._alone(fill.point, filler, program) and self._alone(read.point, program)
        if not shared and not alone:
            raise UndecidedError(
                f"{fill.point.where}: nothing that it waits for is freed by the reads"
            )

        def same(x: Instance, f: Instance) -> list[Formula]:
            slots = read.slot.buffer.slots
            if slots == 1:
                return []
            there = program.at(x.point, x.vector, x.point.plain(read.slot.index))
            here = filler.at(f.point, f.vector, f.point.plain(fill.slot.index))
            return [equal(there, here)]

        def fine(a: Instance, b: Instance) -> Formula:
            if alone and not read.runs_on:
                return 1
            ways: list[Formula] = []
            for join, inside in self.asked.between(program, a, b, shared):
                done: Formula = 1
                if read.runs_on:
                    awaits = covered(self.asked, program, a, join, WGMMA)
                    done = any_of(*(w for _, w in awaits))
                ways.append(all_of(inside, done))
                if ways[-1] == 1:
                    return 1
            return any_of(*ways)

        says = "a slot may be refilled while it is read"
        self.asked.never(program, read.point, fill.point, fine, says, then=filler, when=same)
        if own is not None:
            self.asked.never(
                filler, fill.point, read.point, lambda a, b: 0, "refilled before it is read",
                then=program,
                when=lambda a, b: [
                    *same(b, a),
                    normal(fold(Kind.LT, program.at(b.point, b.vector, at),
                                filler.at(a.point, a.vector, own))),
                ],
            )  # fmt: skip

    def _released(
        self, read: Read, barrier: kir.MBarrier, fills: list[Fill], at: Expr, slots: int
    ) -> bool:
        """Ask that arrivals on an mbarrier free what a read has read, and only then."""
        _, other = self._spoken_for(read, barrier)
        if other is None:
            return False
        arrivals = _arrivals(other, barrier)
        ahead = any(_ahead(arrival, slots, read.point, at) for arrival in arrivals)
        wrong: Exception | None = None
        for shift in (slots, 0) if ahead else (0, slots):
            try:
                self._arrives(read, other, arrivals, fills, at, slots, shift)
            except (WitnessedError, UndecidedError) as error:
                wrong = wrong or error
            else:
                return True
        assert wrong is not None, "one was tried"
        raise wrong

    def _speaks_for(self, other: Program, read: Read) -> int:
        """Return how near threads are whose arrivals may stand for readers; 0 if none."""
        mine, theirs = read.program.kind, other.kind
        if other is read.program:
            return 1
        if set(mine.warps) <= set(theirs.warps):
            return 2
        if read.runs_on and mine.warpgroup is not None and mine.warpgroup == theirs.warpgroup:
            return 3
        return 4 if joins(read.program, other) and read.point.place.has(theirs) else 0

    def _arrives(
        self,
        read: Read,
        other: Program,
        arrivals: list[Point],
        fills: list[Fill],
        at: Expr,
        slots: int,
        shift: int,
    ) -> None:
        """Ask all about the arrivals of one kind of threads, `shift` positions behind."""
        program, point = read.program, read.point
        freed = {}
        for arrival in arrivals:
            stmt = arrival.stmt
            assert isinstance(stmt, kir.MBarrierArrive), "these only"
            found = position(arrival, slots, stmt.slot)
            if slots == 1 and found is None:
                found = at if arrival.loops == point.loops else None
            if found is None:
                raise UndecidedError(f"{arrival.where}: its slot is no position of a ring")
            freed[arrival] = normal(fold(Kind.SUB, found, shift))
        vector = program.fresh(point, "a")
        target = program.at(point, vector, at)
        self.asked.holds(
            [*program.exists(point, vector), self._again(fills, target)],
            lambda: any_of(
                *(
                    holds
                    for arrival in arrivals
                    for _, holds in self._solved(other, arrival, freed[arrival], target, vector)
                )
            ),
            f"no arrival frees what is read: {Instance(point, vector)}",
        )

        for arrival in arrivals:
            own = freed[arrival]
            moment = other.fresh(arrival, "a")
            self.asked.holds(
                other.exists(arrival, moment),
                lambda a=arrival, m=moment, p=own: normal(fold(Kind.LE, 0, other.at(a, m, p))),  # type: ignore[misc]
                f"frees what nobody has read yet: {Instance(arrival, moment)}",
            )

            def same(a: Instance, b: Instance, own: Expr = own) -> list[Formula]:
                free, of = other.at(a.point, a.vector, own), program.at(b.point, b.vector, at)
                return [_at_most(of, free), _alike(free, of, slots), self._again(fills, of)]

            self.asked.never(
                other, arrival, point, lambda a, b: 0, "freed before it is read",
                then=program, when=same,
            )  # fmt: skip

            def fine(a: Instance, b: Instance) -> Formula:
                return self._over(read, other, a, b)

            self.asked.never(
                program, point, arrival, fine, "a slot is freed while it may still be read",
                then=other,
                when=lambda a, b, own=own: [  # type: ignore[misc]
                    equal(
                        other.at(b.point, b.vector, own), program.at(a.point, a.vector, at)
                    ),
                    self._again(fills, program.at(a.point, a.vector, at)),
                ],
            )  # fmt: skip

    @staticmethod
    def _again_of(fill: Fill, own: Expr, target: Expr) -> Formula:
        """Return that some execution of a fill has a position."""
        vector = fill.program.fresh(fill.point, "again")
        there = equal(fill.program.at(fill.point, vector, own), target)
        return all_of(there, *fill.program.exists(fill.point, vector))

    def _again(self, fills: list[Fill], of: Expr) -> Formula:
        """Return that the slot of a position is filled for the next one."""
        slots = fills[0].slot.buffer.slots
        return any_of(*(self._again_of(f, self._filled(f), normal(of + slots)) for f in fills))

    def _over(self, read: Read, other: Program, a: Instance, b: Instance) -> Formula:
        """Return that a read is over for its threads, and known to those that arrive for them."""
        program = read.program
        alike = other is program or (read.runs_on and _warps(read.program, other))
        if read.runs_on:
            awaits = covered(self.asked, program, a, b, WGMMA)
            grouped = program.kind.warpgroup == other.kind.warpgroup is not None
            if alike or (grouped and not self.strict):
                return any_of(*(when for _, when in awaits))
        elif alike:
            return 1
        ways = []
        for join, inside in self.asked.between(program, a, b, joins(program, other, warp=True)):
            done: Formula = 1
            if read.runs_on:
                done = any_of(*(w for _, w in covered(self.asked, program, a, join, WGMMA)))
            ways.append(all_of(inside, done))
        return any_of(*ways)

    def _everywhere(self, free: list[kir.MBarrier], fill: Fill) -> None:
        """Ask of a multicast that other CTAs have been heard, too: by their readers, or a relay."""
        for barrier in free:
            for program in self.programs:
                for point in program.points:
                    match point.stmt:
                        case kir.MBarrierArrive(of, slot, _, cta) if of == barrier:
                            if cta is not None and self._relays(program, point, slot, free):
                                return
                        case _:
                            pass
        raise UndecidedError(f"{fill.point.where}: it does not wait for the other CTAs")

    def _relays(self, program: Program, point: Point, slot: Expr, free: list[kir.MBarrier]) -> bool:
        """Whether a remote arrival is a reader's own, or follows a wait for those of its CTA."""
        if not any(isinstance(p.stmt, kir.MBarrierWaitParity) for p in program.points):
            return False
        if any(isinstance(s, kir.Wgmma) for s in (p.stmt for p in program.points)):
            return True
        one = Instance(point, program.fresh(point, "a"))
        for barrier in free:
            at = position(point, barrier.slots, slot)
            if at is None:
                continue
            facts = list(program.exists(point, one.vector))
            self.asked.assume(facts)
            ways = any_of(*(h for _, h in self._reported(program, one, barrier, at, 0)))
            if ways != 0 and self._proved(facts, ways):
                return True
        return False


def _waits_of(program: Program) -> tuple[int, ...]:
    """Return the syncs and assignments of a kind of threads that say something of operands."""
    if not program.relevant:
        program.relevant = tuple(p.number for p in program.points if _matters(p.stmt))
    return program.relevant


def _joined_by_warp(program: Program) -> int:
    """Return which threads they are, where it matters whom a join of each warp joins; else 0."""
    joined = any(isinstance(p.stmt, kir.WarpSync) for p in program.points)
    return program.kind.index + 1 if joined else 0


def _matters(stmt: kir.Stmt | None) -> bool:
    match stmt:
        case kir.AsyncCommit(kind) | kir.AsyncAwait(kind):
            return kind is not kir.AsyncKind.BULK
        case kir.FenceAsyncProxy(space):
            return space is not kir.Space.GLOBAL
        case kir.MBarrierWaitParity() | kir.CpAsyncMBarrierArrive() | kir.Assign():
            return True
        case _:
            return isinstance(stmt, JOINS)


def _warps(one: Program, two: Program) -> bool:
    return set(one.kind.warps) <= set(two.kind.warps)


def _at_most(a: Expr, b: Expr) -> Expr:
    apart = difference(a, b)
    return normal(fold(Kind.LE, a, b)) if apart is None else int(apart <= 0)


def _alike(a: Expr, b: Expr, slots: int) -> Expr:
    """Return that two positions have one slot."""
    apart = difference(a, b)
    if apart is not None:
        return int(apart % slots == 0)
    return equal(normal(fold(Kind.MOD, a, slots)), normal(fold(Kind.MOD, b, slots)))


def _mentions(expr: Expr, part: Expr) -> bool:
    if expr == part:
        return True
    return isinstance(expr, Op) and (_mentions(expr.a, part) or _mentions(expr.b, part))


def _ahead(arrival: Point, slots: int, point: Point, at: Expr) -> bool:
    """Whether an arrival names a later position than is read in its iteration.

    It frees an earlier one then, `(p + S - 1) % S` for the one before.
    """
    stmt = arrival.stmt
    assert isinstance(stmt, kir.MBarrierArrive), "these only"
    found = position(arrival, slots, stmt.slot)
    if found is None or arrival.loops != point.loops:
        return False
    return (difference(found, at) or 0) > 0


def _arrivals(program: Program, barrier: kir.MBarrier) -> list[Point]:
    return [
        p
        for p in program.points
        if isinstance(p.stmt, kir.MBarrierArrive) and p.stmt.barrier == barrier
    ]


def _fills(program: Program) -> Iterator[Fill]:
    """Give what threads of a kind fill; each cp.async with the arrival that reports it, if any."""
    for number, point in enumerate(program.points):
        match point.stmt:
            case kir.TmaLoad(slot, _, barrier, at):
                yield Fill(program, point, slot, barrier, at, point)
            case kir.CpAsync(slot):
                for later in program.points[number + 1 :]:
                    if later.frames != point.frames:
                        continue
                    match later.stmt:
                        case kir.CpAsyncMBarrierArrive(barrier, at):
                            yield Fill(program, point, slot, barrier, at, later)
                            break
                        case kir.AsyncCommit(kir.AsyncKind.CP_ASYNC):
                            yield Fill(program, point, slot, None, 0, point)
                            break
                        case _:
                            pass
                else:
                    yield Fill(program, point, slot, None, 0, point)
            case kir.Store(kir.Slot() as slot):
                yield Fill(program, point, slot, None, 0, point)
            case _:
                pass
