"""What happens before what, in every execution of a kernel with one given trip count.

`Order` follows one execution and records, of every event, the set of events that must precede it
in *every* execution (a bit set, one bit per event).  Whatever one execution might have decided by
chance (the phase that a wait sees, the phase that an arrival counts for) is checked not to be
chance; where it is, that is a finding.  So the order found is that of all executions.

Notes
-----
Why one execution is enough.  Take any other execution and its first event that does not happen as
recorded here.  Up to it, every event was preceded by all its recorded predecessors.

- A wait that should see phase j started after phase j-1 completed (checked), so an older phase
  cannot satisfy it; phase j+1 needs the wait to have returned (checked), so a younger one cannot.
- A phase gets only arrivals and bytes recorded for it: later ones start after its completion
  (checked), earlier ones were needed by earlier phases; their number and the bytes are equal to
  what it waits for (checked), so it completes when all of them are in, neither sooner nor later.
- Turns of a named barrier are told apart in the same way; groups are counted by one thread.

Hence there is no such first event.  And as the record is finite and without cycles, every event
happens: no execution deadlocks.  If the followed execution itself stops, it is a deadlock.

Generic accesses of one thread between two of its synchronising statements share one event, for
nothing outside the thread can tell them apart.
"""

from __future__ import annotations

from collections.abc import Iterable

from fuser import kernel_ir as kir
from oracles.arithmetic import NegativeError, UnsupportedError
from oracles.events import Event, Phase, Runner, Turn, Violation
from oracles.footprint import Footprints
from oracles.joins import block_sync, explain, warp_sync
from oracles.obligations import Memory
from oracles.trace import Program, Step, Trace
from oracles.twins import followed


