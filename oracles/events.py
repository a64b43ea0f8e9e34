"""What the prover's order is made of: events, phases of barriers, runners, violations."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from fuser import kernel_ir as kir
from oracles.trace import Step


@dataclass(frozen=True, slots=True)
class Violation:
    """An obligation that fails: `earlier` is not ordered before `later`, or `later` is wrong."""

    kind: str
    later: Step
    earlier: Step | None
    iteration: int
    trips: int
    says: str
    severity: str = "error"


class Event(NamedTuple):
    """What an event is: a step (or the end of one) of an agent, at an iteration."""

    step: Step | None
    agent: int
    what: str
    iteration: int


@dataclass(slots=True)
class Phase:
    """The running phase of one slot of an mbarrier, and what its completion will follow."""

    barrier: kir.MBarrier
    slot: int
    number: int = 0
    pending: int = 0
    nbytes: int = 0
    before: int = 0
    fenced: int = 0
    causes: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    waiters: int = 0
    step: Step | None = None
    iteration: int = -1


@dataclass(slots=True)
class Turn:
    """A named barrier that some threads have reached."""

    threads: int
    count: int = 0
    before: int = 0
    fenced: int = 0
    agents: list[int] = field(default_factory=list)
    last: int = -1


@dataclass(slots=True)
class Runner:
    """One agent on its way: `before` precedes its next event, `fenced` through a proxy fence."""

    index: int
    todo: list[tuple[Step, int]]
    at: int = 0
    before: int = 0
    fenced: int = 0
    last: int = -1
    segment: int = -1
    waiting: str = ""
    group: list[int] = field(default_factory=list)
    groups: list[list[int]] = field(default_factory=list)
