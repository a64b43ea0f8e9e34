"""Vector clocks: who knows of whom, through which proxy, at which scope.

A clock has one column per *component*: every modelled thread, every copy in flight, every
barrier slot.  It knows nothing of statements or schedules.

Notes
-----
A conflict is two accesses of the same memory, one of them a write, neither of which is in the
other's clock.  That holds in every interleaving with the same order of synchronisation, so a
race is seen even in a run whose values came out right.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fuser.kernel import ir as kir

Clock = NDArray[np.int32]
"""Rows below, one column per component; entry t says "everything up to time t is before me"."""
Index = NDArray[np.intp]
"""Positions of elements or atoms."""

ORDER = 0
"""Row: what happened before, for memory."""
ELSEWHERE = 1
"""Row: the same, for all memory but the shared one of the component's home.

It is that of `ORDER` where every release is of all memory.
"""
CAUSE = 2
"""Row: what happened before in time, though perhaps at too narrow a scope to order memory.

Phases of a barrier are known by it: an arrival can be seen without what it should release.
"""
SHARED_SEEN, SHARED_OWN = 3, 4
"""Rows: generic accesses of shared memory that a proxy fence covered - anyone's, or the
accessing thread's own fence before it published them."""
GLOBAL_SEEN = 5
"""Row: generic accesses of global memory that anyone's fence covered."""
RELEASED_PARTS = 6
"""Row: parts of a wgmma that an arrival released, by a warp that had waited for its own part."""
PUBLIC = 7
"""Rows before it spread with every release and acquire."""
GLOBAL_OWN = 7
"""Row: what this thread's own fences of global memory covered; it does not spread."""
AWAITED_PARTS = 8
"""Row: other warps' parts of the wgmmas that this warp has waited for; it does not spread.

It becomes `RELEASED_PARTS` where this thread arrives on an mbarrier, and means nothing before that.
"""
ROWS = 9

REACH = {kir.Scope.CTA: 0, kir.Scope.CLUSTER: 1, kir.Scope.GPU: 2}
"""Scopes from the narrowest to the widest."""


def fresh(components: int) -> Clock:
    """Return the clock that has seen nothing."""
    return np.zeros((ROWS, components), np.int32)


def join(into: Clock, other: Clock) -> None:
    """Let `into` know all that `other` knows; `other` may be from before the clocks grew."""
    public = into[:PUBLIC, : other.shape[1]]
    np.maximum(public, other[:PUBLIC], out=public)


def join_shared(into: Clock, other: Clock, here: NDArray[np.bool_]) -> None:
    """Let `into` know what `other` knows of the shared memory that is home to components `here`."""
    join_cause(into, other)
    for row in (ORDER, SHARED_SEEN, SHARED_OWN, RELEASED_PARTS):
        known = into[row, : other.shape[1]]
        np.maximum(known, other[row], out=known, where=here[: other.shape[1]])


def join_cause(into: Clock, other: Clock) -> None:
    """Let `into` know what `other` knows to have happened, and no order of memory."""
    row = into[CAUSE, : other.shape[1]]
    np.maximum(row, other[CAUSE], out=row)


class Parts:
    """What each component is, by number.

    `generic`: it accesses memory through the generic proxy; `published`: it is a copy that arrived
    on a barrier by itself, so that nobody could fence it before; `cta`: its CTA, counted among
    those that run together; `far`: it is a copy into the shared memory of another CTA; `home`: the
    CTA whose shared memory it is in, or copies to.
    """

    def __init__(self, components: int) -> None:
        self.generic = np.ones(components, np.bool_)
        self.published = np.zeros(components, np.bool_)
        self.cta = np.zeros(components, np.intp)
        self.far = np.zeros(components, np.bool_)
        self.home = np.zeros(components, np.intp)

    def grow(self, components: int) -> None:
        """Make room for more components."""
        more = (0, components - self.generic.size)
        self.generic = np.pad(self.generic, more, constant_values=True)
        self.published = np.pad(self.published, more)
        self.cta = np.pad(self.cta, more)
        self.far = np.pad(self.far, more)
        self.home = np.pad(self.home, more)

    def kind(self, kind: str, other: int, by: int, when: int, clock: Clock) -> str:
        """Name a missing order: it may be one that does not reach the other CTA."""
        far = self.cta[other] != self.cta[by] or self.far[other] or self.far[by]
        return "scope" if far and clock[CAUSE, other] >= when else kind


@dataclass(frozen=True, slots=True)
class Trouble:
    """A conflict: its kind, what is missing (`says`), and whom it is with.

    `other` is the component of the other party, and `where` one atom or element on which both meet;
    -1 for none.  Severities are ``"error"`` and ``"warning"``.
    """

    kind: str
    says: str
    other: int = -1
    other_writes: bool = False
    where: int = -1
    severity: str = "error"
