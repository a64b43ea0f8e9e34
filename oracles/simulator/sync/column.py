"""Clock columns: lent to copies in flight, taken back, and added where they run out."""

from __future__ import annotations

from collections import deque

import numpy as np

from oracles.simulator.agent import WRITE_DONE, Agent, Flight
from oracles.simulator.sync.clock import CAUSE, ORDER, ROWS, Clock, Index, Parts, fresh

POOL = 16
"""Columns for copies with which a machine begins, per as many agents."""


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
    used : for either proxy, a deque of (Flight, owed, first, last)
        Copies whose column may come free; `owed` is how much of a copy a thread must have seen
        before it can touch the same memory, and agents `first <= i < last` are those that can.
    """

    def __init__(self, agents: list[Agent], fixed: int) -> None:
        self.used: tuple[deque[tuple[Flight, int, int, int]], ...] = (deque(), deque())
        self._agents = agents
        self._next = fixed
        pool = POOL * (2 + len(agents) // POOL)
        self._clocks = np.zeros((len(agents), ROWS, fixed + pool), np.int32)
        self._ended = np.array([not a.program for a in agents])
        self.parts = Parts(self.width)
        self._lend()
        for agent in agents:
            self.parts.cta[agent.by] = agent.cta
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

    def newest(self, first: int, last: int) -> Index:
        """Return, per column, the latest that one of these agents knows to have happened."""
        return np.asarray(np.max(self._clocks[first:last, CAUSE], axis=0), np.intp)

    def take(self, *, generic: bool) -> tuple[int, int]:
        """Return a column for a new copy, and the time it stands at; clocks may grow.

        Notes
        -----
        The column of an earlier copy is free once every running agent that can touch the same
        memory has seen what of it anyone can owe: who then sees the new copy has seen the old
        one anyway.
        """
        used = self.used[generic]
        for _ in range(min(2, len(used))):
            entry = flight, owed, first, last = used.popleft()
            if flight.done == WRITE_DONE:
                seen = self._clocks[first:last, ORDER, flight.by] >= flight.base + owed
                if (seen | self._ended[first:last]).all():
                    return flight.by, flight.base + WRITE_DONE
            used.append(entry)
        if self._next == self.width:
            self._clocks = np.pad(self._clocks, ((0, 0), (0, 0), (0, self.width)))
            self.parts.grow(self.width)
            self._lend()
        self._next += 1
        return self._next - 1, 0

    def widened(self, clock: Clock) -> Clock:
        """Return a clock of a barrier at the present width."""
        wide = self.fresh()
        wide[:, : clock.shape[1]] = clock
        return wide

    def _lend(self) -> None:
        for agent in self._agents:
            agent.clock = self._clocks[agent.by]
