"""What the explorer's machine is made of: steps of agents, and the state between two steps.

Knowledge.  Every step that matters has an *event*, one bit of a large integer.  A thread knows an
event when everything that the event did is ordered before what the thread does next.  Four masks
hold what an agent (or a barrier on its behalf) knows:

- `g`: in the generic proxy, at a scope that reaches it;
- `a`: what has been through a proxy fence after it happened;
- `s`: in plain time, whatever the scope or proxy: no execution has it the other way round;
- `own`: what each thread of the agent did itself; its fellow threads do not know of it yet.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

from fuser.kernel import ir as kir


class Op(IntEnum):
    """What a step does; those from `ARRIVE` on can be seen by other agents."""

    ACCESS = 0
    AWAIT = 1
    FENCE = 2
    THREAD_FENCE = 3
    INIT_FENCE = 4
    TMA_LOAD = 5
    INIT = 6
    INVALIDATE = 7
    JOIN = 8
    SKIP = 9
    MAP = 10
    ARRIVE = 11
    EXPECT = 12
    WAIT = 13
    CP_ARRIVE = 14
    BLOCK_SYNC = 15
    NAMED_ARRIVE = 16
    CLUSTER_ARRIVE = 17
    CLUSTER_WAIT = 18
    TURN_WAIT = 19
    TURN_RELEASE = 20
    POOL = 21
    GRID_SYNC = 22
    COUNT_IN = 23


@dataclass(slots=True, eq=False)
class Access:
    """A tile of memory, `what` at the statement `where`, that a step reads or writes.

    `space` is the number of the memory: `shared` memory of a CTA, or a tensor; `mask`, `low` and
    `high` say which granules (shared) or elements (global): the first, and one past the last.  An
    `engine` is in the async proxy; what it `adds` is 0, or by atomics: 1 of threads, 2 of TMA
    engines, and its order shows in no bit if `exact`.  The event `bit` has to be known for it to be
    over, `issue` is that of its issue.  `threads` are masks per thread, shifted by `base`; empty
    where one thread or an engine does it.
    """

    space: int
    shared: bool
    mask: int
    low: int
    high: int
    agent: int
    cta: int
    what: str
    where: str
    write: bool = False
    engine: bool = False
    adds: int = 0
    bit: int = 0
    issue: int = 0
    threads: tuple[int, ...] = ()
    base: int = 0
    exact: bool = False
    barrier: bool = False
    any_lane: bool = False
    """Whether each element may be any lane's of the warp, which only the hardware knows."""
    number: int = -1
    """Of a number that was drawn: the how many-th of its CTA is put there, or expected."""
    void: int = 0
    """Of a write: the granules that it leaves without anything in them."""
    whole: int = 0
    """Of a wgmma's read: the event by which an arrival of any warp of its warpgroup releases it."""


Span = tuple[tuple[int, ...], tuple[int, ...]]
"""From which element to which a tensor map goes."""


class MapUse(NamedTuple):
    """A tensor map that a step uses: of which CTA, called what, and which of its slots.

    `says` is what it is made to say, or has to; `read` are the events of the end of a copy.
    """

    at: tuple[int, str, int]
    what: str
    says: Span = ((), ())
    read: int = 0


class MapRecord(NamedTuple):
    """A tensor map: what it says, and the events of its last write, of copies and fences since."""

    says: Span
    written: int
    reads: int = 0
    released: int = 0
    acquired: int = 0


@dataclass(slots=True, eq=False)
class Step:
    """One step of one agent, all expressions evaluated."""

    op: Op
    stmt: kir.Stmt
    where: str
    bit: int
    accesses: tuple[Access, ...] = ()
    slot: int = -1
    number: int = 0
    """Threads that count, bytes, turn, registers, CTAs, or the step behind a body; by `op`."""
    flag: int = 0
    """Parity, which election of `Plan.elections`, or what else tells variants of an op apart."""
    reach: kir.Scope = kir.Scope.CTA
    grants: int = 0
    """Events that an await, or the end of an operation, makes known."""
    lands: tuple[tuple[int, int, int], ...] = ()
    """Of a TMA load, or a `StAsync`: barrier slot, bytes and event in each CTA that it writes."""
    mates: tuple[list[int], ...] = ()
    """Of an await of wgmmas: the events of each of them, one per warp of the warpgroup; of a change
    of registers: those of the change before."""
    map: MapUse | None = None
    """The tensor map that it writes, fences or goes by."""
    told: str = ""
    """What it does, with numbers, where a plan is to be told."""


@dataclass(slots=True, eq=False)
class Agent:
    """Threads of one warp that execute the same statements."""

    index: int
    cta: int
    warp: int
    lane: int
    lanes: int
    name: str
    steps: list[Step] = field(default_factory=list)
    mates: tuple[int, ...] = ()
    """All agents of its warp, itself included."""


