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

from dataclasses import dataclass, field
from itertools import pairwise

from fuser import kernel_ir as kir
from oracles.arithmetic import UnsupportedError
from oracles.footprint import Footprints, Meeting
from oracles.parametric import Bound, Place, places
from oracles.trace import Program, Step, Trace


class RefusedError(Exception):
    """A rule that needs no proof for all iterations is broken."""

    def __init__(self, kind: str, step: Step | None, says: str) -> None:
        super().__init__(says)
        self.kind, self.step, self.says = kind, step, says


@dataclass(frozen=True, slots=True)
class Thread:
    """One thread of a kind: `warp` 0 is the first of its role, `lane` 0 the first of its warp."""

    agent: int
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
    """`node` in iteration k requires `cause` in iteration `k + shift`, if `guard` holds for k."""

    node: int
    cause: int
    shift: int
    guard: tuple[Bound, ...] = ()


@dataclass(frozen=True, slots=True)
class Access:
    """Bytes of a slot in use from node `start` to node `end`, by an engine or by a thread."""

    step: Step
    place: Place
    buffer: kir.Buffer
    thread: Thread
    start: int
    end: int
    engine: bool
    writes: bool


@dataclass(slots=True)
class Phase:
    """The phases of one mbarrier: who arrives, whose bytes count, who waits."""

    barrier: kir.MBarrier
    node: int
    modulus: int
    arrivals: list[tuple[Step, Place, Thread, int]] = field(default_factory=list)
    copies: list[tuple[Step, Place, int, int]] = field(default_factory=list)
    waits: list[tuple[Step, Place, Thread, int]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Group:
    """A store's bulk group: the node at which it has read, and how many commits precede it."""

    step: Step
    place: Place
    read: int
    thread: Thread
    commits: int


class Skeleton:
    """The nodes of one iteration of a kernel and what they require."""

    def __init__(self, trace: Trace, footprints: Footprints) -> None:
        self.trace = trace
        self.footprints = footprints
        self.places = places(trace)
        self.size = 0
        self.chains: dict[Thread, list[Item]] = {}
        self.crosses: set[Cross] = set()
        self.phases: dict[str, Phase] = {}
        self.accesses: list[Access] = []
        self.fences: list[tuple[Step, Place, Thread, int]] = []
        self.groups: list[Group] = []
        self.commits: dict[Thread, int] = {}
        self.awaits: list[tuple[Step, Place, Thread, int, int]] = []
        self._shared: dict[tuple[object, ...], int] = {}
        _disjoint(trace.kernel)
        self._joins()
        self._outside()
        for thread in self._threads():
            self._chain(thread, self.footprints.programs[thread.agent])
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
        found = {Thread(a.index, *self._seat(a.index)) for a in self.trace.agents}
        spread = [step for step in self.trace.steps if self.footprints.accesses[step.index]]
        for a in spread:
            for b in spread:
                if _buffer(a) != _buffer(b):
                    continue
                if isinstance(a.stmt, kir.Store) or isinstance(b.stmt, kir.Store):
                    for meeting in self.footprints.meetings(a.index, b.index):
                        found |= self._around(self.pair(meeting)[1])
        return sorted(found, key=lambda t: (t.agent, t.warp, t.lane))

    def _around(self, thread: Thread) -> set[Thread]:
        """All kinds of lanes of a thread's warp, and the thread itself."""
        me = self.trace.agents[thread.agent]
        alike = {
            Thread(a.index, thread.warp, self._seat(a.index)[1])
            for a in self.trace.agents
            if (a.base, a.first_warp) == (me.base, me.first_warp)
        }
        return alike | {thread}

    def _seat(self, agent: int) -> tuple[int, int]:
        a = self.trace.agents[agent]
        return (0 if a.first_warp else 1), (0 if a.first_lane else 1)

    def pair(self, meeting: Meeting) -> tuple[Thread, Thread]:
        """Return two different threads that meet as `meeting` says."""
        a, b = self.trace.agents[meeting.first], self.trace.agents[meeting.second]
        (warp, lane), (warp2, lane2) = self._seat(a.index), self._seat(b.index)
        if (a.base, a.first_warp) == (b.base, b.first_warp):
            if not meeting.same_warp:
                warp2 = 2
            elif a == b:
                lane2 = 2
        return Thread(a.index, warp, lane), Thread(b.index, warp2, lane2)

    # --- rules that hold or not, whatever the iteration -------------------------------------------

    def _joins(self) -> None:
        """Check that a named barrier is always reached by the same threads, and by all it takes."""
        users: dict[int, Step] = {}
        for step in self.trace.steps:
            match step.stmt:
                case kir.BlockSync(barrier, threads):
                    count = sum(self.trace.agents[i].count for i in step.agents)
                    if count != threads:
                        raise RefusedError("collective", step, f"{count} threads arrive")
                    if users.setdefault(barrier, step).agents != step.agents:
                        raise UnsupportedError(f"{step.where}: a barrier of two sets of threads")
                case kir.WarpSync():
                    for a in self.trace.agents:
                        for b in self.trace.agents:
                            alike = (a.base, a.first_warp) == (b.base, b.first_warp)
                            if alike and a.index in step.agents and b.index not in step.agents:
                                raise RefusedError("deadlock", step, "not all lanes arrive")
                case _:
                    pass

    def _outside(self) -> None:
        """Check that nothing but set-up precedes the loops and nothing but awaits follows them."""
        for program in self.footprints.programs:
            for step in program.before:
                match step.stmt:
                    case kir.MBarrierInit() | kir.BlockSync() | kir.WarpSync():
                        pass
                    case kir.FenceAsyncProxy():
                        pass
                    case _ if step.index in self.places.ahead:
                        pass
                    case _:
                        raise UnsupportedError(f"{step.where}: before the loop")
            for step in program.after:
                match step.stmt:
                    case kir.BlockSync() | kir.WarpSync() | kir.FenceAsyncProxy():
                        pass
                    case kir.AsyncAwait(kir.AsyncKind.BULK) | kir.AsyncCommit(kir.AsyncKind.BULK):
                        pass
                    case _:
                        raise UnsupportedError(f"{step.where}: after the loop")

    # --- nodes ----------------------------------------------------------------------------------

    def _chain(self, thread: Thread, program: Program) -> None:
        chain = self.chains[thread] = []
        self.commits[thread] = 0
        last = ""
        for step in program.inside:
            place = self.places.of[step.index]
            how = self._kind(step, thread)
            if how == "commit":
                if place.guard:
                    raise UnsupportedError(f"{step.where}: a commit inside an if")
                self.commits[thread] += 1
                continue
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
                touches = (step.index, thread.agent) in self.footprints.touching
                return "access" if touches else ""
            case kir.TmaLoad() | kir.TmaStore():
                if self.trace.agents[thread.agent].count > 1:
                    raise RefusedError("WAW", step, "is issued by several threads at once")
                return "issue"
            case kir.AsyncCommit(kir.AsyncKind.BULK):
                return "commit"
            case kir.FenceAsyncProxy(space):
                return "" if space is kir.Space.GLOBAL else "fence"
            case kir.BlockSync() | kir.WarpSync() | kir.AsyncAwait(kir.AsyncKind.BULK):
                return "own"
            case kir.MBarrierWaitParity(_, _, _, scope) if scope is not kir.Scope.CLUSTER:
                return "own"
            case kir.MBarrierArrive(_, _, scope, None) if scope is not kir.Scope.CLUSTER:
                return "own"
            case kir.MBarrierArriveExpectTx():
                return "own"
            case _:
                raise UnsupportedError(f"{step.where}: {type(step.stmt).__name__} in a loop")

    def _item(self, step: Step, place: Place, thread: Thread, how: str) -> Item:
        match step.stmt:
            case kir.BlockSync():
                return Item(self._node("sync", step.index), place.guard)
            case kir.WarpSync():
                base = self.trace.agents[thread.agent].base
                return Item(self._node("warp", step.index, base, thread.warp), place.guard)
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
            case kir.TmaLoad(dst, _, barrier):
                phase = self._phase(barrier, place, step)
                assert place.bar is not None, "loads complete on a barrier"
                end = self._node("finish", node, barrier.name, place.bar.shift)
                phase.copies.append((step, place, node, end))
                self.crosses.add(Cross(end, node, 0))
                self._access(step, place, dst.buffer, thread, (node, end), engine=True, writes=True)
            case kir.TmaStore(_, src):
                commits = self.commits[thread]
                end = self._node("read", node, commits)
                self.crosses.add(Cross(end, node, 0))
                self.groups.append(Group(step, place, end, thread, commits))
                self._access(
                    step, place, src.buffer, thread, (node, end), engine=True, writes=False
                )
            case kir.Load(_, kir.Slot(buffer)):
                self._access(step, place, buffer, thread, (node, node), engine=False, writes=False)
            case kir.Store(kir.Slot(buffer)):
                self._access(step, place, buffer, thread, (node, node), engine=False, writes=True)
            case kir.FenceAsyncProxy():
                self.fences.append((step, place, thread, node))
            case kir.AsyncAwait():
                self.awaits.append((step, place, thread, node, self.commits[thread]))
            case _:
                pass

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
        thread: Thread,
        span: tuple[int, int],
        *,
        engine: bool,
        writes: bool,
    ) -> None:
        assert place.buf is not None, "accesses have a slot"
        for other in self.accesses:
            assert other.place.buf is not None, "accesses have a slot"
            if other.buffer == buffer and other.place.buf.modulus != place.buf.modulus:
                raise UnsupportedError(f"{step.where}: another part of {buffer.name}")
        self.accesses.append(Access(step, place, buffer, thread, *span, engine, writes))

    # --- what nodes require ---------------------------------------------------------------------

    def _crossed(self) -> None:
        for phase in self.phases.values():
            self.crosses.add(Cross(phase.node, phase.node, -phase.modulus))
            for _, place, _, node in phase.arrivals:
                self._requires(phase.node, node, place)
            for _, place, _, end in phase.copies:
                self._requires(phase.node, end, place)
            for _, place, _, node in phase.waits:
                assert place.bar is not None, "waits have a phase"
                self.crosses.add(Cross(node, phase.node, place.bar.shift, place.guard))
        for step, place, thread, node, commits in self.awaits:
            assert isinstance(step.stmt, kir.AsyncAwait), "asked of awaits"
            for group in self.groups:
                if group.thread == thread and self.commits[thread]:
                    back = self.behind(group, commits - step.stmt.keep)
                    self.crosses.add(Cross(node, group.read, back, place.guard))

    def _requires(self, phase: int, node: int, place: Place) -> None:
        assert place.bar is not None, "steps on barriers have a phase"
        self.crosses.add(Cross(phase, node, -place.bar.shift))

    def behind(self, group: Group, awaited: int) -> int:
        """Return the latest iteration, relative to an await's, whose store it covers.

        `awaited` is how many groups it waits for, less those committed in earlier iterations.
        """
        return (awaited - group.commits - 1) // self.commits[group.thread]


def _buffer(step: Step) -> kir.Buffer | None:
    match step.stmt:
        case kir.Load(_, kir.Slot(buffer)) | kir.Store(kir.Slot(buffer)):
            return buffer
        case _:
            return None


def _disjoint(kernel: kir.Kernel) -> None:
    spans = sorted((b.offset, b.offset + b.slots * b.slot_nbytes, b.name) for b in kernel.buffers)
    for a, b in pairwise(spans):
        if b[0] < a[1]:
            raise UnsupportedError(f"{a[2]} and {b[2]} share bytes")
