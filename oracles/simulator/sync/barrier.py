"""The state of barriers and semaphores, with what each of them hands on."""

from __future__ import annotations

from dataclasses import dataclass, field

from fuser.kernel import ir as kir
from oracles.simulator.agent import Agent, Violation
from oracles.simulator.sync.clock import Clock
from oracles.simulator.unroll import Team

NAMED = 16
"""Named barriers of a CTA."""


@dataclass(eq=False, slots=True)
class Barrier:
    """One slot of an mbarrier.

    Parameters
    ----------
    cta : int
        In whose shared memory it lies.
    column : int
        Clock column that counts its completed phases.
    made, wide : int
        Clock columns that count its lives, as seen in its CTA and in its cluster.
    phase : int
        Full number of the running phase; -1 before `mbarrier_init` and after the end.
    life : int
        Phase with which the next life begins: even, and past all earlier ones, so that what a
        thread knows of an earlier life does not count.
    lives : int
        How often it was initialised.
    acc, sealed : Clock
        What arrivals and bytes of the running phase released; the same of the last phase.
    far, far_sealed : Clock
        The same from threads of other CTAs, for who waits at cluster scope.
    expects : list of (column, time)
        Who expects bytes on the running phase without arriving.
    parts, last_parts : list of (column, time)
        Arrivals and bytes of the running phase, and of the last one.
    returned : list of (Agent, time)
        Who has left its wait for the last phase, and when.
    """

    name: str
    cta: int
    count: int
    column: int
    made: int
    wide: int
    acc: Clock
    sealed: Clock
    far: Clock
    far_sealed: Clock
    phase: int = -1
    life: int = 0
    lives: int = 0
    made_by: int = -1
    pending: int = 0
    nbytes: int = 0
    expects: list[tuple[int, int]] = field(default_factory=list)
    parts: list[tuple[int, int]] = field(default_factory=list)
    last_parts: list[tuple[int, int]] = field(default_factory=list)
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
    """One of the sixteen barriers of a CTA: the running turn, its arrivals and who waits."""

    number: int
    column: int
    acc: Clock
    turn: int = 0
    threads: int = 0
    arrived: int = 0
    gate: Gate | Election | None = None
    owner: Team | None = None
    teams: set[Team] = field(default_factory=set)
    halves: dict[int, list[Agent]] = field(default_factory=dict)
    waiting: list[Agent] = field(default_factory=list)

    def use(self, team: Team, *, whole: bool) -> None:
        """Note who uses it; where a `whole` role waits for other CTAs by it, it is that role's own.

        Raises
        ------
        Violation
            If it is not.
        """
        self.teams.add(team)
        if whole:
            self.owner = team
        if self.owner is not None and len(self.teams) > 1:
            roles = " and ".join(sorted(f"{t.warps} warps from {t.first}" for t in self.teams))
            says = f"barrier {self.number}, by which a role waits for CTAs, is used by {roles}"
            raise Violation("collective", says)


@dataclass(eq=False, slots=True)
class ClusterBarrier:
    """The barrier of a cluster: its running turn, what arrivals released, who waits."""

    acc: Clock
    sealed: Clock
    turn: int = 0
    arrived: int = 0
    waiting: list[Agent] = field(default_factory=list)


@dataclass(eq=False, slots=True)
class GridBarrier:
    """CTAs that meet at one integer of a semaphore: how many say they are, and who waits.

    `team` is the role of each of them that does.
    """

    ctas: int = 0
    team: Team | None = None
    arrived: int = 0
    waiting: list[Agent] = field(default_factory=list)


@dataclass(eq=False, slots=True)
class Round:
    """CTAs that come to one integer of a semaphore, the last of which is elected.

    Parameters
    ----------
    asked : Election or None
        What the first of them has said.
    came : list of int
        Who is there, counted among the CTAs that run together.
    seen : list of Clock
        What each of them knew.
    over : dict of column to time, or None
        When which threads of the elected CTA went on, in the last round; None in the first round.
    """

    asked: Election | None = None
    came: list[int] = field(default_factory=list)
    seen: list[Clock] = field(default_factory=list)
    over: dict[int, int] | None = None


@dataclass(eq=False, slots=True)
class Counter:
    """One integer of a semaphore, with what its last store releases.

    Parameters
    ----------
    by, at, cta : int
        Who stored it and when; -1 before the first.
    seen : Clock or None
        What the store makes known at `scope`; None for nothing.
    fences : dict
        What fences of its thread make known at their scopes.
    """

    value: int = 0
    by: int = -1
    at: int = 0
    cta: int = -1
    cause: Clock | None = None
    seen: Clock | None = None
    scope: kir.Scope = kir.Scope.CTA
    fences: dict[kir.Scope, Clock] = field(default_factory=dict)
    waiting: list[NamedBarrier] = field(default_factory=list)


REACH = {kir.Scope.CTA: 0, kir.Scope.CLUSTER: 1, kir.Scope.GPU: 2}
"""Scopes from the narrowest to the widest."""
