"""The event graph of a kernel: what happens in an iteration, and what each event requires.

Every kind of threads is one `Thread` (more where accesses by threads of one kind overlap). A
thread's statements in its loop are nodes in a chain; a phase of an mbarrier, the end of a copy and
the generation of a `BlockSync` are nodes of their own. A `Cross` says that a node requires another,
some iterations away. All of it is the same in every iteration, which is what makes it small;
`check.Questions` says what it means for the order of events.

Notes
-----
Nodes with the same requirements and the same dependants are one: neighbouring accesses of a thread,
neighbouring copies it issues, and the ends of those on one phase.  So a kernel with three rings
behind one barrier looks like one with a single ring.

An await covers a copy if more than `keep` commits have run between the two: the first of them
closes the group of the copy, and the groups of the others are those that the await leaves alone.
So some commits that run are reason enough, whatever the others do.

Source: PTX ISA, "cp.async.bulk.wait_group", "cp.async.wait_group", "wgmma.wait_group".
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from itertools import combinations, islice, product

from fuser.kernel import ir as kir
from oracles.prover.arithmetic import UnsupportedError
from oracles.prover.invariants.trace import (
    Axiom,
    Bound,
    Obligation,
    Program,
    RefusedError,
    Run,
    Step,
    Trace,
    Walk,
    Without,
    all_of,
    disjoint,
    joins,
    one_way,
    outside,
    read_runs,
    signals,
)
from oracles.prover.sites import REGISTERS_ONLY, Overlap, Overlaps, Threads, ordinary, storage

_EXPECTS = kir.MBarrierArriveExpectTx | kir.MBarrierExpectTx | kir.CpAsyncMBarrierArrive
_OWN = kir.BlockSync | kir.WarpSync | kir.AsyncAwait | kir.NamedArrive | _EXPECTS
"""Statements of a loop that are a node of their own, of any thread."""


@dataclass(frozen=True, slots=True)
class Thread:
    """One thread of a kind, by the number of its warp and its lane."""

    kind: int
    warp: int
    lane: int


@dataclass(frozen=True, slots=True)
class Item:
    """A node in the chain of a thread; a guarded one is skipped where its guard fails."""

    node: int
    guard: tuple[Bound, ...] = ()
    waits: bool = False


@dataclass(frozen=True, slots=True)
class Cross:
    """`node` in iteration k requires `cause` in iteration `k + shift`, if `guard` holds for k.

    A `narrow` one is the end of what an engine does: it publishes what the engine did, and nothing
    that the thread which started it did before.
    """

    node: int
    cause: int
    shift: int
    rule: Axiom
    guard: tuple[Bound, ...] = ()
    narrow: bool = False


class Agency(Enum):
    """Who makes an access, and in which proxy."""

    THREAD = "the thread itself"
    CP_ASYNC = "cp.async: later, in the generic proxy"
    ENGINE = "TMA or tensor cores: later, in the async proxy"


@dataclass(frozen=True, slots=True)
class Event:
    """A step of a loop as one thread executes it, when it runs, and its node."""

    step: Step
    run: Run
    thread: Thread
    node: int


@dataclass(frozen=True, slots=True)
class Access(Event):
    """Bytes of a slot in use from the node at which it starts to the node `end`."""

    buffer: kir.Buffer
    walk: Walk
    end: int
    agency: Agency
    writes: bool


@dataclass(frozen=True, slots=True)
class Group(Event):
    """A copy or wgmma of a group of `kind`, done with its slot at the node `end`.

    `commits` of the iteration precede it.
    """

    kind: kir.AsyncKind
    end: int
    commits: int


@dataclass(slots=True)
class Phase:
    """The phases of one mbarrier: who arrives, whose bytes count, who waits."""

    barrier: kir.MBarrier
    node: int
    modulus: int
    arrivals: list[Event] = field(default_factory=list)
    expects: list[Event] = field(default_factory=list)
    copies: list[Access] = field(default_factory=list)
    waits: list[Event] = field(default_factory=list)


@dataclass(slots=True)
class Signal:
    """A named barrier at which some arrive and others wait; its generations are counted.

    `arrivals` are the nodes of those who arrive, `node` that of a generation, in an iteration of
    those who wait.
    """

    arrive: Step
    wait: Step
    arrives: Run
    waits: Run
    arrivals: list[int] = field(default_factory=list)
    node: int = -1

    @property
    def away(self) -> int:
        """Iterations from a wait to the arrival of the same generation."""
        return self.arrives.first - self.waits.first


class Footprints:
    """How the accesses of a trace spread their tiles over threads, the same in every execution.

    `spreads` are those of the ordinary accesses of shared memory, and of cp.async, by step.
    """

    def __init__(self, trace: Trace) -> None:
        self._storage = storage(trace.kernel.buffers)
        self._tiles = Overlaps(trace.kinds, trace.kernel.threads)
        self.spreads = {
            step.index: spread
            for step in trace.steps
            if buffer(step) is not None
            and (spread := ordinary(step.site, self._storage)) is not None
        }

    def holds(self, step: Step, kind: int) -> bool:
        """Whether threads of a kind hold a part of the tile of an ordinary access."""
        spread = ordinary(step.site, self._storage)
        return spread is not None and kind in self._tiles.touching(spread)

    def collides(self, index: int) -> bool:
        """Whether different threads touch one element in one execution of an ordinary access."""
        spread = self.spreads[index]
        return any(self._tiles.collide(spread, kind) for kind in self._tiles.touching(spread))

    def overlaps(self, first: int, second: int) -> Iterator[tuple[int, int, Overlap]]:
        """Yield two kinds whose threads may touch one byte by two steps, and how they overlap."""
        found = self._tiles.between(self.spreads[first], self.spreads[second])
        return ((*kinds, how) for kinds, how in found.items() if how > Overlap.THREAD)


def buffer(step: Step) -> kir.Buffer | None:
    """Return the buffer that an ordinary statement, or a cp.async, accesses, if any."""
    match step.stmt:
        case (
            kir.Load(_, kir.Slot(found)) | kir.Store(kir.Slot(found)) | kir.CpAsync(kir.Slot(found))
        ):
            return found
        case _:
            return None


def _silent(step: Step) -> bool:
    """Whether the order of events does not depend on a step."""
    match step.stmt:
        case kir.Load() | kir.Store():
            return buffer(step) is None
        case kir.WgmmaFence() | kir.FenceMBarrierInit() | kir.ThreadFence():
            return True
        case _:
            return isinstance(step.stmt, REGISTERS_ONLY)


LATER = 2
"""Iterations that a commit inside an `if` may be late, as far as it is followed."""
MOST = 12
"""Choices of commits that are tried for one await and one copy."""


def distances(commits: Sequence[Run], before: int, awaited: int, keep: int, low: int) -> range:
    """Return how many iterations after a copy an await is asked whether it covers it.

    Of the `commits` of an iteration, at least one, `before` precede the copy and `awaited` the
    await, which leaves `keep` groups alone.  The first await covers also what is issued ahead,
    from iteration `low` on.
    """
    least = -((awaited - keep - before - 1) // len(commits))
    late = LATER if any(run.guard for run in commits) else 0
    return range(least, max(least + late, -low) + 1)


def covering(
    commits: Sequence[Run], before: int, awaited: int, keep: int, back: int
) -> Iterator[tuple[Bound, ...]]:
    """Yield conditions on k, each enough for an await of iteration k to cover a copy `back` before.

    As for `distances`; `back` are the iterations from the copy to the await.
    """
    between = [(0, run) for run in commits[before if back == 0 else 0 : awaited]]
    between += [(j, run) for j in range(1, back) for run in commits]
    between += [(back, run) for run in commits[before:] if back > 0]
    guards = [tuple(g.at(-j) for g in run.guard) for j, run in between]
    unsure = [guard for guard in guards if guard]
    sure = len(guards) - len(unsure)  # those that always run are in every choice
    for chosen in islice(combinations(unsure, max(0, keep + 1 - sure)), MOST):
        yield tuple(dict.fromkeys(bound for guard in chosen for bound in guard))


def closing(commits: Sequence[Run], before: int, keep: int, more: int) -> Iterator[str]:
    """Yield in SMT-LIB when an await after the loop covers a copy of iteration k.

    As for `distances`; `more` commits stand between the loop and the await.
    """
    need = max(0, keep + 1 - more)
    behind = [run.happens(0) for run in commits[before:]]
    behind += [run.happens(j) for j in range(1, need + LATER) for run in commits]
    for chosen in islice(combinations(behind, need), MOST):
        yield all_of(list(chosen))


FAR = 1 << 20
"""Time from one iteration to the next in a schedule: more than all nodes of an iteration take."""


class EventGraph:
    """The nodes of one iteration of a kernel and what they require."""

    def __init__(self, trace: Trace, without: Without = frozenset()) -> None:
        self.trace = trace
        self.without = without
        self.footprints = Footprints(trace)
        silent = {step.index for step in trace.steps if not step.kinds or _silent(step)}
        programs = [program.without(silent) for program in trace.programs]
        self.runs = read_runs(trace, silent)
        self.size = 0
        self.chains: dict[Thread, list[Item]] = {}
        self.crosses: set[Cross] = set()
        self.phases: dict[str, Phase] = {}
        self.accesses: list[Access] = []
        self.fences: list[Event] = []
        self.groups: list[Group] = []
        self.commits: dict[tuple[Thread, kir.AsyncKind], list[Run]] = {}
        self.awaits: list[tuple[Event, int]] = []
        self._shared: dict[tuple[object, ...], int] = {}
        self._converging: list[Event] = []
        self._leading: dict[tuple[int, int], Event] = {}
        disjoint(trace.kernel, single=True)
        one_way(trace.kernel)
        if Obligation.COLLECTIVE not in without:
            joins(trace)
        self.signals = [
            Signal(arrive, wait, self.runs.of[arrive.index], self.runs.of[wait.index])
            for arrive, wait in signals(trace, self.runs.ahead)
        ]
        outside(programs, self.runs.ahead)
        for thread in self._threads():
            self._chain(thread, programs[thread.kind])
        self._crossed()

    def _node(self, *key: object) -> int:
        """Return the node of a key, made at its first use."""
        if key not in self._shared:
            self._shared[key] = self.size
            self.size += 1
        return self._shared[key]

    # --- threads --------------------------------------------------------------------------------

    def _threads(self) -> list[Thread]:
        """One thread of each kind, and second ones where two of a kind overlap."""
        found = {self.one_of(kind) for kind in self.trace.kinds}
        tiles = [(step, used) for step in self.trace.steps if (used := buffer(step)) is not None]
        for (a, one), (b, two) in product(tiles, tiles):
            reads = isinstance(a.stmt, kir.Load) and isinstance(b.stmt, kir.Load)
            if one.shares(two) and not reads:
                for how in self.footprints.overlaps(a.index, b.index):
                    thread = self.pair(*how)[1]
                    warps = self.trace.kinds[thread.kind].warps
                    alike = (self.one_of(kind) for kind in self.trace.kinds if kind.warps == warps)
                    found |= {thread, *(replace(other, warp=thread.warp) for other in alike)}
        return sorted(found, key=lambda t: (t.kind, t.warp, t.lane))

    def one_of(self, kind: Threads) -> Thread:
        """Return the thread that stands for a kind."""
        return Thread(kind.index, kind.warps[0], 0 if kind.leads else 1)

    def stands(self, thread: Thread) -> bool:
        """Whether a thread stands for its kind."""
        return thread == self.one_of(self.trace.kinds[thread.kind])

    def pair(self, first: int, second: int, how: Overlap) -> tuple[Thread, Thread]:
        """Return two different threads of two kinds that overlap in this way."""
        a, b = self.trace.kinds[first], self.trace.kinds[second]
        one, two = self.one_of(a), self.one_of(b)
        if a.warps == b.warps and how is not Overlap.WARP:
            two = replace(two, warp=b.warps[1])
        elif a == b:
            two = replace(two, lane=2)
        return one, two

    # --- nodes ----------------------------------------------------------------------------------

    def _chain(self, thread: Thread, program: Program) -> None:
        chain = self.chains[thread] = []
        last = ""
        for step in program.inside:
            run = self.runs.of[step.index]
            how = self._kind(step, thread)
            if isinstance(step.stmt, kir.AsyncCommit):
                self.commits.setdefault((thread, step.stmt.kind), []).append(run)
            if how == "":
                continue
            if how != last or how not in ("access", "issue"):
                chain.append(self._item(step, run, thread, how))
            last = how
            self._register(Event(step, run, thread, chain[-1].node))

    def _kind(self, step: Step, thread: Thread) -> str:
        """Return what a step is to the order; nothing if it is silent for this thread."""
        match step.stmt:
            case kir.Load() | kir.Store():
                return "access" if self.footprints.holds(step, thread.kind) else ""
            case kir.TmaLoad() | kir.TmaStore():
                if self.trace.count(step) > 1:
                    raise RefusedError("WAW", step.stmt, "is issued by several threads at once")
                if isinstance(step.stmt, kir.TmaLoad) and step.stmt.multicast is not None:
                    raise UnsupportedError(f"{step.where}: multicast")
                return "issue"
            case kir.CpAsync():
                return "issue" if self.footprints.holds(step, thread.kind) else ""
            case kir.Wgmma():
                return "issue" if thread.lane == 0 else "own"
            case kir.AsyncCommit():
                return ""
            case kir.FenceAsyncProxy(space):
                return "" if space is kir.Space.GLOBAL else "fence"
            case stmt if isinstance(stmt, _OWN):
                return "own"
            case kir.MBarrierWaitParity(_, _, _, scope, True) if scope is not kir.Scope.CLUSTER:
                return "own"
            case kir.MBarrierArrive(_, _, scope, None) if scope is not kir.Scope.CLUSTER:
                return "own"
            case _:
                raise UnsupportedError(f"{step.where}: {type(step.stmt).__name__} in a loop")

    def _item(self, step: Step, run: Run, thread: Thread, how: str) -> Item:
        together = Axiom.BARRIER not in self.without
        match step.stmt:
            case kir.BlockSync() if together:
                return Item(self._node("sync", step.index), run.guard)
            case kir.WarpSync() if together:
                return Item(self._node("warp", step.index, thread.warp), run.guard)
            case kir.MBarrierWaitParity():
                return Item(self._node(step.index, thread), waits=True)
            case _:
                return Item(self._node(step.index, thread, how))

    def _register(self, at: Event) -> None:
        """Note what a step does besides standing in the chain of its thread."""
        match at.step.stmt:
            case kir.MBarrierWaitParity(barrier):
                self._phase(barrier, at).waits.append(at)
            case kir.MBarrierArrive(barrier) | kir.MBarrierArriveExpectTx(barrier):
                self._phase(barrier, at).arrivals.append(at)
            case kir.MBarrierExpectTx(barrier):
                self._phase(barrier, at).expects.append(at)
            case kir.NamedArrive():
                for signal in self.signals:
                    if signal.arrive is at.step:
                        signal.arrivals.append(at.node)
            case kir.CpAsyncMBarrierArrive(barrier, _, noinc):
                # It arrives when the cp.async of its thread are done: those before it, or an
                # iteration ago.
                later = self._node("arrival", at.node)
                self._require(Cross(later, at.node, 0, Axiom.ISSUE))
                self._phase(barrier, at).arrivals.append(replace(at, node=later))
                if not noinc:
                    self.phases[barrier.name].expects.append(at)
            case kir.TmaLoad(dst, _, barrier):
                phase = self._phase(barrier, at)
                end = self._node("finish", at.node, barrier.name, at.run.phase)
                self._require(Cross(end, at.node, 0, Axiom.ISSUE))
                phase.copies.append(self._access(at, dst.buffer, end))
            case kir.TmaStore(_, src):
                self._access(at, src.buffer, self._grouped(kir.AsyncKind.BULK, at))
            case kir.CpAsync(dst):
                self._access(at, dst.buffer, self._grouped(kir.AsyncKind.CP_ASYNC, at))
            case kir.Wgmma() if at.thread.lane > 0:
                self._converging.append(at)
            case kir.Wgmma(_, a):
                self._leading[at.step.index, at.thread.warp] = at
                end = self._grouped(kir.AsyncKind.WGMMA, at)
                for slot in at.step.stmt.columns:
                    self._access(at, slot.buffer, end)
                if isinstance(a, kir.Slot):
                    self._access(replace(at, run=replace(at.run, buf=at.run.other)), a.buffer, end)
            case kir.Load(_, kir.Slot(buffer)) | kir.Store(kir.Slot(buffer)):
                self._access(at, buffer, at.node)
            case kir.FenceAsyncProxy():
                self.fences.append(at)
            case kir.AsyncAwait(kind):
                self.awaits.append((at, len(self.commits.get((at.thread, kind), ()))))
            case _:
                pass

    def _grouped(self, kind: kir.AsyncKind, at: Event) -> int:
        """Add a copy to the open group of its thread; return the node at which it is done."""
        commits = len(self.commits.get((at.thread, kind), ()))
        end = self._node("done", at.node, kind, commits)
        self._require(Cross(end, at.node, 0, Axiom.ISSUE))
        self.groups.append(Group(at.step, at.run, at.thread, at.node, kind, end, commits))
        return end

    def _phase(self, barrier: kir.MBarrier, at: Event) -> Phase:
        assert at.run.bar is not None, "asked of steps on barriers"
        node, modulus = self._node("phase", barrier.name), at.run.bar.modulus
        phase = self.phases.setdefault(barrier.name, Phase(barrier, node, modulus))
        if phase.modulus != modulus:
            raise UnsupportedError(f"{at.step.where}: another part of {barrier.name}")
        return phase

    def _access(self, at: Event, buffer: kir.Buffer, end: int) -> Access:
        walk = at.run.buf
        assert walk is not None, "accesses have a slot"
        for other in self.accesses:
            if other.buffer == buffer and other.walk.modulus != walk.modulus:
                raise UnsupportedError(f"{at.step.where}: another part of {buffer.name}")
        agency, writes = Agency.THREAD, isinstance(at.step.stmt, kir.Store)
        match at.step.stmt:
            case kir.TmaLoad():
                agency, writes = Agency.ENGINE, True
            case kir.TmaStore() | kir.Wgmma():
                agency = Agency.ENGINE
            case kir.CpAsync():
                agency, writes = Agency.CP_ASYNC, True
            case _:
                pass
        made = Access(at.step, at.run, at.thread, at.node, buffer, walk, end, agency, writes)
        self.accesses.append(made)
        return made

    # --- what nodes require ---------------------------------------------------------------------

    def _require(self, cross: Cross) -> None:
        if cross.rule not in self.without:
            self.crosses.add(cross)

    def _crossed(self) -> None:
        for phase in self.phases.values():
            self._require(Cross(phase.node, phase.node, -phase.modulus, Axiom.SEQUENCE))
            for at in phase.arrivals:
                later = isinstance(at.step.stmt, kir.CpAsyncMBarrierArrive)
                rule = Axiom.ARRIVAL
                self._require(Cross(phase.node, at.node, -at.run.phase, rule, narrow=later))
                for group in self.groups if later else ():
                    if group.thread == at.thread and group.kind is kir.AsyncKind.CP_ASYNC:
                        back = 0 if group.step.index < at.step.index else -1
                        self._require(Cross(at.node, group.end, back, Axiom.FINISH))
            for copy in phase.copies:
                rule = Axiom.BYTES
                self._require(Cross(phase.node, copy.end, -copy.run.phase, rule, narrow=True))
            for at in phase.waits:
                rule, guard = Axiom.WAIT, at.run.guard
                self._require(Cross(at.node, phase.node, at.run.phase, rule, guard))
        for signal in self.signals:
            signal.node = self._node("sync", signal.wait.index)
            for node in signal.arrivals:
                rule, guard = Axiom.SIGNAL, signal.waits.guard
                self._require(Cross(signal.node, node, signal.away, rule, guard))
        for at in self._converging:
            leader = self._leading[at.step.index, at.thread.warp]
            self._require(Cross(leader.node, at.node, 0, Axiom.CONVERGE, narrow=True))
        for at, group in product(self._leading.values(), self.groups):
            if group.step is at.step and self.mates(at.thread, group.thread):
                # Tensor cores start when all four warps have issued.
                self._require(Cross(group.end, at.node, 0, Axiom.CONVERGE, narrow=True))
        for (at, commits), group in product(self.awaits, self.groups):
            for back, when in self.covers(group, at, commits):
                guard = (*at.run.guard, *when)
                self._require(Cross(at.node, group.end, -back, Axiom.GROUP, guard, narrow=True))

    def mates(self, a: Thread, b: Thread) -> bool:
        """Whether all threads that two stand for are in one warpgroup."""
        one, two = (self.trace.kinds[thread.kind].warpgroup for thread in (a, b))
        return one is not None and one == two

    def covers(
        self, group: Group, at: Event, awaited: int
    ) -> Iterator[tuple[int, tuple[Bound, ...]]]:
        """Yield how many iterations after a copy an await covers it, and on which conditions.

        An await sees the groups of its own thread, or those of its warp for wgmma.  `awaited` is
        how many commits of its iteration precede it; the conditions are on that iteration.
        """
        stmt, commits = at.step.stmt, self.commits.get((group.thread, group.kind))
        assert isinstance(stmt, kir.AsyncAwait), "asked of awaits"
        own = group.thread == at.thread
        if stmt.kind is kir.AsyncKind.WGMMA:
            own = group.thread.warp == at.thread.warp
        if stmt.kind is group.kind and own and commits:
            found = commits, group.commits, awaited, stmt.keep
            for back in distances(*found, group.run.low):
                yield from ((back, when) for when in covering(*found, back))
