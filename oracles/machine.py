"""The model machine: threads, copies in flight, barriers and shared memory of one CTA.

It does what the synchronising statements say and checks what they need.  It moves no data and
chooses no order.

Notes
-----
A warp is two agents, its first lane and the 31 others: mbarrier waits return per thread, so the
lane that arrives for its warp may be ahead of the rest.  The 31 others execute the same
statements, touch disjoint elements and are joined by the same barriers; one clock stands for
them.  Barriers count threads (`mult`), not agents.

A barrier slot has a clock column of its own whose value is the number of completed phases.  It
spreads like any other entry, so "this thread knows that phase n is over" is a comparison.
Source: PTX ISA, "mbarrier", "barrier / bar", "cp.async.bulk.commit_group / wait_group".
"""

from __future__ import annotations

import numpy as np

from fuser import kernel_ir as kir
from oracles.machine_agent import READ_DONE, WRITE_DONE, Agent, Flight, Violation, Warn
from oracles.machine_barrier import NAMED, Barrier, NamedBarrier, fixed_columns
from oracles.machine_clock import (
    GLOBAL_OWN,
    GLOBAL_SEEN,
    ORDER,
    SHARED_OWN,
    SHARED_SEEN,
    Index,
    join,
)
from oracles.machine_column import Columns
from oracles.machine_unroll import Event

GROUPS = "bulk groups, first"
"""Begins the text of an agent that waits for its copies."""


