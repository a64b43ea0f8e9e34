"""`mma-operand-coverage`: a slot that an mma reads is full, and is not refilled before it is read.

The n-th use of slot s of a ring of S slots has *position* `n * S + s`: fills, waits, reads and
arrivals that mean the same use have the same one.  What a statement means is read off its slot and
parity, and off the waits around it; any reading will do of which z3 proves that, in the program of
one kind of threads, the positions of one slot rise from its first use on.  Then an arrival (or a
fill) is counted in no later phase than its position says.  Asked is, for every read at position r,

- full: some fill has position r; before the read stands a wait for phase r // S of the mbarrier on
  which the fill is reported, by these threads or by some that they join since.  Of a fill by
  threads: the await of its group, then an arrival and such a wait, or a join; where wgmma reads
  what ordinary stores or cp.async have written, with a proxy fence on the way;
- not refilled: every fill of the slot at a later position follows a wait for an earlier phase of an
  mbarrier; arrivals in phase r // S of that one follow the end of the read (of a wgmma, the await
  of its group), by these threads, some that they join, or a relay that has waited for those; where
  the fill is multicast, from each CTA that it reaches.  Or a join stands between the end of the
  read and the fill.

That a wait returns in the phase that its parity means (arrivals and bytes add up, none is lapped)
and what else lies in the same bytes at other times are not asked here.

Source: PTX ISA, "mbarrier", "wgmma.wait_group", "cp.async.wait_group".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from fuser.expr import Expr, Kind, Op, Var, eq, fold, substitute, variables
from fuser.kernel import ir as kir
from oracles.prover.named.drain import JOINS, joins
from oracles.prover.named.program import Point, Program, Vector, difference, normal, repeated
from oracles.prover.named.question import Asked, Instance, UndecidedError, WitnessedError
from oracles.prover.named.results import covered
from oracles.prover.sites import Overlaps, every, fragments, operand, ordinary, storage
from oracles.prover.solver import Formula, all_of, any_of

NAME = "mma-operand-coverage"
WGMMA, CP_ASYNC = kir.AsyncKind.WGMMA, kir.AsyncKind.CP_ASYNC
RELAYS = 1
"""Roles that may stand between the readers of a slot and who refills it, at most."""

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
    operands = _operands(programs[0].kernel)
    rings = _Rings(asked, programs, strict=strict)
    for program in programs:
        for point in program.points:
            for stmt, slot in operands:
                if stmt is point.stmt:
                    rings.read(Read(program, point, slot))


class _Rings:
    """The fills and waits of a kernel, and the questions about them."""

    def __init__(self, asked: Asked, programs: list[Program], *, strict: bool) -> None:
        self.asked, self.programs, self.strict = asked, programs, strict
        kernel = programs[0].kernel
        self.fills = [fill for program in programs for fill in _fills(program)]
        self._doers = Counter(point.number for program in programs for point in program.points)
        self._sites = every(kernel)
        self._storage = storage(kernel.buffers)
        self._overlaps = Overlaps(tuple(p.kind for p in programs), kernel.threads)
        self._live = {s.barrier for s in kernel.walk() if isinstance(s, kir.MBarrierInit)}
        self._known: dict[object, Mapping[int, Expr]] = {}
        self._rooms: dict[object, list[kir.MBarrier]] = {}
        self._seen: set[object] = set()
        self._sorts = {p.kind.index: _sort(p) for p in programs}

    # --- positions ------------------------------------------------------------------------------

    def _readings(
        self, program: Program, point: Point, slots: int, index: Expr
    ) -> Iterator[Expr]:
        """Give positions that a statement may mean by a slot."""
        slot = point.plain(index)
        match slot:
            case Op(Kind.MOD, inner, n) if n == slots:
                yield from (normal(inner + by) for by in (-slots, 0, slots))
        for wait in reversed(_waits(program)):
            stmt = wait.stmt
            assert isinstance(stmt, kir.MBarrierWaitParity), "a wait"
            around = wait.shared(point) == len(wait.loops) and wait.number < point.number
            if around and difference(wait.plain(stmt.slot), slot) == 0:
                phase = _halves(wait.plain(stmt.parity))
                if phase is not None and stmt.barrier.slots == slots:
                    yield from (normal((phase + by) * slots + slot) for by in (-1, 0, 1))
        number = _ordinal(point)
        if number is not None:
            yield normal(fold(Kind.FLOORDIV, number, slots) * slots + slot)
        yield slot

    def _rising(
        self, program: Program, uses: Iterable[tuple[Point, Expr]], slots: int
    ) -> Mapping[int, Expr]:
        """Return positions of all uses of a ring by a program, by point; none if none is proved."""
        found = [(point, index, point.plain(index)) for point, index in uses]
        key = slots, tuple((p.number, at, *(f.test for f in p.frames)) for p, _, at in found)
        if key not in self._known:
            chosen: list[tuple[Point, Expr]] = []
            for point, index, _ in found:
                for at in dict.fromkeys(self._readings(program, point, slots, index)):
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

        return self._sure(ask)

    def _in_order(
        self, program: Program, first: Point, x: Expr, second: Point, y: Expr, slots: int
    ) -> None:
        def ask(*, slot: bool) -> None:
            def when(a: Instance, b: Instance) -> list[Formula]:
                one = program.at(a.point, a.vector, x)
                two = program.at(b.point, b.vector, y)
                return [_at_most(two, one), *([_alike(one, two, slots)] if slot else [])]

            self.asked.never(program, first, second, lambda a, b: 0, "out of order", when=when)

        if slots == 1 or not self._sure(lambda: ask(slot=False)):
            ask(slot=True)

    def _sure(self, ask: Callable[[], None]) -> bool:
        """Whether all that is asked is proved; no answer is no."""
        try:
            ask()
        except (WitnessedError, UndecidedError):
            return False
        return True

    def _filled(self, fill: Fill) -> Expr | None:
        """Return the position of a fill, if it has one for sure."""
        buffer = fill.slot.buffer
        mine = [f for f in self.fills if f.program is fill.program and f.slot.buffer == buffer]
        uses = [(f.report, f.at) if f.barrier else (f.point, f.slot.index) for f in mine]
        found = self._rising(fill.program, uses, buffer.slots)
        return found.get((fill.report if fill.barrier else fill.point).number)

    def _arrivals(self, program: Program, barrier: kir.MBarrier) -> list[tuple[Point, Expr]]:
        """Return the arrivals of threads on an mbarrier, with their positions."""
        points = [
            (p, p.stmt.slot)
            for p in program.points
            if isinstance(p.stmt, kir.MBarrierArrive) and p.stmt.barrier == barrier
        ]
        by_cta: dict[object, list[tuple[Point, Expr]]] = {}
        for point, slot in points:
            by_cta.setdefault(getattr(point.stmt, "cta", None), []).append((point, slot))
        found = [self._rising(program, uses, barrier.slots) for uses in by_cta.values()]
        known = {number: at for one in found for number, at in one.items()}
        return [(point, known[point.number]) for point, _ in points if point.number in known]

    def _near(
        self, program: Program, point: Point, at: Expr, target: Expr, one: Instance
    ) -> Iterator[Vector]:
        """Give instances of a point that may be at a position, or follow soon after another one."""
        deep = len(point.loops)
        found = (*one.vector, *(0,) * deep)[:deep]
        if deep:
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

    # --- a read ---------------------------------------------------------------------------------

    def read(self, read: Read) -> None:
        """Ask all about one read, for some position that it may mean."""
        fills = self._of(read.slot.buffer)
        if not fills:
            raise UndecidedError(f"{read.point.where}: no fill of {read.slot.buffer.name} is known")
        known = {self._fill_key(read, fill): fill for fill in reversed(fills)}
        key = read.point.number, read.slot, self._sort(read.program), self._speakers(read)
        if (key, frozenset(known)) in self._seen:
            return
        self._seen.add((key, frozenset(known)))
        fills = list(reversed(known.values()))
        for fill in fills:
            stmt = fill.point.stmt
            slot = fill.report.plain(fill.at), fill.point.plain(fill.slot.index)
            if fill.barrier is not None and fill.barrier.slots != fill.slot.buffer.slots:
                raise UndecidedError(f"{fill.point.where}: as many slots of the mbarrier are not")
            if fill.barrier is not None and difference(*slot) != 0:
                raise UndecidedError(f"{fill.point.where}: its slot is not that of its mbarrier")
            if fill.slot.cta is not None or read.slot.cta is not None:
                raise UndecidedError(f"{read.point.where}: another CTA's slot: {stmt}")
        wrong: Exception | None = None
        slots = read.slot.buffer.slots
        readings = self._readings(read.program, read.point, slots, read.slot.index)
        for at in dict.fromkeys(readings):
            try:
                self._read(read, fills, at)
            except (WitnessedError, UndecidedError) as error:
                wrong = wrong or error
            else:
                return
        assert wrong is not None, "one was tried"
        raise wrong

    def _of(self, buffer: kir.Buffer) -> list[Fill]:
        """Return the fills of a buffer; if it has none, those of buffers over the same bytes.

        Slot i of such a buffer lies in the bytes of slot i and of no other one.
        """
        own = [fill for fill in self.fills if fill.slot.buffer == buffer]
        if own:
            return own
        found = [fill for fill in self.fills if fill.slot.buffer.shares(buffer)]
        for fill in found:
            other = fill.slot.buffer
            for i in range(buffer.slots):
                start, end = buffer.start(i), buffer.start(i) + buffer.slot_nbytes
                inside = other.slots == buffer.slots and other.start(i) <= start
                if not inside or end > other.start(i) + other.slot_nbytes:
                    raise UndecidedError(f"{buffer.name} is no view of {other.name}, slot by slot")
        return found

    def _read(self, read: Read, fills: list[Fill], at: Expr) -> None:
        self._exists(read, fills, at)
        barriers = {f.barrier for f in fills}
        if None not in barriers:
            for barrier in barriers:
                assert barrier is not None, "all have one"
                self._waited(read, barrier, at)
        for fill in fills:
            if self._apart(read, fill):
                continue
            if fill.barrier is None:
                self._joined(read, fill, at)
            elif not isinstance(fill.point.stmt, kir.TmaLoad) and read.runs_on:
                self._fenced(read, fill, at)
            self._refilled(read, fill, at)

    # --- kinds of threads of which the same is asked --------------------------------------------

    def _sort(self, program: Program) -> object:
        return self._sorts[program.kind.index]

    def _different(
        self, how: Callable[[Program], object], first: Program | None = None
    ) -> list[Program]:
        """Return one program of each sort, and of each answer; one of them first."""
        programs = self.programs if first is None else [first, *self.programs]
        found = {(self._sort(p), how(p)): p for p in reversed(programs)}
        return list(reversed(found.values()))

    def _fill_key(self, read: Read, fill: Fill) -> object:
        """Return what tells fills apart, as far as a read is concerned."""
        mine = fill.program is read.program, self._alone(fill.point, fill.program)
        return fill.point.number, self._sort(fill.program), mine, self._apart(read, fill)

    def _speakers(self, read: Read) -> frozenset[object]:
        """Return what tells apart the threads whose arrivals may stand for readers."""
        return frozenset(
            (self._stands_for(read, other), self._sort(other), arrivals)
            for other in self.programs
            if (arrivals := _numbers(other, _arrives))
        )

    def _stands_for(self, read: Read, other: Program) -> tuple[bool, bool]:
        """Whether threads are the readers, all of their warps included; or one warpgroup."""
        mine, theirs = read.program.kind, other.kind
        inside = read.runs_on and set(mine.warps) <= set(theirs.warps)
        grouped = mine.warpgroup == theirs.warpgroup is not None
        return other is read.program or inside, read.runs_on and grouped and not self.strict

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
        rows = operand(site, self._storage)
        filled = ordinary(self._sites[fill.point.number], self._storage)
        if rows is None or filled is None:
            return False
        found = self._overlaps.between(filled, rows[1])
        kinds = {p.kind.index for p in self.programs if p.kind.warpgroup in (mine, None)}
        return not any((fill.program.kind.index, kind) in found for kind in kinds)

    # --- full before it is read -----------------------------------------------------------------

    def _exists(self, read: Read, fills: list[Fill], at: Expr) -> None:
        """Ask that each read has a fill of its position; a multicast is by the CTA that does it."""
        program = read.program
        one = Instance(read.point, program.fresh(read.point, "a"))
        target = program.at(read.point, one.vector, at)

        def there(fill: Fill) -> Formula:
            own = self._filled(fill)
            if own is None:
                return int(fill.barrier is None and isinstance(fill.point.stmt, kir.Store))
            for vector in self._near(fill.program, fill.point, own, target, one):
                same = equal(fill.program.at(fill.point, vector, own), target)
                return all_of(same, *_sure_of(fill.program, fill.point, vector))
            return 0

        self.asked.holds(
            program.exists(read.point, one.vector),
            lambda: any_of(*map(there, fills)),
            f"nothing fills what is read: {one}",
        )

    def _reported(
        self, program: Program, one: Instance, barrier: kir.MBarrier, target: Expr, lag: int
    ) -> Iterator[tuple[Instance, Formula]]:
        """Give the waits before an instance for the phase of a position, less `lag` phases."""
        slots = barrier.slots
        phase = fold(Kind.ADD, fold(Kind.FLOORDIV, target, slots), lag)
        for wait in _waits(program) if barrier in self._live else ():
            stmt = wait.stmt
            assert isinstance(stmt, kir.MBarrierWaitParity), "a wait"
            if stmt.barrier != barrier:
                continue
            shared = wait.shared(one.point)
            for vector in program.preceding(one.point, one.vector, wait, self.asked.reach):
                now = vector[:shared] == one.vector[:shared] and shared == len(wait.loops)
                where = Instance(wait, vector)
                slot = program.at(wait, vector, wait.plain(stmt.slot))
                parity = program.at(wait, vector, wait.plain(stmt.parity))
                means: list[Formula] = [
                    equal(slot, normal(fold(Kind.MOD, target, slots))),
                    equal(parity, normal(fold(Kind.MOD, phase, 2))),
                ]
                if not now:
                    back = normal(fold(Kind.SUB, target, slots * lag))
                    meant = _meant(wait, slots)
                    if meant is None:
                        continue
                    means.append(equal(program.at(wait, vector, meant), back))
                before = self.asked.before(where, one)
                holds = all_of(before, self.asked.exists(program, where), *means)
                if holds != 0:
                    yield where, holds

    def _heard(
        self, program: Program, one: Instance, barrier: kir.MBarrier, target: Expr, lag: int = 0
    ) -> Formula:
        """Return that threads, or some that they join, wait for the phase of a position."""
        ways: list[Formula] = []
        for mate in self._different(lambda p: p is program, first=program):
            for where, holds in self._reported(mate, one, barrier, target, lag):
                if mate is not program:
                    met = self.asked.between(program, where, one, joins(program, mate))
                    holds = all_of(holds, any_of(*(when for _, when in met)))
                ways.append(holds)
            if 1 in ways:
                return 1
        return any_of(*ways)

    def _waited(self, read: Read, barrier: kir.MBarrier, at: Expr) -> None:
        """Ask that the threads, or some that they join, have waited for a fill."""
        program, point = read.program, read.point
        one = Instance(point, program.fresh(point, "a"))
        target = program.at(point, one.vector, at)
        self.asked.holds(
            program.exists(point, one.vector),
            lambda: self._heard(program, one, barrier, target),
            f"no wait covers what is read: {one}",
        )

    def _joined(self, read: Read, fill: Fill, at: Expr) -> None:
        """Ask that a fill by threads is complete, and its threads join the readers."""
        program, filler, slots = read.program, fill.program, fill.slot.buffer.slots
        copies = isinstance(fill.point.stmt, kir.CpAsync)
        own = self._filled(fill) if copies or slots > 1 else None
        if own is None and (copies or slots > 1):
            raise UndecidedError(f"{fill.point.where}: its slot is no position of a ring")

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
        """Ask that what cp.async reports on an mbarrier is fenced behind the wait: only there."""
        program, point, barrier = read.program, read.point, fill.barrier
        one = Instance(point, program.fresh(point, "a"))
        assert barrier is not None, "it is reported"

        def behind() -> Formula:
            target = program.at(point, one.vector, at)
            return any_of(
                *(
                    all_of(holds, any_of(*(w for _, w in self._fences(program, where, one))))
                    for where, holds in self._reported(program, one, barrier, target, 0)
                )
            )

        facts = program.exists(point, one.vector)
        self.asked.holds(facts, behind, f"no proxy fence covers what is read: {one}")

    # --- not refilled before it is read ---------------------------------------------------------

    def _refilled(self, read: Read, fill: Fill, at: Expr) -> None:
        """Ask that a fill waits for earlier reads of its slot, or stands behind a join."""
        own = self._filled(fill)
        key = fill.point.number, self._sort(fill.program), own
        if own is not None and key not in self._rooms:
            self._rooms[key] = self._waited_for(fill, own)
        rooms = self._rooms.get(key, [])
        if own is None or not rooms:
            if own is None or not self._first(fill, own):
                self._in_turn(read, fill, own, at)
            return
        program, slots, kernel = read.program, fill.slot.buffer.slots, read.program.kernel
        one = Instance(read.point, program.fresh(read.point, "a"))
        target = program.at(read.point, one.vector, at)
        vector = fill.program.fresh(fill.point, "again")
        turns = Var("turns between")
        later = [
            *fill.program.exists(fill.point, vector),
            equal(fill.program.at(fill.point, vector, own), normal(target + turns * slots)),
        ]
        by: Expr | None = None
        mask = fill.point.stmt.multicast if isinstance(fill.point.stmt, kir.TmaLoad) else None
        facts = [*program.exists(read.point, one.vector), normal(fold(Kind.LE, 1, turns))]
        if mask is not None:
            by = Var("rank of the CTA that fills")
            mine = normal(kir.BLOCK % kernel.cluster)
            block = normal(kir.BLOCK - mine + by)
            later = [normal(substitute(expr, {kir.BLOCK: block})) for expr in later]
            facts.append(normal(by < kernel.cluster))
            if isinstance(mask, int):
                ranks = [r for r in range(kernel.cluster) if mask >> r & 1]
                facts.append(any_of(*(normal(eq(mine, r)) for r in ranks)))
        known = read.point.number, self._sort(program), self._speakers(read)
        if (known, *facts, *later, *rooms) in self._seen:
            return
        self._seen.add((known, *facts, *later, *rooms))
        self.asked.holds(
            [*facts, *later],
            lambda: any_of(*(self._freed(read, one, target, room, by) for room in rooms)),
            f"a slot may be refilled while it is read: {one}, then {fill.point.where}",
        )

    def _first(self, fill: Fill, own: Expr) -> bool:
        """Whether a fill is never a refill."""
        program = fill.program
        vector = program.fresh(fill.point, "a")
        first = normal(fold(Kind.LT, program.at(fill.point, vector, own), fill.slot.buffer.slots))
        facts = list(program.exists(fill.point, vector))
        return self._sure(lambda: self.asked.holds(facts, lambda: first, "a refill", most=1))

    def _waited_for(self, fill: Fill, own: Expr) -> list[kir.MBarrier]:
        """Return the mbarriers whose phase before that of its position a fill waits for."""
        program, slots = fill.program, fill.slot.buffer.slots
        one = Instance(fill.point, program.fresh(fill.point, "a"))
        target = program.at(fill.point, one.vector, own)
        facts = [*program.exists(fill.point, one.vector), normal(fold(Kind.LE, slots, target))]
        return [
            room
            for room in program.kernel.barriers
            if room != fill.barrier
            and room.slots == slots
            and self._sure(
                lambda room=room: self.asked.holds(  # type: ignore[misc]
                    facts, lambda: self._heard(program, one, room, target, 1), "no room"
                )
            )
        ]

    def _freed(
        self, read: Read, one: Instance, target: Expr, room: kir.MBarrier, by: Expr | None,
        relays: int = RELAYS,
    ) -> Formula:  # fmt: skip
        """Return that an arrival in the phase of a position, or before, follows the read.

        It is on an mbarrier of this CTA, or of the one of a rank.
        """
        ways: list[Formula] = []
        for other in self._different(lambda p: (self._stands_for(read, p), _numbers(p, _arrives))):
            for arrival, own in self._arrivals(other, room):
                for vector in self._near(other, arrival, own, target, one):
                    there = Instance(arrival, vector)
                    at = other.at(arrival, vector, own)
                    sure = all_of(
                        _at_most(at, target),
                        _alike(at, target, room.slots),
                        _goes(other, there, by),
                        self.asked.exists(other, there),
                    )
                    if sure == 0:
                        continue
                    ways.append(all_of(sure, self._over(read, other, one, there)))
                    if ways[-1] == 1:
                        return 1
                    for first in read.program.kernel.barriers if relays else ():
                        if first == room or first.slots != room.slots:
                            continue
                        heard = any_of(*(h for _, h in self._reported(other, there, first, at, 0)))
                        if heard != 0:
                            freed = self._freed(read, one, target, first, None, relays - 1)
                            ways.append(all_of(sure, heard, freed))
        return any_of(*ways)

    def _over(self, read: Read, other: Program, a: Instance, b: Instance) -> Formula:
        """Return that a read is over for its threads, and known to those that arrive for them."""
        alike, grouped = self._stands_for(read, other)
        if read.runs_on and (alike or grouped):
            awaits = covered(self.asked, read.program, a, b, WGMMA)
            return any_of(*(when for _, when in awaits))
        if alike:
            return self.asked.before(a, b)
        return self._met(read, other, a, b, warp=True)

    def _met(
        self, read: Read, other: Program, a: Instance, b: Instance, *, warp: bool = False
    ) -> Formula:
        """Return that a join stands between the end of a read and something of other threads."""
        ways: list[Formula] = []
        program = read.program
        for join, inside in self.asked.between(program, a, b, joins(program, other, warp=warp)):
            done: Formula = 1
            if read.runs_on:
                done = any_of(*(w for _, w in covered(self.asked, program, a, join, WGMMA)))
            ways.append(all_of(inside, done))
            if ways[-1] == 1:
                return 1
        return any_of(*ways)

    def _in_turn(self, read: Read, fill: Fill, own: Expr | None, at: Expr) -> None:
        """Ask of a refill in the same role that a join leads from each read of the slot to it."""
        program, filler, slots = read.program, fill.program, read.slot.buffer.slots
        alone = self._alone(fill.point, filler, program) and self._alone(read.point, program)
        if not joins(program, filler) and not alone:
            raise UndecidedError(
                f"{fill.point.where}: nothing that it waits for is freed by the reads"
            )

        def same(x: Instance, f: Instance) -> list[Formula]:
            if slots == 1:
                return []
            there = program.at(x.point, x.vector, x.point.plain(read.slot.index))
            here = filler.at(f.point, f.vector, f.point.plain(fill.slot.index))
            return [equal(there, here)]

        def fine(a: Instance, b: Instance) -> Formula:
            return 1 if alone and not read.runs_on else self._met(read, filler, a, b)

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


def equal(a: Expr, b: Expr) -> Expr:
    """Return that two expressions are equal, at once where they differ by a number."""
    apart = difference(a, b)
    return normal(eq(a, b)) if apart is None else int(apart == 0)


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


def _sure_of(program: Program, point: Point, vector: Vector) -> Iterator[Formula]:
    """Give the conditions of a fill; a multicast is by the CTA that does it."""
    cast = isinstance(point.stmt, kir.TmaLoad) and point.stmt.multicast is not None
    own = normal(fold(Kind.MOD, kir.BLOCK, program.kernel.cluster))
    for condition in program.exists(point, vector):
        if not (cast and variables(condition) == {kir.BLOCK} and _mentions(condition, own)):
            yield condition


def _goes(program: Program, one: Instance, by: Expr | None) -> Formula:
    """Return that an arrival is on an mbarrier of this CTA, or of the one of a rank."""
    stmt = one.point.stmt
    assert isinstance(stmt, kir.MBarrierArrive), "these only"
    mine = normal(fold(Kind.MOD, kir.BLOCK, program.kernel.cluster))
    to = mine
    if stmt.cta is not None:
        to = program.at(one.point, one.vector, one.point.plain(stmt.cta))
    return equal(to, mine if by is None else by)


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


def _halves(parity: Expr) -> Expr | None:
    """Return the phase that a parity is that of, as it is written."""
    match parity:
        case int() | Op(Kind.MOD, _, 2):
            return parity if isinstance(parity, int) else parity.a
        case _:
            return None


def _meant(wait: Point, slots: int) -> Expr | None:
    """Return the position that a wait is for, as its slot and parity are written."""
    stmt = wait.stmt
    assert isinstance(stmt, kir.MBarrierWaitParity), "a wait"
    match wait.plain(stmt.slot):
        case Op(Kind.MOD, inner, n) if n == slots:
            return inner
        case slot:
            phase = _halves(wait.plain(stmt.parity))
            return None if phase is None else normal(fold(Kind.ADD, fold(Kind.MUL, phase, slots), slot))


def _sort(program: Program) -> object:
    """Return what tells threads apart by what they wait for, and by whom they join."""
    joined = any(isinstance(p.stmt, kir.WarpSync) for p in program.points)
    mates = program.kind.warps if joined else ()
    return _numbers(program, _matters), program.kind.warpgroup, mates


def _numbers(program: Program, of: Callable[[kir.Stmt | None], bool]) -> tuple[int, ...]:
    return tuple(p.number for p in program.points if of(p.stmt))


def _arrives(stmt: kir.Stmt | None) -> bool:
    return isinstance(stmt, kir.MBarrierArrive)


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


def _waits(program: Program) -> list[Point]:
    """Return the waits of threads that do not give up."""
    return [
        p for p in program.points if isinstance(p.stmt, kir.MBarrierWaitParity) and p.stmt.retry
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
