"""The model machine: threads and copies in flight of the CTAs that run together, and their clocks.

Barriers of all kinds stand beside it (`sync.mbarriers`, `sync.joins`).  It moves no data and
chooses no order.

Notes
-----
A warp is two agents, its first lane and the 31 others: mbarrier waits return per thread, so the
lane that arrives for its warp may be ahead of the rest.  The 31 others execute the same
statements, touch disjoint elements and are joined by the same barriers; one clock stands for
them.  Barriers count threads (`mult`), not agents.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from fuser.kernel import ir as kir
from fuser.kernel.text import line
from oracles.simulator.memory.ops import Array
from oracles.simulator.sync.clock import (
    CAUSE,
    ELSEWHERE,
    GLOBAL_OWN,
    GLOBAL_SEEN,
    ORDER,
    REACH,
    ROWS,
    SHARED_OWN,
    SHARED_SEEN,
    Clock,
    Index,
    Parts,
    fresh,
    join,
)
from oracles.simulator.unroll import Event

WIDTH = 64
"""Characters of a statement that a witness shows; its line number finds the rest."""
READ_DONE, WRITE_DONE = 1, 2
"""Times of a copy in flight, in its own column, counted from its `base`."""


class Violation(Exception):
    """A rule was broken; the run ends here: kind of the finding, what is wrong, the other party."""

    def __init__(self, kind: str, says: str, against: Step | None = None) -> None:
        super().__init__(says)
        self.kind = kind
        self.says = says
        self.against = against


@dataclass(eq=False, slots=True)
class Step:
    """One thing an actor did: a row of the witness.

    `by` is its clock column, `event` the statement, with its loop indices; `atoms` of shared memory
    it touched, if any, and wrote if it `writes`; `note` is the state of the barrier afterwards, or
    what an engine did.
    """

    name: str
    by: int
    event: Event
    atoms: Index | None = None
    writes: bool = False
    note: str = ""

    def __str__(self) -> str:
        note = f"  -> {self.note}" if self.note else ""
        return f"{place(self.name, self.event)}{note}"


Warn = Callable[[str, str, Step | None], None]
"""Takes a finding that does not end the run: its kind, what is wrong, the other party."""


def place(name: str, event: Event) -> str:
    """Say which statement, who, and in which iteration."""
    trip = "".join(f", {index}={value}" for index, value in event.trip)
    text = line(event.stmt)
    if len(text) > WIDTH:
        text = f"{text[:WIDTH]}..."
    return f"line {event.line} `{text}` [{name}{trip}]"


def engine(stmt: kir.Stmt) -> str:
    """Name what works on after a statement; empty if it is done when it returns."""
    match stmt:
        case kir.TmaLoad():
            return "copy engine"
        case kir.TmaStore() | kir.TmaReduce():
            return "store engine"
        case kir.Wgmma():
            return "tensor core"
        case kir.CpAsync() | kir.CpAsyncMBarrierArrive():
            return "cp.async"
        case kir.QueueCopy():
            return "queue"
        case kir.StAsync():
            return "st.async"
        case _:
            return ""


@dataclass(eq=False, slots=True)
class Flight:
    """One copy in flight: its clock column, what it has still to do, what it has done.

    Columns are used again: at time `base` this one had ended another.  `start` is what its issuer
    knew at the issue, at its time `issued`, and empty once it has ended, parts of a wgmma apart.
    The next of the `steps` is its last.  `cta` is whose shared memory it accesses, counted among
    the CTAs that run together.  What it `waits_for` must be over before it may begin; `done` is 0,
    `READ_DONE` or `WRITE_DONE`; `product` is the number of the wgmma of which it is one warp's
    part, or 0.
    """

    by: int
    base: int
    event: Event
    start: Clock
    issuer: Agent
    steps: list[Callable[[], None]]
    cta: int
    issued: int
    waits_for: list[Flight] = field(default_factory=list)
    done: int = 0
    product: int = 0

    @property
    def name(self) -> str:
        """How witnesses call it."""
        return f"{engine(self.event.stmt)} #{self.by}"


@dataclass(eq=False, slots=True)
class Groups:
    """Asynchronous groups of one thread, or warp; the oldest `read` have read their sources."""

    open: list[Flight] = field(default_factory=list)
    closed: list[list[Flight]] = field(default_factory=list)
    read: int = 0

    def commit(self) -> None:
        """Close the open group; an empty one counts."""
        self.closed.append(self.open)
        self.open = []

    def older(self, keep: int, *, read_only: bool) -> list[Flight]:
        """Return what an await has to wait for."""
        upto = max(len(self.closed) - keep, 0)
        return [f for group in self.closed[self.read if read_only else 0 : upto] for f in group]

    def forget(self, keep: int, *, read_only: bool) -> None:
        """Note that an await has passed."""
        upto = max(len(self.closed) - keep, 0)
        if read_only:
            self.read = max(self.read, upto)
        else:
            self.closed = self.closed[upto:]
            self.read = max(self.read - upto, 0)

    @property
    def left(self) -> list[Flight]:
        """What nobody has waited for."""
        return [f for group in self.closed for f in group] + self.open


@dataclass(eq=False, slots=True)
class Warp:
    """What belongs to a warp as a whole.

    `half` is the part of it that stands at a statement of the whole warp; `groups` are of wgmma,
    and those that have not finished are in the `queue`; `touched` are fragments accessed in an
    ordinary way since it has `fenced`; `registers` are per thread, as `SetMaxNReg` counts.
    """

    half: list[Agent] = field(default_factory=list)
    groups: Groups = field(default_factory=Groups)
    queue: list[Flight] = field(default_factory=list)
    fenced: bool = False
    touched: set[str] = field(default_factory=set)
    registers: int = 0


@dataclass(eq=False, slots=True)
class Agent:
    """One modelled thread (`mult` 1) or the 31 others of its warp, of the threads `lo <= t < hi`.

    `by` is its clock column; `cta` its CTA, counted among those that run together, `block` that
    one's number in the launch.  `program` is all it will ever do; `pc` is next.  `intent` is the
    phase that the wait it stands at is meant for, `blocked` what it waits for, in words.  What its
    lanes did up to `joined` is ordered before what any of them does now.  `bulk` and `copies` are
    groups of tensor stores, and of cp.async; those of these that have not arrived on a barrier by
    themselves are `issued`.  Each copy of its `queue` is a group.  `fences` has what it knew at its
    last fence of each scope, `weak` what it has observed at too narrow a scope; a fence of that
    scope makes up for it.  `generation` is that of the cluster's barrier at which it has arrived
    and not yet waited.
    """

    by: int
    name: str
    cta: int
    block: int
    warp: int
    mult: int
    lo: int
    hi: int
    program: list[Event]
    clock: Clock
    team: Warp
    pc: int = 0
    joined: int = 0
    intent: int | None = None
    blocked: str = ""
    registers: dict[str, Array] = field(default_factory=dict)
    bulk: Groups = field(default_factory=Groups)
    copies: Groups = field(default_factory=Groups)
    queue: Groups = field(default_factory=Groups)
    issued: list[Flight] = field(default_factory=list)
    copied: dict[int, Flight] = field(default_factory=dict)
    fences: dict[kir.Scope, Clock] = field(default_factory=dict)
    weak: list[tuple[kir.Scope, Clock]] = field(default_factory=list)
    generation: int | None = None

    def groups(self, kind: kir.AsyncKind) -> Groups:
        """Return its asynchronous groups of a kind; those of wgmma are its warp's."""
        match kind:
            case kir.AsyncKind.BULK:
                return self.bulk
            case kir.AsyncKind.CP_ASYNC:
                return self.copies
            case kir.AsyncKind.WGMMA:
                return self.team.groups
            case kir.AsyncKind.QUEUE:
                return self.queue

    @property
    def now(self) -> int:
        """Its own time."""
        return int(self.clock[ORDER, self.by])

    def tick(self) -> None:
        """Begin a new time: what follows is not part of what was published."""
        clock, by = self.clock, self.by
        clock[ORDER, by] += 1  # one by one: of two elements a slice takes twice as long
        clock[ELSEWHERE, by] += 1
        clock[CAUSE, by] += 1

    def sees(self, flight: Flight, done: int) -> None:
        """Know that a copy has come this far."""
        at, column = flight.base + done, self.clock[ORDER : CAUSE + 1, flight.by]
        column[column < at] = at

    def fence_proxy(self, space: kir.Space) -> None:
        """Make generic accesses seen so far visible to later accesses of the async proxy.

        The copies by cp.async of this thread count as its own once it has waited for them.

        Source: PTX ISA, "membar / fence", "Memory consistency model".
        """
        clock = self.clock
        if space in (kir.Space.SHARED, kir.Space.ALL):
            np.maximum(clock[SHARED_SEEN], clock[ORDER], out=clock[SHARED_SEEN])
            clock[SHARED_OWN, self.by] = clock[ORDER, self.by]
            for flight in self.issued:
                done = min(clock[ORDER, flight.by], flight.base + WRITE_DONE)
                clock[SHARED_OWN, flight.by] = max(clock[SHARED_OWN, flight.by], done)
        if space in (kir.Space.GLOBAL, kir.Space.ALL):
            for row in (GLOBAL_SEEN, GLOBAL_OWN):
                np.maximum(clock[row], clock[ELSEWHERE], out=clock[row])
        self.tick()

    def fence_thread(self, scope: kir.Scope) -> None:
        """Let later relaxed stores release, and earlier relaxed reads acquire, at a scope."""
        weak, self.weak = self.weak, []
        for needed, clock in weak:
            if REACH[scope] >= REACH[needed]:
                join(self.clock, clock)
            else:
                self.weak.append((needed, clock))
        for reached in kir.Scope:
            if REACH[reached] <= REACH[scope]:
                self.fences[reached] = self.clock.copy()
        self.tick()