class Order:
    """The order of all executions with `trips` trips, and what is wrong with them."""

    def __init__(
        self,
        trace: Trace,
        trips: int,
        footprints: Footprints,
        following: tuple[tuple[Program, ...], frozenset[int]] | None = None,
    ) -> None:
        self.trace = trace
        self.trips = trips
        self.footprints = footprints
        self._programs, self._twins = following or followed(footprints)
        self.events: list[Event] = []
        self.before: list[int] = []
        self.fenced: list[int] = []
        self.causes: list[tuple[int, ...]] = []
        self.violations: list[Violation] = []
        self.checked = 0
        self.phases: dict[tuple[str, int], Phase] = {}
        self.turns: dict[int, Turn] = {}
        self.inits: dict[str, tuple[int, int, Step]] = {}
        self.syncs: list[int] = []
        self.fences: list[tuple[int, int]] = []
        self.private: dict[int, int] = {a.index: 0 for a in trace.agents}
        self.warp_private: dict[int, int] = {}
        self.flying: list[tuple[int, str, Step]] = []
        self._visible: set[tuple[str, int]] = set()
        self.memory = Memory(self, footprints)
        self.runners = [Runner(a.index, self._todo(a.index)) for a in trace.agents]
        self._follow()

    def _todo(self, agent: int) -> list[tuple[Step, int]]:
        return list(self._programs[agent].run(self.trips))

    # --- events ---------------------------------------------------------------------------------

    def event(
        self, event: Event, before: int, fenced: int, causes: Iterable[int], *, warp: int = -1
    ) -> int:
        """Add an event after all of `before`; return its number."""
        number = len(self.events)
        self.events.append(event)
        self.before.append(before | 1 << number)
        self.fenced.append(fenced)
        self.causes.append(tuple(c for c in causes if c >= 0))
        if event.agent >= 0:
            self.private[event.agent] |= 1 << number
        if warp >= 0:
            self.warp_private[warp] = self.warp_private.get(warp, 0) | 1 << number
        return number

    def _own(self, a: Runner, step: Step, what: str, k: int, causes: Iterable[int] = ()) -> int:
        number = self.event(Event(step, a.index, what, k), a.before, a.fenced, (a.last, *causes))
        a.before = self.before[number]
        a.last, a.segment = number, -1
        return number

    def segment(self, agent: int, step: Step, k: int) -> int:
        """Return the event that the agent's generic accesses share up to its next sync."""
        a = self.runners[agent]
        if a.segment < 0:
            number = self._own(a, step, "access", k)
            a.segment = number
        return a.segment

    def wrong(
        self,
        kind: str,
        later: Step,
        k: int,
        says: str,
        *,
        earlier: Step | None = None,
        severity: str = "error",
    ) -> None:
        """Record a violation."""
        self.violations.append(Violation(kind, later, earlier, k, self.trips, says, severity))

    # --- execution ------------------------------------------------------------------------------

    def _follow(self) -> None:
        try:
            moved = True
            while moved:
                moved = False
                for a in self.runners:
                    if a.at < len(a.todo) and self._step(a):
                        moved = True
        except NegativeError as error:
            step, k = a.todo[a.at]
            self.wrong("bounds", step, k, f"divides a negative number ({error})")
            return
        if any(a.at < len(a.todo) for a in self.runners):
            explain(self)
            return
        self._exit()

    def _step(self, a: Runner) -> bool:
        """Execute the next step of an agent; False if it has to wait."""
        step, k = a.todo[a.at]
        stmt = step.stmt
        if isinstance(stmt, kir.BlockSync):
            return block_sync(self, a, step, stmt, k)
        if isinstance(stmt, kir.WarpSync):
            return warp_sync(self, a, step, k)
        if isinstance(stmt, kir.MBarrierWaitParity):
            if not self._wait(a, step, stmt, k):
                return False
        elif isinstance(stmt, kir.Load | kir.Store):
            self.memory.generic(a.index, a.before, step, k)
        else:
            self._other(a, step, k)
        a.at += 1
        a.waiting = ""
        return True

    def _other(self, a: Runner, step: Step, k: int) -> None:
        """Execute a step that never waits for others."""
        match step.stmt:
            case kir.MBarrierArrive(barrier, _, scope, cta):
                if cta is not None or scope is kir.Scope.CLUSTER:
                    raise UnsupportedError(f"{step.where}: an arrival at another CTA")
                self._arrive(a, step, barrier, 0, k)
            case kir.MBarrierArriveExpectTx(barrier, _, nbytes):
                self._arrive(a, step, barrier, nbytes, k)
            case kir.TmaLoad() as load:
                self._tma_load(a, step, load, k)
            case kir.TmaStore() if step.index in self._twins:
                pass
            case kir.TmaStore():
                self._tma_store(a, step, k)
            case kir.AsyncCommit(kir.AsyncKind.BULK):
                a.groups.append(a.group)
                a.group = []
            case kir.AsyncAwait(kir.AsyncKind.BULK, keep):
                self._await(a, step, k, keep)
            case kir.FenceAsyncProxy(space):
                number = self._own(a, step, "fence", k)
                if space is not kir.Space.GLOBAL:
                    a.fenced |= a.before
                    self.fences.append((number, a.index))
            case kir.MBarrierInit(barrier):
                self._init(a, step, barrier, k)
            case _:
                raise UnsupportedError(f"{step.where}: {type(step.stmt).__name__}")

    # --- mbarriers ------------------------------------------------------------------------------

    def _init(self, a: Runner, step: Step, barrier: kir.MBarrier, k: int) -> None:
        count = self.trace.agents[a.index].count
        if count > 1 or barrier.name in self.inits:
            self.wrong("init", step, k, f"{barrier.name} is initialised more than once")
            return
        number = self._own(a, step, "init", k)
        self.inits[barrier.name] = (number, a.index, step)
        for slot in range(barrier.slots):
            self.phases[barrier.name, slot] = Phase(
                barrier, slot, pending=barrier.arrivals, ends=[]
            )

    def _phase(self, a: Runner, step: Step, barrier: kir.MBarrier, k: int) -> Phase | None:
        """Return the running phase that a statement uses, checked to be initialised for it."""
        slot = step.bar_slot(max(k, 0), self.trips)
        if not 0 <= slot < barrier.slots:
            says = f"{barrier.name}[{slot}] is outside its {barrier.slots} slots"
            self.wrong("bounds", step, k, says)
            return None
        made = self.inits.get(barrier.name)
        self.checked += 1
        if made is None:
            self.wrong("init", step, k, f"{barrier.name} is used before its mbarrier_init")
            return None
        number, agent, init = made
        if (barrier.name, a.index) in self._visible or agent == a.index:
            return self.phases[barrier.name, slot]
        if any(self.before[sync] >> number & 1 and a.before >> sync & 1 for sync in self.syncs):
            self._visible.add((barrier.name, a.index))
        else:
            says = f"no block_sync makes {barrier.name} visible to {self.trace.agents[a.index]}"
            self.wrong("init", step, k, says, earlier=init)
        return self.phases[barrier.name, slot]

    def _after_previous(self, a: Runner, step: Step, phase: Phase, k: int, what: str) -> None:
        """Check that the phase before the running one completed before this (A1, A3)."""
        self.checked += 1
        if phase.ends and not a.before >> phase.ends[-1] & 1:
            says = (
                f"nothing orders the completion of phase {phase.number - 1} of "
                f"{phase.barrier.name}[{phase.slot}] before {what} phase {phase.number}"
            )
            self.wrong("parity", step, k, says)

    def _arrive(self, a: Runner, step: Step, barrier: kir.MBarrier, nbytes: int, k: int) -> None:
        phase = self._phase(a, step, barrier, k)
        if phase is None:
            return
        count = self.trace.agents[a.index].count
        self._after_previous(a, step, phase, k, "this arrival in")
        number = self._own(a, step, "arrive", k)
        self.checked += 1
        if phase.pending < count:
            says = (
                f"{count} arrivals on {barrier.name}[{phase.slot}], whose phase "
                f"{phase.number} has {phase.pending} of {barrier.arrivals} left"
            )
            self.wrong("arrivals", step, k, says)
        phase.pending = max(0, phase.pending - count)
        phase.nbytes += nbytes * count
        self._joins(phase, number, step, k)
        self._complete(phase)

    def _joins(self, phase: Phase, number: int, step: Step, k: int) -> None:
        phase.before |= self.before[number]
        phase.fenced |= self.fenced[number]
        phase.causes.append(number)
        if phase.step is None or step.index < phase.step.index:
            phase.step, phase.iteration = step, k

    def _complete(self, phase: Phase) -> None:
        """End the running phase if all its arrivals and bytes are in."""
        if phase.pending or phase.nbytes:
            return
        assert phase.step is not None, "something arrived"
        causes = phase.causes + phase.ends[-1:]
        before = phase.before
        for end in phase.ends[-1:]:
            before |= self.before[end]
        number = self.event(
            Event(phase.step, -1, f"phase of {phase.barrier.name}", phase.iteration),
            before,
            phase.fenced,
            causes,
        )
        late = phase.waiters & ~before
        self.checked += 1
        if late:
            wait = self.events[late.bit_length() - 1]
            assert wait.step is not None, "waits have steps"
            says = (
                f"phase {phase.number} of {phase.barrier.name}[{phase.slot}] may complete before "
                f"{self.trace.agents[wait.agent]} has seen phase {phase.number - 1}"
            )
            self.wrong("parity", wait.step, wait.iteration, says, earlier=phase.step)
        phase.ends.append(number)
        phase.number += 1
        phase.pending = phase.barrier.arrivals
        phase.before = phase.fenced = phase.waiters = 0
        phase.causes = []
        phase.step = None

    def _wait(self, a: Runner, step: Step, stmt: kir.MBarrierWaitParity, k: int) -> bool:
        if stmt.scope is kir.Scope.CLUSTER:
            raise UnsupportedError(f"{step.where}: a wait across CTAs")
        slot = step.bar_slot(max(k, 0), self.trips)
        phase = self.phases.get((stmt.barrier.name, slot))
        parity = step.parity(max(k, 0), self.trips)
        if phase is None:
            self._phase(a, step, stmt.barrier, k)
            return True
        if phase.number % 2 == parity:
            return False
        if parity not in (0, 1):
            self.wrong("parity", step, k, f"{parity} is no parity")
        self._phase(a, step, stmt.barrier, k)
        self.checked += 1
        if len(phase.ends) > 1 and not a.before >> phase.ends[-2] & 1:
            says = (
                f"may pass on a phase older than {phase.number - 1} of "
                f"{stmt.barrier.name}[{slot}]: nothing orders phase {phase.number - 2} before it"
            )
            self.wrong("parity", step, k, says)
        ends = phase.ends[-1:]
        for end in ends:
            a.before |= self.before[end]
            a.fenced |= self.fenced[end]
        number = self._own(a, step, "wait", k, ends)
        phase.waiters |= 1 << number
        return True

    # --- engines --------------------------------------------------------------------------------

    def _tma_load(self, a: Runner, step: Step, stmt: kir.TmaLoad, k: int) -> None:
        phase = self._phase(a, step, stmt.barrier, k)
        if phase is None:
            return
        nbytes = stmt.src.tensor.dtype.nbytes
        for extent in stmt.src.shape:
            nbytes *= extent
        phase.nbytes -= nbytes * self.trace.agents[a.index].count
        if step.index in self._twins:
            self._complete(phase)
            return
        self._after_previous(a, step, phase, k, "these bytes in")
        start = self._own(a, step, "issue", k)
        end = self.event(
            Event(step, -1, "finish", k), self.before[start], self.fenced[start], [start]
        )
        self.memory.engine(a.index, start, end, step, k, writes=True)
        self.flying.append((end, "exit", step))
        self._joins(phase, end, step, k)
        self._complete(phase)

    def _tma_store(self, a: Runner, step: Step, k: int) -> None:
        start = self._own(a, step, "issue", k)
        after = self.before[start], self.fenced[start]
        read = self.event(Event(step, -1, "read", k), *after, [start])
        self.memory.engine(a.index, start, read, step, k, writes=False)
        self.flying.append((read, "drain", step))
        a.group.append(read)

    def _await(self, a: Runner, step: Step, k: int, keep: int) -> None:
        """Wait for groups: their reads are all that this CTA's memory cares about."""
        done = max(0, len(a.groups) - keep)
        reads = [read for group in a.groups[:done] for read in group]
        for read in reads:
            a.before |= self.before[read]
        self._own(a, step, "await", k, reads)
        a.groups[:done] = [[] for _ in range(done)]

    # --- the end --------------------------------------------------------------------------------

    def _exit(self) -> None:
        """Check that no engine still uses this CTA's shared memory when its threads are gone."""
        end = 0
        for a in self.runners:
            end |= a.before
        for number, kind, step in self.flying:
            self.checked += 1
            if not end >> number & 1:
                says = "is still in flight when the CTA exits; nobody waits for it"
                self.wrong(kind, step, self.events[number].iteration, says)
