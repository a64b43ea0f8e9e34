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

Two states are compared by their keys and by what is known in them, so a field that is missing there
would be a false proof.  Hence each field says what it is: `facts` that are known, the `same` in the
key, `mapped` by the canonical form, `derived` by it from the whole object, or `left_out`, and why.
Copies, keys, what is known and what is forgotten with an event follow from that; a field that says
nothing is refused when its class is made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import MISSING, dataclass, field, fields
from itertools import chain
from typing import Any, NamedTuple, TypeVar, dataclass_transform

from fuser.expr import Expr
from fuser.kernel import ir as kir
from oracles.prover.arithmetic import UnsupportedError
from oracles.prover.sites import Threads as Kind

# --- how fields are copied and compared -----------------------------------------------------------


Part = TypeVar("Part")
_COPIES: dict[type, Callable[[Any], Any]] = {}
_KEYS: dict[type, Callable[[Any, object], tuple[object, ...]]] = {}
_KNOWN: dict[type, Callable[[Any, int], tuple[int, ...]]] = {}
_TAKES: dict[type, Callable[[Any, Iterator[tuple[int, int]]], None]] = {}
_KEEPS: dict[type, Callable[[Iterable[Any], int], None]] = {}


def facts(*, default: Any, published: bool = False, exact: bool = False) -> Any:
    """Declare a field that is a set of facts: what is known, which may be less in a like state.

    Of what is `published` it matters that it is told, even where everybody knows it; what is
    `exact` may not be less, and is in the key.
    """
    known = "" if exact else "it.{0}" if published else "it.{0} | told"
    key = "form.open(it.{0})" if exact else ""
    return _field(key, default=default, known=known, of_facts=True)


def same(*, default: Any = MISSING) -> Any:
    """Declare a field whose value stands for itself."""
    return _field("it.{0}", default=default)


def mapped(how: str, *, default: Any = MISSING, factory: Any = MISSING) -> Any:
    """Declare a field whose value a method of the canonical form maps."""
    return _field(f"form.{how}(it.{{0}})", default=default, factory=factory)


def derived(
    how: str, *, default: Any = MISSING, factory: Any = MISSING, parts: type | None = None
) -> Any:
    """Declare a field that a method of the canonical form works out from the whole object.

    `parts` says that it is a list or a dict of declared objects, which are copied, too.
    """
    return _field(f"form.{how}(it)", default=default, factory=factory, parts=parts)


def left_out(why: str, *, default: Any = MISSING, factory: Any = MISSING) -> Any:
    """Declare a field that is not in the key, for a reason."""
    assert why, "a field is left out for a reason"
    return _field("", default=default, factory=factory)


def _field(
    key: str,
    *,
    default: Any = MISSING,
    factory: Any = MISSING,
    parts: type | None = None,
    known: str = "",
    of_facts: bool = False,
) -> Any:
    copy = "it.{0}" if factory is MISSING else "dict(it.{0})"
    if parts is list:
        copy = "[copied(one) for one in it.{0}]"
    elif parts is dict:
        copy = "{{key: copied(one) for key, one in it.{0}.items()}}"
    role = {"key": key, "copy": copy, "known": known, "facts": of_facts}
    return field(default=default, default_factory=factory, metadata=role)