class Machine:
    """One CTA in the middle of a run.

    Parameters
    ----------
    kernel : Kernel
        For its barriers.
    agents : list of Agent
        Clock columns 0, 1, ...; then come those of barriers, then those of copies in flight.
    warn : Warn
        Takes findings that do not end the run.
    """

    def __init__(
        self,
        kernel: kir.Kernel,
        agents: list[Agent],
        warn: Warn,
    ) -> None:
        self.agents = agents
        self.warn = warn
        self._columns = Columns(agents, fixed_columns(kernel, len(agents)))
        column = len(agents)
        self.barriers: dict[str, list[Barrier]] = {m.name: [] for m in kernel.barriers}
        for m in kernel.barriers:
            for i in range(m.slots):
                clocks = self._columns.fresh(), self._columns.fresh()
                self.barriers[m.name].append(Barrier(f"{m.name}[{i}]", m.arrivals, column, *clocks))
                column += 1
        self.named = [NamedBarrier(i, column + i, self._columns.fresh()) for i in range(NAMED)]
        self.warps: dict[int, list[Agent]] = {}
        self.ready = [a for a in agents if a.program]
        self.flights: list[Flight] = []

    # --- blocking -------------------------------------------------------------------------------

    def block(self, agent: Agent, why: str) -> None:
        """Stop an agent until somebody wakes it."""
        agent.blocked = why
        self.ready.remove(agent)

    def wake(self, agent: Agent, *, passed: bool) -> None:
        """Let a blocked agent try its statement again, or step over it where it has `passed`."""
        agent.blocked = ""
        agent.pc += passed
        self.ready.append(agent)
        if agent.pc == len(agent.program):
            self.retire(agent)

    def retire(self, agent: Agent) -> None:
        """Take an agent off that has come to its end."""
        self.ready.remove(agent)
        self._columns.release(agent)

    # --- mbarriers ------------------------------------------------------------------------------

    def barrier(self, ring: kir.MBarrier, slot: int) -> Barrier:
        """Return one slot of a ring of barriers."""
        if not 0 <= slot < ring.slots:
            raise Violation("bounds", f"{ring.name} has {ring.slots} slots, none of number {slot}")
        return self.barriers[ring.name][slot]

    def init(self, agent: Agent, ring: kir.MBarrier) -> None:
        """Begin phase 0 of every slot."""
        for b in self.barriers[ring.name]:
            if b.phase >= 0 or agent.mult > 1:
                raise Violation("init", f"{b.name} is initialised twice")
            b.life += b.life % 2
            b.phase, b.pending, b.nbytes = b.life, b.count, 0
            agent.clock[ORDER, b.column] = b.phase
            b.made_by, b.made_at = agent.by, agent.now
            b.acc[:], b.sealed[:] = 0, 0

    def invalidate(self, agent: Agent, ring: kir.MBarrier) -> None:
        """End the life of every slot; all its uses must be over."""
        for b in self.barriers[ring.name]:
            self.use(agent, b)
            late = [by for by, at in b.used.items() if agent.clock[ORDER, by] < at]
            if late or agent.mult > 1:
                who = self.agents[late[0]].name if late else agent.name
                raise Violation("init", f"{b.name} is invalidated while {who} may still use it")
            if any(b is target for target in self._targets()):
                raise Violation("init", f"{b.name} is invalidated before a copy completed on it")
            b.life, b.phase = b.phase, -1

    def _targets(self) -> list[Barrier]:
        out = []
        for f in self.flights:
            match f.event.stmt:
                case kir.TmaLoad(_, _, ring):
                    out.append(self.barriers[ring.name][f.event.slot])
                case _:
                    pass
        return out

    def use(self, agent: Agent, b: Barrier) -> None:
        """Check that the life of `b` is visible to this agent."""
        if b.phase < 0:
            raise Violation("init", f"{b.name} is used before its mbarrier_init or after its end")
        if agent.clock[ORDER, b.made_by] < b.made_at:
            raise Violation("init", f"nothing orders the mbarrier_init of {b.name} before this use")
        b.used[agent.by] = agent.now

    def arrive(self, agent: Agent, b: Barrier, nbytes: int) -> None:
        """Expect `nbytes` more, then count the arrivals of this agent."""
        self.use(agent, b)
        knows = int(agent.clock[ORDER, b.column])
        if knows != b.phase:
            raise Violation(
                "arrivals",
                f"this arrival counts for phase {b.phase} of {b.name}, but its thread only knows "
                f"that {knows} phases are over: it may count for phase {knows}",
            )
        if b.pending < agent.mult:
            raise Violation(
                "arrivals",
                f"{agent.mult} arrivals on {b.name}, phase {b.phase}, which expects {b.pending}",
            )
        last = b.pending == agent.mult and bool((b.acc[ORDER] <= agent.clock[ORDER]).all())
        b.nbytes += nbytes * agent.mult
        b.pending -= agent.mult
        join(b.acc, agent.clock)
        agent.tick()
        before = b.phase
        self._settle(b)
        if last and b.phase > before:
            agent.clock[ORDER, b.column] = b.phase

    def complete(self, flight: Flight, b: Barrier, nbytes: int) -> None:
        """Count the bytes of a finished copy on the running phase."""
        if b.phase < 0:
            raise Violation("init", f"bytes complete on {b.name}, which has no life")
        knows = int(flight.start[ORDER, b.column])
        if knows != b.phase:
            raise Violation(
                "bytes",
                f"{nbytes} bytes land on phase {b.phase} of {b.name}; the copy was issued when "
                f"{knows} phases were known to be over: they may land on phase {knows}",
            )
        b.nbytes -= nbytes
        b.acc[ORDER, flight.by] = flight.base + WRITE_DONE
        flight.done = WRITE_DONE
        self._settle(b)

    def _settle(self, b: Barrier) -> None:
        if b.pending:
            return
        if b.nbytes < 0:
            raise Violation(
                "bytes",
                f"phase {b.phase} of {b.name} got {-b.nbytes} bytes more than it expects",
            )
        if b.nbytes:
            return
        for agent, at in b.returned:
            if b.acc[ORDER, agent.by] < at:
                raise Violation(
                    "parity",
                    f"phase {b.phase} of {b.name} completes, but nothing orders that after "
                    f"{agent.name} has left its wait for phase {b.phase - 1}: it can be lapped",
                )
        b.phase += 1
        b.pending = b.count
        b.acc[ORDER, b.column] = b.phase
        b.sealed, b.acc = b.acc, b.sealed
        b.acc[:] = 0
        b.returned.clear()
        waiters, b.waiters = b.waiters, []
        for agent in waiters:
            self.wake(agent, passed=False)

    def wait(self, agent: Agent, b: Barrier, parity: int) -> bool:
        """Try to pass a wait; it is meant for the first phase that may still be running.

        Notes
        -----
        Of the phases of that parity, the thread can only mean the first one that is not before
        the last phase it knows to be over.
        """
        self.use(agent, b)
        if agent.intent is None:
            if parity not in (0, 1):
                raise Violation("parity", f"parity {parity} of {b.name} is neither 0 nor 1")
            last = int(agent.clock[ORDER, b.column]) - 1
            agent.intent = last if last % 2 == parity else last + 1
            self._skipped(agent, b)
        if b.phase <= agent.intent:
            b.waiters.append(agent)
            self.block(agent, f"phase {agent.intent} of {b.name} (running: {b.state})")
            return False
        if b.phase > agent.intent + 1:
            raise Violation(
                "parity",
                f"{agent.name} waits for phase {agent.intent} of {b.name}, which already runs "
                f"phase {b.phase}: it was lapped",
            )
        join(agent.clock, b.sealed)
        agent.joined = max(agent.joined, int(b.sealed[ORDER, agent.by]))
        b.returned.append((agent, agent.now))
        b.observed[agent.by] = agent.intent
        agent.intent = None
        return True

    def _skipped(self, agent: Agent, b: Barrier) -> None:
        seen = b.observed.get(agent.by)
        if seen is not None and agent.intent is not None and agent.intent > seen + 1:
            says = f"{agent.name} never observes phase {seen + 1} of {b.name}"
            self.warn("parity", says, None)

    # --- barriers of the CTA and of the warp ----------------------------------------------------

    def named_arrive(self, agent: Agent, number: int, threads: int, *, wait: bool) -> bool:
        """Arrive at a named barrier by whole warps; with `wait`, stay until it completes."""
        b = self.named[number]
        half = b.halves.setdefault(agent.warp, [])
        half.append(agent)
        what = f"barrier {number} of {threads} threads ({b.arrived + 32 * wait} arrived)"
        if len(half) == 1:
            self.block(agent, f"the rest of its warp at {what}")
            return False
        del b.halves[agent.warp]
        for part in half:
            if int(part.clock[ORDER, b.column]) != b.turn:
                raise Violation(
                    "blocksync",
                    f"{part.name} arrives in turn {b.turn} of barrier {number}, but only knows "
                    f"that {int(part.clock[ORDER, b.column])} turns are over",
                )
            join(b.acc, part.clock)
        if b.arrived and b.threads != threads:
            raise Violation(
                "blocksync", f"barrier {number} is reached with {b.threads} and {threads} threads"
            )
        b.threads = threads
        b.arrived += kir.WARP
        other = half[0]
        if wait:
            b.waiting += half
            self.block(agent, what)
            other.blocked = what
        else:
            for part in half:
                part.tick()
            self.wake(other, passed=True)
        if b.arrived >= threads:
            self._release(b)
        return not wait

    def _release(self, b: NamedBarrier) -> None:
        b.turn += 1
        b.acc[ORDER, b.column] = b.turn
        waiting, b.waiting = b.waiting, []
        for agent in waiting:
            join(agent.clock, b.acc)
            agent.joined = agent.now
            agent.tick()
            self.wake(agent, passed=True)
        b.acc[:] = 0
        b.arrived = 0

    def warp_sync(self, agent: Agent) -> bool:
        """Join the two agents of a warp."""
        half = self.warps.setdefault(agent.warp, [])
        if not half:
            half.append(agent)
            self.block(agent, "the rest of its warp at warp_sync")
            return False
        other = half.pop()
        join(agent.clock, other.clock)
        other.clock[:] = agent.clock
        for part in (agent, other):
            part.joined = part.now
            part.tick()
        self.wake(other, passed=True)
        return True

    # --- fences and copies ----------------------------------------------------------------------

    def fence(self, agent: Agent, space: kir.Space) -> None:
        """Make generic accesses seen so far visible to later accesses of the async proxy."""
        clock = agent.clock
        if space in (kir.Space.SHARED, kir.Space.ALL):
            np.maximum(clock[SHARED_SEEN], clock[ORDER], out=clock[SHARED_SEEN])
            clock[SHARED_OWN, agent.by] = clock[ORDER, agent.by]
        if space in (kir.Space.GLOBAL, kir.Space.ALL):
            np.maximum(clock[GLOBAL_SEEN], clock[ORDER], out=clock[GLOBAL_SEEN])
            clock[GLOBAL_OWN, agent.by] = clock[ORDER, agent.by]
        agent.tick()

    def issue(self, agent: Agent, event: Event, owed: int) -> Flight:
        """Start a copy: an agent of its own that has seen what its issuer has seen.

        Parameters
        ----------
        owed : int
            `READ_DONE` or `WRITE_DONE`: after how much of it nothing conflicts with it any more.
        """
        if agent.mult > 1:
            raise Violation("waw", f"{agent.mult} threads issue one copy each, to one place")
        width = self._columns.width
        by, base = self._columns.take()
        if self._columns.width > width:
            self._widen()
        flight = Flight(by, base, event, agent.clock.copy(), agent, [])
        self._columns.used.append((flight, owed))
        agent.tick()
        self.flights.append(flight)
        return flight

    def _widen(self) -> None:
        for ring in self.barriers.values():
            for b in ring:
                b.acc, b.sealed = self._columns.widened(b.acc), self._columns.widened(b.sealed)
        for named in self.named:
            named.acc = self._columns.widened(named.acc)

    def finish(self, flight: Flight, done: int) -> None:
        """Note that a copy has read its source, or written its destination."""
        flight.done = done
        if flight.issuer.blocked.startswith(GROUPS):
            self.wake(flight.issuer, passed=False)

    def commit(self, agent: Agent) -> None:
        """Close the open bulk group of this thread; an empty group counts."""
        agent.groups.append(agent.open_group)
        agent.open_group = []

    def await_groups(self, agent: Agent, keep: int, *, read_only: bool) -> bool:
        """Wait until all but the latest `keep` groups of this thread are read, or performed."""
        upto = READ_DONE if read_only else WRITE_DONE
        closed = max(len(agent.groups) - keep, 0)
        known = agent.read_groups if read_only else 0
        old = [f for group in agent.groups[known:closed] for f in group]
        if any(f.done < upto for f in old):
            self.block(agent, f"{GROUPS} {old[0].name} and others")
            return False
        for f in old:
            agent.clock[ORDER, f.by] = max(f.base + upto, agent.clock[ORDER, f.by])
        if read_only:
            agent.read_groups = max(known, closed)
        else:
            agent.groups = agent.groups[closed:]
            agent.read_groups = max(agent.read_groups - closed, 0)
        return True

    def seen_by_all(self) -> Index:
        """Return the newest time of every component that some agent has seen at its end."""
        return np.asarray(np.max([a.clock[ORDER] for a in self.agents], axis=0), np.intp)