POOL = 16
"""Columns for copies with which a machine begins, per as many agents."""


class Columns:
    """The clocks of all agents in one array, a row each, and which columns are free.

    The `fixed` ones are before those of copies.  `ended` agents touch nothing any more.  `used`
    has, for either proxy, (Flight, owed, first, last): copies whose column may come free; `owed` is
    how much of a copy a thread must have seen before it can touch the same memory, and agents
    `first <= i < last` are those that can.
    """

    def __init__(self, agents: list[Agent], fixed: int) -> None:
        self.used: tuple[deque[tuple[Flight, int, int, int]], ...] = (deque(), deque())
        self._agents = agents
        self._next = fixed
        pool = POOL * (2 + len(agents) // POOL)
        self._clocks = np.zeros((len(agents), ROWS, fixed + pool), np.int32)
        self.ended = np.array([not a.program for a in agents])
        self.parts = Parts(self.width)
        self._lend()
        for agent in agents:
            self.parts.cta[agent.by] = self.parts.home[agent.by] = agent.cta
            agent.tick()

    @property
    def width(self) -> int:
        """Columns of every clock."""
        return int(self._clocks.shape[2])

    def fresh(self) -> Clock:
        """Return a clock that has seen nothing."""
        return fresh(self.width)

    def newest(self, first: int, last: int) -> Index:
        """Return, per column, the latest that one of these agents knows to have happened."""
        return np.asarray(np.max(self._clocks[first:last, CAUSE], axis=0), np.intp)

    def take(self, *, generic: bool) -> tuple[int, int]:
        """Return a column for a new copy, and the time it stands at; clocks may grow.

        The column of an earlier copy is free once every running agent that can touch the same
        memory has seen what of it anyone can owe: who then sees the new copy has seen the old one
        anyway.
        """
        used = self.used[generic]
        for _ in range(min(2, len(used))):
            entry = flight, owed, first, last = used.popleft()
            if flight.done == WRITE_DONE:
                seen = self._clocks[first:last, ORDER, flight.by] >= flight.base + owed
                if (seen | self.ended[first:last]).all():
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


GROUPS = "groups of copies, first"
"""Begins the text of an agent that waits for its copies."""


class Machine:
    """CTAs that run together, in the middle of a run.

    `agents` are of all CTAs, those of one CTA next to each other, with clock columns 0, 1, ...;
    then come `away`, which count what each did to other CTAs of its cluster, those of barriers, and
    those of copies in flight.  `warn` takes findings that do not end the run.  `followed`: some
    copies wait for others.  `remote` are arrivals on, and accesses of, the shared
    memory of another CTA.  `followers` are called when clocks have grown, for who keeps clocks of
    its own.  `before` is the column of the launches before this one, whose end is at time 1, or -1
    where they have ended; `waited` is whether some thread has waited for them.
    `begun` has the column of each cluster: at time 1 all of its CTAs have begun.
    """

    def __init__(
        self, kernel: kir.Kernel, named: tuple[int, ...], agents: list[Agent], warn: Warn
    ) -> None:
        self.kernel = kernel
        self.agents = agents
        self.warn = warn
        self.ctas = agents[-1].cta + 1
        self.named = named
        rings = sum(m.slots + 2 for m in kernel.barriers) + len(named)
        self.away = slice(len(agents), len(agents) * (1 + (kernel.cluster > 1)))
        more = self.ctas * rings + self.ctas // kernel.cluster + kernel.dependent
        self.columns = Columns(agents, self.away.stop + more)
        self.first_free: int = self.away.stop
        self.before = self.column() if kernel.dependent else -1
        self.begun = [self.column() for _ in range(self.ctas // kernel.cluster)]
        self.waited = False
        self.ready: list[Agent] = []
        self.flights: list[Flight] = []
        self.issued: list[Flight] = []
        self.remote: list[tuple[int, int, int, Event]] = []
        self.log: list[Step] = []
        self.followed = False
        self.followers: list[Callable[[], None]] = []
        size = kernel.threads // kir.WARP * 2
        self._reach = size * kernel.cluster

    def column(self) -> int:
        """Return the next column that is not an agent's."""
        self.first_free += 1
        return self.first_free - 1

    def agents_of(self, cta: int) -> list[Agent]:
        """Return the threads of one CTA."""
        size = len(self.agents) // self.ctas
        return self.agents[cta * size : (cta + 1) * size]

    def able(self) -> list[Flight]:
        """Return the copies that may move: not before those that they follow."""
        if not self.followed:
            return self.flights
        return [f for f in self.flights if all(c.done == WRITE_DONE for c in f.waits_for)]

    # --- launches before this one ---------------------------------------------------------------

    def outlasts(self, agent: Agent) -> None:
        """Let a thread wait for the end of the launches before this one."""
        self.waited = True
        if self.before >= 0:
            agent.clock[ORDER : CAUSE + 1, self.before] = 1

    def alone(self, agent: Agent, what: str) -> None:
        """Refuse to use what those launches may still use.

        Their end is over for the whole grid, so that it came before in time is enough.

        Source: PTX ISA, "griddepcontrol".
        """
        if self.before >= 0 and not agent.clock[CAUSE, self.before]:
            says = "nothing orders the end of the launches before this one before its use of "
            raise Violation("dependency", says + what)

    # --- blocking -------------------------------------------------------------------------------

    def mate(self, agent: Agent) -> Agent:
        """Return the other agent of a warp."""
        return self.agents[agent.by ^ 1]

    def start(self, cta: int) -> None:
        """Let the threads of a CTA begin."""
        self.ready += [a for a in self.agents_of(cta) if a.program]

    def block(self, agent: Agent, why: str) -> None:
        """Stop an agent until somebody wakes it."""
        if not agent.blocked:
            self.ready.remove(agent)
        agent.blocked = why

    def wake(self, agent: Agent, *, passed: bool) -> None:
        """Let a blocked agent try its statement again, or step over it where it has `passed`."""
        agent.blocked = ""
        agent.pc += passed
        self.ready.append(agent)
        if agent.pc == len(agent.program):
            self.retire(agent)

    def retire(self, agent: Agent) -> None:
        """Take an agent off that has reached its end."""
        self.ready.remove(agent)
        self.columns.ended[agent.by] = True

    def peer(self, agent: Agent, rank: int) -> int:
        """Return which CTA has a rank in this agent's cluster."""
        if not 0 <= rank < self.kernel.cluster:
            raise Violation("bounds", f"a cluster of {self.kernel.cluster} has no CTA {rank}")
        return agent.cta - agent.block % self.kernel.cluster + rank

    def has_begun(self, agent: Agent) -> bool:
        """Whether an agent knows that the other CTAs of its cluster run: they have met.

        Source: CUDA programming guide, "distributed shared memory".
        """
        return bool(agent.clock[ORDER, self.begun[agent.cta // self.kernel.cluster]])

    def reach(self, agent: Agent, cta: int, event: Event) -> None:
        """Note what an agent does to the shared memory of a CTA; only another one may be gone."""
        if cta == agent.cta:
            return
        column = self.away.start + agent.by
        agent.clock[ORDER : CAUSE + 1, column] += 1
        self.remote.append((cta, agent.by, int(agent.clock[CAUSE, column]), event))

    # --- copies ---------------------------------------------------------------------------------

    def issue(
        self,
        agent: Agent,
        event: Event,
        owed: int = WRITE_DONE,
        *,
        shared: bool,
        cta: int | None = None,
    ) -> Flight:
        """Start a copy: an agent of its own that has seen what its issuer has seen.

        Nothing conflicts with it any more after `owed` of it: `READ_DONE` or `WRITE_DONE`.  It
        accesses the shared memory of `cta`, or its issuer's; if `shared`, it conflicts with threads
        of its cluster only.
        """
        cta = agent.cta if cta is None else cta
        generic = isinstance(event.stmt, kir.CpAsync | kir.CpAsyncMBarrierArrive | kir.StAsync)
        width = self.columns.width
        by, base = self.columns.take(generic=generic)
        if self.columns.width > width:
            for follow in self.followers:
                follow()
        parts = self.columns.parts
        parts.generic[by], parts.published[by] = generic, False
        parts.cta[by], parts.far[by], parts.home[by] = agent.cta, cta != agent.cta, cta
        flight = Flight(by, base, event, agent.clock.copy(), agent, [], cta, agent.now)
        first = cta // self.kernel.cluster * self._reach if shared else 0
        last = first + self._reach if shared else len(self.agents)
        self.columns.used[generic].append((flight, owed, first, last))
        agent.tick()
        self.issued.append(flight)
        return flight

    def finish(self, flight: Flight, done: int) -> None:
        """Note that a copy has read its source, or written its destination."""
        flight.done = done
        for agent in (flight.issuer, self.mate(flight.issuer)):
            if agent.blocked.startswith(GROUPS):
                self.wake(agent, passed=False)
