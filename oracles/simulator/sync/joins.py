"""Where threads of a CTA or a cluster meet: warps, named barriers, clusters, and their registers.

Source: PTX ISA, "bar / barrier", "barrier.cluster", "setmaxnreg", "bar.warp.sync".
"""

from __future__ import annotations

import numpy as np

from fuser.kernel import ir as kir
from oracles.simulator.agent import Agent, Violation
from oracles.simulator.machine import Machine
from oracles.simulator.sync.barrier import ClusterBarrier, Election, Gate, NamedBarrier
from oracles.simulator.sync.clock import CAUSE, ORDER, join, join_cause
from oracles.simulator.sync.grid import GRID, Semaphores
from oracles.simulator.unroll import Event

REGISTERS = "registers"
"""Begins the text of an agent that waits for registers."""
LEAST, MOST, UNIT = 24, 256, 8
"""Registers per thread that `setmaxnreg` accepts, and of what they are multiples."""


class Meetings:
    """All meeting places of the CTAs that run together.

    Parameters
    ----------
    semaphores : Semaphores
        By which CTAs learn of each other.
    """

    def __init__(self, machine: Machine, semaphores: Semaphores) -> None:
        self.machine = machine
        self.semaphores = semaphores
        fresh = machine.columns.fresh
        self.named = [
            {n: NamedBarrier(n, machine.column(), fresh()) for n in machine.named_numbers}
            for _ in range(machine.ctas)
        ]
        clusters = machine.ctas // machine.kernel.cluster
        self.clusters = [ClusterBarrier(fresh(), fresh()) for _ in range(clusters)]
        self.free = [0] * machine.ctas
        self._changes: dict[tuple[int, int], list[tuple[int, int]]] = {}
        for agent in machine.agents:
            agent.team.registers = machine.kernel.registers
        machine.followers.append(self._follow)

    def _follow(self) -> None:
        wide = self.machine.columns.widened
        for numbers in self.named:
            for b in numbers.values():
                b.acc = wide(b.acc)
        for c in self.clusters:
            c.acc, c.sealed = wide(c.acc), wide(c.sealed)

    # --- warps ----------------------------------------------------------------------------------

    def pair(self, agent: Agent, event: Event, what: str) -> Agent | None:
        """Stop the first half of a warp; return it when the second comes."""
        if event.elected:
            raise Violation("collective", f"{what} is executed by one lane; it needs whole warps")
        half = agent.team.half
        if not half:
            half.append(agent)
            self.machine.block(agent, f"the rest of its warp at {what}")
            return None
        return half.pop()

    def converge(self, agent: Agent, event: Event, what: str) -> Agent | None:
        """Do as `pair`, for a statement that a warp executes in step; it orders no memory.

        Source: PTX ISA, "wgmma.mma_async", on the mandatory `.sync` qualifier.
        """
        other = self.pair(agent, event, what)
        if other is not None:
            join_cause(agent.clock, other.clock)
            join_cause(other.clock, agent.clock)
            agent.tick()
            other.tick()
        return other

    def warp_sync(self, agent: Agent, event: Event) -> bool:
        """Join the two agents of a warp."""
        other = self.pair(agent, event, "warp_sync")
        if other is None:
            return False
        join(agent.clock, other.clock)
        join(other.clock, agent.clock)
        for part in (agent, other):
            part.joined = part.now
            part.tick()
        self.machine.wake(other, passed=True)
        return True

    # --- named barriers -------------------------------------------------------------------------

    def arrive(
        self,
        agent: Agent,
        event: Event,
        number: int,
        threads: int,
        gate: Gate | Election | None,
        *,
        wait: bool,
    ) -> bool:
        """Arrive at a named barrier by whole warps; with `wait`, stay until it completes."""
        b = self.named[agent.cta][number]
        b.use(event.team, whole=gate is not None)
        if event.elected:
            says = f"barrier {number} is reached by single lanes; it needs whole warps"
            raise Violation("collective", says)
        half = b.halves.setdefault(agent.warp, [])
        half.append(agent)
        what = f"barrier {number} of {threads} threads ({b.arrived + 32 * wait} arrived)"
        if len(half) == 1:
            self.machine.block(agent, f"the rest of its warp at {what}")
            return False
        del b.halves[agent.warp]
        for part in half:
            knows = int(part.clock[CAUSE, b.column])
            if knows != b.turn:
                raise Violation(
                    "collective",
                    f"{part.name} arrives in turn {b.turn} of barrier {number}, but only knows "
                    f"that {knows} turns are over",
                )
            join(b.acc, part.clock)
        if b.arrived and (b.threads != threads or b.gate != gate):
            raise Violation(
                "collective", f"barrier {number} is reached with {b.threads} and {threads} threads"
            )
        b.threads, b.gate = threads, gate
        b.arrived += kir.WARP
        other = half[0]
        if wait:
            b.waiting += half
            self.machine.block(agent, what)
            other.blocked = what
        else:
            for part in half:
                part.tick()
            self.machine.wake(other, passed=True)
        if b.arrived >= threads:
            self._complete(b)
        return not wait

    def _complete(self, b: NamedBarrier) -> None:
        if isinstance(b.gate, Gate) and not self.semaphores.opens(b, b.gate):
            return
        skips = isinstance(b.gate, Election) and not self.semaphores.elects(b, b.gate)
        b.turn += 1
        b.acc[ORDER : CAUSE + 1, b.column] = b.turn
        waiting, b.waiting = b.waiting, []
        for agent in waiting:
            join(agent.clock, b.acc)
            agent.joined = agent.now
            agent.tick()
            agent.pc += agent.program[agent.pc].body if skips else 0
            self.machine.wake(agent, passed=True)
        b.acc[:] = 0
        b.arrived, b.gate = 0, None

    # --- semaphores -----------------------------------------------------------------------------

    def release(self, agent: Agent, stmt: kir.BlockSerializeRelease, event: Event) -> None:
        """Store the next turn, and let in who waits for it."""
        for b in self.semaphores.release(agent, stmt, event):
            self._complete(b)

    def grid_sync(self, agent: Agent, event: Event, semaphore: kir.Semaphore, number: int) -> None:
        """Stay until all threads of all CTAs that meet at an integer are here."""
        if event.elected:
            name = f"{semaphore.name}[{event.slot}]"
            raise Violation("collective", f"{GRID} {name} meet with all threads of a role")
        self.named[agent.cta][number].use(event.team, whole=True)
        self.semaphores.grid_sync(agent, event, semaphore)

    # --- clusters -------------------------------------------------------------------------------

    def cluster_arrive(self, agent: Agent, event: Event, *, relaxed: bool) -> None:
        """Arrive at the cluster's barrier.

        Notes
        -----
        What this thread, or one that it knows of, did to another CTA may come after a relaxed
        arrival, save for what a fence covers.
        Source: PTX ISA, "barrier.cluster", on `.relaxed`.
        """
        b = self.clusters[agent.cta // self.machine.kernel.cluster]
        if event.elected or agent.turn is not None:
            says = "all threads arrive, and each waits before it arrives again"
            raise Violation("collective", f"cluster_arrive: {says}")
        agent.turn = b.turn
        away = self.machine.away
        landed = b.acc[CAUSE, away].copy()
        join_cause(b.acc, agent.clock)
        seen = agent.fences.get(kir.Scope.CLUSTER) if relaxed else agent.clock
        if seen is not None:
            join(b.acc, seen)
        if relaxed:
            b.acc[CAUSE, away] = np.maximum(landed, b.acc[ORDER, away])
        agent.tick()
        b.arrived += agent.mult
        if b.arrived == self.machine.kernel.threads * self.machine.kernel.cluster:
            b.turn += 1
            b.arrived = 0
            b.sealed, b.acc = b.acc, b.sealed
            b.acc[:] = 0
            waiting, b.waiting = b.waiting, []
            for waiter in waiting:
                self.machine.wake(waiter, passed=False)

    def cluster_wait(self, agent: Agent, event: Event) -> bool:
        """Wait until all threads of the cluster have arrived."""
        b = self.clusters[agent.cta // self.machine.kernel.cluster]
        if event.elected or agent.turn is None:
            says = "it needs all threads, and an arrival of each before it"
            raise Violation("collective", f"cluster_wait: {says}")
        if b.turn == agent.turn:
            b.waiting.append(agent)
            self.machine.block(agent, f"the cluster's barrier ({b.arrived} threads arrived)")
            return False
        join(agent.clock, b.sealed)
        agent.joined = max(agent.joined, int(b.sealed[ORDER, agent.by]))
        agent.turn = None
        return True

    # --- registers ------------------------------------------------------------------------------

    def set_registers(self, agent: Agent, event: Event, stmt: kir.SetMaxNReg) -> bool:
        """Give registers back to the CTA's pool, or take some when they are free."""
        new, team = stmt.registers, agent.team
        if new % UNIT or not LEAST <= new <= MOST:
            raise Violation("registers", f"{new} is no multiple of {UNIT} in {LEAST}..{MOST}")
        whole_groups(event, self.machine.kernel, "setmaxnreg", full=False)
        other = self.converge(agent, event, "setmaxnreg")
        if other is None:
            return False
        if (new < team.registers) if stmt.increase else (new > team.registers):
            way = "increase" if stmt.increase else "decrease"
            raise Violation("registers", f"{way} from {team.registers} to {new} registers")
        more = (new - team.registers) * kir.WARP
        if more > self.free[agent.cta]:
            why = f"{REGISTERS}: {more} more for its warp, {self.free[agent.cta]} are free"
            self.machine.block(agent, why)
            other.blocked = why
            return False
        self._met_since(agent, other)
        self.free[agent.cta] -= more
        team.registers = new
        self.machine.wake(other, passed=True)
        if more < 0:
            for waiter in self.machine.agents_of(agent.cta):
                if waiter.blocked.startswith(REGISTERS):
                    self.machine.wake(waiter, passed=False)
        return True

    def _met_since(self, agent: Agent, other: Agent) -> None:
        """Demand that the warps of the warpgroup have met since their last change of registers."""
        four = kir.WARPGROUP // kir.WARP
        first = agent.warp - agent.warp % four
        warps = range(first, min(first + four, self.machine.kernel.threads // kir.WARP))
        changes = {warp: self._changes.setdefault((agent.cta, warp), []) for warp in warps}
        turn = len(changes[agent.warp])
        for warp in warps if turn else ():
            late = len(changes[warp]) < turn
            by, at = (0, 0) if late else changes[warp][turn - 1]
            if late or max(agent.clock[ORDER, by], other.clock[ORDER, by]) < at:
                says = f"nothing orders this change after the one before of warp {warp}"
                raise Violation("registers", says)
        changes[agent.warp].append((agent.by, agent.now))
        agent.tick()


def whole_groups(event: Event, kernel: kir.Kernel, what: str, *, full: bool) -> None:
    """Refuse a statement of warpgroups in a role that holds a part of one.

    Parameters
    ----------
    full : bool
        Whether all four warps must exist; else a last warpgroup of fewer will do.
    """
    first, last = event.team.first, event.team.first + event.team.warps
    four = kir.WARPGROUP // kir.WARP
    ends = last % four == 0 or (not full and last == kernel.threads // kir.WARP)
    if event.elected or first % four or not ends:
        says = f"{what} needs whole warpgroups; warps {first}..{last - 1} or one lane execute it"
        raise Violation("collective", says)
