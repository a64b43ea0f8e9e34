"""The actors of the model machine: threads, copies in flight, and the steps they leave behind."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from fuser.kernel_text import line
from oracles.machine_clock import ORDER, Clock, Index
from oracles.machine_ops import Array
from oracles.machine_unroll import Event

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
    done : int
        0, `READ_DONE` or `WRITE_DONE`.
    """

    by: int
    base: int
    event: Event
    start: Clock
    issuer: Agent
    steps: list[Callable[[], None]]
    done: int = 0

    @property
    def name(self) -> str:
        """How witnesses call it."""
        return f"copy engine #{self.by}"


@dataclass(eq=False, slots=True)
class Agent:
    """One modelled thread (`mult` 1) or the 31 others of its warp.

    Parameters
    ----------
    by : int
        Clock column.
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
    read_groups : int
        How many of its oldest groups it knows to have read their sources.
    """

    by: int
    name: str
    warp: int
    mult: int
    lo: int
    hi: int
    program: list[Event]
    clock: Clock
    pc: int = 0
    joined: int = 0
    intent: int | None = None
    blocked: str = ""
    registers: dict[str, Array] = field(default_factory=dict)
    open_group: list[Flight] = field(default_factory=list)
    groups: list[list[Flight]] = field(default_factory=list)
    read_groups: int = 0

    @property
    def now(self) -> int:
        """Its own time."""
        return int(self.clock[ORDER, self.by])

    def tick(self) -> None:
        """Begin a new time: what follows is not part of what was published."""
        self.clock[ORDER, self.by] += 1
