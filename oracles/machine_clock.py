"""Vector clocks, and the shadow that remembers who touched which memory when.

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

Clock = NDArray[np.int32]
"""Rows below, one column per component; entry t says "everything up to time t is before me"."""
Index = NDArray[np.intp]
"""Positions of elements or atoms."""

ORDER = 0
"""Row: what happened before, in the generic proxy."""
SHARED_SEEN, SHARED_OWN = 1, 2
"""Rows: generic accesses of shared memory that a proxy fence covered - anyone's, or the
accessing thread's own fence before it published them."""
GLOBAL_SEEN, GLOBAL_OWN = 3, 4
"""Rows: the same for global memory."""
ROWS = 5


def fresh(components: int) -> Clock:
    """Return the clock that has seen nothing."""
    return np.zeros((ROWS, components), np.int32)


def join(into: Clock, other: Clock) -> None:
    """Let `into` know all that `other` knows."""
    np.maximum(into, other, out=into)


@dataclass(frozen=True, slots=True)
class Trouble:
    """A conflict: its kind, what is missing, and whom it is with.

    Parameters
    ----------
    kind : str
        Class of the finding.
    says : str
        What is missing, in words.
    other : int
        Component of the other party, -1 for none.
    other_writes : bool
        Whether the other access was a write.
    where : int
        One atom or element on which both meet, -1 for none.
    severity : str
        ``"error"`` or ``"warning"``.
    """

    kind: str
    says: str
    other: int = -1
    other_writes: bool = False
    where: int = -1
    severity: str = "error"


@dataclass(slots=True)
class SharedShadow:
    """Last write and last reads of every atom of shared memory.

    An atom is a set of bytes that every access touches wholly or not at all.

    Parameters
    ----------
    threads : int
        Components below it access in the generic proxy, the others are copy engines.
    write_by, write_at : array of int, one per atom
        Component and time of the last write; time 0 is "never written".
    reads : array of int, atoms x components
        Time of each component's last read; grows with the clocks.
    strict : bool
        Whether an unfenced generic read before an asynchronous write is an error.
    """

    threads: int
    write_by: Index
    write_at: NDArray[np.int32]
    reads: NDArray[np.int32]
    strict: bool

    def read(self, atoms: Index, by: int, at: int, clock: Clock) -> Trouble | None:
        """Check a read of `atoms` by component `by` at its time `at`, and remember it."""
        who, when = self.write_by[atoms], self.write_at[atoms]
        if not when.all():
            where = int(atoms[int(when.argmin())])
            return Trouble("uninitialised", "no write of these bytes came before", where=where)
        late = clock[ORDER][who] < when
        if late.any():
            return self._meets("raw", "the write is not ordered before the read", late, atoms, who)
        if by >= self.reads.shape[1]:
            more = clock.shape[1] - self.reads.shape[1]
            self.reads = np.pad(self.reads, ((0, 0), (0, more)))
        self.reads[atoms, by] = at
        return self._crossing(atoms, who, when, clock) if by >= self.threads else None

    def write(self, atoms: Index, by: int, at: int, clock: Clock) -> Trouble | None:
        """Check a write of `atoms` by component `by` at its time `at`, and remember it."""
        who, when = self.write_by[atoms], self.write_at[atoms]
        late = clock[ORDER][who] < when
        if late.any():
            says = "the earlier write is not ordered before this one"
            return self._meets("waw", says, late, atoms, who)
        reads = self.reads[atoms]
        unread = reads > clock[ORDER, : reads.shape[1]]
        if unread.any():
            row, other = (int(i) for i in np.argwhere(unread)[0])
            says = "the earlier read is not ordered before this write"
            return Trouble("war", says, other, where=int(atoms[row]))
        found = None
        if by >= self.threads:
            found = self._crossing(atoms, who, when, clock) or self._refill(atoms, reads, clock)
        self.write_by[atoms] = by
        self.write_at[atoms] = at
        return found

    def _crossing(
        self, atoms: Index, who: Index, when: NDArray[np.int32], clock: Clock
    ) -> Trouble | None:
        """Look for generic writes that reach an access of the async proxy without a fence."""
        generic = who < self.threads
        if not generic.any():
            return None
        bare = generic & (clock[SHARED_SEEN][who] < when)
        if bare.any():
            says = "ordered, but no fence_async_proxy stands between the generic write and this"
            return self._meets("proxy", says, bare, atoms, who)
        late = generic & (clock[SHARED_OWN][who] < when)
        if late.any():
            says = "fenced by an observer after the wait, not by the writing thread before it"
            severity = "error" if self.strict else "warning"
            return self._meets("proxy", says, late, atoms, who, severity)
        return None

    def _refill(self, atoms: Index, reads: NDArray[np.int32], clock: Clock) -> Trouble | None:
        bare = reads[:, : self.threads] > clock[SHARED_SEEN, : self.threads]
        if not bare.any():
            return None
        row, other = (int(i) for i in np.argwhere(bare)[0])
        says = "generic read ordered before this asynchronous write, but without a proxy fence"
        severity = "error" if self.strict else "warning"
        return Trouble("proxy", says, other, where=int(atoms[row]), severity=severity)

    def _meets(
        self,
        kind: str,
        says: str,
        bad: NDArray[np.bool_],
        atoms: Index,
        who: Index,
        severity: str = "error",
    ) -> Trouble:
        i = int(bad.argmax())
        return Trouble(kind, says, int(who[i]), True, int(atoms[i]), severity)