@dataclass_transform(field_specifiers=(facts, same, mapped, derived, left_out))
def declared(cls: type[Part]) -> type[Part]:
    """Make a dataclass of a class, and copies and keys from what its fields declare.

    Raises
    ------
    TypeError
        If a field declares nothing.
    """
    made: Any = dataclass(slots=True, eq=False)(cls)
    every = fields(made)
    for one in every:
        if "key" not in one.metadata:
            says = f"{cls.__name__}.{one.name} does not say what stands for it in a key"
            ways = "facts(), same(), mapped(), derived() or left_out(why)"
            raise TypeError(f"{says}: declare it {ways}")
    copies = ", ".join(one.metadata["copy"].format(one.name) for one in every)
    keys = "".join(f"{k.format(one.name)}, " for one in every if (k := one.metadata["key"]))
    _COPIES[made] = eval(f"lambda it: new({copies})", {"new": made, "copied": copied})
    _KEYS[made] = eval(f"lambda it, form: ({keys})")
    of_facts = [one for one in every if one.metadata["facts"]]
    compared = [one for one in of_facts if one.metadata["known"]]
    known = "".join(f"{one.metadata['known'].format(one.name)}, " for one in compared)
    _KNOWN[made] = eval(f"lambda it, told: ({known})")
    held = "".join(f"\n  if it.{one.name}: it.{one.name} &= keep" for one in of_facts)
    takes = "".join(
        f"\n keep, more = next(known)\n it.{one.name} = it.{one.name} & keep | more"
        for one in compared
    )
    space: dict[str, Any] = {}
    exec(f"def keep_only(every, keep):\n for it in every:{held or ' pass'}", space)
    exec(f"def takes_over(it, known):{takes or ' pass'}", space)
    _KEEPS[made], _TAKES[made] = space["keep_only"], space["takes_over"]
    result: type[Part] = made
    return result


def copied(it: Part) -> Part:
    """Return a copy that goes its own way."""
    copy: Part = _COPIES[type(it)](it)
    return copy


def keep_only(cls: type[Part], every: Iterable[Part], keep: int) -> None:
    """Have objects forget all facts but some, such as those of an event to be taken again."""
    _KEEPS[cls](every, keep)


def key_of(it: object, form: object) -> tuple[object, ...]:
    """Return what stands for an object in the key of its state, as a canonical form maps it."""
    return _KEYS[type(it)](it, form)


def known_by(it: object, told: int) -> tuple[int, ...]:
    """Return the sets of facts of an object; what those are `told` who learn from it is no news."""
    return _KNOWN[type(it)](it, told)


def takes_over(it: object, known: Iterator[tuple[int, int]]) -> None:
    """Have an object keep of its sets of facts, in their order, some, and know others."""
    _TAKES[type(it)](it, known)


# --- facts ----------------------------------------------------------------------------------------


FACTS = 4
ANY = (1 << FACTS) - 1
SHARED, GLOBAL, OWN = 1, 2, 3
"""Facts of an event beyond that it happened (which is 0)."""
ACQUIRED, RELEASED = GLOBAL, OWN
"""Facts of the write of a tensor map, of which it has no others."""
MAPS = "map "
"""Begins the names of tensor maps as pieces of memory, which no buffer has."""
ONES = sum(1 << FACTS * i for i in range(4096))
"""That an event happened, for every event there may be."""
EVERY_FACT = ONES * ANY
"""All facts of those events: without some it is a mask, and a faster one than a negative number."""

Where = tuple[int, str, int]
"""A piece of memory: CTA, buffer and slot; or -1, tensor and region."""
Group = tuple[tuple[tuple[int, ...], str, str], ...]
"""Operations in flight: their ends, and the registers of a wgmma, those of its result first."""


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


class Place(NamedTuple):
    """What an event is: its sort, the slot and the parity of the phase that it is of, and the rest.

    A parity of -1 is none.
    """

    sort: str
    rest: tuple[object, ...] = ()
    where: Where | None = None
    parity: int = -1


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


class Told(NamedTuple):
    """What a tensor map was made to say: by which statement, with which values of its variables."""

    site: int
    says: tuple[Expr, ...]
    values: tuple[tuple[str, int], ...]


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
    """A loop that threads run: its number, length if unknown, index, and which of its body."""

    number: int
    unknown: Unknown | None
    name: str
    ordinal: int


