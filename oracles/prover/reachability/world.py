"""What is the same in every state of a kernel, worked out once, and what has been found wrong."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count
from math import prod
from typing import Protocol

from fuser.expr import variables
from fuser.kernel import ir as kir
from oracles.prover.arithmetic import UnsupportedError
from oracles.prover.reachability.canonical.compared import Against
from oracles.prover.reachability.canonical.rotation import spin_of
from oracles.prover.reachability.program.boxes import Region, Share, filled, region, rolling, share
from oracles.prover.reachability.program.code import (
    Code,
    Do,
    last_deed,
    last_reads,
    most_registers,
    used_barriers,
)
from oracles.prover.reachability.rules import Rule
from oracles.prover.reachability.state import COPIES, FACTS, Agent, State, Where
from oracles.prover.sites import AMONG_CTAS, Site, positive, shared_tensors
from oracles.prover.tiles import Meet, Meetings, Spread, each_by_one, operand, ordinary, storage


@dataclass(frozen=True, slots=True)
class Violation:
    """An obligation that does not hold.

    `trips` is the smallest number of trips that shows it, `k` the iteration (-1 outside of loops);
    `event` is the earlier one of the two events, -1 if there is none.
    """

    rule: Rule
    kind: str
    later: Site
    earlier: Site | None
    k: int
    trips: int
    says: str
    severity: str = "error"
    event: int = -1


class Log(Protocol):
    """Who is told of every statement that is executed."""

    def add(self, state: State, a: Agent, do: Do, k: int) -> None:
        """Take note of a statement, which has been executed."""


class World:
    """The facts about a kernel in one reading, and the violations found so far."""

    def __init__(self, code: Code, *, policy: str, without: frozenset[Rule]) -> None:
        self.code = code
        self.kernel = code.kernel
        self.kinds = code.kinds
        self.policy = policy
        self.off = without
        self.violations: dict[tuple[str, int, int], Violation] = {}
        self.checked = 0
        self.meetings = Meetings(code.kinds, code.kernel.threads)
        self.meet_cache: dict[tuple[int, int, bool, bool], dict[tuple[int, int], Meet]] = {}
        self.spreads: dict[int, Spread | None] = {}
        self.operands: dict[tuple[int, str], Spread] = {}
        self.events: dict[object, int] = {}
        self.access_bits = 0
        self.init_bits = 0
        self.heads: dict[Where, tuple[int, int]] = {}
        self.overlaps: dict[Where, tuple[Where, ...]] = {}
        self.barrier_bytes: dict[tuple[str, int], tuple[Where, ...]] = {}
        self.under: dict[tuple[str, int], tuple[tuple[kir.MBarrier, int], ...]] = {}
        self.storage = storage(code.kernel.buffers)
        self.touched: dict[int, frozenset[int]] = {}
        self.tracked = shared_tensors(code.kernel)
        self.ctas = code.kinds[-1].cta + 1
        self.sites_per_cta = len(code.kinds) // self.ctas
        self.follows_turns = False
        self.follows_arrivals = code.kernel.cluster > 1
        self.turns = any(isinstance(stmt, AMONG_CTAS) for stmt in code.kernel.walk())
        self.doubt = ""
        self.rolling = rolling(code) if self.tracked else frozenset()
        self.regions: dict[Region, int] = {}
        self.places: list[Region] = []
        self.positive = positive(code.kernel)
        self.walk: str | None = None
        self.spans: dict[tuple[int, str], tuple[tuple[int, int], ...]] = {}
        self.named: dict[Do, list[str]] = {}
        self.boxes: dict[tuple[object, ...], Where] = {}
        self.shares: dict[tuple[int, int], Share] = {}
        self.log: Log | None = None
        self._loop_names: dict[int, str] | None = None
        self.joined_wrongly: dict[int, str] = {}
        self.spin = spin_of(code)
        self.pinned: dict[int, int] = {}
        self.least: dict[int, int] = {}
        self.few: dict[int, int] = {}
        self.waiters: dict[tuple[int, str], tuple[int, ...]] = {}
        self.comparisons: dict[int, tuple[Against, ...]] = {}
        self.last_uses: dict[tuple[int, int], int] = {}
        self.entrances: dict[tuple[int, int], tuple[tuple[int, int], ...]] = {}
        self.depth = 0
        self.parted: set[int] = set()
        mmas = [s for s in code.kernel.walk() if isinstance(s, kir.Wgmma)]
        self.fragments: frozenset[object] = frozenset(
            f for m in mmas for f in (m.acc, m.a) if isinstance(f, kir.Fragment)
        )
        self.spoken_for = speaks(code.sites)
        self.awaits_copies = any(
            isinstance(s, kir.AsyncAwait) and s.kind is kir.AsyncKind.CP_ASYNC
            for s in code.kernel.walk()
        )
        self.last_deeds = tuple(last_deed(program) for program in code.programs)
        self.last_reads = tuple(last_reads(program) for program in code.programs)
        self.used_barriers = used_barriers(code)
        self.increases = tuple(most_registers(program) for program in code.programs)
        self._lay_out()

    def _lay_out(self) -> None:
        spans: dict[tuple[str, int], tuple[int, int]] = {}
        for b in self.kernel.buffers:
            for slot in range(b.slots):
                start = b.start(slot)
                spans[b.name, slot] = start, start + b.slot_nbytes
        for site in self.code.sites:
            if (found := operand(site, self.storage)) is not None:
                self.operands[site.index, found[0]] = found[1]
        for cta in range(self.ctas):
            for (name, slot), span in spans.items():
                self.heads[cta, name, slot] = span
                self.overlaps[cta, name, slot] = tuple(
                    (cta, *other)
                    for other, (start, end) in spans.items()
                    if start < span[1] and span[0] < end
                )
        for m in self.kernel.barriers:
            for slot in range(m.slots):
                at = self.kernel.barrier_at(m) + 8 * slot
                on = [b for b, (start, end) in spans.items() if start < at + 8 and at < end]
                self.barrier_bytes[m.name, slot] = tuple((0, *other) for other in on)
                for other in on:
                    self.under[other] = (*self.under.get(other, ()), (m, slot))

    def box(self, do: Do, a: Agent) -> Where:
        """Return the piece of global memory that a statement accesses now."""
        named = self.named.get(do)
        if named is None:
            named = self.named[do] = sorted({v.name for e in do.origin for v in variables(e)})
        loop = a.loops[-1][0] if a.loops else -1
        key = do, loop, *(a.env[n] for n in named if n in a.env and n not in self.rolling)
        if key in self.boxes:
            return self.boxes[key]
        self.boxes[key] = self._box(region(do, a, self.rolling))
        return self.boxes[key]

    def scratch(self, where: Where) -> bool:
        """Whether global memory is a workspace, and whoever may write it is followed."""
        return where[1] in self.kernel.workspaces and (self.follows_turns or not self.turns)

    def region(self, where: Where) -> Region:
        """Return a region of global memory."""
        return self.places[where[2]]

    def filled(self, where: Where, written: list[Where]) -> bool:
        """Whether boxes have all elements of another one, as far as is known."""
        return filled(self.region(where), [self.region(other) for other in written])

    def _box(self, found: Region) -> Where:
        number = self.regions.get(found)
        if number is None:
            number = self.regions[found] = len(self.regions)
            self.places.append(found)
            here = -1, found.tensor, number
            self.heads[here] = 2 * number, 2 * number + 1
            self.overlaps[here] = ()
            for other, at in self.regions.items():
                how = share(found, other) if found.tensor == other.tensor else None
                if how is not None:
                    there = -1, other.tensor, at
                    self.shares[number, at] = self.shares[at, number] = how
                    self.overlaps[here] = (*self.overlaps[here], there)
                    if at != number:
                        self.overlaps[there] = (*self.overlaps[there], here)
        return -1, found.tensor, number

    def event(self, state: State, *place: object) -> int:
        """Return the one event of a place, made new."""
        return state.take(self._number(place, place[0]))

    def _number(self, place: object, sort: object) -> int:
        """Return the number of a place, and note the bits of accesses."""
        number = self.events.get(place)
        if number is not None:
            return number
        assert isinstance(place, tuple), "places are tuples"
        for one in self.spin.siblings(place):
            number = self.events[one] = len(self.events)
            if sort in ("access", "engine"):
                self.access_bits |= 0b1111 << FACTS * number
            elif sort == "init":
                self.init_bits |= 1 << FACTS * number
        return self.events[place]

    def engine(self, state: State, a: Agent, where: Where, site: int) -> int:
        """Return the event of an operation in flight, the first that is not in use."""
        busy = {entry.event for entry in state.memory.get(where, ())}
        for group in (*a.bulk, a.bulk_open):
            for pair in group:
                busy.update(pair)
        for ends in (*a.copies, a.copies_open):
            busy.update(ends)
        for mmas in (*a.mma, a.mma_open):
            for _, _, ends in mmas:
                busy.update(ends)
        for copy in range(COPIES):
            place = "engine", where, site, a.kind.index, copy
            number = self._number(place, "engine")
            if number not in busy and not self._flies(state, number):
                return state.take(number)
        raise UnsupportedError(f"more than {COPIES} copies in flight of one statement")

    def _flies(self, state: State, number: int) -> bool:
        """Whether an operation is in flight and nobody of its CTA knows of its end."""
        if number not in state.flying:
            return False
        cta, _ = state.flying[number]
        return not any(b.mine >> FACTS * number & 1 for b in state.agents if b.kind.cta == cta)

    def spread(self, site: Site) -> Spread | None:
        """Return how an ordinary access spreads its tile over threads."""
        if site.index not in self.spreads:
            self.spreads[site.index] = ordinary(site, self.storage)
        return self.spreads[site.index]

    def covers(self, site: Site, agent: int, where: Where, bar: kir.MBarrier, slot: int) -> bool:
        """Whether threads of a kind access the bytes of a barrier that a slot lies on."""
        spread = self.spread(site)
        buffer = next(b for b in self.kernel.buffers if b.name == where[1])
        start = self.kernel.barrier_at(bar) + 8 * slot - self.heads[where][0]
        size = buffer.dtype.nbytes
        rows = range(max(start, 0) // size, -(-(start + 8) // size))
        if buffer.swizzle:  # any element of the slot may lie there
            rows = range(prod(buffer.shape))
        return spread is None or agent % self.sites_per_cta in self.meetings.holding(spread, rows)

    def meet(
        self, first: int, one: int, second: int, two: int, names: tuple[str, str] = ("", "")
    ) -> Meet:
        """Return how the accesses of two statements by two kinds of threads of one CTA meet.

        `names` are those of the buffers, of which a wgmma has two.
        """
        left, right = self.operands.get((first, names[0])), self.operands.get((second, names[1]))
        key = first, second, left is not None, right is not None
        found = self.meet_cache.get(key)
        if found is None:
            a = left or self.spread(self.code.sites[first])
            b = right or self.spread(self.code.sites[second])
            if a is None or b is None:
                return Meet.ANY
            found = self.meetings.between(a, b)
            if first == second and a.matrix:
                found = each_by_one(found)
            self.meet_cache[key] = found
        many = self.sites_per_cta
        if one // many != two // many:
            return Meet.ANY
        return found.get((one % many, two % many), Meet.NEVER)

    def collides(self, site: Site, agent: int) -> bool:
        """Whether threads of a kind touch one element together in one ordinary access."""
        spread = self.spread(site)
        if spread is None or not spread.matrix:
            return self.meet(site.index, agent, site.index, agent) > Meet.THREAD
        return self.meetings.collide(spread, agent % self.sites_per_cta)

    def touches(self, site: Site, agent: int) -> bool:
        """Whether threads of a kind hold a part of an ordinary access's tile."""
        found = self.touched.get(site.index)
        if found is None:
            spread = self.spread(site)
            assert spread is not None, "asked of ordinary accesses only"
            found = self.touched[site.index] = self.meetings.touching(spread)
        return agent % self.sites_per_cta in found

    def writers(self, site: Site, cta: int) -> int:
        """Return the kinds of threads that hold a part of an ordinary access's tile, as a set."""
        first = cta * self.sites_per_cta
        return sum(
            1 << kind.index
            for kind in self.kinds[first : first + self.sites_per_cta]
            if site.place.has(kind) and self.touches(site, kind.index)
        )

    def wrong(
        self,
        state: State,
        rule: Rule,
        kind: str,
        later: Site,
        k: int,
        says: str,
        *,
        earlier: Site | None = None,
        severity: str = "error",
        event: int = -1,
    ) -> None:
        """Record that an obligation does not hold, unless its rule is taken away."""
        if rule in self.off:
            return
        key = kind, later.index, earlier.index if earlier is not None else -1
        known = self.violations.get(key)
        if known is None or (known.severity, severity) == ("warning", "error"):
            trips = max(shown(state), *self.pinned.values(), 0)
            self.violations[key] = Violation(
                rule, kind, later, earlier, k, trips, says, severity, event
            )

    def loop_names(self) -> dict[int, str]:
        """Return the index of the innermost loop around each statement that is in one."""
        if self._loop_names is None:
            self._loop_names = {}
            _name(self.kernel.body, "", count(), self._loop_names)
        return self._loop_names

    @property
    def failed(self) -> bool:
        """Whether an error has been found."""
        return any(v.severity == "error" for v in self.violations.values())


def speaks(sites: tuple[Site, ...]) -> bool:
    """Whether one thread of a role that starts products arrives at a barrier for all of it."""
    places = [s.place for s in sites if isinstance(s.stmt, kir.Wgmma)]
    return any(
        isinstance(s.stmt, kir.MBarrierArrive)
        and (s.place.per in (kir.Per.ROLE, kir.Per.WARPGROUP) or s.place.warps < 4)
        and any(p.first <= s.place.first < p.first + p.warps for p in places)
        for s in sites
    )


def _name(body: tuple[kir.Stmt, ...], loop: str, number: count[int], out: dict[int, str]) -> None:
    """Name the loops around statements, which are numbered as in the kernel's text."""
    for stmt in body:
        out[next(number)] = loop
        inside = stmt.index.name if isinstance(stmt, kir.ForLoop) else loop
        for inner in kir.bodies(stmt):
            _name(inner, inside, number, out)


def shown(state: State) -> int:
    """Return the largest count that the state has decided on: the trips that show what it shows."""
    return max((state.most, *(known.low for known in state.ranges.values())))
