"""What all agents of some CTAs will do, and where things are: the fixed part of an exploration.

An agent is a warp, or, where something elects one of its lanes, that lane and the 31 others: two
lanes that execute the same statements differ in no phase, count or order, for whatever a lane
could be late for, its warp could be late for.  Which *elements* each of them touches is kept apart
(`state.Access.threads`).  No two warps are merged.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import reduce
from math import gcd

from fuser.arch import SM_90A
from fuser.expr import Expr, Kind, Op, Var
from fuser.kernel import ir as kir
from oracles.explorer.rules import Defect, NotModelled, Rule
from oracles.explorer.state import EMPTY_SLOT, Agent, State
from oracles.explorer.tiles import Shape

Values = dict[Var, int]
EVENTS = 16_000
"""Events of a launch at most: a set of earlier ones is kept for each.  These take 0.5 GB, twice as
many 1.3 GB (measured)."""


def value(expr: Expr, values: Mapping[Var, int]) -> int:
    """Compute an expression."""
    if isinstance(expr, int):
        return int(expr)
    if isinstance(expr, Var):
        if expr not in values:
            raise NotModelled(f"the variable {expr.name} has no value here")
        return values[expr]
    if expr.kind is Kind.AND and not value(expr.a, values):
        return 0  # what stands right of `&&` is not evaluated
    return _apply(expr, value(expr.a, values), value(expr.b, values))


def _apply(expr: Op, a: int, b: int) -> int:
    match expr.kind:
        case Kind.ADD:
            return a + b
        case Kind.SUB:
            return a - b
        case Kind.MUL:
            return a * b
        case Kind.FLOORDIV | Kind.MOD:
            if b <= 0 or a < 0:
                sign = f"{a} {expr.kind.value} {b} in {expr}"
                raise Defect(Rule.BOUNDS, "bounds", str(expr), f"{sign} leaves the integers >= 0")
            return a // b if expr.kind is Kind.FLOORDIV else a % b
        case Kind.MIN:
            return min(a, b)
        case Kind.MAX:
            return max(a, b)
        case Kind.LT:
            return int(a < b)
        case Kind.LE:
            return int(a <= b)
        case Kind.EQ:
            return int(a == b)
        case Kind.AND:
            return int(bool(a) and bool(b))


def elected(per: kir.Per, warp: int, first: int) -> bool:
    """Tell whether the first lane of `warp` is chosen in a role that begins at warp `first`."""
    match per:
        case kir.Per.ROLE:
            return warp == first
        case kir.Per.WARP:
            return True
        case kir.Per.WARPGROUP:
            return (warp - first) % 4 == 0


def agents(kernel: kir.Kernel, ctas: tuple[int, ...]) -> list[Agent]:
    """Return the agents of some CTAs, without steps yet."""
    out: list[Agent] = []
    for cta, block in enumerate(ctas):
        for warp in range(kernel.threads // 32):
            split = _splits(kernel.body, warp, 0, range(kernel.threads // 32))
            parts = ((0, 1), (1, 31)) if split else ((0, 32),)
            mates = tuple(range(len(out), len(out) + len(parts)))
            for lane, lanes in parts:
                name = f"cta {block} " * (len(ctas) > 1) + f"warp {warp}"
                name += "" if lanes == 32 else " lane 0" if lane == 0 else " other lanes"
                out.append(Agent(len(out), cta, warp, lane, lanes, name, [], mates))
    return out


def _splits(body: tuple[kir.Stmt, ...], warp: int, first: int, warps: range) -> bool:
    for stmt in body:
        match stmt:
            case kir.Elect(per, inner):
                if inner and elected(per, warp, first):
                    return True
            case kir.MBarrierArrive() | kir.CpAsyncMBarrierArrive():
                return True
            case kir.Role(_, start, count, inner):
                if start <= warp < start + count and _splits(inner, warp, start, warps):
                    return True
            case _:
                if any(_splits(inner, warp, first, warps) for inner in kir.bodies(stmt)):
                    return True
    return False


@dataclass(slots=True)
class Election:
    """One coming of a role of a CTA to an integer, of the CTAs at which the last is elected.

    `cta` is its number in the unit, `role` the first warp and the number of warps; so many `ctas`
    are to come.  The events of its `body` do not happen where it is not the last.
    """

    cta: int
    role: tuple[int, int]
    integer: tuple[int, int]
    ctas: int
    body: int = 0


class TooMany(Exception):
    """More states, or events, than allowed."""


@dataclass(slots=True)
class Plan:
    """The agents of one unit (CTAs that can meet) with their steps, and the places they use.

    `values` are those of the parameters and of GRID, `ctas` the numbers of the CTAs in the launch,
    `without` the rules left out.
    """

    kernel: kir.Kernel
    values: Mapping[Var, int]
    ctas: tuple[int, ...]
    without: frozenset[Rule]
    agents: list[Agent] = field(init=False)
    events: int = 0
    ended: int = 0
    """The event that the launches before this one have ended; 0 where they have from the start."""
    early: set[int] = field(default_factory=set)
    """Tensors (spaces) that those launches do not write."""
    shared_bits: int = 0
    global_bits: int = 0
    within: dict[int, int] = field(default_factory=dict)
    """What is done to the shared memory and barriers of each CTA."""
    leaving: list[tuple[int, int, str]] = field(default_factory=list)
    """CTA, event, and words of what must be over when that CTA ends."""
    first_slot: dict[str, int] = field(default_factory=dict)
    places: dict[str, int] = field(default_factory=dict)
    """First byte of each mbarrier."""
    beside: dict[int, set[int]] = field(default_factory=dict)
    """Which other slots of mbarriers of a CTA have bytes of a slot."""
    slots_per_cta: int = 0
    counts: list[int] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    granule: int = 1
    moved: frozenset[str] = frozenset()
    """Buffers whose elements a swizzle moves, where that is to be seen."""
    tracked: bool = False
    written: frozenset[str] = frozenset()
    spaces: dict[str, int] = field(default_factory=dict)
    extents: dict[str, Shape] = field(default_factory=dict)
    blank: set[int] = field(default_factory=set)
    """Tensors (spaces) that hold nothing when the launch begins."""
    results: set[int] = field(default_factory=set)
    """Tensors (spaces) that are outputs."""
    begun: dict[int, int] = field(default_factory=dict)
    """Of each cluster whose CTAs use each other, the event that all have begun."""
    publications: dict[int, int] = field(default_factory=dict)
    """Of each begin of a barrier, the event that makes it visible to other CTAs."""
    remote_bits: int = 0
    """What threads do to the shared memory and barriers of other CTAs."""
    far_bits: int = 0
    """What they store there by `StAsync`, released at cluster scope."""
    wgmma_events: dict[tuple[int, int, int], int] = field(default_factory=dict)
    wgmma_mates: dict[tuple[int, int, int], list[int]] = field(default_factory=dict)
    whole: dict[tuple[int, int, int], int] = field(default_factory=dict)
    """Per wgmma of a warpgroup, the event that stands for the parts of all four warps."""
    awaited: dict[tuple[int, int], dict[int, int]] = field(default_factory=dict)
    """Per warp, the event of its part of each wgmma, with the one that stands for all parts."""

    drawing: dict[int, int] = field(default_factory=dict)
    """Which agent of a CTA draws numbers."""
    elections: list[Election] = field(default_factory=list)
    integers: dict[tuple[str, int], bool] = field(default_factory=dict)
    """Whether an integer of a semaphore elects CTAs."""
    meets: dict[tuple[str, int], tuple[int, int]] = field(default_factory=dict)
    """The role (first warp, and how many) whose CTAs come together at an integer."""
    joins: dict[tuple[int, int], set[tuple[int, int]]] = field(default_factory=dict)
    """Per CTA and barrier of threads, the roles that come there."""
    owned: set[tuple[int, int]] = field(default_factory=set)
    """Those (as above) by which the threads of a role join before they wait for other CTAs."""
    changes: dict[tuple[int, int, int], list[int]] = field(default_factory=dict)
    """Per warpgroup, the events of each change of registers, one per warp."""
    telling: bool = False
    """Whether steps say what they do."""

    def __post_init__(self) -> None:
        kernel = self.kernel
        self.agents = agents(kernel, self.ctas)
        for barrier in kernel.barriers:
            self.first_slot[barrier.name] = self.slots_per_cta
            self.places[barrier.name] = kernel.barrier_at(barrier)
            self.slots_per_cta += barrier.slots
            self.counts += [barrier.arrivals] * barrier.slots
            self.names += [f"{barrier.name}[{i}]" for i in range(barrier.slots)]
        self._placed()
        self.moved = self._moved()
        self.ended = self.event() if kernel.dependent else 0
        self.granule = reduce(gcd, (b.dtype.nbytes for b in kernel.buffers), 8)
        self.tracked = any(b.offset is not None for b in kernel.barriers) or any(
            isinstance(s, kir.MBarrierInvalidate) for s in kernel.walk()
        )
        self.written = frozenset(
            s.dst.tensor.name
            for s in kernel.walk()
            if isinstance(s, kir.Store | kir.AtomicAdd | kir.TmaStore | kir.TmaReduce)
            and isinstance(s.dst, kir.Box)
        )
        for number, tensor in enumerate(kernel.tensors):
            self.spaces[tensor.name] = len(self.ctas) + number
            if tensor.name in kernel.workspaces:
                self.blank.add(len(self.ctas) + number)
            if tensor.name in kernel.early:
                self.early.add(len(self.ctas) + number)
            if tensor.name in kernel.outputs:
                self.results.add(len(self.ctas) + number)
            self.extents[tensor.name] = tuple(value(e, self.values) for e in tensor.extents)

    def in_shared(self, event: int, cta: int) -> None:
        """Note that an event is an access of the shared memory of a CTA."""
        self.shared_bits |= event
        self.at_cta(event, cta)

    def at_cta(self, event: int, cta: int) -> None:
        """Note that an event is one of the shared memory, or a barrier, of a CTA."""
        self.within[cta] = self.within.get(cta, 0) | event

    def of_shared(self, known: int, cta: int) -> int:
        """Leave out accesses of other memory than the shared one of a CTA."""
        accesses = self.shared_bits | self.global_bits | self.remote_bits | self.far_bits
        return known & ~(accesses & ~self.within.get(cta, 0))

    def _placed(self) -> None:
        """Demand a place for every mbarrier, and note which of them have the same bytes.

        Who lays it there must have the bytes of a buffer for it: what the launch allocates beyond
        them is for the mbarriers that are laid out behind them.
        """
        kernel, allocated = self.kernel, self.kernel.smem_bytes
        if allocated > SM_90A.smem_bytes:
            says = f"{allocated} bytes of shared memory, where a CTA has {SM_90A.smem_bytes}"
            self.refuse(Rule.BOUNDS, "bounds", kernel.name, says)
        at = [self.places[b.name] + 8 * i for b in kernel.barriers for i in range(b.slots)]
        given = [b.offset is not None for b in kernel.barriers for _ in range(b.slots)]
        for slot, (start, moved) in enumerate(zip(at, given, strict=True)):
            if (
                start < 0
                or start % 8
                or start + 8 > (kernel.barrier_offset if moved else allocated)
            ):
                says = f"it lies at byte {start}; buffers end at byte {kernel.barrier_offset}"
                self.refuse(Rule.BOUNDS, "bounds", self.names[slot], says)
            others = {n for n, other in enumerate(at) if n != slot and abs(other - start) < 8}
            self.beside[slot] = others

    def _moved(self) -> frozenset[str]:
        """Return the swizzled buffers over whose bytes something else lies: there places count."""
        kernel = self.kernel
        spans = [
            (b.name, b.start(slot), b.start(slot) + b.slot_nbytes)
            for b in kernel.buffers
            for slot in range(b.slots)
        ]
        spans += [
            (m.name, at, at + 8 * m.slots) for m in kernel.barriers for at in (self.places[m.name],)
        ]
        return frozenset(
            b.name
            for b in kernel.buffers
            if b.swizzle and any(name != b.name and b.holds(*span) for name, *span in spans)
        )

    def refuse(self, rule: Rule, kind: str, where: str, says: str) -> None:
        """Raise a defect, unless the rule is left out."""
        if rule not in self.without:
            raise Defect(rule, kind, where, says)

    def event(self) -> int:
        """Return a new event.

        Raises
        ------
        TooMany
            If there are `EVENTS` already.
        """
        if self.events == EVENTS:
            raise TooMany(f"more than {EVENTS} events")
        self.events += 1
        return 1 << self.events

    def election(self, one: Election, n: int) -> int:
        """Return the number of the n-th coming of a role of a CTA to an integer."""
        key = (one.cta, one.role, one.integer)
        mine = [
            number
            for number, old in enumerate(self.elections)
            if (old.cta, old.role, old.integer) == key
        ]
        if n == len(mine):
            self.elections.append(one)
            mine.append(len(self.elections) - 1)
        return mine[n]

    def outcomes(self, st: State, cta: int) -> tuple[int, ...]:
        """Return the elections of a CTA in which it was the last."""
        won = [n for n, last in st.elected.items() if last and self.elections[n].cta == cta]
        return tuple(sorted(won))

    def publication(self, begins: int) -> int:
        """Return what makes these begins visible to other CTAs.

        Source: PTX ISA, "fence.mbarrier_init": the inits of the same thread only.
        """
        return sum(event for begin, event in self.publications.items() if begin & begins)

    def published(self, known: int) -> int:
        """Return the begins of barriers that these events made visible, with those events."""
        every = self.publications.items()
        return sum(begin | event for begin, event in every if event & known)

    def released_parts(self, agent: Agent, known: int) -> int:
        """Return other warps' parts that an arrival of a warp releases, of wgmmas that it awaited.

        The default policy lets one arrival stand for the four warps of a warpgroup.
        """
        parts = self.awaited.get((agent.cta, agent.warp), {})
        return sum(whole for part, whole in parts.items() if part & known)

    def slot(self, barrier: kir.MBarrier, index: int, cta: int, where: str) -> int:
        """Return the number of an mbarrier slot of a CTA of this unit."""
        if not 0 <= index < barrier.slots:
            says = f"{barrier.name}[{index}] of {barrier.slots} slots"
            raise Defect(Rule.BOUNDS, "bounds", where, says)
        return cta * self.slots_per_cta + self.first_slot[barrier.name] + index

    def slot_name(self, slot: int) -> str:
        """Return an mbarrier slot in words."""
        cta, at = divmod(slot, self.slots_per_cta)
        return self.names[at] + (f" of cta {self.ctas[cta]}" if len(self.ctas) > 1 else "")

    def peer(self, cta: int, rank: int, where: str) -> int:
        """Return the number in this unit of a CTA of the same cluster, by its rank."""
        size = self.kernel.cluster
        if not 0 <= rank < size:
            raise Defect(Rule.BOUNDS, "bounds", where, f"cta {rank} of a cluster of {size}")
        other = cta - self.ctas[cta] % size + rank
        if other != cta:
            self.begun.setdefault(self.ctas[cta] // size, self.event())
        return other

    def start(self) -> State:
        """Return the state before the first step."""
        n = len(self.agents)
        slots: list[tuple[int, ...]] = [EMPTY_SLOT] * (self.slots_per_cta * len(self.ctas))
        return State(
            [0] * n, [0] * n, [0] * n, [0] * n, [0] * n, [0] * n, [0] * n, slots
        )  # fmt: skip
