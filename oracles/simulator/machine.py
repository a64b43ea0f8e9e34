"""The model machine: threads and copies in flight of the CTAs that run together.

Barriers of all kinds stand beside it (`sync.mbarriers`, `sync.joins`).  It moves no data and
chooses no order.

Notes
-----
A warp is two agents, its first lane and the 31 others: mbarrier waits return per thread, so the
lane that arrives for its warp may be ahead of the rest.  The 31 others execute the same
statements, touch disjoint elements and are joined by the same barriers; one clock stands for
them.  Barriers count threads (`mult`), not agents.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from fuser.kernel import ir as kir
from oracles.simulator.agent import WRITE_DONE, Agent, Flight, Violation, Warn
from oracles.simulator.sync.clock import CAUSE, ORDER
from oracles.simulator.sync.column import Columns
from oracles.simulator.unroll import Event

GROUPS = "groups of copies, first"
"""Begins the text of an agent that waits for its copies."""


@dataclass(frozen=True, slots=True)
class Traits:
    """What a kernel has, so that it need not be looked for at every run.

    Parameters
    ----------
    named : tuple of int
        Named barriers.
    followed : bool
        Whether copies arrive on barriers by themselves.
    multiplies : bool
        Whether there are wgmmas.
    """

    named: tuple[int, ...]
    followed: bool
    multiplies: bool


def traits(kernel: kir.Kernel) -> Traits:
    """Look through a kernel once."""
    every = list(kernel.walk())
    return Traits(
        tuple(sorted({n for stmt in every for n in _named(stmt)})),
        any(isinstance(stmt, kir.CpAsyncMBarrierArrive) for stmt in every),
        any(isinstance(stmt, kir.Wgmma) for stmt in every),
    )


def _named(stmt: kir.Stmt) -> tuple[int, ...]:
    match stmt:
        case kir.BlockSync(number) | kir.NamedArrive(number):
            return (number,)
        case kir.BlockSerializeWait() | kir.GridSync() | kir.LastArriving():
            return (stmt.barrier,)
        case _:
            return ()


class Machine:
    """CTAs that run together, in the middle of a run.

    Parameters
    ----------
    kernel : Kernel
        For its barriers.
    traits : Traits
        Of the kernel.
    agents : list of Agent
        Of all CTAs, those of one CTA next to each other.  Clock columns 0, 1, ...; then come
        `away`, those of barriers, and those of copies in flight.
    warn : Warn
        Takes findings that do not end the run.

    Attributes
    ----------
    away : slice
        Columns that count what each agent did to other CTAs of its cluster.
    remote : list of (CTA, agent, count, Event)
        Arrivals on, and accesses of, the shared memory of another CTA.
    followers : list of callables
        Called when clocks have grown, for who keeps clocks of its own.
    """

    def __init__(self, kernel: kir.Kernel, traits: Traits, agents: list[Agent], warn: Warn) -> None:
        self.kernel = kernel
        self.agents = agents
        self.warn = warn
        self.ctas = agents[-1].cta + 1
        self.named_numbers = traits.named
        rings = sum(m.slots + 2 for m in kernel.barriers) + len(self.named_numbers)
        self.away = slice(len(agents), len(agents) * (1 + (kernel.cluster > 1)))
        self.columns = Columns(agents, self.away.stop + self.ctas * rings)
        self.first_free: int = self.away.stop
        self.ready: list[Agent] = []
        self.flights: list[Flight] = []
        self.issued: list[Flight] = []
        self.remote: list[tuple[int, int, int, Event]] = []
        self.followed = traits.followed
        self.followers: list[Callable[[], None]] = []
        size = kernel.threads // kir.WARP * 2
        self._reach = size * kernel.cluster

    def column(self) -> int:
        """Return the next column that is not an agent's."""
        self.first_free += 1
        return self.first_free - 1

    def agents_of(self, cta: int) -> list[Agent]:
        """Return the threads of one CTA."""
        size = len(self.agents) // self.ctas
        return self.agents[cta * size : (cta + 1) * size]

    def able(self) -> list[Flight]:
        """Return the copies that may move: not before those that they follow."""
        if not self.followed:
            return self.flights
        able = []
        for f in self.flights:
            if not any(copy.done < WRITE_DONE for copy in f.waits_for):
                able.append(f)
        return able

    # --- blocking -------------------------------------------------------------------------------

    def sibling(self, agent: Agent) -> Agent:
        """Return the other agent of a warp."""
        return self.agents[agent.by ^ 1]

    def start(self, cta: int) -> None:
        """Let the threads of a CTA begin."""
        self.ready += [a for a in self.agents_of(cta) if a.program]

    def block(self, agent: Agent, why: str) -> None:
        """Stop an agent until somebody wakes it."""
        if not agent.blocked:
            self.ready.remove(agent)
        agent.blocked = why

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
        self.columns.release(agent)

    def peer(self, agent: Agent, rank: int) -> int:
        """Return which CTA has a rank in this agent's cluster."""
        if not 0 <= rank < self.kernel.cluster:
            raise Violation("bounds", f"a cluster of {self.kernel.cluster} has no CTA {rank}")
        return agent.cta - agent.block % self.kernel.cluster + rank

    def reach(self, agent: Agent, cta: int, event: Event) -> None:
        """Note what an agent does to the shared memory of a CTA; only another one may be gone."""
        if cta == agent.cta:
            return
        column = self.away.start + agent.by
        agent.clock[ORDER : CAUSE + 1, column] += 1
        self.remote.append((cta, agent.by, int(agent.clock[CAUSE, column]), event))

    # --- copies ---------------------------------------------------------------------------------

    def issue(
        self, agent: Agent, event: Event, owed: int, *, generic: bool, cta: int, shared: bool
    ) -> Flight:
        """Start a copy: an agent of its own that has seen what its issuer has seen.

        Parameters
        ----------
        owed : int
            `READ_DONE` or `WRITE_DONE`: after how much of it nothing conflicts with it any more.
        generic : bool
            Whether it accesses memory through the generic proxy.
        cta : int
            Whose shared memory it accesses.
        shared : bool
            Whether it conflicts with threads of its cluster only.
        """
        width = self.columns.width
        by, base = self.columns.take(generic=generic)
        if self.columns.width > width:
            for follow in self.followers:
                follow()
        parts = self.columns.parts
        parts.generic[by], parts.published[by] = generic, False
        parts.cta[by], parts.far[by] = agent.cta, cta != agent.cta
        flight = Flight(by, base, event, agent.clock.copy(), agent, [], cta, agent.now)
        first = cta // self.kernel.cluster * self._reach if shared else 0
        last = first + self._reach if shared else len(self.agents)
        self.columns.used[generic].append((flight, owed, first, last))
        agent.tick()
        self.issued.append(flight)
        return flight

    def finish(self, flight: Flight, done: int) -> None:
        """Note that a copy has read its source, or written its destination."""
        flight.done = done
        for agent in (flight.issuer, self.sibling(flight.issuer)):
            if agent.blocked.startswith(GROUPS):
                self.wake(agent, passed=False)
