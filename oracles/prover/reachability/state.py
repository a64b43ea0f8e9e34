"""One state of a whole cluster: where its threads are, and what precedes what they do next.

Events are bits.  An event has a *place* (the access of this statement by these threads to this
slot; the end of a phase of this barrier), and the next event of the place takes over its bits once
nobody can ask about the old one.  So a state that comes again is the same numbers again.

Every event owns `FACTS` bits: that it happened, that a proxy fence for shared memory (for global
memory) covers it, and that this fence was its own thread's.  Whoever learns of the event learns of
the facts on the same way.

What threads of one kind know of each other needs three sets.  `mine` is what precedes the next
step of a thread in its own past; `warp` the part of it that holds for all threads of the warp;
`all` the part that holds for all threads: an event of threads of a kind is in `all` only if it
precedes this for each of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple, TypeVar

from fuser.expr import Expr
from fuser.kernel import ir as kir
from oracles.prover.reachability.fields import copied, declared, derived, left_out, mapped, same
from oracles.prover.reachability.program.threads import Kind

FACTS = 4
SHARED, GLOBAL, OWN = 1, 2, 3
"""Facts of an event beyond that it happened (which is 0)."""
ONES = sum(1 << FACTS * i for i in range(4096))
"""That an event happened, for every event there may be."""

Where = tuple[int, str, int]
"""A piece of memory: CTA, buffer and slot; or -1, tensor and region."""
Product = tuple[str, str, tuple[int, ...]]
"""A wgmma in flight: the names of its result and source in registers, and the ends of its reads."""
_Group = TypeVar("_Group", bound=tuple[object, ...])


def bit(event: int, fact: int = 0) -> int:
    """Return a fact of an event as a set of facts."""
    return 1 << FACTS * event + fact


def bits(events: Iterable[int]) -> int:
    """Return that events happened as a set of facts."""
    found = 0
    for event in events:
        found |= 1 << FACTS * event
    return found


def knows(facts: int, event: int) -> bool:
    """Whether an event happened, by a set of facts."""
    return bool(facts >> FACTS * event & 1)


class Entry(NamedTuple):
    """An access that later ones must be ordered after."""

    event: int
    site: int
    agent: int
    writes: bool
    proxy: bool
    engine: bool
    start: int
    end: int
    cover: tuple[int, int] = (-1, 0)


class Unknown(NamedTuple):
    """One use of a number that no thread knows: the loops around it, and how often it came."""

    atom: int
    outer: tuple[int, ...]
    use: int


class Range(NamedTuple):
    """What has been decided about a number: at least `low`, and exactly that if `exact`."""

    low: int = 0
    exact: bool = False


class Loop(NamedTuple):
    """A loop that threads run: its number, length if unknown, index, place among its siblings."""

    number: int
    unknown: Unknown | None
    name: str
    ordinal: int


@declared
class Agent:
    """Threads of one kind on their way."""

    kind: Kind = left_out("the place among the agents tells it")
    at: int = same()
    env: dict[str, int] = derived("environment", factory=dict)
    mine: int = mapped("facts", default=0)
    warp: int = mapped("facts", default=0)
    all: int = mapped("facts", default=0)
    done: bool = same(default=False)
    waiting: str = same(default="")
    gate: tuple[int, ...] | None = mapped("closed", default=None)
    loops: tuple[Loop, ...] = derived("running", default=())
    passed: tuple[tuple[int, int], ...] = derived("passed", default=())
    bulk: tuple[tuple[tuple[int, int], ...], ...] = mapped("groups", default=())
    bulk_open: tuple[tuple[int, int], ...] = mapped("pairs", default=())
    copies: tuple[tuple[int, ...], ...] = mapped("pairs", default=())
    copies_open: tuple[int, ...] = mapped("events", default=())
    mma: tuple[tuple[Product, ...], ...] = mapped("groups_of_products", default=())
    mma_open: tuple[Product, ...] = mapped("products_of", default=())
    clean: frozenset[object] = same(default=frozenset())
    own: int = left_out("the places of events tell whose they are", default=0)
    fenced: int = mapped("fenced", default=0)
    registers: int = same(default=0)
    arrived: bool = same(default=False)
    unmet: bool = same(default=False)
    first: bool = same(default=False)
    cumulative: int = mapped("facts", default=0)

    @property
    def k(self) -> int:
        """The iteration of the innermost loop, -1 outside of loops."""
        return self.env[self.loops[-1].name] if self.loops else -1

    @property
    def rounds(self) -> tuple[int, ...]:
        """The iterations of the loops of unknown length, from outside."""
        return tuple(self.env[loop.name] for loop in self.loops if loop.unknown is not None)

    # --- what precedes what they do next --------------------------------------------------------

    def owns(self, event: int) -> None:
        """Let an event of these threads precede what they do next."""
        one = 1 << FACTS * event
        self.mine |= one
        self.own |= one
        if self.kind.leads:
            self.warp |= one
            if self.kind.alone:
                self.all |= one

    def learns(self, facts: int) -> None:
        """Let what all threads agree on precede what these do next."""
        self.mine |= facts
        self.warp |= facts
        self.all |= facts

    def learns_with_warp(self, facts: int) -> None:
        """Let what all lanes of a warp agree on precede what these do next."""
        self.mine |= facts
        self.warp |= facts
        if len(self.kind.warps) == 1:
            self.all |= facts

    def carries(self, which: int, fact: int) -> None:
        """Let a fact hold of those events out of some that precede what these threads do next."""
        self.mine |= (self.mine & which) << fact
        self.warp |= (self.warp & which) << fact
        self.all |= (self.all & which) << fact

    def fences(self, facts: int) -> None:
        """Note what these threads have fenced, for a relaxed release to tell."""
        self.fenced |= facts

    def fences_inits(self, inits: int) -> None:
        """Make barriers visible to other CTAs that these threads have initialised."""
        self.mine |= inits
        if self.kind.alone:
            self.learns(inits)
        self.fenced |= inits | inits >> SHARED

    def releases_too(self, facts: int) -> None:
        """Let arrivals release more than the threads know: they are cumulative."""
        self.cumulative |= facts

    def forgets(self, keep: int) -> None:
        """Forget an event that is to be taken again."""
        self.mine &= keep
        self.warp &= keep
        self.all &= keep
        self.own &= keep
        self.fenced &= keep
        self.cumulative &= keep

    # --- where they are -------------------------------------------------------------------------

    def stops(self, waiting: str) -> None:
        """Stand still until somebody lets these threads go on."""
        self.waiting = waiting

    def goes_on(self) -> None:
        """Have executed a statement."""
        self.waiting = ""
        self.at += 1

    def goes_to(self, at: int) -> None:
        """Go on elsewhere."""
        self.at = at

    def ends(self) -> None:
        """Have no statement left: loops and positions of these threads are nobody's business."""
        self.done, self.env, self.loops, self.passed = True, {}, (), ()

    def sets(self, name: str, value: int) -> None:
        """Give a variable a value, and go on."""
        self.env[name] = value
        self.at += 1

    def drops(self, names: Iterable[str]) -> None:
        """Forget variables that nobody will read."""
        for name in names:
            del self.env[name]

    def enters(self, number: int, atom: int, name: str) -> None:
        """Begin a loop, of a length that no thread knows unless `atom` is -1."""
        rounds = self.rounds
        depth = len(rounds)
        unknown = Unknown(atom, rounds, self.passed.count((depth, atom))) if atom >= 0 else None
        ordinal = sum(1 for t in self.passed if t[0] == depth)
        self.loops = (*self.loops, Loop(number, unknown, name, ordinal))
        self.env[name] = 0

    def next_round(self, enter: int) -> None:
        """Go back to the head of the innermost loop."""
        self.env[self.loops[-1].name] += 1
        depth = sum(1 for loop in self.loops if loop.unknown is not None)
        self.passed = tuple(t for t in self.passed if t[0] < depth)
        self.at = enter

    def leaves(self, end: int) -> None:
        """Be through with the innermost loop."""
        _, unknown, name, _ = self.loops[-1]
        self.loops = self.loops[:-1]
        del self.env[name]
        if unknown is not None:
            depth = sum(1 for loop in self.loops if loop.unknown is not None)
            self.passed = (*self.passed, (depth, unknown.atom))
        self.at = end
        self.gate = None

    def waits_at_gate(self) -> bool:
        """Whether they must stop in front of an iteration of a loop of unknown length."""
        if self.loops[-1].unknown is None:
            return False
        if self.gate is None:
            self.gate = tuple(
                part
                for loop in self.loops
                if loop.unknown is not None
                for part in (loop.ordinal, self.env[loop.name])
            )
        return bool(self.gate)

    def begins_round(self) -> None:
        """Go into an iteration of the innermost loop."""
        self.at += 1
        self.gate = None

    # --- groups in flight, and registers --------------------------------------------------------

    def starts_bulk(self, read: int, write: int) -> None:
        """Add a bulk copy to the open group."""
        self.bulk_open = (*self.bulk_open, (read, write))

    def starts_copy(self, *ends: int) -> None:
        """Add a cp.async to the open group."""
        self.copies_open = (*self.copies_open, *ends)

    def drops_known_copies(self, *, keep: bool) -> None:
        """Leave copies in the open group that are not known to be done, if that can matter."""
        still = self.copies_open if keep else ()
        self.copies_open = tuple(end for end in still if not knows(self.mine, end))

    def starts_product(self, result: str, source: str, ends: tuple[int, ...]) -> None:
        """Add a wgmma to the open group."""
        self.mma_open = (*self.mma_open, (result, source, ends))

    def commits(self, kind: kir.AsyncKind) -> None:
        """Close the open group."""
        match kind:
            case kir.AsyncKind.BULK:
                self.bulk, self.bulk_open = _trimmed((*self.bulk, self.bulk_open)), ()
            case kir.AsyncKind.CP_ASYNC:
                self.copies, self.copies_open = _trimmed((*self.copies, self.copies_open)), ()
            case kir.AsyncKind.WGMMA:
                self.mma, self.mma_open = _trimmed((*self.mma, self.mma_open)), ()

    def awaits(self, kind: kir.AsyncKind, keep: int, *, read_only: bool) -> list[int]:
        """Be through with all groups but the latest; return the ends of what was in them."""
        match kind:
            case kir.AsyncKind.BULK:
                done = max(0, len(self.bulk) - keep)
                pairs = [pair for group in self.bulk[:done] for pair in group]
                left = tuple(
                    tuple((-1, write) for _, write in group if write >= 0 and read_only)
                    for group in self.bulk[:done]
                )
                self.bulk = (*_trimmed(left), *self.bulk[done:])
                ends = [e for pair in pairs for e in (pair[:1] if read_only else pair)]
                return [end for end in ends if end >= 0]
            case kir.AsyncKind.CP_ASYNC:
                done = max(0, len(self.copies) - keep)
                copies, self.copies = self.copies[:done], self.copies[done:]
                return [end for group in copies for end in group]
            case kir.AsyncKind.WGMMA:
                done = max(0, len(self.mma) - keep)
                products, self.mma = self.mma[:done], self.mma[done:]
                return [end for group in products for _, _, ends in group for end in ends]

    def in_flight(self) -> Iterator[int]:
        """Yield the ends of all operations in groups of these threads."""
        for pairs in (*self.bulk, self.bulk_open):
            for pair in pairs:
                yield from pair
        for ends in (*self.copies, self.copies_open):
            yield from ends
        for products in (*self.mma, self.mma_open):
            for _, _, ends in products:
                yield from ends

    def fences_registers(self, clean: frozenset[object]) -> None:
        """Let a wgmma use registers without another fence."""
        self.clean = clean

    def uses_registers(self, names: set[str], besides: Iterable[object] = ()) -> None:
        """Let a wgmma need a fence after this use of registers; `besides` are not meant."""
        self.clean = frozenset(
            f for f in self.clean if f in besides or getattr(f, "name", "") not in names
        )

    def restricts_fences_of(self, lead: Agent) -> None:
        """Make the lead forget fences of readers that these lanes, who issue it too, have not."""
        fenced = lead.mine >> SHARED & ONES
        own, others = lead.mine >> OWN & ONES, self.mine >> SHARED & ONES
        keep = ~((fenced & ~own & ~others) << SHARED)
        lead.mine, lead.warp, lead.all = lead.mine & keep, lead.warp & keep, lead.all & keep

    def takes_registers(self, registers: int) -> None:
        """Have so many registers from now on; the warpgroup has to meet before it asks again."""
        self.registers, self.unmet, self.first = registers, True, False

    def arrives(self, *, arrived: bool) -> None:
        """Have arrived at the cluster's barrier, or have waited there."""
        self.arrived = arrived


