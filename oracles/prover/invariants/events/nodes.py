"""What the skeleton of a kernel is made of: threads, nodes, requirements, accesses.

See `graph` for how they are found and `invariants.window` for what they mean.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from fuser.kernel import ir as kir
from oracles.prover.invariants.events.parametric import Bound, Place, Walk
from oracles.prover.invariants.rules import Axiom
from oracles.prover.invariants.trace import Step


class RefusedError(Exception):
    """A rule that needs no proof for all iterations is broken."""

    def __init__(self, kind: str, step: Step | None, says: str) -> None:
        super().__init__(says)
        self.kind, self.step, self.says = kind, step, says


@dataclass(frozen=True, slots=True)
class Thread:
    """One thread of a kind, by the number of its warp and its lane."""

    kind: int
    warp: int
    lane: int


@dataclass(frozen=True, slots=True)
class Item:
    """A node in the chain of a thread; a guarded one is skipped where its guard fails."""

    node: int
    guard: tuple[Bound, ...] = ()
    waits: bool = False


@dataclass(frozen=True, slots=True)
class Cross:
    """`node` in iteration k requires `cause` in iteration `k + shift`, if `guard` holds for k.

    A `narrow` one is the end of what an engine does: it publishes what the engine did, and nothing
    that the thread which started it did before.
    """

    node: int
    cause: int
    shift: int
    rule: Axiom
    guard: tuple[Bound, ...] = ()
    narrow: bool = False


class Agency(Enum):
    """Who makes an access, and in which proxy."""

    THREAD = "the thread itself"
    CP_ASYNC = "cp.async: later, in the generic proxy"
    ENGINE = "TMA or tensor cores: later, in the async proxy"


@dataclass(frozen=True, slots=True)
class Access:
    """Bytes of a slot in use from node `start` to node `end`."""

    step: Step
    place: Place
    buffer: kir.Buffer
    walk: Walk
    thread: Thread
    start: int
    end: int
    agency: Agency
    writes: bool


@dataclass(slots=True)
class Phase:
    """The phases of one mbarrier: who arrives, whose bytes count, who waits."""

    barrier: kir.MBarrier
    node: int
    modulus: int
    arrivals: list[tuple[Step, Place, Thread, int]] = field(default_factory=list)
    expects: list[tuple[Step, Place, Thread, int]] = field(default_factory=list)
    copies: list[tuple[Step, Place, int, int]] = field(default_factory=list)
    waits: list[tuple[Step, Place, Thread, int]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Group:
    """A copy or wgmma of a group of `kind`: the node at which it is done with its slot.

    `commits` of the iteration precede it.
    """

    kind: kir.AsyncKind
    step: Step
    place: Place
    done: int
    thread: Thread
    commits: int


@dataclass(slots=True)
class Signal:
    """A named barrier at which some arrive and others wait; its turns are counted from the first.

    `arrivals` are the nodes of those who arrive, `turn` that of a turn, in an iteration of those
    who wait.
    """

    arrive: Step
    wait: Step
    arrives: Place
    waits: Place
    arrivals: list[int] = field(default_factory=list)
    turn: int = -1

    @property
    def away(self) -> int:
        """Iterations from a wait to the arrival of the same turn."""
        return self.arrives.first - self.waits.first