def shared_shadow(atoms: int, threads: int, *, strict: bool) -> SharedShadow:
    """Return the shadow of memory that nobody has touched."""
    return SharedShadow(
        threads,
        np.zeros(atoms, np.intp),
        np.zeros(atoms, np.int32),
        np.zeros((atoms, threads), np.int32),
        strict,
    )


@dataclass(slots=True)
class LaneShadow:
    """Under which deal of elements to lanes one component last touched each atom.

    One clock stands for 31 lanes, so order *between* these lanes is kept apart: two accesses
    under different deals meet in different lanes, and need a barrier that joins the lanes.

    Parameters
    ----------
    write_how, read_how : array of int, one per atom
        Number of the deal, -1 for none.
    write_at, read_at : array of int, one per atom
        Time of the component at that access.
    """

    write_how: Index
    write_at: NDArray[np.int32]
    read_how: Index
    read_at: NDArray[np.int32]

    def touch(
        self, atoms: Index, how: int, at: int, joined: int, *, writes: bool
    ) -> list[tuple[str, int, int]]:
        """Remember an access; return the earlier ones under other deals, not yet joined.

        Parameters
        ----------
        joined : int
            Accesses up to this time are ordered before this one in every lane.

        Returns
        -------
        list of (kind, deal, atom)
            One per earlier deal; deals that agree on who holds the bytes are for the caller to
            sort out.
        """
        out = self._apart(self.write_how, self.write_at, atoms, how, joined, _KINDS[writes])
        if writes:
            out += self._apart(self.read_how, self.read_at, atoms, how, joined, "war")
            self.write_how[atoms], self.write_at[atoms] = how, at
        else:
            self.read_how[atoms], self.read_at[atoms] = how, at
        return out

    def _apart(
        self,
        hows: Index,
        times: NDArray[np.int32],
        atoms: Index,
        how: int,
        joined: int,
        kind: str,
    ) -> list[tuple[str, int, int]]:
        apart = (hows[atoms] != how) & (times[atoms] > joined)
        met = {int(hows[atom]): int(atom) for atom in atoms[apart]}
        return [(kind, other, atom) for other, atom in sorted(met.items())]


_KINDS = {False: "raw", True: "waw"}


def lane_shadow(atoms: int) -> LaneShadow:
    """Return the shadow of memory that the lanes have not touched."""
    never = np.full(atoms, -1, np.intp)
    return LaneShadow(never, np.zeros(atoms, np.int32), never.copy(), np.zeros(atoms, np.int32))


@dataclass(frozen=True, slots=True)
class Touch:
    """One access of a global tensor that the kernel writes: its flat elements, who and when."""

    elements: Index
    block: int
    by: int
    at: int
    generic: bool


@dataclass(slots=True)
class GlobalShadow:
    """All accesses of one global tensor that the kernel writes, in every CTA of the launch.

    Parameters
    ----------
    claimed : array of bool, one per element
        Whether the element was written.
    read_too : bool
        Whether the kernel also reads this tensor; else no order has to be kept for readers.
    """

    claimed: NDArray[np.bool_]
    read_too: bool
    writes: list[Touch]
    reads: list[Touch]

    def read(self, touch: Touch, clock: Clock) -> Trouble | None:
        """Check a read and remember it; bytes of before the launch may be read freely."""
        self.reads.append(touch)
        if not self.claimed[touch.elements].any():
            return None
        return self._against(self.writes, touch, clock, "raw")

    def write(self, touch: Touch, clock: Clock) -> Trouble | None:
        """Check a write and claim its elements; a second claim is an error even in order."""
        again = self.claimed[touch.elements]
        trouble = None
        if again.any():
            trouble = self._against(self.writes, touch, clock, "waw") or Trouble(
                "coverage",
                "the element was written before, in order",
                *self._claimant(touch, again),
            )
        if trouble is None and self.read_too:
            trouble = self._against(self.reads, touch, clock, "war")
        self.claimed[touch.elements] = True
        self.writes.append(touch)
        return trouble

    def _claimant(self, touch: Touch, again: NDArray[np.bool_]) -> tuple[int, bool, int]:
        where = int(touch.elements[int(again.argmax())])
        for earlier in self.writes:
            if where in earlier.elements:
                return earlier.by if earlier.block == touch.block else -1, True, where
        return -1, True, where

    def _against(
        self, others: list[Touch], touch: Touch, clock: Clock, kind: str
    ) -> Trouble | None:
        for other in others:
            met = np.intersect1d(other.elements, touch.elements)
            if not met.size:
                continue
            where = int(met[0])
            if other.block != touch.block:
                says = f"CTA {other.block} and CTA {touch.block} touch it and nothing orders them"
                return Trouble(kind, says, -1, kind != "war", where)
            if clock[ORDER, other.by] < other.at:
                says = "nothing orders the two accesses"
                return Trouble(kind, says, other.by, kind != "war", where)
            crossing = other.generic and not touch.generic and kind != "war"
            if crossing and clock[GLOBAL_SEEN, other.by] < other.at:
                says = "ordered, but no fence_async_proxy(global) stands between"
                return Trouble("proxy", says, other.by, True, where)
        return None
