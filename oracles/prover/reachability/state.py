"""One state of a whole cluster: where its threads are, and what precedes what they do next.

Events are bits.  An event has a *place* (the access of this statement by these threads to this
slot; the end of a phase of this barrier), and the next event of the place takes over its bits once
nobody can ask about the old one.  So a state that comes again is the same numbers again.

Every event owns `FACTS` bits: that it happened, that a proxy fence for shared memory (for global
memory) covers it, and that this fence was its own thread's.  Whoever learns of the event learns of
the facts on the same way.

What threads of one kind know of each other needs three sets.  `mine` is what precedes the next
step of a thread in its own past; `warp` the part of it that holds for all threads of the warp;
`all` the part that holds for all threads: an event of threads of a kind is in `all` only if it
precedes this for each of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from fuser.expr import Expr
from oracles.prover.reachability.program.threads import Kind

FACTS = 4
SHARED, GLOBAL, OWN = 1, 2, 3
"""Facts of an event beyond that it happened (which is 0)."""
ONES = sum(1 << FACTS * i for i in range(4096))
"""That an event happened, for every event there may be."""
COPIES = 64
"""Events of one place that may be told apart at a time; more is not followed."""


class Entry(NamedTuple):
    """An access that later ones must be ordered after."""

    event: int
    site: int
    agent: int
    writes: bool
    proxy: bool
    engine: bool
    start: int
    end: int
    cover: tuple[int, int] = (-1, 0)


class Unknown(NamedTuple):
    """One use of a number that no thread knows: the loops around it, and how often it came."""

    atom: int
    outer: tuple[int, ...]
    turn: int


class Range(NamedTuple):
    """What has been decided about a number: at least `low`, and exactly that if `exact`."""

    low: int = 0
    exact: bool = False


@dataclass(slots=True)
class Agent:
    """Threads of one kind on their way."""

    kind: Kind
    at: int
    env: dict[str, int]
    mine: int = 0
    warp: int = 0
    all: int = 0
    done: bool = False
    waiting: str = ""
    gate: tuple[int, ...] | None = None
    loops: tuple[tuple[int, Unknown | None, str, int], ...] = ()
    turns: tuple[tuple[int, int], ...] = ()
    bulk: tuple[tuple[tuple[int, int], ...], ...] = ()
    bulk_open: tuple[tuple[int, int], ...] = ()
    copies: tuple[tuple[int, ...], ...] = ()
    copies_open: tuple[int, ...] = ()
    mma: tuple[tuple[tuple[str, str, tuple[int, ...]], ...], ...] = ()
    mma_open: tuple[tuple[str, str, tuple[int, ...]], ...] = ()
    clean: frozenset[object] = frozenset()
    own: int = 0
    fenced: int = 0
    registers: int = 0
    arrived: bool = False
    unmet: bool = False
    spoken: int = 0
    first: bool = False

    def copy(self) -> Agent:
        """Return an agent that goes its own way."""
        return Agent(
            self.kind, self.at, dict(self.env), self.mine, self.warp, self.all, self.done,
            self.waiting, self.gate, self.loops, self.turns, self.bulk, self.bulk_open,
            self.copies, self.copies_open, self.mma, self.mma_open, self.clean,
            self.own, self.fenced, self.registers,
            self.arrived, self.unmet, self.spoken, self.first,
        )  # fmt: skip


@dataclass(slots=True)
class Phase:
    """The running phase of one slot of an mbarrier.

    `came` and `coming` are the single arrivals and bytes of the last phase and of this one, where
    they are followed; `announced` is what made this one wait for more, without an arrival after.
    """

    arrivals: int
    init: int
    parity: int = 0
    count: int = 0
    pending: int = 0
    nbytes: int = 0
    before: int = 0
    last: int = 0
    end: int = -1
    previous: int = -1
    waiters: tuple[int, ...] = ()
    remote: bool = False
    was_remote: bool = False
    site: int = -1
    alive: bool = True
    came: tuple[int, ...] = ()
    coming: tuple[int, ...] = ()
    announced: tuple[int, ...] = ()

    def copy(self) -> Phase:
        """Return a phase that goes its own way."""
        return Phase(
            self.arrivals, self.init, self.parity, self.count, self.pending, self.nbytes,
            self.before, self.last, self.end, self.previous, self.waiters, self.remote,
            self.was_remote, self.site, self.alive, self.came, self.coming,
            self.announced,
        )  # fmt: skip


@dataclass(slots=True)
class Turn:
    """The running turn of a named barrier, of a warp's, or of the cluster's."""

    threads: int = 0
    count: int = 0
    before: int = 0
    waiting: tuple[int, ...] = ()
    last: int = -1

    def copy(self) -> Turn:
        """Return a turn that goes its own way."""
        return Turn(self.threads, self.count, self.before, self.waiting, self.last)


@dataclass(slots=True)
class Semaphore:
    """One semaphore: its value, who set it, and what that released.

    `end` is the event of the last release, `waiters` those of the waits that saw its value,
    `past` the values before with the events that ended them, `asking` the CTAs whose threads are
    all at a wait for a value yet to come, `come` those that an `LastArriving` has counted.  `at` is
    the turn of the loop along which the index goes on, if it does.
    """

    value: int = 0
    owner: int = -1
    before: int = 0
    end: int = -1
    site: int = -1
    waiters: tuple[int, ...] = ()
    past: tuple[tuple[int, int], ...] = ()
    asking: tuple[tuple[int, int, int, int], ...] = ()
    come: tuple[int, ...] = ()
    at: int | None = None

    def copy(self) -> Semaphore:
        """Return a semaphore that goes its own way."""
        return Semaphore(
            self.value, self.owner, self.before, self.end, self.site, self.waiters, self.past,
            self.asking, self.come, self.at,
        )  # fmt: skip


Where = tuple[int, str, int]
"""A piece of memory: CTA, buffer and slot; or -1, tensor and region."""


class State:
    """A state, and the bookkeeping of its events."""

    def __init__(self, agents: list[Agent]) -> None:
        self.agents = agents
        self.phases: dict[Where, Phase] = {}
        self.turns: dict[tuple[int, int], Turn] = {}
        self.memory: dict[Where, tuple[Entry, ...]] = {}
        self.valid: dict[Where, bool] = {}
        self.flying: dict[int, tuple[int, int]] = {}
        self.ranges: dict[Unknown, Range] = {}
        self.chosen: dict[Expr, bool] = {}
        self.when: dict[int, tuple[int, int]] = {}
        self.used = 0
        self.live = 0
        self.steps = 0
        self.most = 0
        self.semaphores: dict[tuple[str, Expr], Semaphore] = {}
        self.places: dict[int, tuple[int, ...]] = {}
        self.farthest: dict[Where, tuple[int, ...]] = {}
        self.put: dict[Where, tuple[int, ...]] = {}
        self.lacking = 0
        self.lead = 0

    def copy(self) -> State:
        """Return a state that goes its own way."""
        new = State([a.copy() for a in self.agents])
        new.phases = {key: phase.copy() for key, phase in self.phases.items()}
        new.turns = {key: turn.copy() for key, turn in self.turns.items()}
        new.memory = dict(self.memory)
        new.valid = dict(self.valid)
        new.flying = dict(self.flying)
        new.ranges = dict(self.ranges)
        new.chosen = dict(self.chosen)
        new.when = dict(self.when)
        new.used, new.live, new.steps, new.most = self.used, self.live, self.steps, self.most
        new.semaphores = {key: one.copy() for key, one in self.semaphores.items()}
        new.places = dict(self.places)
        new.farthest, new.put = dict(self.farthest), dict(self.put)
        new.lacking = self.lacking
        new.lead = self.lead
        return new

    def pass_gate(self) -> None:
        """Let the threads at the first gate go on; there is one."""
        first = min(a.gate for a in self.agents if a.gate)
        for a in self.agents:
            if a.gate == first:
                a.gate = ()

    def take(self, event: int) -> int:
        """Make an event new: forget whatever was known of the last one of its place."""
        bits = 0b1111 << FACTS * event
        if self.used & bits:
            keep = ~bits
            for a in self.agents:
                a.mine &= keep
                a.warp &= keep
                a.all &= keep
                a.own &= keep
                a.fenced &= keep
                a.spoken &= keep
            for phase in self.phases.values():
                phase.before &= keep
                phase.last &= keep
            for turn in self.turns.values():
                turn.before &= keep
            for semaphore in self.semaphores.values():
                semaphore.before &= keep
            self.lacking &= keep
        self.used |= bits
        self.live |= bits
        return event

    def own(self, a: Agent, event: int) -> None:
        """Let an event of these threads precede what they do next."""
        bit = 1 << FACTS * event
        a.mine |= bit
        a.own |= bit
        if a.kind.leads:
            a.warp |= bit
            if a.kind.alone:
                a.all |= bit

    def learn(self, a: Agent, facts: int) -> None:
        """Let what all threads agree on precede what these do next."""
        a.mine |= facts
        a.warp |= facts
        a.all |= facts

    def sweep(self, everybody: int) -> None:
        """Find the events that somebody may still ask about.

        Parameters
        ----------
        everybody : int
            What precedes whatever any thread does next: nobody misses an event of these.
        """
        known: dict[int, int] = {}
        for a in self.agents:
            known[a.kind.cta] = known.get(a.kind.cta, 0) | a.mine
        self.flying = {
            e: what for e, what in self.flying.items() if not known[what[0]] >> FACTS * e & 1
        }
        live = set(self.flying)
        mask = 0
        for where, entries in self.memory.items():
            for entry in entries:
                if entry.proxy and where[0] >= 0:
                    if everybody >> FACTS * entry.event & 1:
                        continue
                    live.add(entry.event)
                    if not entry.writes:
                        mask |= 1 << FACTS * entry.event + OWN
                else:
                    mask |= 0b1111 << FACTS * entry.event
        for phase in self.phases.values():
            live.update((*phase.waiters, *phase.came, *phase.coming, *phase.announced))
            for event in (phase.end, phase.previous):
                if event >= 0 and not everybody >> FACTS * event & 1:
                    live.add(event)
            mask |= 0b11 << FACTS * phase.init
        for turn in self.turns.values():
            live.add(turn.last)
        for one in self.semaphores.values():
            live.update((one.end, *one.waiters, *(event for _, event in one.past)))
        for a in self.agents:
            for group in (*a.bulk, a.bulk_open):
                for pair in group:
                    live.update(pair)
            for ends in (*a.copies, a.copies_open):
                live.update(ends)
            for mmas in (*a.mma, a.mma_open):
                for _, _, ends in mmas:
                    live.update(ends)
        live.discard(-1)
        for event in live:
            mask |= 1 << FACTS * event
        self.live = mask
