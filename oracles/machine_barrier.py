"""The state of barriers: one slot of an mbarrier, and one of the sixteen barriers of a CTA."""

from __future__ import annotations

from dataclasses import dataclass, field

from fuser import kernel_ir as kir
from oracles.machine_agent import Agent
from oracles.machine_clock import Clock

NAMED = 16
"""Named barriers of a CTA."""


@dataclass(eq=False, slots=True)
class Barrier:
    """One slot of an mbarrier.

    Parameters
    ----------
    phase : int
        Full number of the running phase; -1 before `mbarrier_init` and after the end.
    life : int
        Phase with which the next life begins: even, and past all earlier ones, so that what a
        thread knows of an earlier life does not count.
    acc, sealed : Clock
        What arrivals and bytes of the running phase released; the same of the last phase.
    returned : list of (Agent, time)
        Who has left its wait for the last phase, and when.
    """

    name: str
    count: int
    column: int
    acc: Clock
    sealed: Clock
    phase: int = -1
    life: int = 0
    pending: int = 0
    nbytes: int = 0
    made_by: int = -1
    made_at: int = 0
    waiters: list[Agent] = field(default_factory=list)
    returned: list[tuple[Agent, int]] = field(default_factory=list)
    used: dict[int, int] = field(default_factory=dict)
    observed: dict[int, int] = field(default_factory=dict)

    @property
    def state(self) -> str:
        """Its counters, in words."""
        if self.phase < 0:
            return f"{self.name}: no life"
        return f"{self.name}: phase {self.phase}, pending {self.pending}, bytes {self.nbytes}"


@dataclass(eq=False, slots=True)
class NamedBarrier:
    """One of the sixteen barriers of a CTA: the running turn, its arrivals and who waits."""

    number: int
    column: int
    acc: Clock
    turn: int = 0
    threads: int = 0
    arrived: int = 0
    halves: dict[int, list[Agent]] = field(default_factory=dict)
    waiting: list[Agent] = field(default_factory=list)


def fixed_columns(kernel: kir.Kernel, agents: int) -> int:
    """Return the clock columns before those of copies: agents, mbarrier slots, named barriers."""
    return agents + sum(m.slots for m in kernel.barriers) + NAMED
