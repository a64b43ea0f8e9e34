"""Who moves next: adversarial orders drawn from a seed, or given as a list and made short.

A uniform scheduler finds almost nothing, because real bugs need one party to be very late.  So
each schedule starves somebody: copies finish as late as the barriers allow, or at once, or
in halves with a long pause; one thread runs as far ahead as it can.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from oracles.simulator.machine import Agent, Flight, Machine
from oracles.simulator.unroll import Event


class Strategy(Enum):
    """The ways to be unfair."""

    LATE = "late"
    """Copies move only when no thread can; threads by fixed random priority."""
    EARLY = "early"
    """Copies finish at their issue; threads by fixed random priority."""
    SPLIT = "split"
    """Copies do their first half at once and the second as late as possible."""
    NEWEST = "newest"
    """As LATE, but the newest copy first and threads in turn, a few statements each."""
    AHEAD = "ahead"
    """Threads by priority, which changes now and then; copies at random moments."""
    UNIFORM = "uniform"
    """Anyone, one statement at a time."""


STRATEGIES = tuple(Strategy)
FOREVER = 1 << 30
"""Statements that no thread has."""
_BURSTS = {
    Strategy.LATE: FOREVER,
    Strategy.EARLY: FOREVER,
    Strategy.SPLIT: FOREVER,
    Strategy.NEWEST: 3,
    Strategy.UNIFORM: 1,
}
"""Statements that a thread executes before the next pick; it is drawn where it is not here."""
MOST_HELD = 256 << 20
"""Bytes from which on a copy moves, whatever the strategy: each in flight holds a clock, what its
issuer knew, and a cluster that sends by `st.async` had a thousand of them of a megabyte."""


class Schedule:
    """One seeded order of moves: the seed chooses the strategy (`seed % 6`) and all its draws.

    `salt` is the number of the CTA, so that CTAs of one launch differ; `together` clusters run at
    once at least, `slots` at most, where they may have to wait for each other's end.
    """

    def __init__(
        self, seed: int, salt: int, agents: list[Agent], clusters: int, together: int = 1
    ) -> None:
        self.strategy = STRATEGIES[seed % len(STRATEGIES)]
        self.name = self.strategy.value
        self._draw = random.Random(seed * 1_000_003 + salt)
        self._rank = [a.by for a in agents]
        self._draw.shuffle(self._rank)
        self._picked = 0
        self._burst = _BURSTS.get(self.strategy, 0)
        self.slots = 1
        if clusters > 1:
            slots = self._draw.choice((1, clusters, self._draw.randint(1, clusters)))
            self.slots = max(slots, together)

    def admits(self) -> bool:
        """Draw whether the next cluster starts now, though others could move."""
        return self._draw.random() < 0.3

    def sees_earlier(self) -> bool:
        """Draw whether a wait sees an earlier release of its turn, if it may."""
        return self._draw.random() < 0.5

    def pick(self, machine: Machine) -> Agent | Flight | None:
        """Return who moves next; None where nobody can."""
        ready, flights = machine.ready, machine.able()
        if not ready and not flights:
            return None
        if not flights:
            return self._thread(ready)
        if len(machine.flights) * machine.agents[0].clock.nbytes >= MOST_HELD:
            return self._draw.choice(flights)
        match self.strategy:
            case Strategy.LATE:
                return self._thread(ready) if ready else self._draw.choice(flights)
            case Strategy.EARLY:
                return flights[0]
            case Strategy.SPLIT:
                fresh = [f for f in flights if len(f.steps) == 2]
                if fresh:
                    return fresh[0]
                return self._thread(ready) if ready else self._draw.choice(flights)
            case Strategy.NEWEST:
                return self._thread(ready) if ready else flights[-1]
            case Strategy.AHEAD:
                copies = not ready or self._draw.random() < 0.1
                return self._draw.choice(flights) if copies else self._thread(ready)
            case Strategy.UNIFORM:
                i = self._draw.randrange(len(ready) + len(flights))
                return ready[i] if i < len(ready) else flights[i - len(ready)]

    def burst(self) -> int:
        """Return how many statements the picked thread executes before the next pick."""
        return self._burst or 1 << self._draw.randrange(6)

    def _thread(self, ready: list[Agent]) -> Agent:
        match self.strategy:
            case Strategy.NEWEST:
                self._picked += 1
                return ready[self._picked % len(ready)]
            case Strategy.UNIFORM:
                return self._draw.choice(ready)
            case Strategy.AHEAD:
                if self._draw.random() < 0.05:
                    self._draw.shuffle(self._rank)
            case Strategy.LATE | Strategy.EARLY | Strategy.SPLIT:
                pass
        if len(ready) == 1:
            return ready[0]
        rank = self._rank
        return min(ready, key=lambda agent: rank[agent.by])


class Choices:
    """An order of moves read from a list of small integers, to be drawn and shrunk by others.

    Number `i` of the list, at least 0, decides the i-th move at which there is a choice.  Its
    remainder by the number of candidates says who moves (0: the first one that can, threads before
    copies), its quotient after how many statements the next choice comes (0: when that one cannot
    go on). Behind the end of the list every number is 0.
    """

    def __init__(self, choices: Sequence[int], clusters: int) -> None:
        self.name = f"choices {list(choices)}"
        self.slots = clusters
        self._choices = list(reversed(choices))
        self._burst = 0

    def admits(self) -> bool:
        """Start every cluster at once."""
        return True

    def sees_earlier(self) -> bool:
        """Read whether a wait sees an earlier release of its turn, if it may: an odd number."""
        return bool(self._choices) and self._choices.pop() % 2 == 1

    def pick(self, machine: Machine) -> Agent | Flight | None:
        """Return who moves next; None where nobody can."""
        flights = machine.able()
        count = len(machine.ready) + len(flights)
        self._burst = 0
        if count == 0:
            return None
        who = 0
        if count > 1 and self._choices:
            self._burst, who = divmod(max(self._choices.pop(), 0), count)
        if who < len(machine.ready):
            return machine.ready[who]
        return flights[who - len(machine.ready)]

    def burst(self) -> int:
        """Return how many statements the picked thread executes before the next pick."""
        return self._burst or FOREVER


@dataclass(frozen=True, slots=True)
class Order:
    """Events in the order in which another judge has seen them.

    Each is the line of a statement, the iteration of its innermost loop (-1: any), and whether it
    is what an engine does for it.
    """

    events: tuple[tuple[int, int, bool], ...]

    def __str__(self) -> str:
        return f"in the order of {len(self.events)} events"


class Following:
    """Moves in a given order: who comes to its next event goes, and all others as little as can be.

    Copies that the order does not name end when nobody else can move.
    """

    def __init__(self, order: Order, clusters: int) -> None:
        self.name = str(order)
        self.slots = clusters
        self._left = list(order.events)

    def admits(self) -> bool:
        """Start every cluster at once."""
        return True

    def sees_earlier(self) -> bool:
        """See the last release of a turn: the order says nothing else."""
        return False

    def pick(self, machine: Machine) -> Agent | Flight | None:
        """Return who moves next; None where nobody can."""
        flights = machine.able()
        while self._left:
            line, k, engine = self._left[0]
            if engine:
                self._left.pop(0)
                named = [f for f in flights if _is(f.event, line, k)]
                if named:
                    return named[0]
                continue
            coming = [a for a in machine.agents if any(_is(e, line, k) for e in a.program[a.pc :])]
            if not coming:
                self._left.pop(0)
                continue
            there = [a for a in coming if a in machine.ready]
            for agent in there:
                if _is(agent.program[agent.pc], line, k):
                    self._left.pop(0)
                    return agent
            if there:
                return there[0]
            break
        if machine.ready:
            return min(machine.ready, key=lambda agent: agent.pc)
        return flights[0] if flights else None

    def burst(self) -> int:
        """Return how many statements the picked thread executes before the next pick."""
        return 1


def _is(event: Event, line: int, k: int) -> bool:
    return event.line == line and (k < 0 or not event.trip or event.trip[-1][1] == k)


Given = Sequence[int] | Order
"""A schedule that is not drawn."""
