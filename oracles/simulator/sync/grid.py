"""Where CTAs learn of each other: the integers of semaphores, with what each of them hands on.

Source: PTX ISA, "Memory consistency model", on release and acquire patterns.
"""

from __future__ import annotations

from fuser.kernel import ir as kir
from oracles.simulator.agent import WRITE_DONE, Agent, Violation
from oracles.simulator.machine import Machine
from oracles.simulator.sync.barrier import (
    REACH,
    Counter,
    Election,
    Gate,
    GridBarrier,
    NamedBarrier,
    Round,
)
from oracles.simulator.sync.clock import CAUSE, ORDER, Clock, join, join_cause
from oracles.simulator.unroll import Event

TURN = "turn"
"""Begins the text of an agent that waits for a semaphore."""
GRID = "CTAs at"
"""Begins the text of an agent that waits for other CTAs."""


class Semaphores:
    """All integers of the semaphores of a launch.

    Parameters
    ----------
    counts : dict of str to int
        Integers of every semaphore at this launch.
    drained : tuple of str
        Tensors whose copies must be performed before a release: other CTAs access them.
    """

    def __init__(self, machine: Machine, counts: dict[str, int], drained: frozenset[str]) -> None:
        self.machine = machine
        self.counts = counts
        self.drained = drained
        self.counters: dict[tuple[str, int], Counter] = {}
        self.grids: dict[tuple[str, int], GridBarrier] = {}
        self.rounds: dict[tuple[str, int], Round] = {}
        self._elects: dict[tuple[str, int], bool] = {}

    def counter(self, name: str, index: int) -> Counter:
        """Return one integer of a semaphore."""
        if not 0 <= index < self.counts[name]:
            has = self.counts[name]
            raise Violation("bounds", f"{name} has {has} integers, none of number {index}")
        return self.counters.setdefault((name, index), Counter())

    def _serves(self, name: str, index: int, *, elects: bool) -> None:
        """Demand that an integer which elects CTAs does nothing else: both count in it."""
        if self._elects.setdefault((name, index), elects) is not elects:
            says = f"{name}[{index}] elects the last CTA to come, and serves others too"
            raise Violation("semaphore", says)

    def opens(self, b: NamedBarrier, gate: Gate) -> bool:
        """Look at a semaphore for a CTA all of whose threads are waiting for its turn."""
        agents = b.waiting
        counter = self.counter(*gate.semaphore)
        self._serves(*gate.semaphore, elects=False)
        name = "{}[{}]".format(*gate.semaphore)
        other = counter.value != gate.turn or counter.cta not in (-1, agents[0].cta)
        if other and self.machine.kernel.residency == "any":
            raise Violation(
                "residency",
                f"CTA {agents[0].block} waits for turn {gate.turn} of {name}, which another CTA "
                'gives; with residency "any" that CTA may never run',
            )
        if counter.value != gate.turn:
            counter.waiting.append(b)
            for agent in agents:
                agent.blocked = f"{TURN} {gate.turn} of {name} (now {counter.value})"
            return False
        if counter.cause is None:
            return True
        join_cause(b.acc, counter.cause)
        cluster = self.machine.kernel.cluster
        need = kir.Scope.GPU
        if counter.cta == agents[0].cta:
            need = kir.Scope.CTA
        elif counter.cta // cluster == agents[0].cta // cluster:
            need = kir.Scope.CLUSTER
        seen = counter.fences.get(need)
        if counter.seen is not None and REACH[counter.scope] >= REACH[need]:
            seen = counter.seen
        if seen is not None and REACH[gate.scope] >= REACH[need]:
            join(b.acc, seen)
        elif seen is not None:
            for agent in agents:
                agent.weak.append((need, seen))
        return True

    def release(
        self, agent: Agent, stmt: kir.BlockSerializeRelease, event: Event
    ) -> list[NamedBarrier]:
        """Store the next turn; return the barriers of those who wait for it."""
        name = f"{stmt.semaphore.name}[{event.slot}]"
        if agent.mult > 1:
            raise Violation("collective", f"{agent.mult} threads release {name}; one has to")
        counter = self.counter(stmt.semaphore.name, event.slot)
        self._serves(stmt.semaphore.name, event.slot, elects=False)
        if counter.by >= 0 and agent.clock[CAUSE, counter.by] < counter.at:
            says = f"nothing orders this release of {name} after the last one"
            raise Violation("semaphore", says)
        self._drained(agent.clock, agent.cta, f"{name} is released")
        counter.value, counter.scope = event.parity, stmt.scope
        counter.by, counter.at, counter.cta = agent.by, agent.now, agent.cta
        counter.cause = agent.clock.copy()
        counter.seen = None if stmt.relaxed else counter.cause
        counter.fences = dict(agent.fences)
        agent.tick()
        waiting, counter.waiting = counter.waiting, []
        return waiting

    def _drained(self, clock: Clock, cta: int, what: str) -> None:
        """Demand that no copy of a CTA that is known of is on its way to other CTAs."""
        for flight in self.machine.issued:
            match flight.event.stmt:
                case kir.TmaStore(dst) | kir.TmaReduce(dst):
                    known = clock[CAUSE, flight.issuer.by] >= flight.issued
                    done = clock[ORDER, flight.by] >= flight.base + WRITE_DONE
                    shared = dst.tensor.name in self.drained
                    if flight.issuer.cta == cta and shared and known and not done:
                        says = f"{what} while a copy to {dst.tensor.name} is in flight"
                        raise Violation("drain", says)
                case _:
                    pass

    def grid_sync(self, agent: Agent, event: Event, semaphore: kir.Semaphore) -> None:
        """Stay until all threads of all CTAs that meet at an integer are here."""
        kernel, ctas = self.machine.kernel, event.parity
        name = f"{semaphore.name}[{event.slot}]"
        self.counter(semaphore.name, event.slot)
        self._serves(semaphore.name, event.slot, elects=False)
        if ctas > 1 and kernel.residency == "any":
            says = f'{ctas} CTAs meet at {name}; with residency "any" some may never run'
            raise Violation("residency", says)
        self._drained(agent.clock, agent.cta, f"CTAs meet at {name}")
        b = self.grids.setdefault((semaphore.name, event.slot), GridBarrier())
        if b.arrived and (b.ctas, b.team) != (ctas, event.team):
            says = f"{b.ctas} and {ctas} CTAs are to meet at {name}, the same role of each"
            raise Violation("collective", says)
        b.ctas, b.team = ctas, event.team
        b.arrived += agent.mult
        b.waiting.append(agent)
        threads = ctas * event.team.warps * kir.WARP
        self.machine.block(agent, f"{GRID} {name} ({b.arrived} of {threads} threads)")
        if b.arrived < threads:
            return
        waiting, b.waiting, b.arrived = b.waiting, [], 0
        acc = self.machine.columns.fresh()
        for one in waiting:
            join(acc, one.clock)
        for one in waiting:
            join(one.clock, acc)
            one.joined = one.now
            one.tick()
            self.machine.wake(one, passed=True)

    def elects(self, b: NamedBarrier, asked: Election) -> bool:
        """Count in a CTA whose threads have joined; whether it is the last, and learns of all.

        Notes
        -----
        One thread increments the integer, as a release and an acquire at gpu scope, and tells the
        others at a second barrier.  Between the two barriers they do nothing, so that the CTA may
        as well come at the moment at which they have joined.
        Source: PTX ISA, "atom", `.inc`: the old value is compared with the bound, and wraps to 0.
        """
        first = b.waiting[0]
        self.counter(*asked.semaphore)
        self._serves(*asked.semaphore, elects=True)
        name = "{}[{}]".format(*asked.semaphore)
        if asked.ctas < 1:
            says = f"{asked.ctas} CTAs come to {name}; none of them is the last"
            raise Violation("semaphore", says)
        self._drained(b.acc, first.cta, f"CTA {first.block} comes to {name}")
        here = self.rounds.setdefault(asked.semaphore, Round())
        if here.asked is not None and here.asked != asked:
            says = f"{here.asked.ctas} and {asked.ctas} CTAs are to come to {name}, the same role "
            raise Violation("collective", f"{says}of each")
        if first.cta in here.came:
            raise Violation("semaphore", f"CTA {first.block} comes to {name} twice")
        after = here.over is None or any(b.acc[CAUSE, by] >= at for by, at in here.over.items())
        if not after:
            says = f"CTA {first.block} comes to {name}, to which all {asked.ctas} have come"
            raise Violation("semaphore", f"{says}; nothing orders it after the last of them")
        here.asked = asked
        here.came.append(first.cta)
        here.seen.append(b.acc.copy())
        if len(here.came) < asked.ctas:
            return False
        for seen in here.seen:
            join(b.acc, seen)
        over = {agent.by: agent.now + 1 for agent in b.waiting}
        self.rounds[asked.semaphore] = Round(over=over)
        return True
