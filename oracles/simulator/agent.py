"""The actors of the model machine: threads, copies in flight, and the steps they leave behind."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from fuser.kernel import ir as kir
from fuser.kernel.text import line
from oracles.simulator.memory.ops import Array
from oracles.simulator.sync.clock import CAUSE, ORDER, Clock, Index
from oracles.simulator.unroll import Event

WIDTH = 64
"""Characters of a statement that a witness shows; its line number finds the rest."""
READ_DONE, WRITE_DONE = 1, 2
"""Times of a copy in flight, in its own column, counted from its `base`."""


class Violation(Exception):
    """A rule was broken; the run ends here.

    Parameters
    ----------
    kind : str
        Class of the finding.
    says : str
        What is wrong.
    against : Step or None
        The other party of a conflict.
    """

    def __init__(self, kind: str, says: str, against: Step | None = None) -> None:
        super().__init__(says)
        self.kind = kind
        self.says = says
        self.against = against


@dataclass(eq=False, slots=True)
class Step:
    """One thing an actor did: a row of the witness.

    Parameters
    ----------
    name : str
        The actor.
    by : int
        Its clock column.
    event : Event
        The statement, with its loop indices.
    atoms : array of int or None
        Shared memory that it touched.
    writes : bool
        Whether it wrote it.
    note : str
        State of the barrier afterwards, or what an engine did.
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


@dataclass(eq=False, slots=True)
class Flight:
    """One copy in flight: its clock column, what it has still to do, what it has done.

    Parameters
    ----------
    base : int
        Time of its column before it; columns are used again.
    start : Clock
        What its issuer knew at the issue.
    steps : list of callables
        What is left to do, the next one last.
    cta : int
        Whose shared memory it accesses, counted among the CTAs that run together.
    issued : int
        Time of its issuer at the issue.
    waits_for : list of Flight
        What must be over before it may begin.
    done : int
        0, `READ_DONE` or `WRITE_DONE`.
    kin : int
        Number of the wgmma of which it is one warp's part; 0 for anything else.
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
    kin: int = 0

    @property
    def name(self) -> str:
        """How witnesses call it."""
        match self.event.stmt:
            case kir.Wgmma():
                return f"tensor core #{self.by}"
            case kir.TmaStore() | kir.TmaReduce():
                return f"store engine #{self.by}"
            case kir.CpAsync() | kir.CpAsyncMBarrierArrive():
                return f"cp.async #{self.by}"
            case _:
                return f"copy engine #{self.by}"


@dataclass(eq=False, slots=True)
class Groups:
    """Asynchronous groups of one thread, or of one warp.

    Parameters
    ----------
    read : int
        How many of the oldest are known to have read their sources.
    """

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

    Parameters
    ----------
    half : list of Agent
        The part of it that stands at a statement of the whole warp.
    groups : Groups
        Of wgmma.
    queue : list of Flight
        Its wgmmas in order, those that have not finished.
    fenced : bool
        Whether it has executed a `WgmmaFence`.
    touched : set of str
        Fragments accessed in an ordinary way since then.
    registers : int
        Per thread, as `SetMaxNReg` counts.
    """

    half: list[Agent] = field(default_factory=list)
    groups: Groups = field(default_factory=Groups)
    queue: list[Flight] = field(default_factory=list)
    fenced: bool = False
    touched: set[str] = field(default_factory=set)
    registers: int = 0


@dataclass(eq=False, slots=True)
class Agent:
    """One modelled thread (`mult` 1) or the 31 others of its warp.

    Parameters
    ----------
    by : int
        Clock column.
    cta, block : int
        Its CTA, counted among those that run together, and its number in the launch.
    warp, mult : int
        Warp within the CTA, and how many threads this stands for.
    lo, hi : int
        Its threads, `lo <= t < hi`, counted within the CTA.
    program : list of Event
        All it will ever do; `pc` is the next.
    intent : int or None
        Phase that the wait it stands at is meant for.
    joined : int
        What its lanes did up to this time is ordered before what any of them does now.
    blocked : str
        What it waits for, in words; empty while it can run.
    bulk, copies : Groups
        Of tensor stores, and of cp.async.
    issued : list of Flight
        Its cp.async that have not arrived on a barrier by themselves.
    fences : dict
        What it knew at its last fence of each scope.
    weak : list of (scope, Clock)
        What it has observed at too narrow a scope; a fence of that scope makes up for it.
    turn : int or None
        Turn of the cluster's barrier at which it has arrived and not yet waited.
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
    issued: list[Flight] = field(default_factory=list)
    fences: dict[kir.Scope, Clock] = field(default_factory=dict)
    weak: list[tuple[kir.Scope, Clock]] = field(default_factory=list)
    turn: int | None = None

    @property
    def now(self) -> int:
        """Its own time."""
        return int(self.clock[ORDER, self.by])

    def tick(self) -> None:
        """Begin a new time: what follows is not part of what was published."""
        self.clock[ORDER : CAUSE + 1, self.by] += 1

    def sees(self, flight: Flight, done: int) -> None:
        """Know that a copy has come this far."""
        at, column = flight.base + done, self.clock[ORDER : CAUSE + 1, flight.by]
        column[column < at] = at