def _trimmed(groups: tuple[_Group, ...]) -> tuple[_Group, ...]:
    """Drop empty groups that are older than any other: all but the latest say the same without."""
    first = next((i for i, group in enumerate(groups) if group), len(groups))
    return groups[first:]


@declared
class Phase:
    """The running phase of one slot of an mbarrier.

    `came` and `coming` are the single arrivals and bytes of the last phase and of this one, where
    they are followed; `announced` is what made this one wait for more, without an arrival after.
    """

    arrivals: int = left_out("every phase of the barrier expects as many")
    init: int = same()
    pending: int = same()
    parity: int = mapped("parity", default=0)
    count: int = left_out("the number of a phase is for words only", default=0)
    nbytes: int = same(default=0)
    before: int = derived("before", default=0)
    last: int = mapped("facts", default=0)
    end: int = mapped("end_of_phase", default=-1)
    previous: int = mapped("end_of_phase", default=-1)
    waiters: tuple[int, ...] = mapped("event_set", default=())
    remote: bool = same(default=False)
    was_remote: bool = same(default=False)
    site: int = left_out("who came last is for words only", default=-1)
    alive: bool = same(default=True)
    came: tuple[int, ...] = mapped("event_set", default=())
    coming: tuple[int, ...] = mapped("event_set", default=())
    announced: tuple[int, ...] = mapped("event_set", default=())

    @property
    def idle(self) -> bool:
        """Whether nothing of it has come yet."""
        return self.pending == self.arrivals and not self.nbytes

    @property
    def over(self) -> bool:
        """Whether all arrivals and bytes are in."""
        return not (self.pending or self.nbytes)

    @property
    def users(self) -> list[int]:
        """What has to be over before the barrier may go."""
        return [e for e in (self.end, self.init, *self.waiters) if e >= 0]

    def expects(self, nbytes: int, site: int) -> None:
        """Have bytes to wait for, by a statement."""
        self.nbytes += nbytes
        self.site = site

    def comes(self, event: int) -> None:
        """Note a single arrival, or the end of a copy."""
        self.coming = tuple(sorted({*self.coming, event}))

    def comes_from_afar(self) -> None:
        """Note that another CTA arrives."""
        self.remote = True

    def announces(self, event: int) -> None:
        """Note that there is more to wait for, which an arrival has to come after."""
        self.announced = tuple(sorted({*self.announced, event}))

    def waits_for(self, more: int) -> None:
        """Wait for more arrivals."""
        self.pending += more

    def counts(self, arrivals: int, released: int, *, announces: bool) -> None:
        """Count arrivals that release what precedes them."""
        self.pending = max(0, self.pending - arrivals)
        self.before |= released
        if not announces:
            self.announced = tuple(e for e in self.announced if not knows(released, e))

    def delivers(self, nbytes: int, facts: int, site: int) -> None:
        """Count the bytes of a copy as complete."""
        self.nbytes -= nbytes
        self.before |= facts
        self.site = self.site if self.site >= 0 else site

    def completes(self, end: int) -> None:
        """Begin the next phase; `end` is the event of the end of this one."""
        self.previous, self.end = self.end, end
        self.last |= self.before | bit(end)
        self.count += 1
        self.parity ^= 1
        self.pending = self.arrivals
        self.before = 0
        self.waiters = self.announced = ()
        self.was_remote, self.remote = self.remote, False
        self.came, self.coming = self.coming, ()

    def seen_by(self, wait: int) -> None:
        """Note that a wait has seen the end of the last phase."""
        if wait not in self.waiters:
            self.waiters = tuple(sorted((*self.waiters, wait)))

    def dies(self, gone: int) -> None:
        """End the life of the barrier."""
        self.alive = False
        self.end = gone

    def forgets(self, keep: int) -> None:
        """Forget an event that is to be taken again."""
        self.before &= keep
        self.last &= keep