@declared
class Agent:
    """Threads of one kind on their way.

    `clean` are the fragments of products that need no fence, as a set of their numbers; they have
    `arrived` at the cluster's barrier, and `met` the others there, until they wait.
    """

    kind: Kind = left_out("the place among the agents tells it")
    at: int = same()
    env: dict[str, int] = derived("environment", factory=dict)
    mine: int = facts(default=0)
    warp: int = facts(default=0)
    all: int = facts(default=0)
    done: bool = same(default=False)
    waiting: str = same(default="")
    gate: tuple[int, ...] | None = mapped("closed", default=None)
    loops: tuple[Loop, ...] = derived("running", default=())
    passed: tuple[tuple[int, int], ...] = derived("passed", default=())
    flights: dict[str, tuple[Group, ...]] = mapped("flights", factory=dict)
    clean: int = same(default=0)
    own: int = facts(default=0)
    fenced: int = facts(default=0, published=True)
    registers: int = same(default=0)
    arrived: bool = same(default=False)
    met: bool = same(default=False)
    unmet: bool = same(default=False)
    first: bool = same(default=False)
    cumulative: int = facts(default=0)
    copied: int = facts(default=0)

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

    def acquires(self, of: int) -> None:
        """Let copies see those writes of a tensor map, out of some, that are known as released."""
        self.mine |= (self.mine >> RELEASED & of) << ACQUIRED
        self.warp |= (self.warp >> RELEASED & of) << ACQUIRED
        self.all |= (self.all >> RELEASED & of) << ACQUIRED

    def fences_inits(self, inits: int) -> None:
        """Make barriers visible to other CTAs that these threads have initialised."""
        self.mine |= inits
        if self.kind.alone:
            self.learns(inits)
        self.fenced |= inits | inits >> SHARED

    # --- where they are -------------------------------------------------------------------------

    def stops(self, waiting: str) -> None:
        """Stand still until somebody lets these threads go on."""
        self.waiting = waiting

    def goes_on(self) -> None:
        """Have executed a statement."""
        self.waiting = ""
        self.at += 1

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
        """Go back to the head of the innermost loop.

        Rounds of a loop of unknown length tell uses of counts in it apart; those of a loop of known
        length do not, so that each counts as another use.
        """
        self.env[self.loops[-1].name] += 1
        if self.loops[-1].unknown is not None:
            depth = len(self.rounds)
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

    def groups(self, kind: kir.AsyncKind) -> tuple[Group, ...]:
        """Return the groups in flight, the oldest first and the open one last."""
        return self.flights.get(kind.value, ((),))

    def starts(
        self, kind: kir.AsyncKind, ends: tuple[int, ...], result: str = "", source: str = ""
    ) -> None:
        """Add an operation to the open group: its ends, and the registers that it uses."""
        *closed, now = self.groups(kind)
        self.flights[kind.value] = (*closed, (*now, (ends, result, source)))

    def drops_copies(self, *, keep: bool) -> None:
        """Leave copies in the open group that are not known to be done, if that can matter.

        In any case what arrives later waits for them, too (`copied`).
        """
        *closed, now = self.groups(kir.AsyncKind.CP_ASYNC)
        self.copied |= bits(one[0][0] for one in now)
        still = tuple(one for one in now if keep and not knows(self.mine, one[0][0]))
        self.flights[kir.AsyncKind.CP_ASYNC.value] = (*closed, still)

    def commits(self, kind: kir.AsyncKind) -> None:
        """Close the open group."""
        self.flights[kind.value] = (*_trimmed(self.groups(kind)), ())

    def awaits(self, kind: kir.AsyncKind, keep: int, *, read_only: bool) -> list[int]:
        """Be through with all groups but the latest; return the ends of what was in them."""
        *closed, now = self.groups(kind)
        done = max(0, len(closed) - keep)
        ends = [one for group in closed[:done] for one, _, _ in group]
        left: tuple[Group, ...] = ()
        if read_only and kind is kir.AsyncKind.BULK:
            writes = (
                tuple(one[1] for one, _, _ in group if one[1] >= 0) for group in closed[:done]
            )
            left = _trimmed(tuple(tuple(((-1, w), "", "") for w in group) for group in writes))
            ends = [one[:1] for one in ends]
        self.flights[kind.value] = (*left, *closed[done:], now)
        return [end for one in ends for end in one if end >= 0]

    def in_flight(self) -> Iterator[int]:
        """Yield the ends of all operations in groups of these threads."""
        for groups in self.flights.values():
            for group in groups:
                for ends, _, _ in group:
                    yield from ends

    def restricts_fences_of(self, lead: Agent) -> None:
        """Make the lead forget fences of readers that these lanes, who issue it too, have not."""
        fenced = lead.mine >> SHARED & ONES
        own, others = lead.mine >> OWN & ONES, self.mine >> SHARED & ONES
        keep = ~((fenced & ~own & ~others) << SHARED)
        lead.mine, lead.warp, lead.all = lead.mine & keep, lead.warp & keep, lead.all & keep

    def takes_registers(self, registers: int) -> None:
        """Have so many registers from now on; the warpgroup has to meet before it asks again."""
        self.registers, self.unmet, self.first = registers, True, False


