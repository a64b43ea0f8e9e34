"""Fences: what a thread orders for itself, for another proxy, or at a wider scope.

Source: PTX ISA, "membar / fence", "Memory consistency model".
"""

from __future__ import annotations

import numpy as np

from fuser.kernel import ir as kir
from oracles.simulator.agent import WRITE_DONE, Agent
from oracles.simulator.sync.barrier import REACH
from oracles.simulator.sync.clock import (
    GLOBAL_OWN,
    GLOBAL_SEEN,
    ORDER,
    SHARED_OWN,
    SHARED_SEEN,
    join,
)


def fence_proxy(agent: Agent, space: kir.Space) -> None:
    """Make generic accesses seen so far visible to later accesses of the async proxy.

    Notes
    -----
    The copies by cp.async of this thread count as its own once it has waited for them.
    """
    clock = agent.clock
    if space in (kir.Space.SHARED, kir.Space.ALL):
        np.maximum(clock[SHARED_SEEN], clock[ORDER], out=clock[SHARED_SEEN])
        clock[SHARED_OWN, agent.by] = clock[ORDER, agent.by]
        for flight in agent.issued:
            done = min(clock[ORDER, flight.by], flight.base + WRITE_DONE)
            clock[SHARED_OWN, flight.by] = max(clock[SHARED_OWN, flight.by], done)
    if space in (kir.Space.GLOBAL, kir.Space.ALL):
        for row in (GLOBAL_SEEN, GLOBAL_OWN):
            np.maximum(clock[row], clock[ORDER], out=clock[row])
    agent.tick()


def fence_thread(agent: Agent, scope: kir.Scope) -> None:
    """Let later relaxed stores release, and earlier relaxed reads acquire, at a scope."""
    weak, agent.weak = agent.weak, []
    for needed, clock in weak:
        if REACH[scope] >= REACH[needed]:
            join(agent.clock, clock)
        else:
            agent.weak.append((needed, clock))
    for reached in kir.Scope:
        if REACH[reached] <= REACH[scope]:
            agent.fences[reached] = agent.clock.copy()
    agent.tick()
