"""The mbarriers of the CTAs that run together: their lives, phases, arrivals, bytes and waits.

Notes
-----
A barrier slot has a clock column of its own whose value is the number of completed phases.  It
spreads like any other entry, so "this thread knows that phase n is over" is a comparison.
Source: PTX ISA, "mbarrier".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain

import numpy as np

from fuser.kernel import ir as kir
from oracles.simulator.machine import WRITE_DONE, Agent, Flight, Machine, Step, Violation
from oracles.simulator.sync.clock import (
    AWAITED_PARTS,
    CAUSE,
    ELSEWHERE,
    ORDER,
    REACH,
    RELEASED_PARTS,
    Clock,
    join,
    join_cause,
    join_shared,
)
from oracles.simulator.unroll import Event


@dataclass(eq=False, slots=True)
class Barrier:
    """One slot of an mbarrier in the shared memory of `cta`.

    Clock columns count its completed phases (`column`), and its lives, as seen in its CTA and in
    its cluster (`made`, `wide`).  `phase` is the full number of the running one; -1 before
    `mbarrier_init` and after the end.  The next `life` begins with a phase that is even, and past
    all earlier ones, so that what a thread knows of an earlier life does not count; `lives` is how
    often it was initialised.  `acc` is what arrivals and bytes of the running phase released,
    `sealed` the same of the last one; `far` and `far_sealed` from threads of other CTAs, for who
    waits at cluster scope.  `expects` are those who expect bytes on the running phase without
    arriving, `parts` its arrivals and bytes, `past` those of each phase of this life that is over;
    `returned` who has left its wait for the last phase, and when.
    """

    name: str
    cta: int
    count: int
    column: int
    made: int
    wide: int
    acc: Clock
    sealed: Clock
    far: Clock
    far_sealed: Clock
    phase: int = -1
    life: int = 0
    lives: int = 0
    made_by: int = -1
    pending: int = 0
    nbytes: int = 0
    expects: list[tuple[int, int]] = field(default_factory=list)
    parts: list[tuple[int, int]] = field(default_factory=list)
    past: list[list[tuple[int, int]]] = field(default_factory=list)
    waiters: list[Agent] = field(default_factory=list)
    returned: list[tuple[Agent, int]] = field(default_factory=list)
    used: dict[int, int] = field(default_factory=dict)
    observed: dict[int, int] = field(default_factory=dict)

    @property
    def state(self) -> str:
        """Its counters, in words."""
        if self.phase < 0:
            return f"{self.name}: no life"
        return f"{self.name}: phase {self.phase}, pending {self.pending}, bytes {self.nbytes}"


class Phases:
    """All mbarriers of a machine."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.rings: list[dict[str, list[Barrier]]] = []
        for cta in range(machine.ctas):
            self.rings.append({m.name: self._ring(m, cta) for m in machine.kernel.barriers})
        machine.followers.append(self._follow)

    def _ring(self, m: kir.MBarrier, cta: int) -> list[Barrier]:
        made, wide = self.machine.column(), self.machine.column()
        where = f"CTA {self.machine.agents_of(cta)[0].block}'s " if self.machine.ctas > 1 else ""
        new, ring = self.machine.columns.fresh, []
        for i in range(m.slots):
            name, column = f"{where}{m.name}[{i}]", self.machine.column()
            clocks = new(), new(), new(), new()
            ring.append(Barrier(name, cta, m.arrivals, column, made, wide, *clocks))
        return ring

    def _follow(self) -> None:
        wide = self.machine.columns.widened
        for rings in self.rings:
            for ring in rings.values():
                for b in ring:
                    b.acc, b.sealed = wide(b.acc), wide(b.sealed)
                    b.far, b.far_sealed = wide(b.far), wide(b.far_sealed)

    def barrier(self, ring: kir.MBarrier, slot: int, cta: int) -> Barrier:
        """Return one slot of a ring of barriers."""
        if not 0 <= slot < ring.slots:
            raise Violation("bounds", f"{ring.name} has {ring.slots} slots, none of number {slot}")
        return self.rings[cta][ring.name][slot]

    def init(self, agent: Agent, ring: kir.MBarrier) -> None:
        """Begin phase 0 of every slot."""
        for b in self.rings[agent.cta][ring.name]:
            if b.phase >= 0 or agent.mult > 1:
                raise Violation("init", f"{b.name} is initialised twice")
            b.life += b.life % 2
            b.phase, b.pending, b.nbytes = b.life, b.count, 0
            b.lives += 1
            both = slice(ORDER, CAUSE + 1)
            agent.clock[both, b.column] = b.phase
            agent.clock[both, b.made] = b.lives
            b.made_by = agent.by
            for clock in (b.acc, b.sealed, b.far, b.far_sealed):
                clock[:] = 0
            b.parts, b.past = [], []
            b.observed.clear()

    def fence_inits(self, agent: Agent) -> None:
        """Make the initialisations by this agent known to the cluster."""
        soft = agent.fences.get(kir.Scope.CLUSTER)
        for ring in self.rings[agent.cta].values():
            b = ring[0]
            if b.made_by == agent.by:
                known = int(agent.clock[ORDER, b.made])
                agent.clock[ORDER, b.wide] = known
                if soft is None:
                    soft = agent.fences[kir.Scope.CLUSTER] = self.machine.columns.fresh()
                soft[ORDER, b.wide] = soft[ORDER, b.made] = known

    def invalidate(self, agent: Agent, ring: kir.MBarrier) -> None:
        """End the life of every slot; all its uses must be over."""
        for b in self.rings[agent.cta][ring.name]:
            self.use(agent, b)
            late = [by for by, at in b.used.items() if agent.clock[ORDER, by] < at]
            if late or agent.mult > 1:
                who = self.machine.agents[late[0]].name if late else agent.name
                says = f"{b.name} is invalidated while {who} may still use it"
                raise Violation("init", says, self._last_use(late[0], b) if late else None)
            if any(b is target for target in self._targets()):
                raise Violation("init", f"{b.name} is invalidated before a copy completed on it")
            b.life, b.phase = b.phase, -1

    def _last_use(self, by: int, b: Barrier) -> Step | None:
        """Return what a thread does with a barrier now, or has done last."""
        agent = self.machine.agents[by] if by < len(self.machine.agents) else None
        steps: Iterable[Step] = reversed(self.machine.log)
        if agent is not None and agent.pc < len(agent.program):
            steps = chain([Step(agent.name, by, agent.program[agent.pc])], steps)
        for step in steps:
            if step.by == by and f"{_ring(step.event.stmt)}[{step.event.slot}]" == b.name:
                return step
        return None

    def _targets(self) -> Iterator[Barrier]:
        for f in self.machine.issued:
            match f.event.stmt:
                case (
                    kir.TmaLoad(_, _, ring) | kir.CpAsyncMBarrierArrive(ring)
                    | kir.StAsync(_, _, ring)
                ):  # fmt: skip
                    if f.done < WRITE_DONE:
                        yield self.rings[f.cta][ring.name][f.event.slot]
                case _:
                    pass

    def starved(self) -> bool:
        """Whether a phase that has all its arrivals waits for bytes."""
        every = (b for rings in self.rings for ring in rings.values() for b in ring)
        return any(b.phase >= 0 and b.nbytes and not b.pending for b in every)

    def use(self, agent: Agent, b: Barrier, *, copies: bool = False) -> None:
        """Check that the life of `b` is visible to this agent.

        Of one who issues `copies` that complete on `b` the use is over when they have.
        """
        if b.phase < 0:
            raise Violation("init", f"{b.name} is used before its mbarrier_init or after its end")
        if agent.clock[ORDER, b.made] < b.lives:
            raise Violation("init", f"nothing orders the mbarrier_init of {b.name} before this use")
        if agent.cta != b.cta and agent.clock[ORDER, b.wide] < b.lives:
            says = f"no fence_mbarrier_init makes the init of {b.name} visible to another CTA"
            raise Violation("init", says)
        if not copies:
            b.used[agent.by] = agent.now

    def fenced(self, agent: Agent, b: Barrier) -> bool:
        """Whether this agent knows of a `FenceMBarrierInit` behind the init of a barrier."""
        return bool(agent.clock[ORDER, b.wide] >= b.lives)

    def arrive(
        self,
        agent: Agent,
        b: Barrier,
        nbytes: int,
        scope: kir.Scope,
        event: Event,
        times: int = 1,
        space: kir.Space = kir.Space.ALL,
    ) -> None:
        """Expect `nbytes` more, then count `times` arrivals of each thread of this agent.

        They release at a scope, what happened to a space of memory.
        """
        self.use(agent, b)
        self._counts_now(agent, b, "arrivals")
        came = times * agent.mult
        if b.pending < came:
            says = f"{came} arrivals on {b.name}, phase {b.phase}, which expects {b.pending}"
            raise Violation("arrivals", says)
        b.nbytes += nbytes * agent.mult
        b.pending -= came

        def release(into: Clock, known: Clock) -> None:
            if space is kir.Space.SHARED:
                join_shared(into, known, self.machine.columns.parts.home == agent.cta)
            else:
                join(into, known)

        if agent.cta == b.cta:
            release(b.acc, agent.clock)
            self._release_parts(agent, b.acc, nbytes)
        else:
            self.machine.reach(agent, b.cta, event)
            join_cause(b.acc, agent.clock)
            wide = REACH[scope] >= REACH[kir.Scope.CLUSTER]
            seen = agent.clock if wide else agent.fences.get(kir.Scope.CLUSTER)
            if seen is not None:
                release(b.far, seen)
            if wide:
                self._release_parts(agent, b.far, nbytes)
        b.parts.append((agent.by, agent.now))
        agent.tick()
        self._settle(b)

    def _release_parts(self, agent: Agent, released: Clock, nbytes: int) -> None:
        """Let an arrival release other warps' parts of the wgmmas that this one awaited.

        The default policy tolerates one arrival per warpgroup on the barrier that frees a slot. Who
        expects bytes fills a slot; nothing else than an arrival releases for other warps.
        """
        if not nbytes:
            np.maximum(
                released[RELEASED_PARTS], agent.clock[AWAITED_PARTS], out=released[RELEASED_PARTS]
            )

    def arrive_for(self, flight: Flight, b: Barrier, mult: int, copies: list[Flight]) -> None:
        """Count the arrivals that copies make by themselves when they are over."""
        if b.phase < 0:
            raise Violation("init", f"{b.name} is arrived on, but has no life")
        knows = _known(b, flight.start)
        if knows != b.phase or b.pending < mult:
            says = f"{mult} arrivals for phase {knows} of {b.name} land on phase {b.phase}, which "
            says += f"expects {b.pending}"
            raise Violation("arrivals", says)
        b.pending -= mult
        for f in copies:
            column = b.acc[ORDER : CAUSE + 1, f.by]
            column[column < f.base + WRITE_DONE] = f.base + WRITE_DONE
        self._landed(flight, b)

    def _landed(self, flight: Flight, b: Barrier) -> None:
        join_cause(b.acc, flight.start)
        b.acc[CAUSE, flight.by] = flight.base + WRITE_DONE
        # what threads of another CTA store is released to waits at cluster scope
        far = isinstance(flight.event.stmt, kir.StAsync) and flight.issuer.cta != b.cta
        (b.far if far else b.acc)[ORDER : ELSEWHERE + 1, flight.by] = flight.base + WRITE_DONE
        b.parts.append((flight.by, flight.base + WRITE_DONE))
        flight.done = WRITE_DONE
        self._settle(b)

    def expect(self, agent: Agent, b: Barrier, nbytes: int) -> None:
        """Expect `nbytes` more on the running phase, without an arrival."""
        self.use(agent, b)
        self._counts_now(agent, b, "bytes")
        b.nbytes += nbytes * agent.mult
        b.expects.append((agent.by, agent.now))
        agent.tick()

    def _counts_now(self, agent: Agent, b: Barrier, kind: str) -> None:
        knows = _known(b, agent.clock)
        if knows != b.phase:
            says = f"this counts for phase {b.phase} of {b.name}, but its thread only knows "
            says += f"that {knows} phases are over: it may count for phase {knows}"
            raise Violation(kind, says)

    def complete(self, flight: Flight, b: Barrier, nbytes: int) -> None:
        """Count the bytes of a finished copy on the running phase."""
        if b.phase < 0:
            raise Violation("init", f"bytes complete on {b.name}, which has no life")
        knows = _known(b, flight.start)
        if knows != b.phase:
            says = f"{nbytes} bytes land on phase {b.phase} of {b.name}; the copy was issued when "
            says += f"{knows} phases were known to be over: they may land on phase {knows}"
            raise Violation("bytes", says)
        b.nbytes -= nbytes
        b.used[flight.by] = flight.base + WRITE_DONE
        self._landed(flight, b)

    def _settle(self, b: Barrier) -> None:
        if b.pending:
            return
        if b.nbytes < 0:
            says = f"phase {b.phase} of {b.name} got {-b.nbytes} bytes more than it expects"
            raise Violation("bytes", says)
        if b.nbytes:
            return
        for by, at in b.expects:
            if b.acc[CAUSE, by] <= at:
                says = f"no arrival follows an expect_tx on phase {b.phase} of {b.name}"
                raise Violation("bytes", says)
        for agent, at in b.returned:
            if b.acc[CAUSE, agent.by] < at:
                says = f"phase {b.phase} of {b.name} completes, but nothing orders that after "
                says += f"{agent.name} has left its wait for phase {b.phase - 1}: it can be lapped"
                raise Violation("parity", says, self._last_use(agent.by, b))
        b.phase += 1
        b.pending = b.count
        b.acc[ORDER : CAUSE + 1, b.column] = b.phase
        b.sealed, b.acc = b.acc, b.sealed
        b.far_sealed, b.far = b.far, b.far_sealed
        b.acc[:] = 0
        b.far[:] = 0
        b.returned.clear()
        b.expects.clear()
        b.past.append(b.parts)
        b.parts = []
        waiters, b.waiters = b.waiters, []
        for agent in waiters:
            self.machine.wake(agent, passed=False)

    def wait(self, agent: Agent, b: Barrier, parity: int, scope: kir.Scope) -> bool:
        """Try to pass a wait; it is meant for the first phase that may still be running.

        Of the phases of that parity, the thread can only mean the first one that is not before the
        last phase it knows to be over.
        """
        self.use(agent, b)
        if agent.intent is None:
            if parity not in (0, 1):
                raise Violation("parity", f"parity {parity} of {b.name} is neither 0 nor 1")
            last = _known(b, agent.clock) - 1
            agent.intent = last if last % 2 == parity else last + 1
            seen = b.observed.get(agent.by)
            if seen is not None and agent.intent > seen + 1:
                says = f"{agent.name} never observes phase {seen + 1} of {b.name}"
                self.machine.warn("parity", says, None)
        if b.phase <= agent.intent:
            b.waiters.append(agent)
            self.machine.block(agent, f"phase {agent.intent} of {b.name} (running: {b.state})")
            return False
        if b.phase > agent.intent + 1:
            says = f"{agent.name} waits for phase {agent.intent} of {b.name}, which already runs "
            says += f"phase {b.phase}: it was lapped"
            raise Violation("parity", says)
        join(agent.clock, b.sealed)
        if self.machine.kernel.cluster > 1 and b.far_sealed.any():
            if REACH[scope] >= REACH[kir.Scope.CLUSTER]:
                join(agent.clock, b.far_sealed)
            else:
                agent.weak.append((kir.Scope.CLUSTER, b.far_sealed.copy()))
        agent.joined = max(agent.joined, int(b.sealed[ORDER, agent.by]))
        b.returned.append((agent, agent.now))
        b.observed[agent.by] = agent.intent
        agent.intent = None
        return True


def _known(b: Barrier, clock: Clock) -> int:
    """Return how many phases of a barrier this clock knows to be over.

    Somebody said so, or all arrivals and bytes of one are in the clock: they came when those before
    it were over.
    """
    known = int(clock[CAUSE, b.column])
    first = b.phase - len(b.past)
    for phase in range(b.phase - 1, known - 1, -1):
        if all(clock[CAUSE, by] >= at for by, at in b.past[phase - first]):
            return phase + 1
    return known


def _ring(stmt: kir.Stmt) -> str:
    ring = getattr(stmt, "barrier", None)
    return ring.name if isinstance(ring, kir.MBarrier) else ""
