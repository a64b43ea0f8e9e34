"""Who touched what when: shared memory by atom and lane, and tensors that the kernel writes.

It knows nothing of statements or schedules.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum

import numpy as np
from numpy.typing import NDArray

from oracles.simulator.sync.clock import (
    CAUSE,
    ELSEWHERE,
    GLOBAL_OWN,
    GLOBAL_SEEN,
    ORDER,
    RELEASED_PARTS,
    SHARED_OWN,
    SHARED_SEEN,
    Clock,
    Index,
    Parts,
    Trouble,
)


class Act(Enum):
    """What an access does; two ADDs, or two REDUCEs, need no order."""

    READ = "read"
    WRITE = "write"
    ADD = "atomic add"
    REDUCE = "tensor reduction"


@dataclass(eq=False, slots=True)
class Touch:
    """One access of a global tensor that the kernel writes, to flat elements.

    `gang` says which CTAs run together, named by their first, and `block` is the CTA of the access;
    `by` and `at` are component and time, and those of the `issuer` of an asynchronous one.
    """

    elements: Index
    gang: int
    block: int
    by: int
    at: int
    generic: bool
    act: Act
    issuer: tuple[int, int]


class Touches:
    """Accesses of one tensor, in order; finds those of given elements without asking all others.

    `layers[n]` says for each element which access was the n-th of it, by number from 1, 0 for none;
    `depth` how many there were.
    """

    def __init__(self, elements: int) -> None:
        self.every: list[Touch] = []
        self.depth = np.zeros(elements, np.int32)
        self.layers: list[NDArray[np.int32]] = []

    def add(self, touch: Touch) -> None:
        """Remember an access, whose elements differ from each other or not."""
        self.every.append(touch)
        depth = self.depth[touch.elements]
        alike = np.count_nonzero(depth == depth[0]) == depth.size  # most often, and sooner known
        for n in [int(depth[0])] if alike else np.unique(depth).tolist():
            if n == len(self.layers):
                self.layers.append(np.zeros_like(self.depth))
            here = touch.elements if alike else touch.elements[depth == n]
            self.layers[n][here] = len(self.every)
        self.depth[touch.elements] = depth + 1

    def of(self, elements: Index) -> list[Touch]:
        """Return the accesses that have an element in common with these, in order."""
        found: set[int] = set()
        for layer in self.layers[: int(self.depth[elements].max(initial=0))]:
            found.update(np.unique(layer[elements]).tolist())
        return [self.every[number - 1] for number in sorted(found - {0})]


@dataclass(slots=True)
class GlobalShadow:
    """All accesses of one global tensor that the kernel writes, in every CTA of the launch.

    Elements that are `claimed` were written in this launch.  Unless `read_too`, no order has to be
    kept for readers; `scratch` is a workspace: what it holds before its first write is nobody's.
    If `exact`, sums must not depend on the order of their terms.
    """

    claimed: NDArray[np.bool_]
    read_too: bool
    scratch: bool
    exact: bool
    writes: Touches = field(init=False)
    reads: Touches = field(init=False)

    def __post_init__(self) -> None:
        """Begin with no access."""
        self.writes, self.reads = Touches(self.claimed.size), Touches(self.claimed.size)

    def access(self, touch: Touch, clock: Clock) -> Trouble | None:
        """Check an access and remember it.

        Bytes of an output or input from before the launch may be read freely, and a second plain
        write of an output is an error even in order.
        """
        if not touch.elements.size:
            return None
        known = self.claimed[touch.elements]
        if self.scratch and touch.act is not Act.WRITE and np.count_nonzero(known) < known.size:
            where = int(touch.elements[int(known.argmin())])
            says = "no write of this element of the workspace came before in this launch"
            return Trouble("RAW", says, where=where)
        if touch.act is Act.READ:
            self.reads.add(touch)
            return self._against(self.writes, touch, clock) if np.count_nonzero(known) else None
        trouble = None
        if np.count_nonzero(known):
            trouble = self._against(self.writes, touch, clock) or self._again(touch, known)
        if trouble is None and self.read_too:
            trouble = self._against(self.reads, touch, clock)
        self.claimed[touch.elements] = True
        self.writes.add(touch)
        return trouble

    def _again(self, touch: Touch, known: NDArray[np.bool_]) -> Trouble | None:
        if self.scratch or touch.act is not Act.WRITE:
            return None
        where = int(touch.elements[int(known.argmax())])
        earlier = self.writes.of(np.array([where]))[0]
        by = earlier.by if earlier.gang == touch.gang else -1
        return Trouble("coverage", "the element was written before, in order", by, True, where)

    def _against(self, others: Touches, touch: Touch, clock: Clock) -> Trouble | None:
        for other in others.of(touch.elements):
            before = other.gang == touch.gang and bool(clock[ELSEWHERE, other.by] >= other.at)
            if before and (touch.generic or other.act is Act.READ):
                continue
            where = int(np.intersect1d(other.elements, touch.elements).min())
            sums = other.act is touch.act and touch.act in (Act.ADD, Act.REDUCE)
            if sums and (before or not self.exact):
                continue
            if not before:
                return self._unordered(other, touch, clock, where, sums=sums)
            if not self._crossed(other, touch, clock):
                says = "ordered, but no fence_async_proxy(global) of its issuer stands between"
                return Trouble("proxy", says, other.by, True, where)
        return None

    def _crossed(self, other: Touch, touch: Touch, clock: Clock) -> bool:
        """Whether an ordered access of the async proxy also sees what was written.

        Source: PTX ISA, "Memory consistency model, Proxy-preserved base causality order".
        """
        near = other.block == touch.block
        if near and not other.generic:
            return True
        seen = near and clock[GLOBAL_SEEN, other.by] >= other.at
        return bool(seen or clock[GLOBAL_OWN, other.by] >= other.at)

    def _unordered(
        self, other: Touch, touch: Touch, clock: Clock, where: int, *, sums: bool
    ) -> Trouble:
        kind = "WAW"
        if touch.act is Act.READ:
            kind = "RAW"
        elif other.act is Act.READ:
            kind = "WAR"
        says = "nothing orders the two accesses"
        if other.block != touch.block:
            says = f"CTA {other.block} and CTA {touch.block} touch it and nothing orders them"
        if sums:
            kind, says = "determinism", f"{says}: the rounding of the sum depends on their order"
        writes = other.act is not Act.READ
        if other.gang != touch.gang:
            return Trouble(kind, says, -1, writes, where)
        by, at = other.issuer
        if other.block != touch.block and not sums:
            if clock[CAUSE, other.by] >= other.at:
                kind, says = "scope", f"{says} at a scope that reaches both"
            elif not other.generic and clock[CAUSE, by] >= at:
                kind, says = "drain", f"{says}: it was released with the copy still in flight"
        return Trouble(kind, says, other.by, writes, where)


Writers = tuple[Index, NDArray[np.int32]]
"""Per atom a component that wrote it, and its time."""
_LATE = {
    "RAW": "the write is not ordered before the read",
    "WAW": "the earlier write is not ordered before this one",
}
"""What is wrong where the last write is not known, by kind."""


class SharedShadow:
    """Last write and last reads of every atom of shared memory, by component and time, 0 for never.

    An atom is a set of bytes that every access touches wholly or not at all.  `also_by` and
    `also_at` are of another component that may have made that write as well; `paired` tells whether
    there has been any.  `reads` are atoms x components, and grow with the clocks; `used` tells
    which atoms anybody has read.  Each CTA has so many of the `atoms`: `each`, 0 where all releases
    are of all memory, so that nobody asks.  If `strict`, disputed omissions are errors.
    """

    def __init__(self, atoms: int, parts: Parts, each: int, *, strict: bool) -> None:
        self.parts = parts
        self.each = each
        self.strict = strict
        self.write_by, self.also_by = np.zeros((2, atoms), np.intp)
        self.write_at, self.also_at = np.zeros((2, atoms), np.int32)
        self.reads = np.zeros((atoms, parts.generic.size), np.int32)
        self.used = np.zeros(atoms, np.bool_)
        self.paired = False

    def read(self, atoms: Index, by: int, at: int, clock: Clock) -> Trouble | None:
        """Check a read of `atoms` by component `by` at its time `at`, and remember it."""
        self.used[atoms] = True
        writers = self._writers(atoms)
        when = writers[0][1]
        if np.count_nonzero(when) < when.size:
            where = int(atoms[int(when.argmin())])
            return Trouble("RAW", "no write of these bytes came before", where=where)
        late = self._late("RAW", atoms, writers, by, clock)
        if late is not None:
            return late
        if by >= self.reads.shape[1]:
            more = clock.shape[1] - self.reads.shape[1]
            self.reads = np.pad(self.reads, ((0, 0), (0, more)))
        self.reads[atoms, by] = at
        return None if self.parts.generic[by] else self._crossing(atoms, writers, clock)

    def write(
        self,
        atoms: Index,
        by: int,
        at: int,
        clock: Clock,
        also: tuple[int, int] | None = None,
    ) -> Trouble | None:
        """Check a write by `by` at its time `at`, or by `also` as well, and remember it."""
        writers = self._writers(atoms)
        late = self._late("WAW", atoms, writers, by, clock)
        if late is not None:
            return late
        reads = self.reads[atoms]
        unread = reads > self._known(clock, atoms[:, None], slice(0, reads.shape[1]))
        found = self._unread(atoms, reads, unread, by, clock) if np.count_nonzero(unread) else None
        if found is None and not self.parts.generic[by]:
            found = self._crossing(atoms, writers, clock) or self._refill(atoms, reads, clock)
        self.write_by[atoms], self.write_at[atoms] = by, at
        if also is not None:
            self.paired = True
        if self.paired:
            self.also_by[atoms], self.also_at[atoms] = also or (0, 0)
        return found

    def by_lanes(
        self, atoms: Index, lanes: Sequence[tuple[int, int, Clock]], *, writes: bool
    ) -> Trouble | None:
        """Check an access by one of two components (number, time, knowledge), and remember it."""
        if not writes:
            found = [self.read(atoms, by, at, clock) for by, at, clock in lanes]
            return found[0] or found[1]
        (by, at, clock), (other, then, its_clock) = lanes
        return self.write(atoms, by, at, np.minimum(clock, its_clock), (other, then))

    def _writers(self, atoms: Index) -> list[Writers]:
        first = self.write_by[atoms], self.write_at[atoms]
        return [first, (self.also_by[atoms], self.also_at[atoms])] if self.paired else [first]

    def _known(self, clock: Clock, atoms: Index, who: Index | slice) -> NDArray[np.int32]:
        """Return until when a clock has what components did to these atoms."""
        if not self.each:
            return np.asarray(clock[ORDER][who])
        away = self.parts.home[who] != atoms // self.each
        return np.asarray(np.where(away, clock[ELSEWHERE][who], clock[ORDER][who]))

    def _late(
        self, kind: str, atoms: Index, writers: list[Writers], by: int, clock: Clock
    ) -> Trouble | None:
        """Look for a last write of these atoms that is not in the clock."""
        for who, when in writers:
            late = self._known(clock, atoms, who) < when
            if np.count_nonzero(late):
                first = int(late.argmax())
                other, says = int(who[first]), _LATE[kind]
                kind = self.parts.kind(kind, other, by, int(when[first]), clock)
                return Trouble(kind, says, other, True, int(atoms[first]))
        return None

    def _unread(
        self,
        atoms: Index,
        reads: NDArray[np.int32],
        unread: NDArray[np.bool_],
        by: int,
        clock: Clock,
    ) -> Trouble:
        for row, other in np.argwhere(unread).tolist():
            if clock[RELEASED_PARTS, other] < reads[row, other]:
                says = "the earlier read is not ordered before this write"
                kind = self.parts.kind("WAR", other, by, int(reads[row, other]), clock)
                return Trouble(kind, says, other, where=int(atoms[row]))
        self.reads[atoms] = np.where(unread, 0, reads)
        row, other = np.argwhere(unread).tolist()[0]
        says = "one warp of the warpgroup says that its wgmma is over, for all four of them"
        return Trouble("WAR", says, other, where=int(atoms[row]), severity="warning")

    def _crossing(self, atoms: Index, writers: list[Writers], clock: Clock) -> Trouble | None:
        """Look for generic writes that reach an access of the async proxy without a fence."""
        found = None
        for who, when in writers:
            generic = self.parts.generic[who] & (when > 0)
            if not np.count_nonzero(generic):
                continue
            bare = generic & (clock[SHARED_SEEN][who] < when)
            if np.count_nonzero(bare):
                says = "ordered, but no fence_async_proxy stands between the generic write and this"
                return self._first(says, bare, atoms, who)
            late = generic & (clock[SHARED_OWN][who] < when) & ~self.parts.published[who]
            if np.count_nonzero(late):
                says = "fenced by an observer after the wait, not by the writing thread before it"
                severity = "error" if self.strict else "warning"
                found = found or self._first(says, late, atoms, who, severity)
        return found

    def _refill(self, atoms: Index, reads: NDArray[np.int32], clock: Clock) -> Trouble | None:
        n = reads.shape[1]
        bare = (reads > clock[SHARED_SEEN, :n]) & self.parts.generic[:n]
        if not np.count_nonzero(bare):
            return None
        row, other = (int(i) for i in np.argwhere(bare)[0])
        says = (
            "generic read ordered before this asynchronous write, but without a proxy fence; an "
            "H200 has been seen to read what is written"
        )
        severity = "error" if self.strict else "warning"
        return Trouble("proxy", says, other, where=int(atoms[row]), severity=severity)

    def _first(
        self, says: str, bad: NDArray[np.bool_], atoms: Index, who: Index, severity: str = "error"
    ) -> Trouble:
        first = int(bad.argmax())
        return Trouble("proxy", says, int(who[first]), True, int(atoms[first]), severity)


class LaneShadow:
    """Under which deal of elements to lanes one component last touched each atom.

    One clock stands for 31 lanes, so order *between* these lanes is kept apart: two accesses
    under different deals meet in different lanes, and need a barrier that joins the lanes.
    Per atom there are the number of the deal, -1 for none, and the component's time.
    """

    def __init__(self, atoms: int) -> None:
        self.write_how, self.read_how = np.full((2, atoms), -1, np.intp)
        self.write_at, self.read_at = np.zeros((2, atoms), np.int32)

    def touch(
        self,
        atoms: Index,
        how: int,
        at: int,
        joined: int,
        *,
        writes: bool,
        alike: bool,
        keep: bool = True,
    ) -> list[tuple[str, int, int]]:
        """Remember an access; return kind, deal and an atom of earlier ones that may race with it.

        It is not remembered where it is not to be kept.
        Those are accesses under other deals (under this one too, if not `alike`: by the same
        lanes) since the time up to which all lanes have `joined`; deals that agree on who holds
        the bytes are for the caller to sort out.
        """
        same = how if alike else -1
        kind = "WAW" if writes else "RAW"
        out = self._apart(self.write_how, self.write_at, atoms, same, joined, kind)
        if writes:
            out += self._apart(self.read_how, self.read_at, atoms, same, joined, "WAR")
        if not keep:
            return out
        if writes:
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