def _trimmed(groups: tuple[Group, ...]) -> tuple[Group, ...]:
    """Drop empty groups that are older than any other: all but the latest say the same without."""
    first = next((i for i, group in enumerate(groups) if group), len(groups))
    return groups[first:]


@declared
class Phase:
    """The running phase of one slot of an mbarrier; `mbarriers` alone changes it.

    `earlier`, `came` and `coming` are the single arrivals and bytes of the last phase but one, of
    the last one and of this one, where they are followed; `announced` is what made this one wait
    for more, without an arrival after.  `far` and `last_far` are what other CTAs have told,
    beside `before` and `last`: who waits at the scope of the cluster learns that, too.
    """

    arrivals: int = left_out("every phase of the barrier expects as many")
    init: int = same()
    pending: int = same()
    parity: int = mapped("parity", default=0)
    count: int = left_out("the number of a phase is for words only", default=0)
    nbytes: int = same(default=0)
    before: int = facts(default=0)
    last: int = facts(default=0)
    end: int = left_out("`Form.ends` has it", default=-1)
    previous: int = left_out("`Form.ends` has it", default=-1)
    waiters: tuple[int, ...] = mapped("event_set", default=())
    far: int = facts(default=0)
    last_far: int = facts(default=0)
    site: int = left_out("who came last is for words only", default=-1)
    alive: bool = same(default=True)
    earlier: tuple[int, ...] = left_out("`Form.ends` has it", default=())
    came: tuple[int, ...] = left_out("`Form.ends` has it", default=())
    coming: tuple[int, ...] = mapped("event_set", default=())
    announced: tuple[int, ...] = mapped("event_set", default=())

    def comes(self, event: int) -> None:
        """Note a single arrival, or the end of a copy."""
        self.coming = tuple(sorted({*self.coming, event}))

    def ended(self, end: int, came: tuple[int, ...], *, last: bool) -> None:
        """Take an event for the end of the last phase, or the one before, and what came in it."""
        if last:
            self.end, self.came = end, came
        else:
            self.previous, self.earlier = end, came

    def completes(self, end: int) -> None:
        """Begin the next phase; `end` is the event of the end of this one."""
        self.previous, self.end = self.end, end
        self.last |= self.before | bit(end)
        self.last_far |= self.far
        self.count += 1
        self.parity ^= 1
        self.pending = self.arrivals
        self.before = self.far = 0
        self.waiters = self.announced = ()
        self.earlier, self.came, self.coming = self.came, self.coming, ()


@declared
class Generation:
    """The running generation of a barrier of threads: a named one, the cluster's, a grid's."""

    threads: int = same(default=0)
    count: int = same(default=0)
    before: int = facts(default=0)
    waiting: tuple[int, ...] = same(default=())
    last: int = mapped("event", default=-1)

    def begins(self, threads: int) -> None:
        """Be reached first by a statement for so many threads."""
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


