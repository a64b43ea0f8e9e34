"""The canonical form of a state: equal for two states that have the same future.

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
* That everybody knows an event is not the same as that nobody does, so those that somebody may ask
  about and everybody knows are in the form as a set (`known_to_everybody`).
* The end of a phase is asked about by who waits for the next or arrives in it.  If everybody knows
  it, the answer is yes until the event is taken again, by which time it is the end of a phase no
  more; so it is as if there were none.
* A count is known in each of its uses by `Execution.known_of`: what is known of all uses is in the
  form for each loop that runs.  Otherwise two rounds of a loop of at least five were one.
* A count may be known beyond what it is compared with, or not as far: by how much is in the form
  (`Counts.margins`), or rounds in which the comparison is settled were one with those in which it
  is not.
* Threads that begin a loop that others have run through, or are ahead in, go through all of its
  rounds yet: those are in the form too (`Counts.leads`).
* Threads that wait for the length of another's loop, to add it to a position, are as far as the
  rounds gone through so far (`_ahead`): position plus rounds, and rounds still to go, decide what
  the sum will be.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from fuser.expr import Expr, Var
from fuser.kernel import ir as kir
from oracles.prover.arithmetic import linear
from oracles.prover.reachability.canonical.counts import Counts
from oracles.prover.reachability.execution import Execution
from oracles.prover.reachability.fields import key_of
from oracles.prover.reachability.grid.semaphores import SLOTS, forget
from oracles.prover.reachability.program.code import Set
from oracles.prover.reachability.registers import group_of_warps
from oracles.prover.reachability.state import (
    Agent,
    Entry,
    Group,
    Phase,
    State,
    Unknown,
    Where,
    bits,
    knows,
)
from oracles.prover.reachability.step import NOBODY

_KINDS, _NONE = tuple(kind.value for kind in kir.AsyncKind), ((),)
"""The kinds of groups, and that there are none but the open one."""


def canonical(execution: Execution, counts: Counts) -> tuple[object, ...]:
    """Return the key of a state, forgetting in passing what is over."""
    return key_of(execution.state, Form(execution, counts))


class Form:
    """What stands for each field of a state; its methods are what the fields declare.

    `bases` has the round of the slowest thread in each loop of unknown length.
    """

    def __init__(self, execution: Execution, counts: Counts) -> None:
        world, state = execution.world, execution.state
        self._execution, self._counts, self._world = execution, counts, world
        self._everybody = state.known_to_all(state.agents)
        state.sweep(self._everybody)
        self._live = state.live
        self._asked = self._mask = state.live & ~self._everybody
        self._bases: dict[Unknown, int] = {}
        for a in state.agents:
            for loop in a.loops:
                if loop.unknown is not None:
                    value = a.env[loop.name]
                    self._bases[loop.unknown] = min(self._bases.get(loop.unknown, value), value)
        counts.forget(state)
        self._leads = counts.leads(state, self._bases)
        self._ahead = {a.kind.index: self._far_ahead(a) for a in state.agents if not a.done}
        still = world.pinned or state.semaphores
        by = 0 if still else world.rotation.by(world.code, state.agents, self._ahead)
        self._to = world.rotation.rotated(execution.events.numbers, by)
        forget(execution)
        names = {name for where in state.farthest for name in self._moved_by(where)}
        names |= {world.walk} if world.walk is not None and state.semaphores else set()
        self._floors = {name: execution.floor(name) for name in sorted(names)}
        self._where: Where = (0, "", 0)
        self.event = self._to.event

    # --- sets of facts, and events --------------------------------------------------------------

    def facts(self, known: int) -> int:
        """Map what threads know, as far as somebody may ask about it."""
        return self._to.bits(known & self._mask)

    def fenced(self, known: int) -> int:
        """Map what a relaxed release would tell."""
        return self._to.bits(known & self._live)

    def event_set(self, events: Iterable[int]) -> tuple[int, ...]:
        """Map events whose order does not matter."""
        return tuple(sorted(map(self.event, events)))

    def flights(self, flights: Mapping[str, tuple[Group, ...]]) -> object:
        """Map the groups in flight of each kind."""
        groups = tuple(flights.get(kind, _NONE) for kind in _KINDS)
        return self._nested(groups) if self._to.r else groups

    def _nested(self, it: object) -> object:
        """Map the events in tuples."""
        match it:
            case int():
                return self.event(it)
            case tuple():
                return tuple(map(self._nested, it))
            case _:
                return it

    def known_to_everybody(self, state: State) -> int:
        """Return the events that somebody may ask about and everybody knows."""
        return self._to.bits(state.live & self._everybody)

    # --- threads --------------------------------------------------------------------------------

    def threads(self, state: State) -> tuple[object, ...]:
        """Return what matters of all threads."""
        out = []
        for a in state.agents:
            self._mask = 0 if a.done else self._asked
            out.append(key_of(a, self))
        self._mask = self._asked
        return tuple(out)

    def closed(self, gate: tuple[int, ...] | None) -> bool:
        """Whether threads stand at a gate."""
        return bool(gate)

    def running(self, a: Agent) -> tuple[object, ...]:
        """Return the loops that threads run, and how far counts are beyond what they compare."""
        return tuple(loop.number for loop in a.loops), self._counts.margins(self._execution, a)

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
        rotation = self._world.rotation
        if self._to.r and name in rotation.names:
            value = (value - self._to.r) % rotation.period
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
        uses = ((self._execution.unknown_of(a, atom), times) for atom, times in i.terms)
        return {i.name: sum(times * self._bases.get(unknown, 0) for unknown, times in uses)}

    # --- barriers -------------------------------------------------------------------------------

    def phases(self, state: State) -> tuple[object, ...]:
        """Return the running phases of mbarriers that somebody uses."""
        out = []
        for where, phase in state.phases.items():
            if where[:2] in self._world.used_barriers:
                waiters = self._world.waiters.get(where[:2], ())
                # what a wait on the barrier can tell nobody any more
                resolved = state.known_to_all(state.agents[index] for index in waiters)
                self._where, self._mask = where, self._asked & ~resolved
                out.append((self._to.where(where, "phase"), key_of(phase, self)))
        self._mask = self._asked
        return tuple(sorted(out))

    def parity(self, parity: int) -> int:
        """Map the parity of a phase."""
        return self._to.parity(self._where, parity)

    def before(self, phase: Phase) -> tuple[int, int]:
        """Return what has come before the end of a phase, and which waits for the last one."""
        return self.facts(phase.before), self._to.bits(phase.before & bits(phase.waiters))

    def end_of_phase(self, end: int) -> int:
        """Map the end of a phase; there is none if everybody knows it."""
        return -1 if end < 0 or knows(self._everybody, end) else self.event(end)

    def barriers(self, state: State) -> tuple[object, ...]:
        """Return the running generations of barriers of threads."""
        return tuple((key, key_of(one, self)) for key, one in sorted(state.barriers.items()))

    def products(self, state: State) -> tuple[object, ...]:
        """Return what products of warpgroups can still tell.

        Only its own threads learn from a record, and what holds for all of them is no news.
        """
        out = []
        for (group, age), facts in sorted(state.products.items()):
            resolved = -1
            for a in state.agents:
                if not a.done and group_of_warps(a) == group:
                    resolved &= a.all | a.cumulative
            out.append((group, age, self.facts(facts & ~resolved)))
        return tuple(out)

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
        if not self._to.r:
            return tuple(left)
        spans = self._world.layout.spans
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
        walk = self._world.walk
        slots = tuple(least % SLOTS for name, least in self._floors.items() if name == walk)
        return rounds, slots, self._rolled(state, state.farthest)

    def put(self, state: State) -> tuple[object, ...]:
        """Return how far the last writes of boxes that roll are."""
        return self._rolled(state, state.put)

    def _rolled(self, state: State, at: Mapping[Where, tuple[int, ...]]) -> tuple[object, ...]:
        return tuple(
            (where, self._beyond(at.get(where), name))
            for where in sorted(state.farthest)
            for name in self._moved_by(where)
        )

    def places(self, state: State) -> tuple[object, ...]:
        """Return how far the accesses of boxes that roll are."""
        return tuple(
            (entry.event, self._beyond(state.places.get(entry.event), name))
            for where, entries in sorted(state.memory.items())
            if where in state.farthest
            for name in self._moved_by(where)
            for entry in entries
        )

    def _beyond(self, at: tuple[int, ...] | None, name: str) -> int:
        """Return how far a place is beyond the floor of a loop; all those below it are one."""
        least = self._floors[name]
        return NOBODY if at is None or least == NOBODY else max(at[0] - least, NOBODY)

    def _moved_by(self, where: Where) -> frozenset[str]:
        """Return the index of the loop along which a box rolls, if it is one alone."""
        names = self._world.layout.moved_by(where)
        return names if len(names) == 1 else frozenset()

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
        known, base = self._execution.known_of(unknown), self._bases.get(unknown)
        outer = unknown.outer
        if outer:
            around = [round_ for use, round_ in self._bases.items() if not use.outer]
            outer = (outer[0] - (around[0] if around else 0), *outer[1:])
        limit = self._counts.limit(self._execution.state, unknown)
        return (
            unknown.atom, outer, unknown.use, known.exact, base is None, known.low - (base or 0),
            min(known.low, limit), self._leads.get(unknown, -1),
        )  # fmt: skip