@declared
class Generation:
    """The running generation of a barrier of threads: a named one, the cluster's, a grid's."""

    threads: int = same(default=0)
    count: int = same(default=0)
    before: int = mapped("facts", default=0)
    waiting: tuple[int, ...] = same(default=())
    last: int = mapped("event", default=-1)

    def begins(self, threads: int) -> None:
        """Be reached first by a statement that speaks of so many threads."""
        if self.count == 0:
            self.threads = threads

    def comes(self, agent: Agent, facts: int, *, stays: bool = True) -> None:
        """Count threads that arrive; those that stay are let go on with the others."""
        self.count += agent.kind.count
        self.before |= facts
        if stays:
            self.waiting = (*self.waiting, agent.kind.index)

    def completes(self, end: int = -1) -> None:
        """Begin the next generation; `end` is the event of the end of this one, if it has one."""
        self.last = end if end >= 0 else self.last
        self.count, self.before, self.waiting = 0, 0, ()

    def forgets(self, keep: int) -> None:
        """Forget an event that is to be taken again."""
        self.before &= keep


@declared
class Semaphore:
    """One semaphore: its value, who set it, and what that released.

    `end` is the event of the last release, `waiters` those of the waits that saw its value,
    `past` the values before with the events that ended them, `asking` the CTAs whose threads are
    all at a wait for a value yet to come, `arrived` those that an `ElectLast` has counted.  `at` is
    the iteration of the loop along which the index goes on, if it does.
    """

    value: int = same(default=0)
    owner: int = same(default=-1)
    before: int = mapped("facts", default=0)
    end: int = same(default=-1)
    site: int = left_out("the last release is for words only", default=-1)
    waiters: tuple[int, ...] = same(default=())
    past: tuple[tuple[int, int], ...] = same(default=())
    asking: tuple[tuple[int, int, int, int], ...] = same(default=())
    arrived: tuple[int, ...] = same(default=())
    at: int | None = left_out("its name in the key tells it", default=None)

    def asks(self, cta: int, value: int, site: int, k: int) -> None:
        """Let a CTA wait for a value."""
        self.asking = (*self.asking, (cta, value, site, k))

    def serves(self, asked: tuple[int, int, int, int], took: int) -> None:
        """Let a CTA that asks see the value; `took` is the event of that."""
        self.asking = tuple(one for one in self.asking if one != asked)
        self.waiters = (*self.waiters, took)

    def releases(self, value: int, owner: int, covered: int, end: int, site: int) -> None:
        """Give the value to others, with what precedes that."""
        self.past = (*self.past, (self.value, end))
        self.value, self.owner, self.before = value, owner, covered
        self.end, self.site, self.waiters = end, site, ()

    def counts(self, cta: int, many: int, facts: int, site: int) -> None:
        """Count a CTA out of so many that arrive, which release what they know."""
        self.arrived = (*self.arrived, cta)
        self.value, self.site = len(self.arrived) % many, site
        self.before |= facts

    def elects(self, cta: int, site: int, k: int) -> None:
        """Let the last-arriving CTA wait for the others."""
        self.asking = ((cta, 0, site, k),)

    def completes(self) -> None:
        """Let nobody ask any more."""
        self.asking = ()

    def forgets(self, keep: int) -> None:
        """Forget an event that is to be taken again."""
        self.before &= keep


