"""The shadow of global memory: all accesses of a tensor that the kernel writes, in every CTA."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import numpy as np
from numpy.typing import NDArray

from oracles.simulator.sync.clock import (
    CAUSE,
    GLOBAL_OWN,
    GLOBAL_SEEN,
    ORDER,
    Clock,
    Index,
    Trouble,
)


class Act(Enum):
    """What an access does; two ADDs, or two REDUCEs, need no order."""

    READ = "read"
    WRITE = "write"
    ADD = "atomic add"
    REDUCE = "tensor reduction"


@dataclass(frozen=True, slots=True)
class Touch:
    """One access of a global tensor that the kernel writes.

    Parameters
    ----------
    elements : array of int
        Flat elements.
    gang, block : int
        Which CTAs run together, named by their first, and the CTA of the access.
    by, at : int
        Component, and its time.
    generic : bool
        Whether through the generic proxy.
    issuer : (int, int)
        Component and time of the issue of an asynchronous access; else as `by` and `at`.
    """

    elements: Index
    gang: int
    block: int
    by: int
    at: int
    generic: bool
    act: Act
    issuer: tuple[int, int]


@dataclass(slots=True)
class GlobalShadow:
    """All accesses of one global tensor that the kernel writes, in every CTA of the launch.

    Parameters
    ----------
    claimed : array of bool, one per element
        Whether the element was written in this launch.
    read_too : bool
        Whether the kernel also reads this tensor; else no order has to be kept for readers.
    scratch : bool
        Whether it is a workspace: what it holds before its first write is nobody's.
    exact : bool
        Whether sums must not depend on the order of their terms.
    """

    claimed: NDArray[np.bool_]
    read_too: bool
    scratch: bool
    exact: bool
    writes: list[Touch]
    reads: list[Touch]

    def access(self, touch: Touch, clock: Clock) -> Trouble | None:
        """Check an access and remember it.

        Notes
        -----
        Bytes of an output or input from before the launch may be read freely, and a second
        plain write of an output is an error even in order.
        """
        if not touch.elements.size:
            return None
        known = self.claimed[touch.elements]
        if self.scratch and touch.act is not Act.WRITE and not known.all():
            where = int(touch.elements[int(known.argmin())])
            says = "no write of this element of the workspace came before in this launch"
            return Trouble("RAW", says, where=where)
        if touch.act is Act.READ:
            self.reads.append(touch)
            return self._against(self.writes, touch, clock) if known.any() else None
        trouble = None
        if known.any():
            trouble = self._against(self.writes, touch, clock) or self._again(touch, known)
        if trouble is None and self.read_too:
            trouble = self._against(self.reads, touch, clock)
        self.claimed[touch.elements] = True
        self.writes.append(touch)
        return trouble

    def _again(self, touch: Touch, known: NDArray[np.bool_]) -> Trouble | None:
        if self.scratch or touch.act is not Act.WRITE:
            return None
        where = int(touch.elements[int(known.argmax())])
        says = "the element was written before, in order"
        for earlier in self.writes:
            if where in earlier.elements:
                by = earlier.by if earlier.gang == touch.gang else -1
                return Trouble("coverage", says, by, True, where)
        return Trouble("coverage", says, -1, True, where)

    def _against(self, others: list[Touch], touch: Touch, clock: Clock) -> Trouble | None:
        for other in others:
            before = other.gang == touch.gang and bool(clock[ORDER, other.by] >= other.at)
            if before and (touch.generic or other.act is Act.READ):
                continue
            met = np.intersect1d(other.elements, touch.elements)
            if not met.size:
                continue
            where = int(met[0])
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
