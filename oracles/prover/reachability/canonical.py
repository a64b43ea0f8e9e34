"""The canonical form of a state: equal, with what is known, for two that have the same future.

Counters of loops of unknown length are relative to the slowest thread in the loop, and that one's
modulo what its value is used for; so are the counts that end them.  Whatever nobody can ask about
any more is left out, and so is what everybody knows: an event that precedes whatever anybody does
next is never missed again.

Notes
-----
What is left out has to follow from what is left in, for whatever is asked later:

* Threads that have executed their last statement ask nothing and tell nobody: what they know is
  left out, and they count for none of what *everybody* knows.  What is in flight at the end has
  been compared with what they know before (`State.sweep`).
* What is known is compared beside the form (`Form.known`): a state that knows more than another one
  can do all that this one can, since every rule asks only whether something is known.  So of two
  that are equal otherwise only what both know is kept (`Form.meet`), and followed instead of
  either.  What everybody knows, or those know who would be told, counts as known.
* The end of a phase is asked about by who waits for the next or arrives in it.  If everybody knows
  it, the answer is yes until the event is taken again, by which time it is the end of a phase no
  more; so it is as if there were none.
* A count is known in each of its uses by `Scene.known_of`: what is known of all uses is in the
  form for each loop that runs.  Otherwise two rounds of a loop of at least five were one.
* A count may be known beyond what it is compared with, or not as far: by how much is in the form
  (`Abstraction.margins`), or rounds in which the comparison is settled were one with those in
  which it is not.
* Threads that begin a loop that others have run through, or are ahead in, go through all of its
  rounds yet: those are in the form too (`Abstraction.leads`).
* Threads that wait for the length of another's loop, to add it to a position, are as far as the
  rounds gone through so far (`_ahead`): position plus rounds, and rounds still to go, decide what
  the sum will be.

Counts that no thread knows tell states apart only by what is compared with them.  A count that a
loop still runs is relative to the loop's rounds, and so is what is known of it; that is enough for
the loop's own test.  Whoever compares the count with anything else sees more: with a number, that
is a threshold, below which what is known counts as it is and beyond which it counts no more
(`Abstraction.limit`); with a variable that goes on and on, the distance counts
(`Abstraction.margins`).  Nothing tells how long a loop is that a role has run through, or runs far
ahead in, before another begins, but the threads in it, and its rounds repeat; so the rounds of
whoever comes later would be followed for the first few lengths only.  Up to a few rounds the lead
is part of a state (`Abstraction.leads`); beyond, the late ones have a length of their own, of which
nothing is known but that it is not small.  That is more than a launch can show, as with two loops
in a row (`World.few`).

By the rotation symmetry states that differ only by where in its rings a kernel is are one.  If
every thread uses the slots of a ring at positions `v + c` (slot `(v + c) % S`, parity
`((v + c) // S + d) % 2`; c may have a prolog's counter in it, which is no position), then moving
all positions by `r` and all slots with them changes nothing but names: slot `s` becomes slot
`(s - r) % S`, and the parity of its phases is another one where that passes the ring's end.  What a
later check may depend on is asked of every instruction that some thread may still reach: a slot
or a barrier of a ring is named by its position, and the parity by the same one; a position becomes
another only by adding what is no position; a position is compared only with the unknown length of
the loop that it counts, and such counts are relative in a canonical form anyway.  A ring shares no
bytes.  One instruction that does anything else (a position that begins again at 0, slot 0 by its
number, `k % 3`, a box of shared global memory) holds back the rotation until no thread can come
there any more.  Rings whose positions never stand together in one expression move independently
(`Orbit`): where one is, the other does not see.  If slots are used by their numbers, and `v % S`
says by whom, the same holds of moves by multiples of S: slots stay, parities go on (`_by_parity`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import chain, product
from math import lcm, prod
from operator import and_
from typing import NamedTuple

from fuser.expr import Expr, Kind, Op, Var, substitute, variables
from fuser.kernel import ir as kir
from oracles.prover import sites
from oracles.prover.arithmetic import linear, poly
from oracles.prover.reachability.code import (
    AtLeast,
    Branch,
    Code,
    Condition,
    Do,
    Enter,
    Instruction,
    Program,
    Set,
    comparisons_of,
    leaves,
    reaches,
)
from oracles.prover.reachability.state import (
    ACCESSES,
    FACTS,
    Agent,
    Entry,
    Group,
    Place,
    State,
    Unknown,
    Where,
    bits,
    key_of,
    known_by,
    knows,
    takes_over,
)
from oracles.prover.reachability.statements import group_of_warps
from oracles.prover.reachability.step import NOBODY, Scene
from oracles.prover.reachability.sync import SLOTS, forget
from oracles.prover.reachability.world import World, map_name

_KINDS, _NONE = tuple(kind.value for kind in kir.AsyncKind), ((),)
"""The kinds of groups, and that there are none but the open one."""


Known = tuple[int, ...]
"""Sets of facts, of one part of a state after the other; a state that knows more has more."""


class Form:
    """What stands for each field of a state; its methods are what the fields declare.

    `key` is equal for states that differ in what is known only, and `known` is that.  What is over
    is forgotten in passing.
    """

    def __init__(self, scene: Scene, abstraction: Abstraction) -> None:
        world, state = scene.world, scene.state
        self._scene, self._abstraction, self._world = scene, abstraction, world
        self._everybody = state.known_to_all(state.agents)
        self._together: dict[tuple[int, ...], int] = {}
        asked = dict(self._asked_ends())
        state.sweep(self._everybody, asked.values())
        self._asked = state.live & ~self._everybody
        self._bases: dict[Unknown, int] = {}
        for a in state.agents:
            for loop in a.loops:
                if loop.unknown is not None:
                    value = a.env[loop.name]
                    self._bases[loop.unknown] = min(self._bases.get(loop.unknown, value), value)
        abstraction.forget(state)
        self._leads = abstraction.leads(state, self._bases)
        self._ahead = {a.kind.index: self._far_ahead(a) for a in state.agents if not a.done}
        still = world.pinned or state.semaphores
        by = () if still else abstraction.rotation.by(world.code, state.agents, self._ahead)
        self._to = abstraction.rotation.rotated(scene.events.numbers, by)
        forget(scene)
        layout = self._layout = world.layout
        names = {name for where in state.farthest for name in layout.moved_by(where)}
        names |= {world.walk} if world.walk is not None and world.together else set()
        self._floors = {name: scene.floor(name) for name in sorted(names)}
        self._where: Where = (0, "", 0)
        self.event = self._to.event
        self._state, self._live = state, self._to.bits(state.live)
        self._ends = [
            self._end(asked.get((where, which)))
            for _, where in self._phases(state)
            for which in ("end", "previous")
        ]
        self.key = key_of(state, self)
        beyond = ~state.live
        facts = (
            self._to.bits(facts | beyond)
            for part, told in self._parts(state)
            for facts in known_by(part, told)
        )
        self.known: Known = (*facts, *self._ends)

    # --- sets of facts, and events --------------------------------------------------------------

    def knows_all(self, other: Form) -> bool:
        """Whether this state knows whatever another one of the same key does."""
        return not any(more & ~known for known, more in zip(self.known, other.known, strict=True))

    def meet(self, state: State, other: Form) -> None:
        """Have a copy of this state know only what another one of the same key does, too.

        The end of a phase that may be asked about in the other one only is known as it is there.
        From now on this is the form of that copy.
        """
        news = other._live & ~self._live
        plain = (facts for part, _ in other._parts(other._state) for facts in known_by(part, 0))
        taken = (
            (self._to.back(known & ~news), self._to.back(other._to.bits(facts) & news))
            for known, facts in zip(other.known, plain, strict=False)
        )
        for part, _ in self._parts(state):
            takes_over(part, taken)
        self._meet_ends(state, other)
        self.known = tuple(map(and_, self.known, other.known))
        self._live |= other._live

    def _meet_ends(self, state: State, other: Form) -> None:
        """Have phases end as in another state of the same key, where that may be asked about."""
        back = {to: event for event, to in self._to.moved.items()}
        both = map(and_, self._ends, other._ends)
        ends = iter(zip(self._ends, both, strict=True))
        self._ends = []
        pairs = zip(self._phases(state), other._phases(other._state), strict=True)
        for (_, here), (_, there) in pairs:
            phase, like = state.phases[here], other._state.phases[there]
            for last in (True, False):
                before, now = next(ends)
                self._ends.append(now)
                if before == now:
                    continue
                event = other.event(like.end if last else like.previous)
                events = _members(~now) if now else ()
                came = tuple(sorted(back.get(e, e) for e in events))
                phase.ended(back.get(event, event), came, last=last)

    def _parts(self, state: State) -> Iterator[tuple[object, int]]:
        """Yield what has facts, in one order, with those that are no news to who learns them.

        What a phase knows of the waits for it is asked about even where everybody knows it.
        """
        everybody = self._everybody
        for a in state.agents:
            yield a, -1 if a.done else everybody
        for _, where in self._phases(state):
            phase = state.phases[where]
            seen = everybody | self._known_by(state, self._world.waiters.get(where[:2], ()))
            yield phase, seen & ~bits(phase.waiters)
        for _, now in sorted(state.barriers.items()):
            yield now, everybody
        for (group, _), one in sorted(state.products.items()):
            seen = -1
            for a in state.agents:
                if not a.done and group_of_warps(a) == group:
                    seen &= a.all | a.cumulative
            yield one, everybody | seen

    def open(self, known: int) -> int:
        """Map what is known, as far as somebody may ask about it and not everybody knows it."""
        return self._to.bits(known & self._asked)

    def event_set(self, events: Iterable[int]) -> tuple[int, ...]:
        """Map events whose order does not matter."""
        return tuple(sorted(map(self.event, events)))

    def flights(self, flights: Mapping[str, tuple[Group, ...]]) -> object:
        """Map the groups in flight of each kind."""
        groups = tuple(flights.get(kind, _NONE) for kind in _KINDS)
        return self._nested(groups) if self._to.moved and any(map(any, groups)) else groups

    def _nested(self, it: object) -> object:
        """Map the events in tuples."""
        match it:
            case int():
                return self.event(it)
            case tuple():
                return tuple(map(self._nested, it))
            case _:
                return it

    # --- threads --------------------------------------------------------------------------------

    def threads(self, state: State) -> tuple[object, ...]:
        """Return what matters of all threads."""
        return tuple(key_of(a, self) for a in state.agents)

    def closed(self, gate: tuple[int, ...] | None) -> bool:
        """Whether threads stand at a gate."""
        return bool(gate)

    def running(self, a: Agent) -> tuple[object, ...]:
        """Return the loops that threads run, and how far counts are beyond what they compare."""
        return tuple(loop.number for loop in a.loops), self._abstraction.margins(self._scene, a)

    def passed(self, a: Agent) -> tuple[tuple[int, int], ...]:
        """Return the loops that threads are through with, as far as they can tell."""
        depth = len(a.rounds)
        return tuple(t for t in a.passed if t[0] <= depth)

    def environment(self, a: Agent) -> tuple[object, ...]:
        """Return the variables of threads, counters relative to the slowest in their loop."""
        counters: dict[str, tuple[int, int]] = {}
        for loop in a.loops:
            if loop.unknown is not None:
                base, value = self._bases[loop.unknown], a.env[loop.name]
                counters[loop.name] = self._modulo(loop.name, base), value - base
                if loop.unknown.atom in self._world.pinned:
                    counters[loop.name] = value, 0
        ahead = self._ahead.get(a.kind.index, {})
        return tuple(
            (name, counters.get(name) or (self._modulo(name, value + ahead.get(name, 0)), 0))
            for name, value in sorted(a.env.items())
        )

    def _modulo(self, name: str, value: int) -> int:
        value = self._to.position(name, value)
        threshold, period = self._world.code.cycles.get(name, (0, 1))
        return value if value < threshold else threshold + (value - threshold) % period

    def _far_ahead(self, a: Agent) -> dict[str, int]:
        """Return by how much threads that add a loop's length are ahead of what they have put down.

        They are about to execute `p = p + n` for the length n of a loop that others still run:
        nobody reads p before.
        """
        program = self._world.code.programs[a.kind.index]
        i = program[a.at] if a.at < len(program) else None
        if a.gate is not None or not isinstance(i, Set) or not i.terms:
            return {}
        if linear(i.expr)[1].get(Var(i.name)) != 1 or any(times < 0 for _, times in i.terms):
            return {}
        uses = ((self._scene.unknown_of(a, atom), times) for atom, times in i.terms)
        return {i.name: sum(times * self._bases.get(unknown, 0) for unknown, times in uses)}

    # --- barriers -------------------------------------------------------------------------------

    def phases(self, state: State) -> tuple[object, ...]:
        """Return the running phases of mbarriers that somebody uses."""
        out = []
        for at, where in self._phases(state):
            self._where = where
            out.append((at, key_of(state.phases[where], self)))
        return tuple(out)

    def _phases(self, state: State) -> list[tuple[Where, Where]]:
        """Return where those are once rings are rotated, and where now."""
        used = (where for where in state.phases if where[:2] in self._world.users)
        return sorted((self._to.where(where, "phase"), where) for where in used)

    def parity(self, parity: int) -> int:
        """Map the parity of a phase."""
        return self._to.parity(self._where, parity)

    def _asked_ends(self) -> Iterator[tuple[tuple[Where, str], tuple[int, ...]]]:
        """Yield the ends of phases that somebody may ask about, each with what came in the phase.

        That of the last one is asked about by who uses the barrier, that of the one before by who
        waits for it; of what all of them know they are told so until the event is taken again, by
        which time it is the end of a phase no more.
        """
        state, users, waiters = self._scene.state, self._world.users, self._world.waiters
        for where, phase in state.phases.items():
            for which, end, came, by in (
                ("end", phase.end, phase.came, users),
                ("previous", phase.previous, phase.earlier, waiters),
            ):
                if end >= 0 and not knows(self._known_by(state, by.get(where[:2], ())), end):
                    yield (where, which), (end, *came)

    def _known_by(self, state: State, agents: tuple[int, ...]) -> int:
        """Return what all threads out of some know, who are the same at all slots of a barrier."""
        if agents not in self._together:
            self._together[agents] = state.known_to_all(state.agents[index] for index in agents)
        return self._together[agents]

    def _end(self, asked: tuple[int, ...] | None) -> int:
        """Return how easily the end of a phase is known, as a set: it has more where less will do.

        Whoever knows all that came in the phase does; so these are left out.  It is empty where
        nothing came, and has everything where nobody asks.
        """
        if asked is None:
            return -1
        return ~sum(1 << self.event(event) for event in asked[1:]) if asked[1:] else 0

    def barriers(self, state: State) -> tuple[object, ...]:
        """Return the running generations of barriers of threads."""
        return tuple((key, key_of(one, self)) for key, one in sorted(state.barriers.items()))

    def products(self, state: State) -> tuple[object, ...]:
        """Return which products of warpgroups can still tell something."""
        return tuple(sorted(state.products))

    # --- memory ---------------------------------------------------------------------------------

    def memory(self, state: State) -> tuple[object, ...]:
        """Return the accesses that somebody may still ask about."""
        return tuple(
            sorted(
                (self._to.where(where, "access"), self._entries(where, entries))
                for where, entries in state.memory.items()
            )
        )

    def _entries(self, where: Where, entries: tuple[Entry, ...]) -> tuple[Entry, ...]:
        """Return accesses of a piece of memory: an asynchronous one is known or it is not.

        In global memory another CTA has to fence even what an engine did.
        """
        left = (e for e in entries if where[0] < 0 or not e.proxy or knows(self._asked, e.event))
        if not self._to.moved:
            return tuple(left)
        spans = self._layout.spans
        by = spans[self._to.where(where, "access")][0] - spans[where][0]
        return tuple(
            sorted(
                e._replace(event=self.event(e.event), start=e.start + by, end=e.end + by)
                for e in left
            )
        )

    def valid(self, state: State) -> tuple[object, ...]:
        """Return which pieces of memory hold what was written as theirs."""
        return tuple(sorted((self._to.where(w, "access"), v) for w, v in state.valid.items()))

    def farthest(self, state: State) -> tuple[object, ...]:
        """Return how far iterations, and boxes that roll, are beyond the first yet to come."""
        rounds = tuple(
            tuple(a.env[name] - least if name in a.env else None for a in state.agents)
            for name, least in self._floors.items()
        )
        walk = self._world.walk if self._world.together else None  # else no turns are followed
        slots = tuple(least % SLOTS for name, least in self._floors.items() if name == walk)
        return rounds, slots, self._rolled(state, state.farthest)

    def put(self, state: State) -> tuple[object, ...]:
        """Return how far the last writes of boxes that roll are."""
        return self._rolled(state, state.put)

    def told(self, state: State) -> tuple[object, ...]:
        """Return what tensor maps say, beside what copies yet to come take them to say now."""
        moving, copies = self._world.code.moving, self._world.copies_through
        out = []
        for where, told in sorted(state.told.items()):
            then: dict[Var, Expr] = {Var(n): v for n, v in told.values}
            said = [substitute(e, then) for e in told.says]
            beside = []
            for a in state.agents:
                now: dict[Var, Expr] = {Var(n): a.env.get(n, 0) for n in moving}
                for i, last in (
                    copies[a.kind.index] if a.kind.cta == where[0] and not a.done else ()
                ):
                    if a.at <= last and _through(i, where):
                        taken = (substitute(e, now) for e in i.says)
                        apart = (poly(e - other) for e, other in zip(said, taken, strict=True))
                        beside.append(tuple(apart))
            out.append((where, told.site, tuple(beside)))
        return tuple(out)

    def _rolled(self, state: State, at: Mapping[Where, tuple[int, ...]]) -> tuple[object, ...]:
        return tuple(
            (where, self._beyond(at.get(where), name))
            for where in sorted(state.farthest)
            for name in self._layout.moved_by(where)
        )

    def places(self, state: State) -> tuple[object, ...]:
        """Return how far the accesses of boxes that roll are."""
        return tuple(
            (entry.event, self._beyond(state.places.get(entry.event), name))
            for where, entries in sorted(state.memory.items())
            if where in state.farthest
            for name in self._layout.moved_by(where)
            for entry in entries
        )

    def _beyond(self, at: tuple[int, ...] | None, name: str) -> int:
        """Return how far a place is beyond the floor of a loop; all those below it are one."""
        least = self._floors[name]
        return NOBODY if at is None or least == NOBODY else max(at[0] - least, NOBODY)

    # --- semaphores, and what has been decided --------------------------------------------------

    def semaphores(self, state: State) -> tuple[object, ...]:
        """Return the semaphores; those that go on along a loop by how far they are."""
        out = []
        for (name, index), one in state.semaphores.items():
            which: Expr = index
            if one.at is not None and self._world.walk is not None:
                which = one.at - self._floors[self._world.walk]
            out.append(((name, which), key_of(one, self)))
        return tuple(out)

    def chosen(self, chosen: Mapping[Expr, bool]) -> frozenset[tuple[Expr, bool]]:
        """Return which conditions have been decided."""
        return frozenset(chosen.items())

    def counts(self, state: State) -> tuple[object, ...]:
        """Return what is known of counts, relative to the rounds of the loops that they end."""
        return tuple(sorted(self._count(unknown) for unknown in {*state.ranges, *self._bases}))

    def _count(self, unknown: Unknown) -> tuple[object, ...]:
        known, base = self._scene.known_of(unknown), self._bases.get(unknown)
        outer = unknown.outer
        if outer:
            around = [round_ for use, round_ in self._bases.items() if not use.outer]
            outer = (outer[0] - (around[0] if around else 0), *outer[1:])
        limit = self._abstraction.limit(self._scene.state, unknown)
        rounds = known.low - (base or 0)
        if unknown.atom in self._abstraction.apart:
            rounds = 0
        elif base is not None and rounds < 0 and unknown not in self._leads:
            rounds = max(rounds, self._abstraction.passed(self._scene.state, unknown, base) - base)
        return (
            unknown.atom, outer, unknown.use, known.exact, base is None, rounds,
            min(known.low, limit), self._leads.get(unknown, -1),
        )  # fmt: skip


# --- counts that no thread knows ------------------------------------------------------------------


TRIED = 4096
"""Values of a bound that are looked at to find the largest."""
APART = 1 << 16
"""Added to the use of a count that goes its own way."""


def _members(events: int) -> Iterator[int]:
    """Yield the numbers of events in a set with a bit for each."""
    while events:
        yield (events & -events).bit_length() - 1
        events &= events - 1


def _through(i: Do, where: Where) -> bool:
    """Whether a copy may go through the tensor map that lies somewhere."""
    told = sites.says(i.site.stmt)
    return told is not None and map_name(told[0].maps) == where[1]


@dataclass(frozen=True, slots=True)
class Against:
    """A comparison of a count, and from where in its program it may still be made.

    From `last` on it is not made at all any more; from `inner` on not without another round of the
    loops of unknown length around it.  `names` are the variables in it that go on and on, beside
    the counter of a loop that it ends (`reads` has that, too); if there are none, `most` is the
    largest number that it compares with.  If it `rises`, what is compared with only grows: below it
    a count that is known stays.  If it `falls`, a count that is beyond it stays there.  `alone`
    says that it is the counter of one loop, which is entered once.
    """

    last: int
    inner: int
    test: AtLeast
    names: frozenset[str]
    reads: frozenset[str] = frozenset()
    most: int = 0
    rises: bool = False
    falls: bool = False
    alone: bool = False


class Abstraction:
    """What may tell states apart: what programs still ask about counts, and where rings are.

    `parted` has the counts of which late threads have been given a length of their own, `rotation`
    the symmetry of the rings.
    """

    def __init__(self, world: World) -> None:
        self.parted: set[int] = set()
        self.rotation = rotation_of(world)
        self._world = world
        self._last_uses: dict[tuple[int, int], int] = {}
        self._entrances: dict[tuple[int, int], tuple[tuple[int, int], ...]] = {}

    def forget(self, state: State) -> None:
        """Drop the counts that nobody will compare with again, and variables nobody will read."""
        for a in state.agents:
            read = self._world.last_reads[a.kind.index]
            held = {loop.name for loop in a.loops}
            a.drops([n for n in a.env if n not in held and a.at > read.get(n, -1)])
        for unknown in list(state.ranges):
            if not any(self._asks(a, unknown) for a in state.agents):
                state.most = max(state.most, state.ranges[unknown].low)
                del state.ranges[unknown]

    def _asks(self, a: Agent, unknown: Unknown) -> bool:
        """Whether threads may still compare with a count."""
        last = self._last_use(a.kind.index, unknown.atom)
        return not a.done and a.at <= _until(a, unknown, last, last)

    def _last_use(self, index: int, atom: int) -> int:
        """Return the last place in a program from which a count may still be asked for."""
        key = index, atom
        if key not in self._last_uses:
            code = self._world.code
            meant = next(e for e, number in code.atoms.found.items() if number == atom)
            uses = (
                last
                for i, last in reaches(code.programs[index])
                if isinstance(i, Enter | Branch | Set)
                and _depends(i.stop if isinstance(i, Enter) else i.expr, meant)
            )
            self._last_uses[key] = max(uses, default=-1)
        return self._last_uses[key]

    # --- thresholds and distances ---------------------------------------------------------------

    @cached_property
    def against(self) -> tuple[tuple[Against, ...], ...]:
        """What each program compares counts with."""
        code = self._world.code
        return tuple(tuple(comparisons(code, index)) for index in range(len(code.programs)))

    @cached_property
    def apart(self) -> frozenset[int]:
        """The unknowns of which limits and margins tell all: no loop ends by them."""
        code = self._world.code
        tests = [one for program in self.against for one in program]
        sets = [i for i in code.instructions if isinstance(i, Set)]
        read = {one.test.atom for one in tests if one.names and not one.alone}
        read |= code.counts | {atom for i in sets for atom, _ in i.terms}
        return frozenset({one.test.atom for one in tests} - read)

    def margins(self, scene: Scene, a: Agent) -> tuple[int, ...]:
        """Return how far counts are known beyond the variables that threads compare them with.

        A loop's own counter is left out: it is relative to the loop's rounds, as is its length.
        """
        if a.done:
            return ()
        out = []
        for one in self.against[a.kind.index]:
            if not one.names or a.at > one.last:
                continue
            unknown = scene.unknown_of(a, one.test.atom)
            if not one.names <= {loop.name for loop in a.loops if loop.unknown == unknown}:
                known, env = scene.known_of(unknown), {**dict.fromkeys(one.reads, 0), **a.env}
                if one.alone and not any(loop.name in one.names for loop in a.loops):
                    env |= dict.fromkeys(one.names, 0)
                margin = known.low - one.test.bound(env)
                margin = max(margin, -1) if one.rises else margin
                out.append(min(margin, 0) if one.falls else margin)
        return tuple(out)

    def limit(self, state: State, unknown: Unknown) -> int:
        """Return the largest number that somebody may still compare a count with in this use.

        What the kernel bounds it by is one of them.
        """
        numbers = (
            one.most
            for a in state.agents
            if not a.done
            for one in self.against[a.kind.index]
            if one.test.atom == unknown.atom
            and not one.names
            and a.at <= min(one.last, _until(a, unknown, one.last, one.inner))
        )
        return max((self._world.most.get(unknown.atom, 0), *numbers))

    def passed(self, state: State, unknown: Unknown, base: int) -> int:
        """Return a number that threads in loops of this length compare it with no more; 0 if any.

        They are in round `base`, or later.  A loop whose end is a condition on several counts goes
        on beyond some of them: whether one of those is known to be a little less makes no
        difference, since all that is asked is whether it is more.
        """
        world = self._world
        bounds = []
        for a in state.agents:
            program = world.code.programs[a.kind.index]
            own = frozenset(
                i.name for i in program if isinstance(i, Enter) and i.atom == unknown.atom
            )
            for i in () if a.done else program:
                for test in comparisons_of(i.test) if isinstance(i, Branch | Enter) else ():
                    names = frozenset(v.name for v in variables(test.expr)) & world.code.moving
                    if test.atom == unknown.atom and names & own:
                        if not (names <= own and _grows(test.expr, own)):
                            return 0
                        bounds.append(test.bound(dict.fromkeys(names, base)))
        return min(bounds, default=base + 1) - 1

    # --- leads ----------------------------------------------------------------------------------

    def leads(self, state: State, bases: dict[Unknown, int]) -> dict[Unknown, int]:
        """Return how far uses of counts are ahead of threads yet to begin; part who is far ahead.

        `bases` has the round of the slowest thread, by use, and changes with the state.
        """
        out: dict[Unknown, int] = {}
        depth = self._world.depth
        for unknown in {*bases, *state.ranges}:
            known = state.ranges.get(unknown)
            over = unknown not in bases
            if unknown.use >= APART:
                if over:
                    del state.ranges[unknown]
                continue
            if unknown.use < 0 or (over and not (known and known.exact)):
                continue
            if unknown.atom in self._world.pinned or not self._awaited(state, unknown):
                continue
            rounds = known.low if over and known else bases[unknown]
            if rounds < depth or self._added(state, unknown.atom):
                out[unknown] = rounds
                continue
            self.parted.add(unknown.atom)
            theirs = unknown._replace(use=unknown.use + APART)
            state.part(unknown, theirs, depth, runs=not over)
            if not over:
                bases[theirs] = bases.pop(unknown)
            out[unknown] = depth
        state.lead = max(out.values(), default=0)
        return out

    def _awaited(self, state: State, unknown: Unknown) -> bool:
        """Whether some threads may still begin a loop of this length."""
        many = len(unknown.outer)
        return any(
            a.at <= _until(a, unknown, last, inner)
            for a in state.agents
            if not a.done
            and all(loop.unknown != unknown for loop in a.loops)
            and not (
                a.rounds[:many] == unknown.outer
                and a.passed.count((many, unknown.atom)) > unknown.use
            )
            for last, inner in self._entered(a.kind.index, unknown.atom)
        )

    def _entered(self, index: int, atom: int) -> tuple[tuple[int, int], ...]:
        """Return from where loops of a length may still be begun: at all, and in the same round."""
        key = index, atom
        if key not in self._entrances:
            program = self._world.code.programs[index]
            self._entrances[key] = tuple(
                within(program, at, atom)
                for at, i in enumerate(program)
                if isinstance(i, Enter) and i.atom == atom
            )
        return self._entrances[key]

    def _added(self, state: State, atom: int) -> bool:
        """Whether somebody may still add the count to a variable, and so must know it."""
        programs = (self._world.code.programs[a.kind.index] for a in state.agents if not a.done)
        return any(isinstance(i, Set) and atom in dict(i.terms) for p in programs for i in p)


def _until(a: Agent, unknown: Unknown, last: int, inner: int) -> int:
    """Return the last place from which threads may reach an instruction about a use of a count.

    It is `last` at all and `inner` in the same round of the loops around it; -1 if they are past.
    """
    rounds = a.rounds[: len(unknown.outer)]
    if rounds > unknown.outer:
        return -1
    return inner if rounds and rounds == unknown.outer else last


def _depends(expr: Expr, atom: Expr) -> bool:
    return bool(variables(expr) & variables(atom)) or isinstance(atom, Var)


# --- what programs compare counts with ------------------------------------------------------------


def comparisons(code: Code, index: int) -> Iterator[Against]:
    """Yield the comparisons of a program with something else than the counter of the loop."""
    program = code.programs[index]
    counters = frozenset(i.name for i in program if isinstance(i, Enter)) & code.moving
    numbered = numbers(code)
    loops = [(at, i) for at, i in enumerate(program) if isinstance(i, Enter)]
    for at, (i, last) in enumerate(reaches(program)):
        if not isinstance(i, Branch | Enter):
            continue
        branch = isinstance(i, Branch)
        for test in comparisons_of(i.test):
            names = reads = frozenset(v.name for v in variables(test.expr)) & code.moving
            if isinstance(i, Enter) and i.atom == test.atom:
                names -= {i.name}
                if not names:
                    continue
            _, inner = within(program, at, test.atom)
            inner = inner if branch else max(inner, last)
            values = _values(names, numbered) if branch else None
            if values is None:
                around = [e.name for start, e in loops if start < at < e.end]
                around += [i.name] if isinstance(i, Enter) else []
                rises, alone = _grows(test.expr, counters), around == [*names]
                falls = _grows(test.expr, counters, -1)
                yield Against(last, inner, test, names, reads, 0, rises, falls, alone)
            else:
                most = max(map(test.bound, values))
                yield Against(last, inner, test, frozenset(), most=most)


def within(program: Sequence[Instruction], at: int, atom: int) -> tuple[int, int]:
    """Return the last places from which a program may reach an instruction about a count.

    The first is the last of all; the second is the last without a new round of the loops of unknown
    length around it that tell one use of the count from the next.
    """
    around = [i for start, i in enumerate(program) if isinstance(i, Enter) and start < at < i.end]
    last = max((at, *(enter.end - 1 for enter in around)))
    own = next((n for n, enter in enumerate(around) if enter.atom == atom), len(around))
    telling = [n for n in range(own) if around[n].atom >= 0]
    # a loop of known length around them may enter them once more, and count the same rounds
    if not telling or len(telling) != telling[-1] + 1:
        return last, last
    return last, max((at, *(enter.end - 1 for enter in around[telling[-1] + 1 :])))


def _values(names: frozenset[str], numbered: Mapping[str, int]) -> list[dict[str, int]] | None:
    """Return all values of counters that count to a number; None if some do not, or too many."""
    ordered = sorted(names)
    if not all(name in numbered for name in ordered):
        return None
    if prod(numbered[name] + 1 for name in ordered) > TRIED:
        return None
    # a counter is at its end once, when the loop is left
    spans = [range(numbered[name] + 1) for name in ordered]
    return [dict(zip(ordered, one, strict=True)) for one in product(*spans)]


def _grows(bound: Expr, counters: frozenset[str], sign: int = 1) -> bool:
    """Whether what a count is compared with (or, by the sign, less it) never falls in loops."""
    _, parts = linear(bound)
    return all(sign * times > 0 and _rises(part, counters) for part, times in parts.items())


def _rises(part: Expr, counters: frozenset[str]) -> bool:
    match part:
        case Var(name):
            return name in counters
        case Op(Kind.MIN | Kind.MAX, a, b):
            return _grows(a, counters) and _grows(b, counters)
        case Op(Kind.FLOORDIV, a, int()):
            return _grows(a, counters)
        case _:
            return False


# --- the rotation symmetry ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Orbit:
    """Positions that rings share, and all that moves with them.

    `names` are the positions, `rings` the slots of each ring of barriers ("phase", name) and
    buffers ("access", name); `minds` is the last place of each program from which something may be
    reached that tells one position from another.  They move by multiples of `step` only.
    """

    names: frozenset[str]
    rings: Mapping[tuple[str, str], int]
    minds: tuple[int, ...]
    step: int = 1

    @property
    def period(self) -> int:
        """After how many moves all is as it was."""
        return lcm(self.step, *(2 * slots for slots in self.rings.values()))

    def by(self, code: Code, agents: list[Agent], ahead: dict[int, dict[str, int]]) -> int:
        """Return by how much a state is to be rotated: its least position, 0 if it may not be.

        `ahead` says by kind of threads how far ahead positions are of what is put down.
        """
        least = -1
        for a in agents:
            if a.done:
                continue
            at = a.at
            i = code.programs[a.kind.index][at]
            if isinstance(i, Enter) and not (a.loops and a.loops[-1].number == i.number):
                at -= 1
            if at <= self.minds[a.kind.index]:
                return 0
            for name in self.names:
                value = a.env.get(name, -1) + ahead[a.kind.index].get(name, 0)
                if value >= 0 and (least < 0 or value < least):
                    least = value
        return (least - least % self.step) % self.period if least > 0 else 0


class Rotation:
    """The rotation symmetry of a kernel: rings that share no position move independently."""

    def __init__(self, orbits: tuple[Orbit, ...] = ()) -> None:
        self.orbits = orbits
        self.rings = {ring: slots for one in orbits for ring, slots in one.rings.items()}
        self._known: dict[tuple[tuple[int, ...], int], Rotated] = {}

    def by(
        self, code: Code, agents: list[Agent], ahead: dict[int, dict[str, int]]
    ) -> tuple[int, ...]:
        """Return by how much each orbit is to be rotated."""
        return tuple(one.by(code, agents, ahead) for one in self.orbits)

    def places(self, place: Place) -> Iterator[Place]:
        """Yield the places of an event in all slots of its ring."""
        slots = self._slots(place)
        if not slots or place.where is None:
            yield place
            return
        first = place._replace(where=(*place.where[:2], 0), parity=min(place.parity, 0))
        for r in range(slots if place.parity < 0 else 2 * slots):
            yield self.moved(first, -r)

    def moved(self, place: Place, r: int) -> Place:
        """Return the place that takes the part of another."""
        slots, parity = self._slots(place), place.parity
        if not slots or place.where is None:
            return place
        cta, name, slot = place.where
        if parity >= 0:
            parity = (parity + (slot - r) // slots) % 2
        return place._replace(where=(cta, name, (slot - r) % slots), parity=parity)

    def _slots(self, place: Place) -> int:
        return self.rings.get(_ring(place), 0) if place.where is not None else 0

    def rotated(self, numbers: Mapping[Place, int], by: tuple[int, ...]) -> Rotated:
        """Return how all events that have a number move where orbits go back `by` as much."""
        if not any(by):
            return STILL
        found = self._known.get((by, len(numbers)))
        if found is None:
            moving = [(one, r) for one, r in zip(self.orbits, by, strict=True) if r]
            rings = {ring: (slots, r) for one, r in moving for ring, slots in one.rings.items()}
            names = {name: (r, one.period) for one, r in moving for name in one.names}
            events: dict[int, int] = {}
            masks: dict[int, int] = {}
            for place, number in numbers.items():
                _, r = rings.get(_ring(place), (0, 0))
                to = numbers[self.moved(place, r)] if r else number
                if to != number:
                    events[number] = to
                    masks[to - number] = masks.get(to - number, 0) | 0b1111 << FACTS * number
            moves = tuple((mask, FACTS * by) for by, mask in masks.items())
            still = ~sum(mask for mask, _ in moves)
            found = self._known[by, len(numbers)] = Rotated(rings, names, events, moves, still)
        return found


def _ring(place: Place) -> tuple[str, str]:
    sort = "access" if place.sort in ACCESSES else "phase"
    return sort, place.where[1] if place.where is not None else ""


@dataclass(frozen=True, slots=True)
class Rotated:
    """One rotation: which event takes the part of which, as numbers and as moves of bits.

    `rings` has the slots of each ring that moves and by how many it does, `names` by how much
    positions go back, and their period.
    """

    rings: Mapping[tuple[str, str], tuple[int, int]]
    names: Mapping[str, tuple[int, int]]
    moved: Mapping[int, int]
    moves: tuple[tuple[int, int], ...]
    still: int

    def bits(self, known: int) -> int:
        """Return a set of facts, rotated."""
        out = known & self.still
        for mask, shift in self.moves:
            part = known & mask
            if part:
                out |= part << shift if shift > 0 else part >> -shift
        return out

    def back(self, known: int) -> int:
        """Return the set of facts that is this one when rotated."""
        out = known & self.still
        for mask, shift in self.moves:
            part = known & (mask << shift if shift > 0 else mask >> -shift)
            out |= part >> shift if shift > 0 else part << -shift
        return out

    def event(self, event: int) -> int:
        """Return an event, rotated."""
        return self.moved.get(event, event)

    def position(self, name: str, value: int) -> int:
        """Return a position, rotated; any other variable as it is."""
        r, period = self.names.get(name, (0, 0))
        return (value - r) % period if r else value

    def where(self, where: Where, sort: str) -> Where:
        """Return a slot of a ring, rotated; any other piece of memory as it is."""
        slots, r = self.rings.get((sort, where[1]), (0, 0)) if where[0] >= 0 else (0, 0)
        return (where[0], where[1], (where[2] - r) % slots) if r else where

    def parity(self, where: Where, parity: int) -> int:
        """Return the parity of a barrier's phase, rotated."""
        slots, r = self.rings.get(("phase", where[1]), (0, 0))
        return (parity + (where[2] - r) // slots) % 2 if r else parity


STILL = Rotated({}, {}, {}, (), -1)
"""The rotation that changes nothing."""


# --- what moves with positions -------------------------------------------------------------------


def rotation_of(world: World) -> Rotation:
    """Return the rotation symmetry of a kernel."""
    code, shared = world.code, world.layout.sharing
    running = code.moving.difference(numbers(code))
    used: dict[tuple[str, str], set[str]] = {}
    slots: dict[tuple[str, str], int] = {}
    mentioned: dict[frozenset[str], None] = {}
    for program in code.programs:
        for ring, many, name in program.once(
            ("positions", running), partial(_turning, program, running)
        ):
            if ring not in shared:
                used.setdefault(ring, set()).add(name)
                slots[ring] = many
        mentioned |= program.once("mentioned", partial(_together, program))
    positions = {n for names in used.values() for n in names}
    met = ({*(names & positions)} for names in mentioned)
    orbits = []
    for names in _joined([*used.values(), *met]):
        rings = {ring: slots[ring] for ring, by in used.items() if by <= names}
        moving = frozenset(n for n in names if code.cycles.get(n, (0, 1))[0] == 0)
        if moving:
            minds = tuple(_last_minding(p, moving, rings) for p in code.programs)
            orbits.append(Orbit(moving, rings, minds))
    orbits += _by_parity(code, running, positions, mentioned, shared)
    return Rotation(tuple(orbits))


def _turning(
    program: Program, running: frozenset[str]
) -> dict[tuple[tuple[str, str], int, str], None]:
    """Return the rings that a program uses by positions: their slots, and what runs on."""
    out: dict[tuple[tuple[str, str], int, str], None] = {}
    for one in _slots(program):
        found = _position(one.slot, one.slots, running)
        if one.slots == 1 and one.parity is not None:
            found = _phase(one.parity, 1, running)
        if found is not None:
            out[one.ring, one.slots, found.name] = None
    return out


def _slots(program: Program) -> list[_Named]:
    """Return the slots that statements of a program name."""
    dos = (i for i in program if isinstance(i, Do))
    return program.once("slots", lambda: [one for i in dos for one in _named(i)])


def _together(program: Program) -> dict[frozenset[str], None]:
    """Return which variables stand together in expressions of a program."""
    return dict.fromkeys(frozenset(names) for i in program for names in _mentioned(i))


def _by_parity(
    code: Code,
    running: frozenset[str],
    positions: set[str],
    mentioned: Collection[frozenset[str]],
    shared: Collection[tuple[str, str]],
) -> Iterator[Orbit]:
    """Yield the orbits of rings whose slots are used by number, so that only parities go on.

    Where roles take turns, each has a slot of its own, `v % slots` tells whose turn it is, and the
    parity is that of `(v + c) // slots + d`: all is as before when v is `slots` further on.
    """
    found: dict[tuple[str, str], set[str]] = {}
    slots: dict[tuple[str, str], int] = {}
    for one in chain.from_iterable(map(_slots, code.programs)):
        at = None if one.parity is None else _phase(one.parity, one.slots, running)
        if one.slots > 1 and one.ring[0] == "phase":
            names = {at.name} if at is not None else set()
            plain = isinstance(one.slot, int) and (at is not None or one.parity is None)
            found.setdefault(one.ring, set()).update(names if plain else {""})
            slots[one.ring] = one.slots
    for name in sorted({n for names in found.values() for n in names} - positions - {""}):
        rings = {r: slots[r] for r, names in found.items() if names == {name} and r not in shared}
        beside = positions | {n for names in found.values() for n in names} - {name}
        mixed = any(name in m and m & beside for m in mentioned)
        if not rings or mixed or code.cycles.get(name, (0, 1))[0] != 0:
            continue
        tests = [i.test for i in code.instructions if isinstance(i, Branch | Enter)]
        asked = (leaf.expr for test in tests for leaf in leaves(test))
        step = lcm(*rings.values(), *(by for expr in asked for by in _moduli(expr, name)))
        alone = frozenset({name})
        minds = tuple(_last_minding(p, alone, rings, step) for p in code.programs)
        yield Orbit(alone, rings, minds, step)


def _moduli(expr: Expr, name: str) -> Iterator[int]:
    """Yield by what the remainders of a variable are taken."""
    if isinstance(expr, Op):
        if expr.kind is Kind.MOD and isinstance(expr.b, int) and _mentions(expr.a, {name}):
            yield expr.b
        yield from _moduli(expr.a, name)
        yield from _moduli(expr.b, name)


def _repeats(expr: Expr, names: Collection[str], step: int) -> bool:
    """Whether an expression is the same when variables are multiples of a step further on."""
    match expr:
        case Op(Kind.MOD, a, int() as by) if by > 0 and step % by == 0:
            return all(isinstance(e, Var) or not _mentions(e, names) for e in linear(a)[1])
        case Op(_, a, b):
            return _repeats(a, names, step) and _repeats(b, names, step)
        case _:
            return not _mentions(expr, names)


def _mentioned(i: Instruction) -> Iterator[set[str]]:
    """Yield the variables that stand together in an expression of an instruction."""
    match i:
        case Do():
            for expr in (
                *i.exprs,
                *i.origin,
                *i.says,
                *((i.index,) if i.index is not None else ()),
            ):
                yield {v.name for v in variables(expr)}
        case Set(name, expr) | Enter(_, name, expr):
            yield {name, *(v.name for v in variables(expr))}
        case Branch(expr):
            yield {v.name for v in variables(expr)}
        case _:
            pass


def _joined(sets: Iterable[set[str]]) -> list[set[str]]:
    """Return the unions of sets that have elements in common."""
    out: list[set[str]] = []
    for one in sets:
        if one:
            meeting = [other for other in out if other & one]
            out = [other for other in out if not other & one] + [one.union(*meeting)]
    return out


def numbers(code: Code) -> dict[str, int]:
    """Return the counters that only ever count to a number, with the largest one."""
    out: dict[str, int] = {}
    others: set[str] = set()
    for i in code.instructions:
        match i:
            case Enter(_, name, int() as stop):
                out[name] = max(out.get(name, 0), stop)
            case Enter(_, name) | Set(name):
                others.add(name)
            case _:
                pass
    return {name: stop for name, stop in out.items() if name not in others}


class _Named(NamedTuple):
    """A slot that a statement names: by which of its values, in which ring, and where there."""

    values: tuple[str, ...]
    ring: tuple[str, str]
    slots: int
    slot: Expr
    parity: Expr | None = None


def _named(i: Do) -> Iterator[_Named]:
    """Yield the slots that a statement names."""
    known, stmt = dict(zip(i.values, i.exprs, strict=True)), i.site.stmt
    barrier = sites.mbarrier(stmt)
    if barrier is not None and "bar" in known:
        ring, parity = ("phase", barrier.name), known.get("parity")
        yield _Named(("bar", "parity"), ring, barrier.slots, known["bar"], parity)
    for slot in sites.slots(stmt):
        name = "a" if slot is getattr(stmt, "a", None) else "slot"
        yield _Named((name,), ("access", slot.buffer.name), slot.buffer.slots, known[name])


@dataclass(frozen=True, slots=True)
class _At:
    """The position `name + plus + rest`; no position is in the rest."""

    name: str
    plus: int
    rest: frozenset[tuple[Expr, int]]


def _position(expr: Expr, slots: int, names: frozenset[str]) -> _At | None:
    """Return v + c + r of `(v + c + r) % slots`."""
    match expr:
        case Op(Kind.MOD, inside, int() as of) if of == slots:
            return _sum(inside, names)
        case _:
            return None


def _sum(expr: Expr, names: frozenset[str]) -> _At | None:
    """Return a sum of one variable out of some, a constant, and whatever does without them."""
    constant, parts = linear(expr)
    mine = [(e, times) for e, times in parts.items() if _mentions(e, names)]
    match mine:
        case [(Var(name) as var, 1)]:
            return _At(name, constant, frozenset((e, n) for e, n in parts.items() if e != var))
        case _:
            return None


def _phase(expr: Expr, slots: int, names: frozenset[str]) -> _At | None:
    """Return v + c + r of `((v + c + r) // slots + d) % 2`."""
    match expr:
        case Op(Kind.MOD, inside, 2):
            _, parts = linear(inside)
            match list(parts.items()):
                case [(Op(Kind.FLOORDIV, position, int() as of), 1)] if of == slots:
                    return _sum(position, names)
                case [(Var(), 1)] if slots == 1:
                    return _sum(inside, names)
                case _:
                    return None
        case _:
            return None


def _last_minding(
    program: Program, names: frozenset[str], rings: dict[tuple[str, str], int], step: int = 1
) -> int:
    question = "minds", names, tuple(rings.items()), step
    return program.once(question, partial(_minds, program, names, rings, step))


def _minds(
    program: list[Instruction],
    names: frozenset[str],
    rings: dict[tuple[str, str], int],
    step: int = 1,
) -> int:
    """Return the last place of a program from which something that minds may still be reached."""
    loops = [(at, i) for at, i in enumerate(program) if isinstance(i, Enter)]
    last = -1
    for at, (i, reach) in enumerate(reaches(program)):
        counted = {e.name: e.atom for start, e in loops if start <= at < e.end}
        if isinstance(i, Enter) and i.name in names:
            # entered, it begins at 0: from outside of it, or once more in a loop around it
            outer = [e.end - 1 for start, e in loops if start < at < e.end]
            last = max(last, at - 1, *outer)
        if not _conforms(i, names, rings, counted, step):
            last = max(last, reach)
    return last


def _mentions(expr: Expr, names: Collection[str]) -> bool:
    return any(v.name in names for v in variables(expr))


def _conforms(
    i: Instruction,
    names: frozenset[str],
    rings: dict[tuple[str, str], int],
    counted: dict[str, int],
    step: int,
) -> bool:
    match i:
        case Do():
            return _does(i, names, rings, step)
        case Set(name, expr):
            if name not in names:
                return not _mentions(expr, names)
            return _sum(expr, names) is not None
        case Enter():
            if _mentions(i.stop, names):
                return False
            return _compares(i.test, names, counted, step)
        case Branch():
            return _compares(i.test, names, counted, step)
        case _:
            return True


def _compares(test: Condition, names: frozenset[str], counted: dict[str, int], step: int) -> bool:
    """Whether positions are compared each with the unknown length of the loop that it counts."""
    for leaf in leaves(test):
        if _repeats(leaf.expr, names, step):
            continue
        match leaf, list(linear(leaf.expr)[1].items()):
            case AtLeast(atom), [(Var(name), 1)] if atom == counted.get(name, -1):
                pass
            case _:
                return False
    return True


def _does(i: Do, names: frozenset[str], rings: dict[tuple[str, str], int], step: int) -> bool:
    used: set[str] = set()
    for one in _named(i):
        if one.ring not in rings:
            continue
        used.update(one.values)
        slot = _position(one.slot, one.slots, names)
        if slot is None and not (isinstance(one.slot, int) and step % one.slots == 0):
            return False
        if one.parity is not None:
            phase = _phase(one.parity, one.slots, names)
            if phase is None:
                return False
            alike = slot is None or (slot.name, slot.rest) == (phase.name, phase.rest)
            if not alike or (slot is not None and (slot.plus - phase.plus) % one.slots):
                return False
    others = [e for name, e in zip(i.values, i.exprs, strict=True) if name not in used]
    others += [*i.origin, *i.says, *((i.index,) if i.index is not None else ())]
    return not any(_mentions(e, names) for e in others)
