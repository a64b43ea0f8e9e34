"""The event graph of a kernel: what happens in an iteration, and what each event requires.

Every kind of threads is one `Thread` (more where threads of one kind meet).  A thread's statements
in its loop are nodes in a chain; a phase of an mbarrier, the end of a copy and the turn of a
`BlockSync` are nodes of their own.  A `Cross` says that a node requires another, some iterations
away.  All of it is the same in every iteration, which is what makes it small; `questions` says what
it means for the order of events.

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
from itertools import combinations, islice

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
from oracles.prover.sites import Meet, Meetings, Threads, ordinary, storage


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
class Access:
    """Bytes of a slot in use from node `start` to node `end`."""

    step: Step
    run: Run
    buffer: kir.Buffer
    walk: Walk
    thread: Thread
    start: int
    end: int
    agency: Agency
    writes: bool


@dataclass(slots=True)
class Phase:
    """The phases of one mbarrier: who arrives, whose bytes count, who waits."""

    barrier: kir.MBarrier
    node: int
    modulus: int
    arrivals: list[tuple[Step, Run, Thread, int]] = field(default_factory=list)
    expects: list[tuple[Step, Run, Thread, int]] = field(default_factory=list)
    copies: list[tuple[Step, Run, int, int]] = field(default_factory=list)
    waits: list[tuple[Step, Run, Thread, int]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Group:
    """A copy or wgmma of a group of `kind`: the node at which it is done with its slot.

    `commits` of the iteration precede it.
    """

    kind: kir.AsyncKind
    step: Step
    run: Run
    done: int
    thread: Thread
    commits: int


@dataclass(slots=True)
class Signal:
    """A named barrier at which some arrive and others wait; its turns are counted from the first.

    `arrivals` are the nodes of those who arrive, `turn` that of a turn, in an iteration of those
    who wait.
    """

    arrive: Step
    wait: Step
    arrives: Run
    waits: Run
    arrivals: list[int] = field(default_factory=list)
    turn: int = -1

    @property
    def away(self) -> int:
        """Iterations from a wait to the arrival of the same turn."""
        return self.arrives.first - self.waits.first


@dataclass(frozen=True, slots=True)
class Meeting:
    """Two kinds of threads that may touch the same byte, and whether within one warp."""

    first: int
    second: int
    same_warp: bool


class Footprints:
    """What is the same in every execution of a trace, worked out once.

    `spreads` are how the ordinary accesses of shared memory spread their tiles, by step; `programs`
    leave out the steps that the order of events does not depend on; `touching` says which kinds of
    threads touch which step's tile.
    """

    def __init__(self, trace: Trace) -> None:
        self._storage = storage(trace.kernel.buffers)
        self._tiles = Meetings(trace.kinds, trace.kernel.threads)
        self.spreads = {
            step.index: ordinary(step.site, self._storage)
            for step in trace.steps
            if buffer(step) is not None
        }
        self.touching = {
            (index, kind)
            for index, spread in self.spreads.items()
            if spread is not None
            for kind in self._tiles.touching(spread)
        }
        self.programs = tuple(self._ordered(program) for program in trace.programs)

    def _ordered(self, program: Program) -> Program:
        def loud(part: tuple[Step, ...]) -> tuple[Step, ...]:
            return tuple(step for step in part if not self._silent(step))

        return Program(loud(program.before), loud(program.inside), loud(program.after))

    def _silent(self, step: Step) -> bool:
        match step.stmt:
            case kir.Load() | kir.Store():
                return step.index not in self.spreads
            case kir.Compute() | kir.Slice() | kir.Reduce() | kir.Coordinate() | kir.Mma():
                return True
            case kir.WgmmaFence() | kir.FenceMBarrierInit() | kir.ThreadFence():
                return True
            case _:
                return False

    def holds(self, step: Step, kind: int) -> bool:
        """Whether threads of a kind hold a part of the tile of an ordinary access."""
        spread = ordinary(step.site, self._storage)
        return spread is not None and kind in self._tiles.touching(spread)

    def collides(self, index: int) -> bool:
        """Whether different threads touch one element in one execution of an ordinary access."""
        spread = self.spreads[index]
        assert spread is not None, "asked of ordinary accesses only"
        return any(self._tiles.collide(spread, kind) for kind in self._tiles.touching(spread))

    def meetings(self, first: int, second: int) -> Iterator[Meeting]:
        """Yield how different threads may meet by the ordinary accesses of two steps."""
        a, b = self.spreads[first], self.spreads[second]
        assert a is not None, "asked of ordinary accesses only"
        assert b is not None, "asked of ordinary accesses only"
        for (one, two), how in self._tiles.between(a, b).items():
            if how > Meet.THREAD:
                yield Meeting(one, two, how is Meet.WARP)


def buffer(step: Step) -> kir.Buffer | None:
    """Return the buffer that an ordinary statement, or a cp.async, accesses, if any."""
    match step.stmt:
        case kir.Load(_, kir.Slot(found)) | kir.Store(kir.Slot(found)):
            return found
        case kir.CpAsync(kir.Slot(found)):
            return found
        case _:
            return None


LATER = 2
"""Iterations that a commit inside an `if` may be late, as far as it is followed."""
MOST = 12
"""Choices of commits that are tried for one await and one copy."""


def distances(commits: Sequence[Run], before: int, awaited: int, keep: int, low: int) -> range:
    """Return how many iterations after a copy an await is asked whether it covers it.

    Parameters
    ----------
    commits : sequence of Run
        The commits of an iteration, at least one.
    before, awaited : int
        How many of them precede the copy, and the await.
    keep : int
        Groups that the await leaves alone.
    low : int
        First iteration of the copy: the first await covers also what is issued ahead.
    """
    least = -((awaited - keep - before - 1) // len(commits))
    late = LATER if any(run.guard for run in commits) else 0
    return range(least, max(least + late, -low) + 1)


def covering(
    commits: Sequence[Run], before: int, awaited: int, keep: int, back: int
) -> Iterator[tuple[Bound, ...]]:
    """Yield conditions on k, each enough for an await of iteration k to cover a copy `back` before.

    Parameters
    ----------
    commits, before, awaited, keep
        As for `distances`.
    back : int
        Iterations from the copy to the await.
    """
    between = [(0, run) for run in commits[before if back == 0 else 0 : awaited]]
    between += [(j, run) for j in range(1, back) for run in commits]
    between += [(back, run) for run in commits[before:] if back > 0]
    guards = [tuple(g.at(-j) for g in run.guard) for j, run in between]
    for chosen in _enough(guards, keep + 1):
        yield tuple(dict.fromkeys(bound for guard in chosen for bound in guard))


def _enough(guards: list[tuple[Bound, ...]], many: int) -> Iterator[tuple[tuple[Bound, ...], ...]]:
    """Yield choices of `many` commits; those that always run are in every choice."""
    unsure = [guard for guard in guards if guard]
    return islice(combinations(unsure, max(0, many - (len(guards) - len(unsure)))), MOST)


def closing(commits: Sequence[Run], before: int, keep: int, more: int) -> Iterator[str]:
    """Yield in SMT-LIB when an await after the loop covers a copy of iteration k.

    Parameters
    ----------
    commits, before, keep
        As for `distances`.
    more : int
        Commits between the loop and the await.
    """
    need = max(0, keep + 1 - more)
    behind = [run.happens(0) for run in commits[before:]]
    behind += [run.happens(j) for j in range(1, need + LATER) for run in commits]
    for chosen in islice(combinations(behind, need), MOST):
        yield all_of(list(chosen))


FAR = 1 << 20
"""Time from one iteration to the next in a schedule: more than all nodes of an iteration take."""
Span = tuple[int, int]
"""The nodes at which an access starts and ends."""


class EventGraph:
    """The nodes of one iteration of a kernel and what they require."""

    def __init__(self, trace: Trace, without: Without = frozenset()) -> None:
        self.trace = trace
        self.without = without
        self.footprints = Footprints(trace)
        loud = {
            step.index
            for program in self.footprints.programs
            for step in (*program.before, *program.inside, *program.after)
        }
        self.runs = read_runs(trace, {s.index for s in trace.steps} - loud)
        self.size = 0
        self.chains: dict[Thread, list[Item]] = {}
        self.crosses: set[Cross] = set()
        self.phases: dict[str, Phase] = {}
        self.accesses: list[Access] = []
        self.fences: list[tuple[Step, Run, Thread, int]] = []
        self.groups: list[Group] = []
        self.commits: dict[tuple[Thread, kir.AsyncKind], list[Run]] = {}
        self.awaits: list[tuple[Step, Run, Thread, int, int]] = []
        self._shared: dict[tuple[object, ...], int] = {}
        self._converging: list[tuple[Step, Thread, int]] = []
        self._leading: dict[tuple[int, int], tuple[Thread, int]] = {}
        disjoint(trace.kernel, single=True)
        one_way(trace.kernel)
        if Obligation.COLLECTIVE not in without:
            joins(trace)
        self.signals = [
            Signal(arrive, wait, self.runs.of[arrive.index], self.runs.of[wait.index])
            for arrive, wait in signals(trace, self.runs.ahead)
        ]
        outside(self.footprints.programs, self.runs.ahead)
        for thread in self._threads():
            self._chain(thread, self.footprints.programs[thread.kind])
        self._crossed()

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
                if one is None or two is None or not one.shares(two):
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

    def one_of(self, kind: Threads) -> Thread:
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
            run = self.runs.of[step.index]
            how = self._kind(step, thread)
            if isinstance(step.stmt, kir.AsyncCommit):
                self.commits.setdefault((thread, step.stmt.kind), []).append(run)
            if how == "":
                continue
            merges = how == last and how in ("access", "issue")
            item = chain[-1] if merges else self._item(step, run, thread, how)
            if not merges:
                chain.append(item)
            last = how
            self._register(step, run, thread, item.node)

    def _kind(self, step: Step, thread: Thread) -> str:
        """Return what a step is to the order; nothing if it is silent for this thread."""
        match step.stmt:
            case kir.Load() | kir.Store():
                touches = (step.index, thread.kind) in self.footprints.touching
                return "access" if touches else ""
            case kir.TmaLoad() | kir.TmaStore():
                if self.trace.count(step) > 1:
                    raise RefusedError("WAW", step.stmt, "is issued by several threads at once")
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

    def _item(self, step: Step, run: Run, thread: Thread, how: str) -> Item:
        turns = Axiom.TURN not in self.without
        match step.stmt:
            case kir.BlockSync() if turns:
                return Item(self._node("sync", step.index), run.guard)
            case kir.WarpSync() if turns:
                return Item(self._node("warp", step.index, thread.warp), run.guard)
            case kir.MBarrierWaitParity():
                return Item(self._node(step.index, thread), waits=True)
            case _:
                return Item(self._node(step.index, thread, how))

    def _register(self, step: Step, run: Run, thread: Thread, node: int) -> None:
        match step.stmt:
            case kir.MBarrierWaitParity(barrier):
                self._phase(barrier, run, step).waits.append((step, run, thread, node))
            case kir.MBarrierArrive(barrier) | kir.MBarrierArriveExpectTx(barrier):
                self._phase(barrier, run, step).arrivals.append((step, run, thread, node))
            case kir.MBarrierExpectTx(barrier):
                self._phase(barrier, run, step).expects.append((step, run, thread, node))
            case kir.NamedArrive():
                for signal in self.signals:
                    if signal.arrive is step:
                        signal.arrivals.append(node)
            case kir.CpAsyncMBarrierArrive(barrier, _, noinc):
                self._arrives_later(barrier, step, run, thread, node)
                if not noinc:
                    self.phases[barrier.name].expects.append((step, run, thread, node))
            case kir.TmaLoad(dst, _, barrier):
                phase = self._phase(barrier, run, step)
                assert run.bar is not None, "loads complete on a barrier"
                end = self._node("finish", node, barrier.name, run.bar.shift)
                phase.copies.append((step, run, node, end))
                self._require(end, node, 0, Axiom.ISSUE)
                self._access(step, run, dst.buffer, run.buf, thread, (node, end))
            case kir.TmaStore(_, src):
                end = self._grouped(kir.AsyncKind.BULK, step, run, thread, node)
                self._access(step, run, src.buffer, run.buf, thread, (node, end))
            case kir.CpAsync(dst):
                end = self._grouped(kir.AsyncKind.CP_ASYNC, step, run, thread, node)
                self._access(step, run, dst.buffer, run.buf, thread, (node, end))
            case kir.Wgmma() if thread.lane > 0:
                self._converging.append((step, thread, node))
            case kir.Wgmma(_, a):
                self._leading[step.index, thread.warp] = thread, node
                end = self._grouped(kir.AsyncKind.WGMMA, step, run, thread, node)
                for slot in step.stmt.columns:
                    self._access(step, run, slot.buffer, run.buf, thread, (node, end))
                if isinstance(a, kir.Slot):
                    self._access(step, run, a.buffer, run.other, thread, (node, end))
            case kir.Load(_, kir.Slot(buffer)) | kir.Store(kir.Slot(buffer)):
                self._access(step, run, buffer, run.buf, thread, (node, node))
            case kir.FenceAsyncProxy():
                self.fences.append((step, run, thread, node))
            case kir.AsyncAwait(kind):
                commits = len(self.commits.get((thread, kind), ()))
                self.awaits.append((step, run, thread, node, commits))
            case _:
                pass

    def _grouped(self, kind: kir.AsyncKind, step: Step, run: Run, thread: Thread, node: int) -> int:
        """Add a copy to the open group of its thread; return the node at which it is done."""
        commits = len(self.commits.get((thread, kind), ()))
        end = self._node("done", node, kind, commits)
        self._require(end, node, 0, Axiom.ISSUE)
        self.groups.append(Group(kind, step, run, end, thread, commits))
        return end

    def _arrives_later(
        self, barrier: kir.MBarrier, step: Step, run: Run, thread: Thread, node: int
    ) -> None:
        """Arrive when the cp.async of a thread are done: those before it, or an iteration ago."""
        later = self._node("arrival", node)
        self._require(later, node, 0, Axiom.ISSUE)
        self._phase(barrier, run, step).arrivals.append((step, run, thread, later))

    def _phase(self, barrier: kir.MBarrier, run: Run, step: Step) -> Phase:
        assert run.bar is not None, "asked of steps on barriers"
        node = self._node("phase", barrier.name)
        phase = self.phases.setdefault(barrier.name, Phase(barrier, node, run.bar.modulus))
        if phase.modulus != run.bar.modulus:
            raise UnsupportedError(f"{step.where}: another part of {barrier.name}")
        return phase

    def _access(
        self,
        step: Step,
        run: Run,
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
        self.accesses.append(Access(step, run, buffer, walk, thread, *span, agency, writes))

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
            for step, run, thread, node in phase.arrivals:
                later = isinstance(step.stmt, kir.CpAsyncMBarrierArrive)
                self._require(phase.node, node, -run.phase, Axiom.ARRIVAL, narrow=later)
                if later:
                    self._finish(step, thread, node)
            for _, run, _, end in phase.copies:
                self._require(phase.node, end, -run.phase, Axiom.BYTES, narrow=True)
            for _, run, _, node in phase.waits:
                self._require(node, phase.node, run.phase, Axiom.WAIT, run.guard)
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
        for step, run, thread, node, commits in self.awaits:
            assert isinstance(step.stmt, kir.AsyncAwait), "asked of awaits"
            for group in self.groups:
                if not self.awaits_group(step.stmt.kind, thread, group):
                    continue
                for back, when in self.covers(group, commits, step.stmt.keep):
                    guard = (*run.guard, *when)
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
        for back in distances(*found, group.run.low):
            yield from ((back, when) for when in covering(*found, back))
