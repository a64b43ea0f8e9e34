"""Memory of a kernel: which pieces of it overlap, and how accesses spread over threads meet.

Shared memory is laid out once.  Boxes of global memory become known as statements come to them.
"""

from __future__ import annotations

from itertools import permutations
from math import prod

from fuser.expr import variables
from fuser.kernel import ir as kir
from oracles.prover.reachability.program.boxes import (
    Region,
    Share,
    alike,
    filled,
    place,
    region,
    rolling,
    share,
    strides,
)
from oracles.prover.reachability.program.code import Code, Do
from oracles.prover.reachability.state import Agent, Where
from oracles.prover.sites import (
    Meet,
    Meetings,
    Site,
    Spread,
    each_by_one,
    operand,
    ordinary,
    positive,
    shared_tensors,
    storage,
)

User = tuple[int, int, str]
"""Who touches a buffer: a statement, a kind of threads, and the buffer's name."""


class Layout:
    """Which pieces of memory lie where.

    `spans` and `overlaps` say of each piece where it begins and ends, and with which it shares
    bytes; `barriers_on` and `buffers_under` which slots of mbarriers and buffers lie on each other;
    `storage` the one name by which buffers of one shape in one place go; `tracked` which tensors
    CTAs share, and `rolling` what moves their boxes.
    """

    def __init__(self, code: Code) -> None:
        kernel = code.kernel
        self.kernel = kernel
        self.spans: dict[Where, tuple[int, int]] = {}
        self.overlaps: dict[Where, tuple[Where, ...]] = {}
        self.barriers_on: dict[tuple[str, int], list[tuple[kir.MBarrier, int]]] = {}
        self.buffers_under: dict[tuple[str, int], list[tuple[str, int]]] = {}
        self.storage = storage(kernel.buffers)
        self.tracked = shared_tensors(kernel)
        self.rolling = rolling(code) if self.tracked else frozenset()
        self._positive = positive(kernel)
        self._regions: list[Region] = []
        self._numbers: dict[Region, int] = {}
        self._shares: dict[tuple[int, int], Share] = {}
        self._named: dict[Do, list[str]] = {}
        self._boxes: dict[tuple[object, ...], Where] = {}
        spans: dict[tuple[str, int], tuple[int, int]] = {}
        for b in kernel.buffers:
            for slot in range(b.slots):
                spans[b.name, slot] = b.start(slot), b.start(slot) + b.slot_nbytes
        for cta in range(code.kinds[-1].cta + 1):
            for (name, slot), (start, end) in spans.items():
                self.spans[cta, name, slot] = start, end
                self.overlaps[cta, name, slot] = tuple(
                    (cta, *other)
                    for other, (low, high) in spans.items()
                    if low < end and start < high
                )
        for m in kernel.barriers:
            for slot in range(m.slots):
                at = kernel.barrier_at(m) + 8 * slot
                on = [b for b, (start, end) in spans.items() if start < at + 8 and at < end]
                self.buffers_under[m.name, slot] = on
                for other in on:
                    self.barriers_on.setdefault(other, []).append((m, slot))

    @property
    def sharing(self) -> set[tuple[str, str]]:
        """The buffers ("access") and barriers ("phase") that share bytes with anything else."""
        found = {("access", name) for name, _ in self.barriers_on}
        found |= {("phase", name) for (name, _), on in self.buffers_under.items() if on}
        for (cta, name, _), others in self.overlaps.items():
            if cta >= 0 and any(other[1] != name for other in others):
                found.add(("access", name))
        begins = {m.name: self.kernel.barrier_at(m) for m in self.kernel.barriers}
        for one, other in permutations(self.kernel.barriers, 2):
            if begins[one.name] <= begins[other.name] < begins[one.name] + 8 * one.slots:
                found |= {("phase", one.name), ("phase", other.name)}
        return found

    def box(self, do: Do, a: Agent) -> Where:
        """Return the piece of global memory that a statement accesses now."""
        named = self._named.get(do)
        if named is None:
            named = self._named[do] = sorted({v.name for e in do.origin for v in variables(e)})
        loop = a.loops[-1].number if a.loops else -1
        key = do, loop, *(a.env[n] for n in named if n in a.env and n not in self.rolling)
        if key not in self._boxes:
            self._boxes[key] = self._box(region(do, a, self.rolling))
        return self._boxes[key]

    def _box(self, found: Region) -> Where:
        number = self._numbers.get(found)
        if number is None:
            number = self._numbers[found] = len(self._regions)
            self._regions.append(found)
            here = -1, found.tensor, number
            self.spans[here] = 2 * number, 2 * number + 1
            self.overlaps[here] = ()
            for at, other in enumerate(self._regions):
                how = share(found, other) if found.tensor == other.tensor else None
                if how is not None:
                    there = -1, other.tensor, at
                    self._shares[number, at] = self._shares[at, number] = how
                    self.overlaps[here] = (*self.overlaps[here], there)
                    if at != number:
                        self.overlaps[there] = (*self.overlaps[there], here)
        return -1, found.tensor, number

    def region(self, where: Where) -> Region:
        """Return a region of global memory."""
        return self._regions[where[2]]

    def rolls(self, where: Where) -> bool:
        """Whether a box of global memory moves along a loop."""
        return any(self.region(where).rolls)

    def moved_by(self, where: Where) -> frozenset[str]:
        """Return the indices along which a box moves."""
        on = self.region(where).rolls
        return (
            frozenset(v.name for by in on for atom, _ in by for v in variables(atom)) & self.rolling
        )

    def alike(self, one: Where, other: Where) -> bool:
        """Whether two boxes move along one loop, in the same steps."""
        return alike(self.region(one), self.region(other))

    def filled(self, where: Where, written: list[Where]) -> bool:
        """Whether boxes have all elements of another one, as far as is known."""
        return filled(self.region(where), [self.region(other) for other in written])

    def now(self, do: Do, a: Agent) -> tuple[int, ...]:
        """Return where a rolling box is now."""
        return place(do, a, self.rolling)

    def shared(
        self, here: Where, now: tuple[int, ...], there: Where, then: tuple[int, ...] | None
    ) -> Share | None:
        """Return how a box shares elements with one accessed earlier, None if it does not."""
        how, one, other = self._shares[here[2], there[2]], self.region(here), self.region(there)
        if how is Share.MAYBE and (here == there or alike(one, other)):
            if then == now:
                return share(one, other, still=True)
            if strides(one, other, self._positive):
                return None
        return how