@declared
class Semaphore:
    """One semaphore: its value, who set it, and what that released; `semaphores` alone changes it.

    `end` is the event of the release that gave the value, `again` that of the last one that gave
    it once more, `waiters` those of the waits that saw it, `past` the values before with the events
    that ended them, `asking` the CTAs whose threads are all at a wait for a value yet to come,
    `arrived` those that a `LastArriving` has counted.  `at` is the iteration of the loop along
    which the index goes on, if it does.  The less it releases, the more may give its value again.
    """

    value: int = same(default=0)
    owner: int = same(default=-1)
    before: int = facts(default=0, exact=True)
    end: int = same(default=-1)
    again: int = same(default=-1)
    site: int = left_out("the last release is for words only", default=-1)
    waiters: tuple[int, ...] = same(default=())
    past: tuple[tuple[int, int], ...] = same(default=())
    asking: tuple[tuple[int, int, int, int], ...] = same(default=())
    arrived: tuple[int, ...] = same(default=())
    at: int | None = left_out("its name in the key tells it", default=None)

    def forgets(self, over: Callable[[int], bool]) -> None:
        """Forget the values of the past whose end nobody asks about any more."""
        self.past = tuple(one for one in self.past if not over(one[1]))

    def releases(self, value: int, owner: int, covered: int, end: int, site: int) -> None:
        """Give the value to others, with what precedes that.

        Who waits for a value that is given once more may see any of the releases that gave it: it
        learns what all of them cover, and that the first is over.
        """
        self.site = site
        if value == self.value:
            self.again, self.before = end, self.before & covered
            return
        self.past = (*self.past, (self.value, end))
        self.value, self.owner, self.before = value, owner, covered
        self.end, self.again, self.waiters = end, -1, ()


@declared
class Product:
    """What preceded one of the latest products of a warpgroup."""

    before: int = facts(default=0)