ARRIVED, BYTES_DUE, PHASE = 0, 1, 2
GIVEN, GIVEN_FAR, GIVEN_A, GIVEN_S = 3, 4, 5, 6
DONE, DONE_FAR, DONE_A, DONE_S = 7, 8, 9, 10
WAITS, PLEDGES, ALIVE, COUNTED_S = 11, 12, 13, 14
"""Fields of an mbarrier slot: missing arrivals and bytes, number of the running phase, what its
arrivals handed over and what those of the phase before did, waits that passed in this phase, what
an arrival still has to follow, the event of its begin (0: not alive), and what those arrivals of
the running phase know that its count was made for."""
EMPTY_SLOT = (0,) * 15


Landed = tuple[tuple[int, bool], ...]


@dataclass(slots=True)
class State:
    """Everything that differs from one moment to another."""

    pcs: list[int]
    g: list[int]
    a: list[int]
    s: list[int]
    own: list[int]
    near: list[int]
    """What a fence of cluster scope covered, per agent."""
    far: list[int]
    """What a fence of gpu scope covered, per agent."""
    slots: list[tuple[int, ...]]
    named: dict[tuple[int, int], tuple[int, ...]] = field(default_factory=dict)
    """Arrived threads, their promised number, generation, g, a, s, and who sleeps there (bits).

    Where CTAs meet, the first number of the key is negative: -1 - the semaphore's."""
    cluster: dict[int, tuple[int, ...]] = field(default_factory=dict)
    """Arrived threads, generation, g, a, s given, g, a, s of the turn before, who arrived."""
    turns: dict[tuple[str, int], tuple[int, ...]] = field(default_factory=dict)
    """Value, g, far g, s, event of the last release, its CTA, and waits that saw it."""
    past: dict[tuple[str, int], tuple[tuple[tuple[int, ...], int], ...]] = field(
        default_factory=dict
    )
    """Turns that were given and may be seen yet: value, CTA, far g, g, event of its release;
    each with the event that ended it."""
    pool: dict[int, int] = field(default_factory=dict)
    taken: int = 0
    """Events of increases of registers."""
    flight: tuple[tuple[int, ...], ...] = ()
    """What will yet count on a barrier: slot, arrivals, bytes, event, `s` of its issue, and whether
    the count of the barrier was made for its arrivals."""
    memory: dict[int, tuple[Access, ...]] = field(default_factory=dict)
    asleep: int = 0
    issues: dict[int, int] = field(default_factory=dict)
    """The wgmmas (events, one per warp) that were issued, with `s` at that moment."""
    foreign: int = 0
    """What was fenced by a thread that observed it, not by the one that did it."""
    arrivals: dict[int, tuple[Landed, Landed]] = field(default_factory=dict)
    """Per mbarrier slot, those of the running phase and of the one before: the arrival's event, and
    whether bytes have no part in it."""
    early: tuple[str, str, str] | None = None
    """The first arrival that another interleaving has in the phase, or turn, before: kind of the
    finding, statement, and what is wrong."""
    loose: str = ""
    """The first thing that another interleaving might do differently."""
    arriving: dict[tuple[int, int], tuple[int, ...]] = field(default_factory=dict)
    """Where CTAs come: how many are there, and which (bits), g, s, the round, and the event of the
    end of the one before."""
    elected: dict[int, bool] = field(default_factory=dict)
    """Of each election of `Plan.elections`, whether its CTA was the last."""
    maps: dict[tuple[int, str, int], MapRecord] = field(default_factory=dict)

    def copy(self) -> State:
        """Return a state that can go its own way."""
        return State(
            self.pcs[:], self.g[:], self.a[:], self.s[:], self.own[:], self.near[:], self.far[:],
            self.slots[:], dict(self.named), dict(self.cluster), dict(self.turns),
            dict(self.past), dict(self.pool), self.taken, self.flight, dict(self.memory),
            self.asleep, dict(self.issues), self.foreign, dict(self.arrivals),
            self.early, self.loose, dict(self.arriving), dict(self.elected),
            dict(self.maps),
        )  # fmt: skip

    def key(self) -> tuple[object, ...]:
        """Return what makes two states one."""
        return (
            tuple(self.pcs), tuple(self.g), tuple(self.a), tuple(self.s), tuple(self.own),
            tuple(self.slots), tuple(self.named.items()), tuple(self.cluster.items()),
            tuple(self.turns.items()), tuple(self.pool.items()), frozenset(self.flight),
            self.asleep, tuple(self.near), tuple(self.far), frozenset(self.issues.items()),
            frozenset(self.arriving.items()), frozenset(self.elected.items()),
            frozenset(self.maps.items()), frozenset(self.past.items()),
        )  # fmt: skip
