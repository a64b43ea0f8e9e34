"""Clock columns of one CTA: lent to copies in flight, taken back, and added where they run out."""

from __future__ import annotations

from collections import deque

import numpy as np

from oracles.machine_agent import WRITE_DONE, Agent, Flight
from oracles.machine_clock import ORDER, ROWS, Clock, fresh

POOL = 16
"""Columns for copies with which a machine begins."""


class Columns:
    """The clocks of all agents in one array, and which columns are free.

    Parameters
    ----------
    agents : list of Agent
        Columns 0, 1, ...; their clocks become rows of the array.
    fixed : int
        Columns before those of copies.

    Attributes
    ----------
    used : deque of (Flight, owed)
        Copies whose column may come free; `owed` is how much of a copy a thread must have seen
        before it can touch the same memory.
    """

    def __init__(self, agents: list[Agent], fixed: int) -> None:
        self.used: deque[tuple[Flight, int]] = deque()
        self._agents = agents
        self._next = fixed
        self._clocks = np.zeros((len(agents), ROWS, fixed + POOL), np.int32)
        self._ended = np.array([not a.program for a in agents])
        self._lend()
        for agent in agents:
            agent.tick()

    @property
    def width(self) -> int:
        """Columns of every clock."""
        return int(self._clocks.shape[2])

    def fresh(self) -> Clock:
        """Return a clock that has seen nothing."""
        return fresh(self.width)

    def release(self, agent: Agent) -> None:
        """Forget an agent that has ended: it touches nothing any more."""
        self._ended[agent.by] = True

    def take(self) -> tuple[int, int]:
        """Return a column for a new copy, and the time it stands at; clocks may grow.

        Notes
        -----
        The column of an earlier copy is free once every running agent has seen what of it anyone
        can owe: who then sees the new copy has seen the old one anyway.
        """
        for _ in range(min(2, len(self.used))):
            flight, owed = self.used.popleft()
            seen = self._clocks[:, ORDER, flight.by] >= flight.base + owed
            if flight.done == WRITE_DONE and (seen | self._ended).all():
                return flight.by, flight.base + WRITE_DONE
            self.used.append((flight, owed))
        if self._next == self.width:
            self._clocks = np.pad(self._clocks, ((0, 0), (0, 0), (0, self.width)))
            self._lend()
        self._next += 1
        return self._next - 1, 0

    def widened(self, clock: Clock) -> Clock:
        """Return a clock of a barrier at the present width."""
        return np.pad(clock, ((0, 0), (0, self.width - clock.shape[1])))

    def _lend(self) -> None:
        for agent in self._agents:
            agent.clock = self._clocks[agent.by]
