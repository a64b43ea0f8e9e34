"""Who moves next: adversarial orders, drawn from a seed.

A uniform scheduler finds almost nothing, because real bugs need one party to be very late.  So
each schedule starves somebody: copies finish as late as the barriers allow, or at once, or
in halves with a long pause; one thread runs as far ahead as it can.
"""

from __future__ import annotations

import random
from enum import Enum

from oracles.machine import Machine
from oracles.machine_agent import Agent, Flight


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


class Schedule:
    """One seeded order of moves.

    Parameters
    ----------
    seed : int
        Chooses the strategy (`seed % 6`) and all its draws.
    salt : int
        Number of the CTA, so that CTAs of one launch differ.
    """

    def __init__(self, seed: int, salt: int, agents: list[Agent]) -> None:
        self.strategy = STRATEGIES[seed % len(STRATEGIES)]
        self._draw = random.Random(seed * 1_000_003 + salt)
        self._rank = [a.by for a in agents]
        self._draw.shuffle(self._rank)
        self._turn = 0

    def pick(self, machine: Machine) -> Agent | Flight | None:
        """Return who moves next; None where nobody can."""
        ready, flights = machine.ready, machine.flights
        if not ready and not flights:
            return None
        if not flights:
            return self._thread(ready)
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
        match self.strategy:
            case Strategy.LATE | Strategy.EARLY | Strategy.SPLIT:
                return 1 << 30
            case Strategy.NEWEST:
                return 3
            case Strategy.AHEAD:
                return 1 << self._draw.randrange(6)
            case Strategy.UNIFORM:
                return 1

    def _thread(self, ready: list[Agent]) -> Agent:
        match self.strategy:
            case Strategy.NEWEST:
                self._turn += 1
                return ready[self._turn % len(ready)]
            case Strategy.UNIFORM:
                return self._draw.choice(ready)
            case Strategy.AHEAD:
                if self._draw.random() < 0.05:
                    self._draw.shuffle(self._rank)
            case Strategy.LATE | Strategy.EARLY | Strategy.SPLIT:
                pass
        return min(ready, key=lambda agent: self._rank[agent.by])