@declared
class State:
    """A state, and the bookkeeping of its events.

    `products` has what preceded the latest products of a warpgroup, by warpgroup and age.
    """

    agents: list[Agent] = derived("threads", parts=list)
    phases: dict[Where, Phase] = derived("phases", factory=dict, parts=dict)
    barriers: dict[tuple[int, int], Generation] = derived("barriers", factory=dict, parts=dict)
    products: dict[tuple[tuple[int, int], int], int] = derived("products", factory=dict)
    memory: dict[Where, tuple[Entry, ...]] = derived("memory", factory=dict)
    valid: dict[Where, bool] = derived("valid", factory=dict)
    flying: dict[int, tuple[int, int]] = mapped("event_set", factory=dict)
    ranges: dict[Unknown, Range] = derived("counts", factory=dict)
    chosen: dict[Expr, bool] = mapped("chosen", factory=dict)
    when: dict[int, tuple[int, int]] = left_out(
        "where events come from is for words only", factory=dict
    )
    used: int = left_out("what there is to forget changes no answer", default=0)
    live: int = derived("known_to_everybody", default=0)
    most: int = left_out("the trips of a finding are for words only", default=0)
    semaphores: dict[tuple[str, Expr], Semaphore] = derived("semaphores", factory=dict, parts=dict)
    places: dict[int, tuple[int, ...]] = derived("places", factory=dict)
    farthest: dict[Where, tuple[int, ...]] = derived("farthest", factory=dict)
    put: dict[Where, tuple[int, ...]] = derived("put", factory=dict)
    lacking: int = left_out("it tells only in which words a race is told", default=0)
    lead: int = left_out("it follows from the counts", default=0)

    def copy(self) -> State:
        """Return a state that goes its own way."""
        return copied(self)

    @property
    def over(self) -> bool:
        """Whether all threads are done."""
        return all(a.done for a in self.agents)

    @property
    def shown(self) -> int:
        """The largest count that has been decided on: the trips that show what the state shows."""
        return max((self.most, *(known.low for known in self.ranges.values())))

    def at_gate(self) -> list[Agent]:
        """Return the threads that go on next: those at the first gate, if any is closed."""
        first = min((a.gate for a in self.agents if a.gate), default=None)
        return [a for a in self.agents if a.gate and a.gate == first]

    def pass_gate(self) -> None:
        """Let the threads at the first gate go on."""
        for a in self.at_gate():
            a.gate = ()

    def mate(self, a: Agent) -> Agent:
        """Return the other lanes of the same warps."""
        return self.agents[a.kind.index ^ 1]

    def known_in(self, cta: int) -> int:
        """Return what some thread of a CTA knows."""
        known = 0
        for a in self.agents:
            if a.kind.cta == cta:
                known |= a.mine
        return known

    def known_together(self, agents: Iterable[int]) -> int:
        """Return what several kinds of threads know together."""
        known = 0
        for index in agents:
            known |= self.agents[index].mine
        return known

    def known_to_all(self, agents: Iterable[Agent]) -> int:
        """Return what all threads out of some know that still have something to do."""
        known = -1
        for a in agents:
            if not a.done:
                known &= a.all
        return known

    def let_go(self, waiting: Iterable[int], facts: int) -> None:
        """Let threads go on that have waited for each other, knowing what each of them knew."""
        for index in waiting:
            self.agents[index].learns(facts)
            self.agents[index].goes_on()

    def join_warps(self, a: Agent, *, joins: bool) -> None:
        """Let all lanes of some warps go on together; if it `joins`, they know the same."""
        mate = self.mate(a)
        if joins:
            both, common = a.mine | mate.mine, a.all | mate.all
            for one in (a, mate):
                one.mine = one.warp = both
                one.all = both if len(a.kind.warps) == 1 else common
        for one in (a, mate):
            one.goes_on()

    def meet(self, threads: Iterable[int]) -> None:
        """Note that threads have met: who met a whole warpgroup is together again."""
        met = [self.agents[index] for index in threads]
        if not any(a.unmet for a in met):
            return
        lanes: dict[tuple[int, int], int] = {}
        for a in met:
            for warp in a.kind.warps:
                group = a.kind.cta, warp // 4
                lanes[group] = lanes.get(group, 0) + a.kind.lanes
        for a in met:
            if all(lanes[a.kind.cta, warp // 4] == kir.WARPGROUP for warp in a.kind.warps):
                a.unmet = False

    # --- events ---------------------------------------------------------------------------------

    def take(self, event: int, k: int, site: int) -> int:
        """Make an event new, and forget whatever was known of the last one of its place.

        It comes from iteration `k` of a statement.
        """
        facts = 0b1111 << FACTS * event
        if self.used & facts:
            keep = ~facts
            for a in self.agents:
                a.forgets(keep)
            for held in (self.phases, self.barriers, self.semaphores):
                for one in held.values():
                    one.forgets(keep)
            for key in self.products:
                self.products[key] &= keep
            self.lacking &= keep
        self.used |= facts
        self.live |= facts
        self.when[event] = k, site
        return event

    def fly(self, event: int, cta: int, site: int) -> None:
        """Note an operation of a CTA that is still in flight when its threads go on."""
        self.flying[event] = cta, site

    def lack(self, facts: int) -> None:
        """Note what a release or a wait leaves out: what other CTAs need not see."""
        self.lacking |= facts & ONES

    def sweep(self, everybody: int) -> None:
        """Find the events that somebody may still ask about.

        Parameters
        ----------
        everybody : int
            What precedes whatever any thread does next: nobody misses an event of these.
        """
        known: dict[int, int] = {}
        for a in self.agents:
            known[a.kind.cta] = known.get(a.kind.cta, 0) | a.mine
        self.flying = {e: what for e, what in self.flying.items() if not knows(known[what[0]], e)}
        live = set(self.flying)
        mask = 0
        for where, entries in self.memory.items():
            for entry in entries:
                if entry.proxy and where[0] >= 0:
                    if everybody >> FACTS * entry.event & 1:
                        continue
                    live.add(entry.event)
                    if not entry.writes:
                        mask |= 1 << FACTS * entry.event + OWN
                else:
                    mask |= 0b1111 << FACTS * entry.event
        for phase in self.phases.values():
            live.update((*phase.waiters, *phase.came, *phase.coming, *phase.announced))
            for event in (phase.end, phase.previous):
                if event >= 0 and not everybody >> FACTS * event & 1:
                    live.add(event)
            mask |= 0b11 << FACTS * phase.init
        live.update(one.last for one in self.barriers.values())
        for one in self.semaphores.values():
            live.update((one.end, *one.waiters, *(event for _, event in one.past)))
        for a in self.agents:
            live.update(a.in_flight())
        live.discard(-1)
        self.live = mask | bits(live)

    # --- memory, and what has been decided ------------------------------------------------------

    def begin_phase(self, where: Where, arrivals: int, init: int) -> None:
        """Begin the life of an mbarrier's slot."""
        self.phases[where] = Phase(arrivals, init, arrivals)

    def generation(self, key: tuple[int, int], threads: int = 0) -> Generation:
        """Return the running generation of a barrier of threads."""
        return self.barriers.setdefault(key, Generation(threads))

    def begin_semaphore(self, key: tuple[str, Expr], at: int | None) -> None:
        """Begin to follow a semaphore, of an iteration if its index goes on along a loop."""
        self.semaphores[key] = Semaphore(at=at)

    def drop_semaphore(self, key: tuple[str, Expr]) -> None:
        """Forget a semaphore that nobody comes to any more."""
        del self.semaphores[key]

    def let_cluster_go(self, key: tuple[int, int], before: int, last: int) -> None:
        """Let threads see a generation that is over, with what came before its end."""
        self.barriers[key] = Generation(before=before, last=last)

    def keep(self, where: Where, entries: tuple[Entry, ...]) -> None:
        """Keep these accesses of a piece of memory, and no others."""
        self.memory[where] = entries

    def hold(self, where: Where, *, valid: bool) -> None:
        """Let a piece of memory hold what was written as its own, or not."""
        self.valid[where] = valid

    def put_down(self, event: int, place: tuple[int, ...]) -> None:
        """Note at which place of a rolling box an access was."""
        self.places[event] = place

    def roll(self, where: Where, place: tuple[int, ...], *, writes: bool) -> None:
        """Note where a rolling box is accessed."""
        self.farthest[where] = max(self.farthest.get(where, place), place)
        if writes:
            self.put[where] = place

    def note_product(self, group: tuple[int, int], ages: int, facts: int) -> None:
        """Put down what has preceded the latest product of a warpgroup, and what preceded that."""
        for age in range(ages - 1, 0, -1):
            if (group, age - 1) in self.products:
                self.products[group, age] = self.products[group, age - 1]
        self.products[group, 0] = self.products.get((group, 1), 0) | facts

    def resolve_products(self, group: tuple[int, int], ages: range, known: int) -> None:
        """Forget of the products of a warpgroup what all its threads know."""
        for age in ages:
            if (group, age) in self.products:
                self.products[group, age] &= ~known

    def serving(self, group: tuple[int, int]) -> State:
        """Return the state in which a warpgroup, by CTA and number, is given registers first."""
        other = self.copy()
        for a in other.agents:
            a.first = a.first or group in {(a.kind.cta, warp // 4) for warp in a.kind.warps}
        return other

    def decided(self, unknown: Unknown, known: Range) -> State:
        """Return the state in which so much is decided about a count."""
        other = self.copy()
        other.ranges[unknown] = known
        return other

    def answered(self, test: Expr, *, answer: bool) -> State:
        """Return the state in which a condition is decided."""
        other = self.copy()
        other.chosen[test] = answer
        return other

    def forget_count(self, unknown: Unknown) -> None:
        """Drop a count that nobody compares with again."""
        self.most = max(self.most, self.ranges[unknown].low)
        del self.ranges[unknown]

    def drop_count(self, unknown: Unknown) -> None:
        """Drop a count whose loop is over for all who run it apart."""
        del self.ranges[unknown]

    def leads_by(self, rounds: int) -> None:
        """Note by how many rounds threads are ahead of others at most."""
        self.lead = rounds

    def part(self, use: Unknown, theirs: Unknown, depth: int, *, runs: bool) -> None:
        """Let one use of a count go its own way; what remains of the other is that it is long."""
        if runs:
            self.ranges[theirs] = self.ranges.pop(use, Range(depth))
            for a in self.agents:
                a.loops = tuple(
                    loop._replace(unknown=theirs) if loop.unknown == use else loop
                    for loop in a.loops
                )
        self.ranges[use] = Range(depth)