class Accesses:
    """How the ordinary accesses of a kernel spread over threads, and how they meet."""

    def __init__(self, code: Code, layout: Layout) -> None:
        self._code, self._layout = code, layout
        self._meetings = Meetings(code.kinds, code.kernel.threads)
        self._kinds = len(code.kinds) // (code.kinds[-1].cta + 1)
        self._operands: dict[tuple[int, str], Spread] = {}
        self._spreads: dict[int, Spread | None] = {}
        self._met: dict[tuple[int, int, bool, bool], dict[tuple[int, int], Meet]] = {}
        self._holders: dict[int, frozenset[int]] = {}
        self._colliding: dict[int, dict[int, bool]] = {}
        self._writers: dict[tuple[int, int], int] = {}
        for site in code.sites:
            if (found := operand(site, layout.storage)) is not None:
                self._operands[site.index, found[0]] = found[1]

    def spread(self, site: Site) -> Spread | None:
        """Return how an ordinary access spreads its tile over threads."""
        if site.index not in self._spreads:
            self._spreads[site.index] = ordinary(site, self._layout.storage)
        return self._spreads[site.index]

    def meet(self, first: User, second: User) -> Meet:
        """Return how the accesses of two statements by two kinds of threads meet."""
        (one, agent, name), (two, other, called) = first, second
        left, right = self._operands.get((one, name)), self._operands.get((two, called))
        key = one, two, left is not None, right is not None
        found = self._met.get(key)
        if found is None:
            a = left or self.spread(self._code.sites[one])
            b = right or self.spread(self._code.sites[two])
            if a is None or b is None:
                return Meet.ANY
            found = self._meetings.between(a, b)
            if one == two and a.matrix:
                found = each_by_one(found)
            self._met[key] = found
        many = self._kinds
        if agent // many != other // many:
            return Meet.ANY
        return found.get((agent % many, other % many), Meet.NEVER)

    def collide(self, site: Site, agent: int) -> bool:
        """Whether threads of a kind touch one element together in one ordinary access."""
        known = self._colliding.setdefault(site.index, {})
        if agent not in known:
            spread = self.spread(site)
            if spread is None or not spread.matrix:
                user = site.index, agent, ""
                known[agent] = self.meet(user, user) > Meet.THREAD
            else:
                known[agent] = self._meetings.collide(spread, agent % self._kinds)
        return known[agent]

    def touch(self, site: Site, agent: int) -> bool:
        """Whether threads of a kind hold a part of an ordinary access's tile."""
        found = self._holders.get(site.index)
        if found is None:
            spread = self.spread(site)
            assert spread is not None, "asked of ordinary accesses only"
            found = self._holders[site.index] = self._meetings.touching(spread)
        return agent % self._kinds in found

    def writers(self, site: Site, cta: int) -> int:
        """Return the kinds of threads that hold a part of an ordinary access's tile, as a set."""
        if (site.index, cta) not in self._writers:
            first = cta * self._kinds
            self._writers[site.index, cta] = sum(
                1 << kind.index
                for kind in self._code.kinds[first : first + self._kinds]
                if site.place.has(kind) and self.touch(site, kind.index)
            )
        return self._writers[site.index, cta]

    def cover(self, site: Site, agent: int, where: Where, at: tuple[kir.MBarrier, int]) -> bool:
        """Whether threads of a kind access the bytes of a slot of a barrier that a buffer has."""
        spread = self.spread(site)
        kernel, (barrier, slot) = self._code.kernel, at
        buffer = next(b for b in kernel.buffers if b.name == where[1])
        start = kernel.barrier_at(barrier) + 8 * slot - self._layout.spans[where][0]
        size = buffer.dtype.nbytes
        rows = range(max(start, 0) // size, -(-(start + 8) // size))
        if buffer.swizzle:  # any element of the slot may lie there
            rows = range(prod(buffer.shape))
        return spread is None or agent % self._kinds in self._meetings.holding(spread, rows)
