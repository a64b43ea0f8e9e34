"""What happens in an iteration, and what each event requires of this and other iterations.

Every kind of thread is one `Thread` (more where threads of one kind meet).  A thread's statements
in its loop are nodes in a chain; a phase of an mbarrier, the end of a copy and the turn of a
`BlockSync` are nodes of their own.  A `Cross` says that a node requires another, some iterations
away.  All of it is the same in every iteration, which is what makes it small.

Notes
-----
Nodes with the same requirements and the same dependants are one: neighbouring accesses of a thread,
neighbouring copies it issues, and the ends of those on one phase.  So a kernel with three rings
behind one barrier looks like one with a single ring.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from fuser.kernel import ir as kir
from oracles.prover.arithmetic import UnsupportedError
from oracles.prover.invariants.events.collective import (
    disjoint,
    joins,
    one_way,
    outside,
    overlap,
    signals,
)
from oracles.prover.invariants.events.footprint import Footprints, Meeting, buffer
from oracles.prover.invariants.events.groups import covering, distances
from oracles.prover.invariants.events.nodes import (
    Access,
    Agency,
    Cross,
    Group,
    Item,
    Phase,
    RefusedError,
    Signal,
    Thread,
)
from oracles.prover.invariants.events.parametric import Bound, Place, Walk, places, shift
from oracles.prover.invariants.rules import Axiom, Obligation, Without
from oracles.prover.invariants.trace import Program, Step, Trace
from oracles.prover.threads import Kind

Span = tuple[int, int]
"""The nodes at which an access starts and ends."""


class Skeleton:
    """The nodes of one iteration of a kernel and what they require."""

    def __init__(
        self, trace: Trace, footprints: Footprints, without: Without = frozenset()
    ) -> None:
        self.trace = trace
        self.without = without
        self.footprints = footprints
        loud = {
            step.index
            for program in footprints.programs
            for step in (*program.before, *program.inside, *program.after)
        }
        self.places = places(trace, {s.index for s in trace.steps} - loud)
        self.size = 0
        self.chains: dict[Thread, list[Item]] = {}
        self.crosses: set[Cross] = set()
        self.phases: dict[str, Phase] = {}
        self.accesses: list[Access] = []
        self.fences: list[tuple[Step, Place, Thread, int]] = []
        self.groups: list[Group] = []
        self.commits: dict[tuple[Thread, kir.AsyncKind], list[Place]] = {}
        self.awaits: list[tuple[Step, Place, Thread, int, int]] = []
        self._shared: dict[tuple[object, ...], int] = {}
        self._converging: list[tuple[Step, Thread, int]] = []
        self._leading: dict[tuple[int, int], tuple[Thread, int]] = {}
        disjoint(trace.kernel, single=True)
        one_way(trace.kernel)
        if Obligation.COLLECTIVE not in without:
            joins(trace)
        self.signals = [
            Signal(arrive, wait, self.places.of[arrive.index], self.places.of[wait.index])
            for arrive, wait in signals(trace, self.places.ahead)
        ]
        outside(footprints, self.places)
        for thread in self._threads():
            self._chain(thread, self.footprints.programs[thread.kind])
        self._crossed()

    def runs(self, place: Place, offset: int = 0) -> str:
        """Return whether a step with this place runs in iteration `k + offset`."""
        return place.runs(offset)

    def _node(self, *key: object) -> int:
        """Return the node of a key, made at its first use."""
        if key not in self._shared:
            self._shared[key] = self.size
            self.size += 1
        return self._shared[key]

    # --- threads --------------------------------------------------------------------------------

    def _threads(self) -> list[Thread]:
        """One thread of each kind, and second ones where two of a kind meet."""
        found = {self.one_of(kind) for kind in self.trace.kinds}
        spread = [step for step in self.trace.steps if step.index in self.footprints.spreads]
        for a in spread:
            for b in spread:
                one, two = buffer(a), buffer(b)
                if one is None or two is None or not overlap(one, two):
                    continue
                if not isinstance(a.stmt, kir.Load) or not isinstance(b.stmt, kir.Load):
                    for meeting in self.footprints.meetings(a.index, b.index):
                        found |= self._around(self.pair(meeting)[1])
        return sorted(found, key=lambda t: (t.kind, t.warp, t.lane))

    def _around(self, thread: Thread) -> set[Thread]:
        """All kinds of lanes of a thread's warp, and the thread itself."""
        warps = self.trace.kinds[thread.kind].warps
        alike = (self.one_of(kind) for kind in self.trace.kinds if kind.warps == warps)
        return {thread, *(replace(other, warp=thread.warp) for other in alike)}

    def one_of(self, kind: Kind) -> Thread:
        """Return the thread that stands for a kind."""
        return Thread(kind.index, kind.warps[0], 0 if kind.leads else 1)

    def stands(self, thread: Thread) -> bool:
        """Whether a thread stands for its kind."""
        return thread == self.one_of(self.trace.kinds[thread.kind])

    def pair(self, meeting: Meeting) -> tuple[Thread, Thread]:
        """Return two different threads that meet as `meeting` says."""
        a, b = self.trace.kinds[meeting.first], self.trace.kinds[meeting.second]
        one, two = self.one_of(a), self.one_of(b)
        if a.warps == b.warps and not meeting.same_warp:
            two = replace(two, warp=b.warps[1])
        elif a == b:
            two = replace(two, lane=2)
        return one, two

    # --- nodes ----------------------------------------------------------------------------------

    def _chain(self, thread: Thread, program: Program) -> None:
        chain = self.chains[thread] = []
        last = ""
        for step in program.inside:
            place = self.places.of[step.index]
            how = self._kind(step, thread)
            if isinstance(step.stmt, kir.AsyncCommit):
                self.commits.setdefault((thread, step.stmt.kind), []).append(place)
            if how == "":
                continue
            merges = how == last and how in ("access", "issue")
            item = chain[-1] if merges else self._item(step, place, thread, how)
            if not merges:
                chain.append(item)
            last = how
            self._register(step, place, thread, item.node)

    def _kind(self, step: Step, thread: Thread) -> str:
        """Return what a step is to the order; nothing if it is silent for this thread."""
        match step.stmt:
            case kir.Load() | kir.Store():
                touches = (step.index, thread.kind) in self.footprints.touching
                return "access" if touches else ""
            case kir.TmaLoad() | kir.TmaStore():
                if self.trace.count(step) > 1:
                    raise RefusedError("WAW", step, "is issued by several threads at once")
                if isinstance(step.stmt, kir.TmaLoad) and step.stmt.multicast is not None:
                    raise UnsupportedError(f"{step.where}: multicast")
                return "issue"
            case kir.CpAsync():
                return "issue" if (step.index, thread.kind) in self.footprints.touching else ""
            case kir.Wgmma():
                return "issue" if thread.lane == 0 else "own"
            case kir.AsyncCommit():
                return ""
            case kir.FenceAsyncProxy(space):
                return "" if space is kir.Space.GLOBAL else "fence"
            case kir.BlockSync() | kir.WarpSync() | kir.AsyncAwait() | kir.MBarrierArriveExpectTx():
                return "own"
            case kir.MBarrierWaitParity(_, _, _, scope, True) if scope is not kir.Scope.CLUSTER:
                return "own"
            case kir.MBarrierArrive(_, _, scope, None) if scope is not kir.Scope.CLUSTER:
                return "own"
            case kir.MBarrierExpectTx() | kir.CpAsyncMBarrierArrive():
                return "own"
            case kir.NamedArrive():
                return "own"
            case _:
                raise UnsupportedError(f"{step.where}: {type(step.stmt).__name__} in a loop")

    def _item(self, step: Step, place: Place, thread: Thread, how: str) -> Item:
        turns = Axiom.TURN not in self.without
        match step.stmt:
            case kir.BlockSync() if turns:
                return Item(self._node("sync", step.index), place.guard)
            case kir.WarpSync() if turns:
                return Item(self._node("warp", step.index, thread.warp), place.guard)
            case kir.MBarrierWaitParity():
                return Item(self._node(step.index, thread), waits=True)
            case _:
                return Item(self._node(step.index, thread, how))

    def _register(self, step: Step, place: Place, thread: Thread, node: int) -> None:
        match step.stmt:
            case kir.MBarrierWaitParity(barrier):
                self._phase(barrier, place, step).waits.append((step, place, thread, node))
            case kir.MBarrierArrive(barrier) | kir.MBarrierArriveExpectTx(barrier):
                self._phase(barrier, place, step).arrivals.append((step, place, thread, node))
            case kir.MBarrierExpectTx(barrier):
                self._phase(barrier, place, step).expects.append((step, place, thread, node))
            case kir.NamedArrive():
                for signal in self.signals:
                    if signal.arrive is step:
                        signal.arrivals.append(node)
            case kir.CpAsyncMBarrierArrive(barrier, _, noinc):
                self._arrives_later(barrier, step, place, thread, node)
                if not noinc:
                    self.phases[barrier.name].expects.append((step, place, thread, node))
            case kir.TmaLoad(dst, _, barrier):
                phase = self._phase(barrier, place, step)
                assert place.bar is not None, "loads complete on a barrier"
                end = self._node("finish", node, barrier.name, place.bar.shift)
                phase.copies.append((step, place, node, end))
                self._require(end, node, 0, Axiom.ISSUE)
                self._access(step, place, dst.buffer, place.buf, thread, (node, end))
            case kir.TmaStore(_, src):
                end = self._grouped(kir.AsyncKind.BULK, step, place, thread, node)
                self._access(step, place, src.buffer, place.buf, thread, (node, end))
            case kir.CpAsync(dst):
                end = self._grouped(kir.AsyncKind.CP_ASYNC, step, place, thread, node)
                self._access(step, place, dst.buffer, place.buf, thread, (node, end))
            case kir.Wgmma() if thread.lane > 0:
                self._converging.append((step, thread, node))
            case kir.Wgmma(_, a):
                self._leading[step.index, thread.warp] = thread, node
                end = self._grouped(kir.AsyncKind.WGMMA, step, place, thread, node)
                for slot in step.stmt.columns:
                    self._access(step, place, slot.buffer, place.buf, thread, (node, end))
                if isinstance(a, kir.Slot):
                    self._access(step, place, a.buffer, place.other, thread, (node, end))
            case kir.Load(_, kir.Slot(buffer)) | kir.Store(kir.Slot(buffer)):
                self._access(step, place, buffer, place.buf, thread, (node, node))
            case kir.FenceAsyncProxy():
                self.fences.append((step, place, thread, node))
            case kir.AsyncAwait(kind):
                commits = len(self.commits.get((thread, kind), ()))
                self.awaits.append((step, place, thread, node, commits))
            case _:
                pass

    def _grouped(
        self, kind: kir.AsyncKind, step: Step, place: Place, thread: Thread, node: int
    ) -> int:
        """Add a copy to the open group of its thread; return the node at which it is done."""
        commits = len(self.commits.get((thread, kind), ()))
        end = self._node("done", node, kind, commits)
        self._require(end, node, 0, Axiom.ISSUE)
        self.groups.append(Group(kind, step, place, end, thread, commits))
        return end

    def _arrives_later(
        self, barrier: kir.MBarrier, step: Step, place: Place, thread: Thread, node: int
    ) -> None:
        """Arrive when the cp.async of a thread are done: those before it, or an iteration ago."""
        later = self._node("arrival", node)
        self._require(later, node, 0, Axiom.ISSUE)
        self._phase(barrier, place, step).arrivals.append((step, place, thread, later))

    def _phase(self, barrier: kir.MBarrier, place: Place, step: Step) -> Phase:
        assert place.bar is not None, "asked of steps on barriers"
        node = self._node("phase", barrier.name)
        phase = self.phases.setdefault(barrier.name, Phase(barrier, node, place.bar.modulus))
        if phase.modulus != place.bar.modulus:
            raise UnsupportedError(f"{step.where}: another part of {barrier.name}")
        return phase

    def _access(
        self,
        step: Step,
        place: Place,
        buffer: kir.Buffer,
        walk: Walk | None,
        thread: Thread,
        span: Span,
    ) -> None:
        assert walk is not None, "accesses have a slot"
        for other in self.accesses:
            if other.buffer == buffer and other.walk.modulus != walk.modulus:
                raise UnsupportedError(f"{step.where}: another part of {buffer.name}")
        agency, writes = Agency.THREAD, isinstance(step.stmt, kir.Store)
        match step.stmt:
            case kir.TmaLoad():
                agency, writes = Agency.ENGINE, True
            case kir.TmaStore() | kir.Wgmma():
                agency = Agency.ENGINE
            case kir.CpAsync():
                agency, writes = Agency.CP_ASYNC, True
            case _:
                pass
        self.accesses.append(Access(step, place, buffer, walk, thread, *span, agency, writes))

    # --- what nodes require ---------------------------------------------------------------------

    def _require(
        self,
        node: int,
        cause: int,
        shift: int,
        rule: Axiom,
        guard: tuple[Bound, ...] = (),
        *,
        narrow: bool = False,
    ) -> None:
        if rule not in self.without:
            self.crosses.add(Cross(node, cause, shift, rule, guard, narrow))

    def _crossed(self) -> None:
        for phase in self.phases.values():
            self._require(phase.node, phase.node, -phase.modulus, Axiom.SEQUENCE)
            for step, place, thread, node in phase.arrivals:
                later = isinstance(step.stmt, kir.CpAsyncMBarrierArrive)
                self._require(phase.node, node, -shift(place), Axiom.ARRIVAL, narrow=later)
                if later:
                    self._finish(step, thread, node)
            for _, place, _, end in phase.copies:
                self._require(phase.node, end, -shift(place), Axiom.BYTES, narrow=True)
            for _, place, _, node in phase.waits:
                self._require(node, phase.node, shift(place), Axiom.WAIT, place.guard)
        for signal in self.signals:
            turn = signal.turn = self._node("sync", signal.wait.index)
            for node in signal.arrivals:
                guard = signal.waits.guard
                self._require(turn, node, signal.away, Axiom.SIGNAL, guard)
        for step, thread, node in self._converging:
            _, leader = self._leading[step.index, thread.warp]
            self._require(leader, node, 0, Axiom.CONVERGE, narrow=True)
        for (index, _), (thread, node) in self._leading.items():
            for group in self.groups:
                if group.step.index == index and self.mates(thread, group.thread):
                    # Tensor cores start when all four warps have issued.
                    self._require(group.done, node, 0, Axiom.CONVERGE, narrow=True)
        for step, place, thread, node, commits in self.awaits:
            assert isinstance(step.stmt, kir.AsyncAwait), "asked of awaits"
            for group in self.groups:
                if not self.awaits_group(step.stmt.kind, thread, group):
                    continue
                for back, when in self.covers(group, commits, step.stmt.keep):
                    guard = (*place.guard, *when)
                    self._require(node, group.done, -back, Axiom.GROUP, guard, narrow=True)

    def _finish(self, step: Step, thread: Thread, node: int) -> None:
        """Make an arrival of cp.async come after the copies that its thread has issued."""
        for group in self.groups:
            if group.thread == thread and group.kind is kir.AsyncKind.CP_ASYNC:
                before = group.step.index < step.index
                self._require(node, group.done, 0 if before else -1, Axiom.FINISH)

    def awaits_group(self, kind: kir.AsyncKind, thread: Thread, group: Group) -> bool:
        """Whether the awaits of a thread see a group: its own, or that of its warp for wgmma."""
        if group.kind is not kind or not self.commits.get((group.thread, kind)):
            return False
        if kind is not kir.AsyncKind.WGMMA:
            return group.thread == thread
        return group.thread.warp == thread.warp

    def mates(self, a: Thread, b: Thread) -> bool:
        """Whether all threads that two stand for are in one warpgroup."""
        one, two = (self.trace.kinds[thread.kind].warpgroup for thread in (a, b))
        return one is not None and one == two

    def covers(
        self, group: Group, awaited: int, keep: int
    ) -> Iterator[tuple[int, tuple[Bound, ...]]]:
        """Yield how many iterations after a copy an await covers it, and on which conditions.

        `awaited` is how many commits of its iteration precede the await; the conditions are on
        that iteration.
        """
        commits = self.commits[group.thread, group.kind]
        found = commits, group.commits, awaited, keep
        for back in distances(*found, group.place.low):
            yield from ((back, when) for when in covering(*found, back))
