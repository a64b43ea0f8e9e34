"""Whether one state stands for another one, but for numbers: places of threads, knowledge, memory.

Nothing is left out that a later statement could ask about, and nothing is taken from the engine's
canonical form: what is compared is worked out here from the whole state.  Events are compared by
their places, slots of rings as if the second state's rings had been rotated.

All is the same but what is known: a state stands for those that know as much, or more.  No rule of
a statement finds fault with what somebody knows.  Nor does one ask what everybody knows whom it
could ask: whether there is anything to be asked, and not known, is part of what is known.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from copy import copy
from typing import NamedTuple

from oracles.prover.reachability.canonical import Orbit
from oracles.prover.reachability.code import Branch, Enter, Instruction, Jump, Next
from oracles.prover.reachability.path import Number
from oracles.prover.reachability.state import (
    ACCESSES,
    ANY,
    FACTS,
    OWN,
    Agent,
    Events,
    Phase,
    Place,
    Semaphore,
    State,
    Where,
)
from oracles.prover.reachability.statements import group_of_warps
from oracles.prover.reachability.sync import turn_of
from oracles.prover.reachability.world import World

Ring = tuple[str, str]
"""A ring of barriers ("phase", name) or of buffers ("access", name)."""


class Structures:
    """The states of one exploration, compared with each other."""

    def __init__(self, world: World, events: Events, orbits: tuple[Orbit, ...]) -> None:
        self.world, self.spans = world, world.layout.spans
        self._events, self._orbits = events, orbits
        self._kept: dict[int, dict[str, object]] = {}
        self._rotations: dict[tuple[int, ...], Turned] = {}
        self._last: tuple[State, tuple[int, ...], Shape] | None = None

    def difference(self, one: State, number: int, kept: State, turns: tuple[int, ...]) -> str:
        """Say in what a state differs from a kept one whose rings are `turns` slots behind.

        It is empty if it does not; `number` is that of the kept state.
        """
        if number not in self._kept:
            self._kept[number] = self._shape(kept, (0,) * len(turns)).parts()
        left, right = self._shape(one, turns).parts(), self._kept[number]
        for what in {**left, **right}:
            mine, theirs = left.get(what), right.get(what)
            if isinstance(mine, Known) and isinstance(theirs, Known):
                if not mine.covers(theirs):
                    return what
            elif mine != theirs:
                return what
        return ""

    def numbers(self, state: State) -> dict[Number, tuple[str, int]]:
        """Return the numbers of a state: the variables of its threads, and what was put down."""
        out: dict[Number, tuple[str, int]] = {
            (a.kind.index, name): (name, value)
            for a in state.agents
            if not a.done
            for name, value in a.env.items()
        }
        if self.world.layout.rolling or self.world.walk or state.told:
            out |= self._shape(state, (0,) * len(self._orbits)).put_down()
        return out

    def over(self, state: State) -> list[tuple[Number, Number]]:
        """Return the turns that are over, each with a variable that is past its iteration."""
        walk, agents = self.world.walk, state.agents
        if walk is None:
            return []
        kept = self._shape(state, (0,) * len(self._orbits)).put_down()
        gone = [
            turn_of(name, one.at)
            for (name, _), one in state.semaphores.items()
            if one.at is not None and turn_of(name, one.at) not in kept
        ]
        inside = [(a.kind.index, walk) for a in agents if not a.done and walk in a.env]
        return [(turn, at) for turn in gone for at in inside]

    def _shape(self, state: State, turns: tuple[int, ...]) -> Shape:
        last = self._last
        if last is None or last[0] is not state:
            last = self._last = state, turns, Shape(self.world, self._turned(turns), state)
        elif last[1] != turns:
            last = self._last = state, turns, last[2].rotated(self._turned(turns))
        return last[2]

    def _turned(self, turns: tuple[int, ...]) -> Turned:
        if turns not in self._rotations:
            rings = {
                ring: (slots, by)
                for orbit, by in zip(self._orbits, turns, strict=True)
                for ring, slots in orbit.rings.items()
                if by
            }
            self._rotations[turns] = Turned(rings, self._events.numbers)
        return self._rotations[turns]


class Known(NamedTuple):
    """What is known: sets of facts, and by which events one learns of the ends of phases.

    What nobody can ask about, or everybody knows whom it is asked, counts as known.
    """

    facts: tuple[int, ...]
    ends: tuple[tuple[int, frozenset[int]] | None, ...] = ()

    def covers(self, other: Known) -> bool:
        """Whether whatever is known in another state is known in this one."""
        facts = zip(self.facts, other.facts, strict=True)
        ends = zip(self.ends, other.ends, strict=True)
        return not any(more & ~known for known, more in facts) and all(
            mine is None or (theirs is not None and _told_by(*mine, *theirs))
            for mine, theirs in ends
        )


def _told_by(end: int, came: frozenset[int], of: int, less: frozenset[int]) -> bool:
    """Whether who learns of an end by what came in another state does so in this one."""
    return end == of and (not less or (bool(came) and came <= less))


class _Moved(dict[int, int]):
    """Events by those whose part they take: most take their own."""

    def __missing__(self, event: int) -> int:
        self[event] = event
        return event


class Turned:
    """Slots and events when some rings are rotated back: by how many of how many slots."""

    def __init__(self, rings: Mapping[Ring, tuple[int, int]], numbers: Mapping[Place, int]) -> None:
        self._rings = rings
        self._moved = _Moved()
        self.event = self._moved.__getitem__
        """Return the event whose part an event takes."""
        self._far: dict[int, int] = defaultdict(int)
        for place, number in numbers.items() if rings else ():
            if place.where is None:
                continue
            where, ends = self.slot(place.where, "access" if place.sort in ACCESSES else "phase")
            if where != place.where or ends:
                parity = (place.parity + ends) % 2 if place.parity >= 0 else place.parity
                self._moved[number] = numbers[place._replace(where=where, parity=parity)]
                self._far[self._moved[number] - number] |= ANY << FACTS * number
        self._still = ~sum(self._far.values())

    def slot(self, where: Where, sort: str) -> tuple[Where, int]:
        """Return where a slot comes from, and how often it has passed the end of its ring."""
        slots, by = self._rings.get((sort, where[1]), (1, 0)) if where[0] >= 0 else (1, 0)
        if not by:
            return where, 0
        return (where[0], where[1], (where[2] - by) % slots), (where[2] - by) // slots

    def facts(self, known: int) -> int:
        """Return facts as those of the events whose part theirs take."""
        out = known & self._still
        if out != known:
            for far, those in self._far.items():
                moving = known & those
                out |= moving << FACTS * far if far > 0 else moving >> FACTS * -far
        return out


class Shape:
    """One state, with its rings rotated back."""

    def __init__(self, world: World, turned: Turned, state: State) -> None:
        self._world, self._turned, self._state = world, turned, state
        self._event, self._slot = turned.event, turned.slot
        self._everybody = known_to_all(state.agents)
        self._together: dict[tuple[int, ...], int] = {}
        # what a thread of its CTA knows to be over is asked about no more
        known: dict[int, int] = defaultdict(int)
        for a in state.agents:
            known[a.kind.cta] |= a.mine
        self._flying = {
            event: cta
            for event, (cta, _) in state.flying.items()
            if not known[cta] >> FACTS * event & 1
        }
        self._semaphores = {k: s for k, s in state.semaphores.items() if not self._left(s)}
        self._asked = self._askable()

    def rotated(self, turned: Turned) -> Shape:
        """Return the same state with its rings rotated otherwise."""
        other = copy(self)
        other._turned, other._event, other._slot = turned, turned.event, turned.slot
        return other

    def _askable(self) -> int:
        """Return the facts that somebody may still ask about: of all that the state refers to."""
        state = self._state
        happened: set[int] = {*self._flying}
        for where, phase in state.phases.items():
            happened.update((*phase.waiters, *phase.coming, *phase.announced))
            for end, came in self._ends(where, phase):
                happened.update((end, *came))
        happened.update(one.last for one in state.barriers.values())
        for semaphore in self._semaphores.values():
            happened.update((semaphore.end, semaphore.again, *semaphore.waiters))
            happened.update(ended for _, ended in semaphore.past)
        for a in state.agents:
            happened.update(a.in_flight())
        out = 0
        happened |= {state.ended, state.begun}
        for event in happened - {-1}:
            out |= 1 << FACTS * event
        for phase in state.phases.values():
            out |= 0b11 << FACTS * phase.init  # that it is alive, and visible to other CTAs
        for where, entries in state.memory.items():
            for entry in entries:
                # what an engine did needs no fence in its CTA; of reads, other warps' count too
                facts = ANY
                if entry.proxy and where[0] >= 0:
                    facts = 0 if self._past(entry.event) else 1 | 1 << OWN
                out |= facts << FACTS * entry.event
        return out

    def _left(self, semaphore: Semaphore) -> bool:
        """Whether all threads are past the iteration that has a semaphore of its own."""
        walk = self._world.walk
        if walk is None or semaphore.at is None:
            return False
        for a in self._state.agents:
            if a.done:
                continue
            program = self._world.code.programs[a.kind.index]
            inside = next((one.number for one in a.loops if one.name == walk), None)
            later = a.at
            if inside is not None:
                if a.env[walk] <= semaphore.at:
                    return False
                enter = next(i for i in program if isinstance(i, Enter) and i.number == inside)
                later = enter.end
            if any(isinstance(i, Enter) and i.name == walk for i in reached(program, later)):
                return False
        return True

    def _past(self, event: int) -> bool:
        """Whether everybody knows that something has happened: whoever asks is told so."""
        return event < 0 or bool(self._everybody >> FACTS * event & 1)

    def _ends(self, where: Where, phase: Phase) -> Iterator[tuple[int, tuple[int, ...]]]:
        """Yield the ends of the last two phases with what came in them, -1 if nobody can miss it.

        That of the last is missed by whoever uses the barrier, that of the one before by waits.
        """
        for end, came, by in (
            (phase.end, phase.came, self._world.users),
            (phase.previous, phase.earlier, self._world.waiters),
        ):
            known = self._known_by(by.get(where[:2], ()))
            yield (-1, ()) if end < 0 or known >> FACTS * end & 1 else (end, came)

    def _known_by(self, agents: tuple[int, ...]) -> int:
        """Return what all threads out of some know, who are the same at all slots of a barrier."""
        if agents not in self._together:
            self._together[agents] = known_to_all(self._state.agents[index] for index in agents)
        return self._together[agents]

    def _events(self, events: Iterable[int]) -> frozenset[int]:
        return frozenset(map(self._event, events)) if events else frozenset()

    def _facts(self, known: int, beyond: int = 0, asked: int = 0) -> int:
        """Return what is known: with what everybody knows, or nobody asks, and what is no news.

        Some may be `asked` about in any case.
        """
        return self._turned.facts(known | (~self._asked | self._everybody | beyond) & ~asked)

    def _open(self, known: int) -> int:
        """Return facts that may be asked about and that not everybody knows."""
        return self._turned.facts(known & self._asked & ~self._everybody)

    # --- the parts of a state -------------------------------------------------------------------

    def parts(self) -> dict[str, object]:
        """Return all that decides what follows, by what it is."""
        state = self._state
        out: dict[str, object] = {}
        for (name, index), one in self._semaphores.items():
            which = index if one.at is None else turn_of(name, one.at)
            out[f"semaphore {name}[{which}]"] = (
                one.value, one.owner, self._open(one.before), self._event(one.end),
                self._event(one.again), self._events(one.waiters),
                [(v, self._event(e)) for v, e in one.past],
                [asked[:3] for asked in one.asking], one.arrived,
            )  # fmt: skip
        for a in state.agents:
            out[f"threads of {a.kind}"] = "done" if a.done else self._threads(a)
            if not a.done:
                facts = map(self._facts, (a.mine, a.warp, a.all, a.own, a.cumulative, a.copied))
                published = self._turned.facts(a.fenced | ~self._asked)  # by a relaxed arrival
                out[f"knowledge of threads of {a.kind}"] = Known((*facts, published))
        for where, phase in state.phases.items():
            if where[:2] in self._world.users:
                at, ends = self._slot(where, "phase")
                seen = self._known_by(self._world.waiters.get(where[:2], ()))
                out[f"phase of {at}"] = (
                    phase.arrivals, self._event(phase.init), phase.pending,
                    (phase.parity + ends) % 2, phase.nbytes,
                    self._events(phase.waiters), phase.alive,
                    self._events(phase.coming), self._events(phase.announced),
                )  # fmt: skip
                # of waits for it this is asked of the phase, whoever else knows of them
                waits = sum(1 << FACTS * wait for wait in phase.waiters)
                known = phase.before, phase.last, phase.far, phase.last_far
                out[f"knowledge of phase of {at}"] = Known(
                    tuple(self._facts(one, seen, waits) for one in known),
                    tuple(
                        None if end < 0 else (self._event(end), self._events(came))
                        for end, came in self._ends(where, phase)
                    ),
                )
        for key, now in state.barriers.items():
            out[f"barrier {key}"] = (
                now.threads, now.count, frozenset(now.waiting), self._event(now.last)
            )  # fmt: skip
            out[f"knowledge of barrier {key}"] = Known((self._facts(now.before),))
        for (group, age), product in state.products.items():
            seen = -1
            for a in state.agents:
                if not a.done and group_of_warps(a) == group:
                    seen &= a.all | a.cumulative
            out[f"product {age} of {group}"] = Known((self._facts(product.before, seen),))
        out["memory"] = self._memory()
        out["valid"] = {self._slot(w, "access")[0]: valid for w, valid in state.valid.items()}
        out["in flight"] = frozenset((self._event(e), cta) for e, cta in self._flying.items())
        out["tensor maps"] = {where: told.site for where, told in state.told.items()}
        out["launches before have ended"] = self._event(state.ended)
        out["the cluster has begun"] = self._event(state.begun)
        out["chosen"] = frozenset(state.chosen.items())
        out["places that were put down"] = frozenset(self.put_down())
        return out

    def put_down(self) -> dict[Number, tuple[str, int]]:
        """Return the numbers that were put down: of what variable they were, and what it was."""
        state, layout = self._state, self._world.layout
        found: dict[Number, tuple[Where, tuple[int, ...]]] = {
            ("place", e.event): (where, state.places[e.event])
            for where, entries in state.memory.items()
            if where[0] < 0
            for e in entries
            if e.event in state.places and self._may_be_asked(where, e.event, proxy=e.proxy)
        }
        found |= {("farthest", where): (where, at) for where, at in state.farthest.items()}
        found |= {("put", where): (where, at) for where, at in state.put.items()}
        out: dict[Number, tuple[str, int]] = {
            number: (name, *at)
            for number, (where, at) in found.items()
            if len(at) == 1
            for name in layout.moved_by(where)
        }
        for where, told in state.told.items():
            out |= {(("told", where), name): (name, value) for name, value in told.values}
        walk = self._world.walk or ""
        for (name, _), one in self._semaphores.items():
            if one.at is not None:
                out[turn_of(name, one.at)] = walk, one.at
        return out

    def _threads(self, a: Agent) -> tuple[object, ...]:
        flights = {
            kind: tuple(
                tuple((tuple(map(self._event, ends)), *registers) for ends, *registers in group)
                for group in groups
            )
            for kind, groups in a.flights.items()
            if groups != ((),)
        }
        return (
            a.at, a.waiting, bool(a.gate), tuple(one.number for one in a.loops), a.registers,
            a.arrived, a.met, a.unmet, a.first, a.clean, flights,
        )  # fmt: skip

    def _memory(self) -> dict[Where, frozenset[object]]:
        """Return the accesses that somebody may not know of."""
        spans = self._world.layout.spans
        out: dict[Where, frozenset[object]] = {}
        for where, entries in self._state.memory.items():
            at, _ = self._slot(where, "access")
            by = spans[at][0] - spans[where][0]
            found = frozenset(
                (self._event(e.event), *e[1:6], e.start + by, e.end + by, e.cover)
                for e in entries
                if self._may_be_asked(where, e.event, proxy=e.proxy)
            )
            if found:
                out[at] = found
        return out

    def _may_be_asked(self, where: Where, event: int, *, proxy: bool) -> bool:
        """Whether somebody does not know of an access; of one by threads, also not of a fence.

        What an engine has done needs no fence in its own CTA.
        """
        facts = 1 if proxy and where[0] >= 0 else ANY
        return bool(facts << FACTS * event & ~self._everybody)


def known_to_all(agents: Iterable[Agent]) -> int:
    """Return what all threads know that have a statement left."""
    known = -1
    for a in agents:
        if not a.done:
            known &= a.all
    return known


def reached(program: list[Instruction], at: int) -> Iterator[Instruction]:
    """Yield the instructions that threads may execute from a place on."""
    todo, seen = [at], set[int]()
    while todo:
        at = todo.pop()
        if at in seen or at >= len(program):
            continue
        seen.add(at)
        yield program[at]
        match program[at]:
            case Next(to) | Jump(to):
                todo.append(to)
            case Enter(end=other) | Branch(orelse=other):
                todo += [at + 1, other]
            case _:
                todo.append(at + 1)
