"""What is the same in every state of a kernel, worked out once, and what has been found wrong."""

from __future__ import annotations

from dataclasses import dataclass

from fuser import kernel_ir as kir
from oracles.arithmetic import UnsupportedError
from oracles.closure_code import Code, Site
from oracles.closure_rules import Rule
from oracles.closure_state import COPIES, FACTS, Agent, State, Where
from oracles.closure_tiles import Meet, Meetings, Spread


@dataclass(frozen=True, slots=True)
class Violation:
    """An obligation that does not hold.

    `trips` is the smallest number of trips that shows it, `k` the iteration (-1 outside of loops).
    """

    rule: Rule
    kind: str
    later: Site
    earlier: Site | None
    k: int
    trips: int
    says: str
    severity: str = "error"


class World:
    """The facts about a kernel in one reading, and the violations found so far."""

    def __init__(self, code: Code, *, policy: str, without: frozenset[Rule], turn: int) -> None:
        self.code = code
        self.kernel = code.kernel
        self.kinds = code.kinds
        self.policy = policy
        self.off = without
        self.turn = turn
        self.violations: dict[tuple[str, int, int], Violation] = {}
        self.checked = 0
        self.meetings = Meetings(code.kinds, code.kernel.threads)
        self.meet_cache: dict[tuple[int, int], dict[tuple[int, int], Meet]] = {}
        self.spreads: dict[int, Spread | None] = {}
        self.events: dict[object, int] = {}
        self.access_bits = 0
        self.heads: dict[Where, tuple[int, int]] = {}
        self.overlaps: dict[Where, tuple[Where, ...]] = {}
        self.barrier_bytes: dict[tuple[str, int], tuple[Where, ...]] = {}
        self.touched: dict[int, frozenset[int]] = {}
        self.turn_waits: dict[int, Site] = {}
        self.turn_values: dict[str, list[tuple[int, Site]]] = {"wait": [], "release": []}
        self.tracked = tracked(code.kernel)
        self.sites_per_cta = len(code.kinds) // code.kernel.cluster
        self.log: list[tuple[int, int, int, str]] | None = None
        self.pinned: dict[int, int] = {}
        self.least: dict[int, int] = {}
        self.waiters: dict[tuple[int, str], tuple[int, ...]] = {}
        self.last_uses: dict[tuple[int, int], int] = {}
        mmas = [s for s in code.kernel.walk() if isinstance(s, kir.Wgmma)]
        self.fragments: frozenset[object] = frozenset(
            f for m in mmas for f in (m.acc, m.a) if isinstance(f, kir.Fragment)
        )
        self._lay_out()

    def _lay_out(self) -> None:
        spans: dict[tuple[str, int], tuple[int, int]] = {}
        for b in self.kernel.buffers:
            for slot in range(b.slots):
                start = b.offset + slot * b.slot_nbytes
                spans[b.name, slot] = start, start + b.slot_nbytes
        for cta in range(self.kernel.cluster):
            for (name, slot), span in spans.items():
                self.heads[cta, name, slot] = span
                self.overlaps[cta, name, slot] = tuple(
                    (cta, *other)
                    for other, (start, end) in spans.items()
                    if start < span[1] and span[0] < end
                )
        for name in self.tracked:
            self.overlaps[-1, name, 0] = ((-1, name, 0),)
        for m in self.kernel.barriers:
            for slot in range(m.slots):
                at = self.kernel.barrier_at(m) + 8 * slot
                self.barrier_bytes[m.name, slot] = tuple(
                    (0, *other)
                    for other, (start, end) in spans.items()
                    if start < at + 8 and at < end
                )

    def event(self, state: State, *place: object) -> int:
        """Return the one event of a place, made new."""
        return state.take(self._number(place, place[0]))

    def _number(self, place: object, sort: object) -> int:
        """Return the number of a place, and note the bits of accesses."""
        number = self.events.get(place)
        if number is None:
            number = self.events[place] = len(self.events)
            if sort in ("access", "engine"):
                self.access_bits |= 0b1111 << FACTS * number
        return number

    def inits(self) -> int:
        """Return the bits of barriers' initialisations."""
        return sum(1 << FACTS * n for place, n in self.events.items() if _first(place) == "init")

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
            match site.stmt:
                case kir.Load(kir.Fragment(_, _, layout), kir.Slot(buffer)):
                    found = layout, buffer.name, buffer.shape
                case kir.Store(kir.Slot(buffer), kir.Fragment(_, _, layout)):
                    found = layout, buffer.name, buffer.shape
                case kir.CpAsync(kir.Slot(buffer), _, layout):
                    found = layout, buffer.name, buffer.shape
                case kir.Load(kir.Fragment(_, _, layout), kir.Box(tensor, _, shape)):
                    found = layout, tensor.name, shape
                case kir.Store(kir.Box(tensor, _, shape), kir.Fragment(_, _, layout)):
                    found = layout, tensor.name, shape
                case kir.AtomicAdd(kir.Box(tensor, _, shape), kir.Fragment(_, _, layout)):
                    found = layout, tensor.name, shape
                case _:
                    self.spreads[site.index] = None
                    return None
            layout, name, shape = found
            self.spreads[site.index] = Spread(name, layout, shape, site.place.first * kir.WARP)
        return self.spreads[site.index]

    def meet(self, first: int, one: int, second: int, two: int) -> Meet:
        """Return how the accesses of two statements by two kinds of threads of one CTA meet."""
        key = first, second
        found = self.meet_cache.get(key)
        if found is None:
            a, b = self.spread(self.code.sites[first]), self.spread(self.code.sites[second])
            if a is None or b is None:
                return Meet.ANY
            found = self.meet_cache[key] = self.meetings.between(a, b)
        many = self.sites_per_cta
        if one // many != two // many:
            return Meet.ANY
        return found.get((one % many, two % many), Meet.NEVER)

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
    ) -> None:
        """Record that an obligation does not hold, unless its rule is taken away."""
        if rule in self.off:
            return
        key = kind, later.index, earlier.index if earlier is not None else -1
        if key not in self.violations:
            trips = shown(state)
            self.violations[key] = Violation(rule, kind, later, earlier, k, trips, says, severity)

    @property
    def failed(self) -> bool:
        """Whether an error has been found."""
        return any(v.severity == "error" for v in self.violations.values())


def _first(place: object) -> object:
    """Return what sort of event a place is for."""
    if isinstance(place, tuple) and place:
        return _first(place[0])
    return place


def shown(state: State) -> int:
    """Return the largest count that the state has decided on: the trips that show what it shows."""
    return max((state.most, *(known.low for known in state.ranges.values())))


def tracked(kernel: kir.Kernel) -> frozenset[str]:
    """Return the tensors that are both written and read, or added to, by the kernel itself."""
    read: set[str] = set()
    written: set[str] = set()
    for stmt in kernel.walk():
        match stmt:
            case kir.Load(_, kir.Box(tensor)) | kir.TmaLoad(_, kir.Box(tensor)):
                read.add(tensor.name)
            case kir.CpAsync(_, kir.Box(tensor)):
                read.add(tensor.name)
            case kir.Store(kir.Box(tensor)) | kir.TmaStore(kir.Box(tensor)):
                written.add(tensor.name)
            case kir.TmaReduce(kir.Box(tensor)) | kir.AtomicAdd(kir.Box(tensor)):
                read.add(tensor.name)
                written.add(tensor.name)
            case _:
                pass
    return frozenset(read & written)
