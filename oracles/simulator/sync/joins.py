"""Where threads wait for each other: warps, named barriers, clusters, semaphores, and registers.

Source: PTX ISA, "bar / barrier", "barrier.cluster", "setmaxnreg", "bar.warp.sync", and "Memory
consistency model" on the release and acquire patterns of semaphores.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from fuser.kernel import ir as kir
from oracles.simulator.machine import Agent, Machine, Violation
from oracles.simulator.sync.clock import CAUSE, ORDER, REACH, Clock, join, join_cause
from oracles.simulator.unroll import Event, Team


@dataclass(frozen=True, slots=True)
class Gate:
    """What a barrier also waits for: the turn of a semaphore."""

    semaphore: tuple[str, int]
    turn: int
    scope: kir.Scope


@dataclass(frozen=True, slots=True)
class Election:
    """What a CTA does as its threads have joined: it comes, as one of `ctas`, to an integer."""

    semaphore: tuple[str, int]
    ctas: int
    team: Team


@dataclass(eq=False, slots=True)
class NamedBarrier:
    """One of the sixteen barriers of a CTA: the running generation, its arrivals and who waits."""

    number: int
    column: int
    acc: Clock
    generation: int = 0
    threads: int = 0
    arrived: int = 0
    gate: Gate | Election | None = None
    owner: Team | None = None
    teams: set[Team] = field(default_factory=set)
    halves: dict[int, list[Agent]] = field(default_factory=dict)
    waiting: list[Agent] = field(default_factory=list)

    def use(self, team: Team, *, whole: bool) -> None:
        """Note who uses it; a `whole` role that waits for other CTAs by it has it for itself."""
        self.teams.add(team)
        if whole:
            self.owner = team
        if self.owner is not None and len(self.teams) > 1:
            roles = " and ".join(sorted(f"{t.warps} warps from {t.first}" for t in self.teams))
            says = f"barrier {self.number}, by which a role waits for CTAs, is used by {roles}"
            raise Violation("collective", says)


@dataclass(eq=False, slots=True)
class ClusterBarrier:
    """The barrier of a cluster: its running generation, what arrivals released, who waits."""

    acc: Clock
    sealed: Clock
    generation: int = 0
    arrived: int = 0
    waiting: list[Agent] = field(default_factory=list)


@dataclass(eq=False, slots=True)
class GridBarrier:
    """CTAs that meet at one integer of a semaphore, by a role: how many come, and who waits."""

    ctas: int = 0
    team: Team | None = None
    arrived: int = 0
    waiting: list[Agent] = field(default_factory=list)


@dataclass(eq=False, slots=True)
class Round:
    """CTAs that arrive at one integer of a semaphore, the last of which is elected.

    `asked` is what the first of them has said; `came` who is there, counted among the CTAs that run
    together, and `seen` what each of them knew.  `over` has when which threads of the elected CTA
    went on in the last round; None in the first round.
    """

    asked: Election | None = None
    came: list[int] = field(default_factory=list)
    seen: list[Clock] = field(default_factory=list)
    over: dict[int, int] | None = None


@dataclass(eq=False, slots=True)
class Released:
    """What a store of a semaphore's integer, by `cta`, releases.

    `by` and `at` are who stored it and when, -1 before the first; `seen` is what the store makes
    known at `scope`, and `fences` what those of its thread do at theirs; `saw` are the CTAs that
    have waited for it.
    """

    value: int = 0
    by: int = -1
    at: int = 0
    cta: int = -1
    cause: Clock | None = None
    seen: Clock | None = None
    scope: kir.Scope = kir.Scope.CTA
    fences: dict[kir.Scope, Clock] = field(default_factory=dict)
    saw: set[int] = field(default_factory=set)

    def precedes(self, cta: int, row: Clock) -> bool:
        """Tell whether it comes before what a thread of a CTA does that knows this row.

        Stores of one integer have an order, in which nobody who has seen one of them goes back.
        """
        return self.by < 0 or cta in self.saw or bool(row[self.by] >= self.at)


@dataclass(eq=False, slots=True)
class Counter:
    """One integer of a semaphore: its last store, those before it, and who waits."""

    last: Released = field(default_factory=Released)
    before: list[Released] = field(default_factory=list)
    waiting: list[NamedBarrier] = field(default_factory=list)

    def earlier(self, turn: int, cta: int, known: Clock) -> Released | None:
        """Return the first store of a turn that a wait may see instead of the last one.

        The next store after it may not be visible yet, unless it happened before the wait.
        """
        stores = pairwise([*self.before, self.last])
        may = (a for a, b in stores if a.value == turn and not b.precedes(cta, known))
        return next(may, None)


TURN = "turn"
"""Begins the text of an agent that waits for a semaphore."""
GRID = "CTAs at"
"""Begins the text of an agent that waits for other CTAs."""


REGISTERS = "registers"
"""Begins the text of an agent that waits for registers."""
LEAST, MOST, UNIT = 24, 256, 8
"""Registers per thread that `setmaxnreg` accepts, and of what they are multiples."""


class Joins:
    """All barriers, semaphores and register pools of the CTAs that run together."""

    def __init__(
        self, machine: Machine, counts: dict[str, int], sees_earlier: Callable[[], bool]
    ) -> None:
        self.machine = machine
        self._sees_earlier = sees_earlier
        self.counts = counts
        self.counters: dict[tuple[str, int], Counter] = {}
        self.grids: dict[tuple[str, int], GridBarrier] = {}
        self.rounds: dict[tuple[str, int], Round] = {}
        self._elects: dict[tuple[str, int], bool] = {}
        fresh = machine.columns.fresh
        self.named = [
            {n: NamedBarrier(n, machine.column(), fresh()) for n in machine.named}
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

    def arrive(self, agent: Agent, event: Event) -> bool:
        """Arrive at a named barrier by whole warps; stay until it completes, or go on."""
        gate: Gate | Election | None = None
        threads, wait = event.team.warps * kir.WARP, not isinstance(event.stmt, kir.NamedArrive)
        match event.stmt:
            case kir.BlockSync(number, threads) | kir.NamedArrive(number, threads):
                pass
            case kir.BlockSerializeWait(semaphore, _, _, scope, number):
                gate = Gate((semaphore.name, event.slot), event.parity, scope)
            case kir.LastArriving(semaphore, barrier=number):
                gate = Election((semaphore.name, event.slot), event.parity, event.team)
            case _:
                raise AssertionError("no statement that joins the threads of a role")
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
            if knows != b.generation:
                says = f"{part.name} arrives in generation {b.generation} of barrier {number}, but "
                says += f"only knows that {knows} generations are over"
                raise Violation("collective", says)
            join(b.acc, part.clock)
        if b.arrived and (b.threads != threads or b.gate != gate):
            says = f"barrier {number} is reached with {b.threads} and {threads} threads"
            raise Violation("collective", says)
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
        if isinstance(b.gate, Gate) and not self._opens(b, b.gate):
            return
        skips = isinstance(b.gate, Election) and not self._elects_last(b, b.gate)
        b.generation += 1
        b.acc[ORDER : CAUSE + 1, b.column] = b.generation
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

    def _integer(self, name: str, index: int, *, elects: bool) -> tuple[str, Counter]:
        """Return an integer with its name; one that elects CTAs serves for nothing else."""
        if not 0 <= index < self.counts[name]:
            has = self.counts[name]
            raise Violation("bounds", f"{name} has {has} integers, none of number {index}")
        if self._elects.setdefault((name, index), elects) is not elects:
            says = f"{name}[{index}] elects the last-arriving CTA, and serves others too"
            raise Violation("semaphore", says)
        return f"{name}[{index}]", self.counters.setdefault((name, index), Counter())

    def _opens(self, b: NamedBarrier, gate: Gate) -> bool:
        """Look at a semaphore for a CTA all of whose threads are waiting for its turn."""
        agents = b.waiting
        name, counter = self._integer(*gate.semaphore, elects=False)
        cta, store = agents[0].cta, counter.last
        other = store.value != gate.turn or store.cta not in (-1, cta)
        if other and self.machine.kernel.residency == "any":
            says = f"CTA {agents[0].block} waits for turn {gate.turn} of {name}, which another CTA "
            says += 'gives; with residency "any" that CTA may never run'
            raise Violation("residency", says)
        if store.value != gate.turn:
            counter.waiting.append(b)
            for agent in agents:
                agent.blocked = f"{TURN} {gate.turn} of {name} (now {store.value})"
            return False
        earlier = counter.earlier(gate.turn, cta, b.acc[ORDER])
        if earlier is not None and self._sees_earlier():
            store = earlier
        if store.cause is None:
            return True
        join_cause(b.acc, store.cause)
        store.saw.add(cta)
        cluster = self.machine.kernel.cluster
        need = kir.Scope.GPU
        if store.cta == cta:
            need = kir.Scope.CTA
        elif store.cta // cluster == cta // cluster:
            need = kir.Scope.CLUSTER
        seen = store.fences.get(need)
        if store.seen is not None and REACH[store.scope] >= REACH[need]:
            seen = store.seen
        if seen is not None and REACH[gate.scope] >= REACH[need]:
            join(b.acc, seen)
        elif seen is not None:
            for agent in agents:
                agent.weak.append((need, seen))
        return True

    def release(self, agent: Agent, stmt: kir.BlockSerializeRelease, event: Event) -> None:
        """Store the next turn, and let in who waits for it."""
        name = f"{stmt.semaphore.name}[{event.slot}]"
        if agent.mult > 1:
            raise Violation("collective", f"{agent.mult} threads release {name}; one has to")
        _, counter = self._integer(stmt.semaphore.name, event.slot, elects=False)
        last = counter.last
        row = CAUSE if agent.cta in last.saw else ORDER
        if not last.precedes(-1, agent.clock[row]):
            says = f"nothing orders this release of {name} after the last one"
            raise Violation("semaphore", says)
        counter.before.append(last)
        cause = agent.clock.copy()
        counter.last = Released(
            event.parity,
            agent.by,
            agent.now,
            agent.cta,
            cause,
            None if stmt.relaxed else cause,
            stmt.scope,
            dict(agent.fences),
            {agent.cta},
        )
        agent.tick()
        waiting, counter.waiting = counter.waiting, []
        for b in waiting:
            self._complete(b)

    def grid_sync(self, agent: Agent, event: Event, semaphore: kir.Semaphore, number: int) -> None:
        """Stay until all threads of all CTAs that meet at an integer are here."""
        kernel, ctas = self.machine.kernel, event.parity
        name = f"{semaphore.name}[{event.slot}]"
        if event.elected:
            raise Violation("collective", f"{GRID} {name} meet with all threads of a role")
        self.named[agent.cta][number].use(event.team, whole=True)
        self._integer(semaphore.name, event.slot, elects=False)
        if ctas > 1 and kernel.residency == "any":
            says = f'{ctas} CTAs meet at {name}; with residency "any" some may never run'
            raise Violation("residency", says)
        b = self.grids.setdefault((semaphore.name, event.slot), GridBarrier())
        if b.team not in (None, event.team) or (b.arrived and b.ctas != ctas):
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

    def _elects_last(self, b: NamedBarrier, asked: Election) -> bool:
        """Count in a CTA whose threads have joined; whether it is the last, and learns of all.

        One thread increments the integer, as a release and an acquire at gpu scope, and tells the
        others at a second barrier.  Between the two barriers they do nothing, so that the CTA may
        as well come at the moment at which they have joined.

        Source: PTX ISA, "atom", `.inc`: the old value is compared with the bound, and wraps to 0.
        """
        first = b.waiting[0]
        name, _ = self._integer(*asked.semaphore, elects=True)
        if asked.ctas < 1:
            says = f"{asked.ctas} CTAs arrive at {name}; none of them is the last"
            raise Violation("semaphore", says)
        here = self.rounds.setdefault(asked.semaphore, Round())
        if here.asked is not None and here.asked != asked:
            says = f"{here.asked.ctas} and {asked.ctas} CTAs are to arrive at {name}, the same "
            raise Violation("collective", f"{says}role of each")
        if first.cta in here.came:
            raise Violation("semaphore", f"CTA {first.block} arrives at {name} twice")
        after = here.over is None or any(b.acc[CAUSE, by] >= at for by, at in here.over.items())
        if not after:
            says = f"CTA {first.block} arrives at {name}, at which all {asked.ctas} have arrived"
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

    # --- clusters -------------------------------------------------------------------------------

    def cluster_arrive(self, agent: Agent, event: Event, *, relaxed: bool) -> None:
        """Arrive at the cluster's barrier.

        What this thread, or one that it knows of, did to another CTA may come after a relaxed
        arrival, save for what a fence covers.  Source: PTX ISA, "barrier.cluster", on `.relaxed`.
        """
        b = self.clusters[agent.cta // self.machine.kernel.cluster]
        if event.elected or agent.generation is not None:
            says = "all threads arrive, and each waits before it arrives again"
            raise Violation("collective", f"cluster_arrive: {says}")
        agent.generation = b.generation
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
            b.generation += 1
            b.arrived = 0
            b.sealed, b.acc = b.acc, b.sealed
            b.acc[:] = 0
            b.sealed[ORDER, self.machine.begun[agent.cta // self.machine.kernel.cluster]] = 1
            waiting, b.waiting = b.waiting, []
            for waiter in waiting:
                self.machine.wake(waiter, passed=False)

    def cluster_wait(self, agent: Agent, event: Event) -> bool:
        """Wait until all threads of the cluster have arrived."""
        b = self.clusters[agent.cta // self.machine.kernel.cluster]
        if event.elected or agent.generation is None:
            says = "it needs all threads, and an arrival of each before it"
            raise Violation("collective", f"cluster_wait: {says}")
        if b.generation == agent.generation:
            b.waiting.append(agent)
            self.machine.block(agent, f"the cluster's barrier ({b.arrived} threads arrived)")
            return False
        join(agent.clock, b.sealed)
        agent.joined = max(agent.joined, int(b.sealed[ORDER, agent.by]))
        agent.generation = None
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
        count = len(changes[agent.warp])
        for warp in warps if count else ():
            late = len(changes[warp]) < count
            by, at = (0, 0) if late else changes[warp][count - 1]
            if late or max(agent.clock[ORDER, by], other.clock[ORDER, by]) < at:
                says = f"nothing orders this change after the one before of warp {warp}"
                raise Violation("registers", says)
        changes[agent.warp].append((agent.by, agent.now))
        agent.tick()


def whole_groups(event: Event, kernel: kir.Kernel, what: str, *, full: bool) -> None:
    """Refuse a part of a warpgroup, or if `full` fewer than four warps, for a whole one's work."""
    first, last = event.team.first, event.team.first + event.team.warps
    four = kir.WARPGROUP // kir.WARP
    ends = last % four == 0 or (not full and last == kernel.threads // kir.WARP)
    if event.elected or first % four or not ends:
        says = f"{what} needs whole warpgroups; warps {first}..{last - 1} or one lane execute it"
        raise Violation("collective", says)
