"""The axioms and obligations of the invariants, by name, so that each can be left out.

A proof is worth what its rules are worth.  Without one of the axioms right kernels are no longer
proved; without one of the obligations some wrong kernel is.  Tests leave out each in turn and look.
"""

from __future__ import annotations

from enum import Enum

from fuser.kernel import ir as kir


class Axiom(Enum):
    """What an event requires of others; leaving one out costs proofs, never truth."""

    PROGRAM = "a thread does one thing after the other"
    TURN = "who passes a BlockSync or WarpSync has seen the others arrive"
    SIGNAL = "who passes a named barrier has seen those arrive who do not wait"
    ARRIVAL = "a phase ends after all its arrivals"
    BYTES = "a phase ends after all its bytes have landed"
    SEQUENCE = "a phase ends after the one before it on the same slot"
    WAIT = "a wait ends after the phase it is meant for"
    ISSUE = "what an engine does ends after its issue"
    GROUP = "an await ends after the groups it covers"
    CONVERGE = "a warp issues a wgmma when all its lanes are there"
    FINISH = "an arrival made by cp.async comes after the copies of its thread"
    TAKEN = "who takes a turn has seen what the turns before it released"


class Obligation(Enum):
    """What must not be violated; leaving one out makes false proofs."""

    SCHEDULE = "an order of all events exists: no deadlock"
    NOT_BEHIND = "a wait begins when the phase before its own has ended"
    NOT_LAPPED = "a wait ends before the phase after its own does"
    IN_PHASE = "arrivals and bytes come after the phase before theirs has ended"
    COUNTED = "arrivals and bytes of a phase are what it takes"
    WHOLE = "all arrivals and copies of a phase run or none, and no phase is skipped"
    AWAITED = "every wait has its phase"
    EXPECTED = "bytes and copies are announced before the phase can end"
    RAW = "a read comes after the write it sees"
    WAR = "a write comes after the reads before it"
    WAW = "a write comes after the writes before it"
    PROXY = "a proxy fence stands between ordinary and asynchronous access"
    NARROW = "the end of a copy publishes what it copied, nothing else"
    WRITTEN = "what is read was written"
    RETURN = "what touches a slot did so one turn before"
    EXIT = "no copy is in flight at the end"
    DRAIN = "no store is in flight at the end"
    INIT = "mbarriers are initialised once, and visible where they are used"
    REGISTERS = "registers of wgmma are left alone until its group is awaited"
    FENCE = "wgmma_fence stands between other accesses of registers and wgmma"
    COLLECTIVE = "statements are executed by the threads they need"
    TURNS = "who has waited for a turn of a semaphore gives it to the next, once"
    CLEAN = "a semaphore is left at 0"
    RESIDENT = "the CTA of the turn before is sure to run"
    REMOTE = "a proxy fence stands between a turn that is taken and what engines do in it"
    APART = "CTAs of different semaphores touch different bytes"


Rule = Axiom | Obligation
Without = frozenset[Rule]
"""Rules that are left out."""


class RefusedError(Exception):
    """A rule is broken, or a claim is not proved; `trips` shows it in z3's model.

    A `narrow` one is about what can be proved here, and not about the kernel.
    """

    def __init__(
        self, kind: str, stmt: kir.Stmt | None, says: str, trips: int = 0, *, narrow: bool = False
    ) -> None:
        super().__init__(says)
        self.kind, self.stmt, self.says = kind, stmt, says
        self.trips, self.narrow = trips, narrow