@declared
class State:
    """A state, and the bookkeeping of its events.

    `products` has what preceded the latest products of a warpgroup, by warpgroup and age; `told`
    what each tensor map says that was written; `ended` is the event that the launches before this
    one have ended, once a thread has waited for it, and `begun` that all CTAs of the cluster have
    begun, once they have met.
    """

    agents: list[Agent] = derived("threads", parts=list)
    phases: dict[Where, Phase] = derived("phases", factory=dict, parts=dict)
    barriers: dict[tuple[int, int], Generation] = derived("barriers", factory=dict, parts=dict)
    products: dict[tuple[tuple[int, int], int], Product] = derived(
        "products", factory=dict, parts=dict
    )
    memory: dict[Where, tuple[Entry, ...]] = derived("memory", factory=dict)
    valid: dict[Where, bool] = derived("valid", factory=dict)
    flying: dict[int, tuple[int, int]] = mapped("event_set", factory=dict)
    ranges: dict[Unknown, Range] = derived("counts", factory=dict)
    chosen: dict[Expr, bool] = mapped("chosen", factory=dict)
    when: dict[int, tuple[int, int]] = left_out(
        "where events come from is for words only", factory=dict
    )
    used: int = left_out("what there is to forget changes no answer", default=0)
    live: int = left_out("it follows from all that may be asked about", default=0)
    most: int = left_out("the trips of a finding are for words only", default=0)
    semaphores: dict[tuple[str, Expr], Semaphore] = derived("semaphores", factory=dict, parts=dict)
    places: dict[int, tuple[int, ...]] = derived("places", factory=dict)
    farthest: dict[Where, tuple[int, ...]] = derived("farthest", factory=dict)
    put: dict[Where, tuple[int, ...]] = derived("put", factory=dict)
    told: dict[Where, Told] = derived("told", factory=dict)
    lacking: int = left_out("it only names the kind of a race", default=0)
    lead: int = left_out("it follows from the counts", default=0)
    path: Any = left_out("how a state was reached tells nothing of what follows", default=None)
    ended: int = same(default=-1)
    begun: int = same(default=-1)
    origin: int = left_out("which state it was reached from tells nothing either", default=-1)

    @property
    def past(self) -> int:
        """That the launches before this one have ended, as a set of facts."""
        return bit(self.ended) if self.ended >= 0 else 0

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
        return self.known_together(a.kind.index for a in self.agents if a.kind.cta == cta)

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
            keep = EVERY_FACT ^ facts if self.used <= EVERY_FACT else ~facts
            keep_only(Phase, self.phases.values(), keep)
            keep_only(Generation, self.barriers.values(), keep)
            keep_only(Semaphore, self.semaphores.values(), keep)
            keep_only(Agent, self.agents, keep)
            keep_only(Product, self.products.values(), keep)
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

    def lands(self, cta: int, facts: int) -> None:
        """Note that operations on a CTA are over, whoever may see what they did."""
        self.flying = {
            event: what
            for event, what in self.flying.items()
            if what[0] != cta or not knows(facts, event)
        }

    def sweep(self, everybody: int, ends: Iterable[Iterable[int]]) -> None:
        """Find the events that somebody may still ask about, beside the `ends` of phases.

        What everybody knows precedes whatever any thread does next: nobody misses that.
        """
        known: dict[int, int] = {}
        for a in self.agents:
            known[a.kind.cta] = known.get(a.kind.cta, 0) | a.mine
        self.flying = {e: what for e, what in self.flying.items() if not knows(known[what[0]], e)}
        live = {*self.flying, *chain.from_iterable(ends)}
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
            live.update((*phase.waiters, *phase.coming, *phase.announced))
            mask |= 0b11 << FACTS * phase.init
        live.update(one.last for one in self.barriers.values())
        for one in self.semaphores.values():
            live.update((one.end, one.again, *one.waiters, *(e for _, e in one.past)))
        for a in self.agents:
            live.update(a.in_flight())
        live |= {self.ended, self.begun}
        live.discard(-1)
        self.live = mask | bits(live)

    def generation(self, key: tuple[int, int], threads: int = 0) -> Generation:
        """Return the running generation of a barrier of threads."""
        return self.barriers.setdefault(key, Generation(threads))

    def notes(self, note: object) -> None:
        """Add to what has been evaluated on the way here."""
        self.path = self.path, note

    def sets_out(self, origin: int) -> None:
        """Begin another way, from a state that is kept."""
        self.path, self.origin = None, origin

    def serving(self, group: tuple[int, int]) -> State:
        """Return the state in which a warpgroup, by CTA and number, is given registers first."""
        other = self.copy()
        for a in other.agents:
            a.first = a.first or group in {(a.kind.cta, warp // 4) for warp in a.kind.warps}
        return other

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


# --- the numbers of events ------------------------------------------------------------------------


ACCESSES = ("access", "engine")
"""Sorts of events that are accesses of memory."""
COPIES = 64
"""Operations of one place that may be distinguished at a time; more is not followed."""


class Events:
    """The numbers of events by their places; those of all slots of a ring are given together.

    `accesses` and `inits` are the facts about memory accesses, and that barriers began to live;
    `within` has those of the shared memory of a CTA, `maps` the writes of each tensor map.
    """

    def __init__(self, orbit: Callable[[Place], Iterable[Place]]) -> None:
        self.accesses = 0
        self.inits = 0
        self.within: dict[int, int] = {}
        self.maps: dict[Where, int] = {}
        self.numbers: dict[Place, int] = {}
        self._orbit = orbit

    def number(self, place: Place) -> int:
        """Return the number of the event of a place."""
        number = self.numbers.get(place)
        if number is not None:
            return number
        for one in self._orbit(place):
            number = self.numbers[one] = len(self.numbers)
            if place.sort in ACCESSES:
                facts = ANY << FACTS * number
                self.accesses |= facts
                of_map = one.where is not None and one.where[1].startswith(MAPS)
                if one.where is not None and of_map and place.sort == "access":
                    self.maps[one.where] = self.maps.get(one.where, 0) | bit(number)
                elif one.where is not None and not of_map:
                    cta = one.where[0]
                    self.within[cta] = self.within.get(cta, 0) | facts
            elif place.sort == "init":
                self.inits |= bit(number)
        return self.numbers[place]

    @property
    def writes_of_maps(self) -> int:
        """The writes of all tensor maps."""
        return sum(self.maps.values())

    def agent(self, number: int) -> int:
        """Return which threads an event of threads is of, for words."""
        places = (place for place, known in self.numbers.items() if known == number)
        _, agent = next(places).rest
        assert isinstance(agent, int), "the statement and the threads"
        return agent

    def engine(self, state: State, a: Agent, where: Where, site: int) -> int:
        """Return the number of an operation in flight, the first that is not in use."""
        busy = {entry.event for entry in state.memory.get(where, ())} | {*a.in_flight()}
        for copy in range(COPIES):
            number = self.number(Place("engine", (site, a.kind.index, copy), where))
            if number in busy:
                continue
            cta, _ = state.flying.get(number, (-1, 0))
            if cta < 0 or knows(state.known_in(cta), number):
                return number
        raise UnsupportedError(f"more than {COPIES} copies in flight of one statement")
