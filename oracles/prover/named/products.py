"""What an mma reads is full until it is read, and what it works on waits for its end.

`mma-operand-coverage` is asked for every read, at some position r of its ring (see `order`), that

- it is full: some fill has position r; before the read stands a wait for phase r // S of the
  mbarrier on which the fill is reported, by these threads or by some that they join since.  Of a
  fill by threads: the await of its group and a join; where wgmma reads what ordinary stores or
  cp.async have written, with a proxy fence on the way;
- it is not refilled: every fill of the slot at a later position follows a wait for an earlier phase
  of an mbarrier, and arrivals in phase r // S of that one follow the end of the read (of a wgmma,
  the await of its group), by these threads, some that they join, or a relay that has waited for
  those; where the fill is multicast, from each CTA that it reaches.  Or else a join stands between
  the end of the read and the fill.

What else lies in the same bytes at other times is not asked here.

`mma-result-coverage`: a wgmma writes its accumulator, and reads a fragment `a`, until its group is
awaited; each use of these follows that await (`order.covered`).

Source: PTX ISA, "mbarrier", "wgmma.wait_group", "cp.async.wait_group".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice

from fuser.expr import Expr, Kind, Var, eq, fold
from fuser.kernel import ir as kir
from oracles.prover.arithmetic import reworded
from oracles.prover.named.order import (
    Order,
    Work,
    alike,
    arrives,
    at_most,
    covered,
    equal,
    goes,
    joins,
    ordinal,
)
from oracles.prover.named.program import (
    Asked,
    Instance,
    Point,
    Program,
    UndecidedError,
    WitnessedError,
    difference,
    normal,
)
from oracles.prover.sites import Overlaps, every, fragments, operand, ordinary, storage
from oracles.prover.solver import Formula, all_of, any_of

WGMMA, CP_ASYNC = kir.AsyncKind.WGMMA, kir.AsyncKind.CP_ASYNC
QUEUE = kir.AsyncKind.QUEUE
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

    def work(self, at: Instance) -> Work:
        """Return what it is in one instance."""
        return Work(self.program, at, WGMMA if self.runs_on else None)


@dataclass(frozen=True, slots=True)
class Fill:
    """A point that fills a slot, with the mbarrier slot on which that is reported, if any."""

    program: Program
    point: Point
    slot: kir.Slot
    barrier: kir.MBarrier | None
    at: Expr
    report: Point

    @property
    def spot(self) -> object:
        """What tells it from fills of another buffer that are ordered as it is."""
        cast = getattr(self.point.stmt, "multicast", None)
        what = type(self.point.stmt), cast, self.slot.index, self.slot.cta, self.slot.buffer.slots
        return self.point.spot, self.report.spot, self.barrier, self.at, what


def operands(kernel: kir.Kernel) -> list[tuple[kir.Stmt, kir.Slot]]:
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
            if isinstance(stmt, kir.Compute | kir.Slice | kir.Unpack) and writes[0].name in feeding:
                feeding |= {fragment.name for fragment in reads}
    for stmt in statements:
        match stmt:
            case kir.Load(dst, kir.Slot() as slot) if dst.name in feeding:
                found.append((stmt, slot))
            case _:
                pass
    return found


def filled(asked: Asked, programs: list[Program]) -> None:
    """Ask z3 about each read of each operand."""
    rings, slots = Rings(asked, programs), operands(programs[0].kernel)
    for program in programs:
        for point in program.points:
            for stmt, slot in slots:
                if stmt is point.stmt:
                    rings.read(Read(program, point, slot))


class Rings(Order):
    """The fills and waits of a kernel, and the questions about them.

    Where `counted`, fills have positions even if there is only one slot.
    """

    counted = False

    def __init__(self, asked: Asked, programs: list[Program]) -> None:
        super().__init__(asked, programs)
        kernel = programs[0].kernel
        self.fills = [fill for program in programs for fill in _fills(program)]
        self._doers = Counter(point.number for program in programs for point in program.points)
        self._sites = every(kernel)
        self._storage = storage(kernel.buffers)
        self._overlaps = Overlaps(tuple(p.kind for p in programs), kernel.threads)
        self._rooms: dict[object, tuple[list[kir.MBarrier], Iterator[kir.MBarrier]]] = {}
        self._seen: set[object] = set()

    def _filled(self, fill: Fill) -> Expr | None:
        """Return the position of a fill, if it has one for sure."""
        buffer = fill.slot.buffer
        mine = [f for f in self.fills if f.program is fill.program and f.slot.buffer == buffer]
        uses = [(f.report, f.at) if f.barrier else (f.point, f.slot.index) for f in mine]
        found = self.rising(fill.program, uses, buffer.slots)
        return found.get((fill.report if fill.barrier else fill.point).number)

    # --- a read ---------------------------------------------------------------------------------

    def read(self, read: Read) -> None:
        """Ask all about one read, for some position that it may mean."""
        fills = self._of(read.slot.buffer)
        if not fills:
            raise UndecidedError(f"{read.point.where}: no fill of {read.slot.buffer.name} is known")
        known = {self._fill_key(read, fill): fill for fill in reversed(fills)}
        slot = read.slot.index, read.slot.cta, read.slot.buffer.slots
        what = read.runs_on, read.slot if self.counted else slot  # it may know more of a statement
        key = read.point.spot, what, self.sort(read.program), self._speakers(read)
        if (key, frozenset(known)) in self._seen:
            return
        self._seen.add((key, frozenset(known)))
        fills = list(reversed(known.values()))
        for fill in fills:
            stmt = fill.point.stmt
            both = fill.report.plain(fill.at), fill.point.plain(fill.slot.index)
            if fill.barrier is not None and fill.barrier.slots != fill.slot.buffer.slots:
                raise UndecidedError(f"{fill.point.where}: as many slots of the mbarrier are not")
            if fill.barrier is not None and difference(*both) != 0:
                raise UndecidedError(f"{fill.point.where}: its slot is not that of its mbarrier")
            if fill.slot.cta is not None or read.slot.cta is not None:
                raise UndecidedError(f"{read.point.where}: another CTA's slot: {stmt}")
        wrong: list[tuple[int, Exception]] = []
        slots = read.slot.buffer.slots
        readings = self.readings(read.program, read.point, slots, read.slot.index)
        for at in dict.fromkeys(readings):
            before = self.asked.count
            try:
                self._read(read, fills, at)
            except (WitnessedError, UndecidedError) as error:
                wrong.append((self.asked.count - before, error))
            else:
                return
        raise max(wrong, key=lambda one: one[0])[1]  # the one of which most was right

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

    def _fill_key(self, read: Read, fill: Fill) -> object:
        """Return what tells fills apart, as far as a read is concerned."""
        alone, mine = self._alone(fill.point, fill.program), fill.program.numbers(arrives)
        mine = (fill.program is read.program, alone, *mine)
        early, apart = fill.point.number < read.point.number, self._apart(read, fill)
        buffer = fill.slot.buffer
        row = [f for f in self.fills if f.program is fill.program and f.slot.buffer == buffer]
        return fill.spot, row.index(fill), early, self.sort(fill.program), mine, apart

    def _speakers(self, read: Read) -> frozenset[object]:
        """Return what tells apart the threads whose arrivals may stand for readers."""
        return frozenset(
            (self._stands_for(read, other), self.sort(other), arrivals)
            for other in self.programs
            if (arrivals := other.numbers(arrives))
        )

    def _stands_for(self, read: Read, other: Program) -> tuple[bool, bool]:
        """Whether threads are the readers, all of their warps included; or one warpgroup.

        Unless `strict`, one warp's arrival may stand for all four that wgmma started together.
        """
        mine, theirs = read.program.kind, other.kind
        inside = read.runs_on and set(mine.warps) <= set(theirs.warps)
        grouped = mine.warpgroup == theirs.warpgroup is not None
        return other is read.program or inside, read.runs_on and grouped and not self.asked.strict

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
            own, filler = self._filled(fill), fill.program
            if own is None:
                if fill.barrier is not None or fill.slot.buffer.slots > 1:
                    return 0
                near = filler.preceding(read.point, one.vector, fill.point, self.asked.reach)
                return any_of(*(all_of(*filler.exists(fill.point, v)) for v in near))
            for vector in self.near(fill.program, fill.point, own, target, one):
                place = filler.at(fill.point, vector, own)
                exists = filler.exists(fill.point, vector)
                if _cast(fill.point) is None:
                    return all_of(equal(place, target), *exists)
                kernel = filler.kernel
                ways = [
                    all_of(equal(_of_rank(place, rank, kernel), target),
                           *(_of_rank(condition, rank, kernel) for condition in exists))
                    for rank in range(kernel.cluster)
                ]  # fmt: skip
                return all_of(_reached(fill.point, kernel), any_of(*ways))
            return 0

        self.asked.holds(
            program.exists(read.point, one.vector),
            lambda: any_of(*map(there, fills)),
            f"nothing fills what is read: {one}",
        )

    def _waited(self, read: Read, barrier: kir.MBarrier, at: Expr) -> None:
        """Ask that the threads, or some that they join, have waited for a fill.

        Where neither the slot nor the loops spell its position, they have waited for the phase
        before it, too: a wait that is a phase ahead passes at once.
        """
        program, point, slots = read.program, read.point, barrier.slots
        one = Instance(point, program.fresh(point, "a"))
        target = program.at(point, one.vector, at)
        facts = list(program.exists(point, one.vector))
        heard = partial(self.heard, program, one, barrier)
        says = f"no wait covers what is read: {one}"
        self.asked.holds(facts, lambda: heard(target), says)
        spelled = point.plain(read.slot.index) == fold(Kind.MOD, at, slots)
        if slots == 1:
            first = program.at(point, (0,) * len(point.loops), at)
            spelled = first == 0 or difference(ordinal(point) or 0, at) == 0
        if not spelled:
            again = normal(fold(Kind.LE, slots, target))
            before = normal(fold(Kind.SUB, target, slots))
            self.asked.holds([*facts, again], lambda: heard(before), says)

    def _joined(self, read: Read, fill: Fill, at: Expr) -> None:
        """Ask that a fill by threads is complete, and its threads join the readers."""
        program, filler, slots = read.program, fill.program, fill.slot.buffer.slots
        copies = isinstance(fill.point.stmt, kir.CpAsync | kir.QueueCopy)
        own = self._filled(fill) if copies or slots > 1 or self.counted else None
        if own is None and (copies or slots > 1):
            raise UndecidedError(f"{fill.point.where}: its slot is no position of a ring")

        one, two = ((p.place.first, p.place.warps) for p in (fill.point, read.point))
        if own is not None and one != two:
            self._handed(read, fill, own, at)
            return

        def when(a: Instance, b: Instance) -> list[Formula]:
            if own is None:
                return []
            return [equal(filler.at(a.point, a.vector, own), program.at(b.point, b.vector, at))]

        def fine(a: Instance, b: Instance) -> Formula:
            if self._alone(fill.point, filler, program):
                return self._complete(read, fill, a, b)
            ways: list[Formula] = []
            for join, inside in self.asked.between(program, a, b, joins(program, filler)):
                late = self._fences(program, join, b)
                ways.append(all_of(inside, self._complete(read, fill, a, join, late)))
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

    def _complete(
        self, read: Read, fill: Fill, one: Instance, stop: Instance,
        late: Iterable[tuple[Instance, Formula]] = (),
    ) -> Formula:  # fmt: skip
        """Return that a fill by threads is awaited and fenced, some `late` fences included."""
        ends: list[tuple[Instance, Formula]] = [(one, 1)]
        if isinstance(fill.point.stmt, kir.CpAsync):
            ends = covered(self.asked, fill.program, one, stop, CP_ASYNC)
        if isinstance(fill.point.stmt, kir.QueueCopy):
            ends = covered(self.asked, fill.program, one, stop, QUEUE)
        if not read.runs_on or isinstance(fill.point.stmt, kir.QueueCopy):  # of the async proxy
            return any_of(*(holds for _, holds in ends))
        known = list(late)
        return any_of(
            *(
                all_of(
                    holds, any_of(*(w for _, w in (*self._fences(fill.program, end, stop), *known)))
                )
                for end, holds in ends
            )
        )

    def _handed(self, read: Read, fill: Fill, own: Expr, at: Expr) -> None:
        """Ask that a fill by another role is over, and fenced, before an arrival and a wait."""
        program, filler, slots = read.program, fill.program, fill.slot.buffer.slots
        one = Instance(read.point, program.fresh(read.point, "a"))
        two = Instance(fill.point, filler.fresh(fill.point, "b"))
        target = program.at(read.point, one.vector, at)
        place = filler.at(fill.point, two.vector, own)
        facts = [*program.exists(read.point, one.vector), *filler.exists(fill.point, two.vector)]

        def told(mid: Program, there: Instance) -> Formula:
            if mid is filler:
                return all_of(self.asked.before(two, there), self._complete(read, fill, two, there))
            met = self.asked.between(filler, two, there, joins(filler, mid))
            return any_of(*(all_of(i, self._complete(read, fill, two, j)) for j, i in met))

        def fine() -> Formula:
            ways: list[Formula] = []
            for barrier in program.kernel.barriers:
                heard = self.heard(program, one, barrier, target)
                mids = self.different(lambda p: (p is filler, p.numbers(arrives)))
                for mid in mids if heard != 0 else ():
                    for arrival, of in self.arrivals(mid, barrier):
                        for vector in self.near(mid, arrival, of, target, two):
                            there = Instance(arrival, vector)
                            where = mid.at(arrival, vector, of)
                            slot = at_most(where, target), alike(where, target, slots)
                            sure = goes(mid, there, None), self.asked.exists(mid, there)
                            ways.append(all_of(heard, *slot, *sure, told(mid, there)))
            return any_of(*ways)

        says = f"nothing says that a fill is over: {two}"
        self.asked.holds([*facts, equal(place, target)], fine, says, one)

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
                    for where, holds in self.reported(program, one, barrier, target, 0)
                )
            )

        facts = program.exists(point, one.vector)
        self.asked.holds(facts, behind, f"no proxy fence covers what is read: {one}")

    # --- not refilled before it is read ---------------------------------------------------------

    def _refilled(self, read: Read, fill: Fill, at: Expr) -> None:
        """Ask that a fill waits for earlier reads of its slot, or stands behind a join."""
        own = self._filled(fill)
        key = fill.point.number, self.sort(fill.program), own
        if own is not None and key not in self._rooms:
            found = self._waited_for(fill, own)
            self._rooms[key] = list(islice(found, 1)), found
        rooms, others = self._rooms.get(key, ([], iter(())))
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
        facts: list[Formula] = [*program.exists(read.point, one.vector)]
        facts.append(normal(fold(Kind.LE, 1, turns)))
        if cast := _cast(fill.point) is not None:
            by = Var("rank of the CTA that fills")
            later = [_of_rank(expr, by, kernel) for expr in later]
            facts += [normal(by < kernel.cluster), _reached(fill.point, kernel)]
        known = read.point.number, self.sort(program), self._speakers(read)
        if (known, *facts, *later, *rooms) in self._seen:
            return
        self._seen.add((known, *facts, *later, *rooms))

        asked = self.asked
        built: dict[object, Formula] = {}

        def fine() -> Formula:
            key = asked.reach, len(rooms)
            if key not in built:
                freed = (self._freed(read, one, target, room, by) for room in rooms)
                built[key] = any_of(*freed)
            return built[key]

        says = f"a slot may be refilled while it is read: {one}, then {fill.point.where}"
        whole = partial(asked.holds, [*facts, *later], fine, says)
        cases = list(self._rounds_to_go(program, one))

        def freed() -> bool:
            near = self.sure(partial(whole, most=1))
            return near or asked.holds_in(cases, [*facts, *later], fine)

        if cast:
            rooms += others  # what is free in this CTA is free in others if a relay says so
        if freed():
            return
        if more := list(others):
            rooms += more
            if freed():
                return
        whole()

    def _rounds_to_go(self, program: Program, one: Instance) -> Iterator[Expr]:
        """Give the cases of how many rounds of the innermost loop are to go: none, one, or many.

        An arrival for the last reads of a loop stands behind it: what says that they are over is
        simple in each case, and too much for z3 at once.
        """
        if one.vector:
            *outer, now = one.vector
            stop = program.at(one.point, (*outer, 0), one.point.loops[-1].test)
            for rounds in range(self.asked.most):
                yield normal(eq(now + 1 + rounds, stop))
            yield normal(fold(Kind.LT, now + self.asked.most, stop))
        else:
            yield 1

    def _first(self, fill: Fill, own: Expr) -> bool:
        """Whether a fill is never a refill."""
        program = fill.program
        vector = program.fresh(fill.point, "a")
        first = normal(fold(Kind.LT, program.at(fill.point, vector, own), fill.slot.buffer.slots))
        facts = list(program.exists(fill.point, vector))
        return self.sure(lambda: self.asked.holds(facts, lambda: first, "a refill", most=1))

    def _waited_for(self, fill: Fill, own: Expr) -> Iterator[kir.MBarrier]:
        """Give the mbarriers whose phase before that of its position a fill waits for.

        Those that are waited for in its own iteration come first: mostly one of them is enough.
        """
        program, slots = fill.program, fill.slot.buffer.slots
        one = Instance(fill.point, program.fresh(fill.point, "a"))
        target = program.at(fill.point, one.vector, own)
        facts = [*program.exists(fill.point, one.vector), normal(fold(Kind.LE, slots, target))]
        # only an arrival of threads frees a slot
        arrived = [s.barrier for s in program.kernel.walk() if isinstance(s, kir.MBarrierArrive)]
        near = [
            p.stmt.barrier
            for p in program.points
            if isinstance(p.stmt, kir.MBarrierWaitParity)
            and p.number < fill.point.number
            and p.shared(fill.point) == len(p.loops) == len(fill.point.loops)
        ]
        for room in sorted(dict.fromkeys(arrived), key=lambda room: room not in near):
            if room == fill.barrier or room.slots != slots:
                continue
            if self.sure(
                lambda room=room: self.asked.holds(  # type: ignore[misc]
                    facts, lambda: self.heard(program, one, room, target, 1), "no room"
                )
            ):
                yield room

    def _freed(
        self, read: Read, one: Instance, target: Expr, room: kir.MBarrier, by: Expr | None,
        relays: int = RELAYS,
    ) -> Formula:  # fmt: skip
        """Return that an arrival in the phase of a position, or before, follows the read.

        It is on an mbarrier of this CTA, or of the one of a rank.
        """
        ways: list[Formula] = []
        for other in self.different(lambda p: (self._stands_for(read, p), p.numbers(arrives))):
            for arrival, own in self.arrivals(other, room):
                for vector in self.near(other, arrival, own, target, one):
                    there = Instance(arrival, vector)
                    at = other.at(arrival, vector, own)
                    sure = all_of(
                        at_most(at, target),
                        alike(at, target, room.slots),
                        goes(other, there, by),
                        self.asked.exists(other, there),
                    )
                    if sure == 0:
                        continue
                    ways.append(all_of(sure, self._over(read, other, one, there)))
                    if ways[-1] == 1:
                        return 1
                    for first in self.waited(other) if relays else ():
                        if first == room or first.slots != room.slots:
                            continue
                        heard = any_of(*(h for _, h in self.reported(other, there, first, at, 0)))
                        if heard != 0:
                            freed = self._freed(read, one, at, first, None, relays - 1)
                            ways.append(all_of(sure, heard, freed))
        return any_of(*ways)

    def _over(self, read: Read, other: Program, a: Instance, b: Instance) -> Formula:
        """Return that a read is over for its threads, and known to those that arrive for them."""
        alike, grouped = self._stands_for(read, other)
        work = read.work(a)
        return self.over(work, b) if alike or grouped else self.met(work, other, b, warp=True)

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
            return 1 if alone and not read.runs_on else self.met(read.work(a), filler, b)

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


def _cast(point: Point) -> Expr | None:
    """Return the mask of the CTAs of its cluster that a fill reaches, if it is a multicast."""
    return point.stmt.multicast if isinstance(point.stmt, kir.TmaLoad) else None


def _reached(point: Point, kernel: kir.Kernel) -> Formula:
    """Return that this CTA is one of those that a multicast reaches."""
    mask, many = _cast(point), kernel.cluster
    if not isinstance(mask, int):
        raise UndecidedError(f"{point.where}: whom it reaches is no number")
    mine = normal(kir.BLOCK % many)
    return any_of(*(normal(eq(mine, rank)) for rank in range(many) if mask >> rank & 1))


def _of_rank(expr: Expr, rank: Expr, kernel: kir.Kernel) -> Expr:
    """Return what is an expression of one CTA for that one of its cluster that has a rank."""
    mine, cluster = kir.BLOCK % kernel.cluster, kir.BLOCK // kernel.cluster
    words = {mine: rank, cluster: cluster, kir.BLOCK: kir.BLOCK - mine + rank}
    return normal(reworded(expr, words))


def _fills(program: Program) -> Iterator[Fill]:
    """Give what threads of a kind fill; each cp.async with the arrival that reports it, if any."""
    for number, point in enumerate(program.points):
        match point.stmt:
            case kir.TmaLoad(slot, _, barrier, at) | kir.StAsync(slot, _, barrier, at):
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
            case kir.Store(kir.Slot() as slot) | kir.QueueCopy(slot):
                yield Fill(program, point, slot, None, 0, point)
            case _:
                pass


# --- mma-result-coverage ------------------------------------------------------------------------


def awaited(asked: Asked, programs: list[Program]) -> None:
    """Ask z3 about each wgmma and each use of what it works on."""
    seen: set[tuple[int, ...]] = set()
    for program in programs:
        products = [p for p in program.points if isinstance(p.stmt, kir.Wgmma)]
        key = _relevant(program, products)
        if not products or key in seen:
            continue
        seen.add(key)
        for product in products:
            for use in _first_uses(program, product):
                asked.never(
                    program,
                    product,
                    use,
                    lambda a, b, p=program: any_of(  # type: ignore[misc]
                        *(when for _, when in covered(asked, p, a, b, WGMMA))
                    ),
                    "nothing awaits the wgmma",
                )


def _relevant(program: Program, products: list[Point]) -> tuple[int, ...]:
    """Return what the questions of a program depend on; kinds of threads often share it."""
    names = {name for p in products for name in _names(p)}

    def matters(stmt: kir.Stmt | None) -> bool:
        match stmt:
            case None:
                return False
            case kir.AsyncCommit(kind) | kir.AsyncAwait(kind) if kind is WGMMA:
                return True
            case kir.Wgmma() | kir.Assign():
                return True
            case _:
                return any(f.name in names for part in fragments(stmt) for f in part)

    return program.numbers(matters)


def _names(product: Point) -> tuple[str, str]:
    """Return the accumulator, and the fragment that is multiplied, if any."""
    stmt = product.stmt
    assert isinstance(stmt, kir.Wgmma), "a product"
    return stmt.acc.name, stmt.a.name if isinstance(stmt.a, kir.Fragment) else ""


def _first_uses(program: Program, product: Point) -> list[Point]:
    """Return the uses of what a product works on, but one for those in a row.

    Another product may add to the same accumulator: they finish in order.
    """
    acc, source = _names(product)
    found: list[Point] = []
    fresh: set[object] = set()
    for point in program.points:
        assert point.stmt is not None, "a statement"
        reads, writes = ({f.name for f in part} for part in fragments(point.stmt))
        if isinstance(point.stmt, kir.Wgmma):
            fresh.clear()
            uses = acc in reads or source in writes
        else:
            uses = acc in reads | writes or source in writes
        place = tuple((frame.number, frame.test) for frame in point.frames)
        if uses and place not in fresh:
            fresh.add(place)
            found.append(point)
    return found
