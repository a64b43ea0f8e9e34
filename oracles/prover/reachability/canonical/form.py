"""The normal form of a state: equal for two states that have the same future.

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
  about and everybody knows are in the form as a set (the last part).
* The end of a phase is asked about by who waits for the next or arrives in it.  If everybody knows
  it, the answer is yes until the event is taken again, by which time it is the end of a phase no
  more; so it is as if there were none.
* A count is known in each of its uses by `known_of`: what is known of all uses is in the form for
  each loop that runs.  Otherwise two rounds of a loop of at least five were one.
* A count may be known beyond what it is compared with, or not as far: by how much is in the form
  (`margins`), or rounds in which the comparison is settled were one with those in which it
  is not.
* Threads that begin a loop that others have run through, or are ahead in, go through all of its
  rounds yet: those are in the form too (`lead`).
* Threads that wait for the length of another's loop, to add it to a position, are as far as the
  rounds gone through so far (`_ahead`): position plus rounds, and rounds still to go, decide what
  the sum will be.
"""

from __future__ import annotations

from fuser.expr import Expr, Var, variables
from fuser.kernel import ir as kir
from oracles.prover.arithmetic import linear
from oracles.prover.reachability.canonical.lead import leads
from oracles.prover.reachability.canonical.margins import limit, margins
from oracles.prover.reachability.canonical.rotation import Turn, turn
from oracles.prover.reachability.flow import known_of, unknown_of
from oracles.prover.reachability.grid.walk import near, relative
from oracles.prover.reachability.program.code import Branch, Do, Enter, Set
from oracles.prover.reachability.state import FACTS, Agent, Entry, Phase, State, Unknown, Where
from oracles.prover.reachability.warpgroup import told
from oracles.prover.reachability.world import World


def normal(world: World, state: State) -> object:
    """Return the normal form of a state, forgetting in passing what is over."""
    everybody = -1
    for a in state.agents:
        if not a.done:
            everybody &= a.all
    state.sweep(everybody)
    live = state.live & ~everybody
    bases: dict[Unknown, int] = {}
    for a in state.agents:
        for _, unknown, name, _ in a.loops:
            if unknown is not None:
                value = a.env[name]
                bases[unknown] = min(bases.get(unknown, value), value)
    _forget(world, state)
    lead = leads(world, state, bases)
    still = world.pinned or state.semaphores
    ahead = {a.kind.index: _ahead(world, a, bases) for a in state.agents if not a.done}
    by = 0 if still else world.spin.by(world.code, state.agents, ahead)
    to = turn(world.spin, world.events, by)
    agents = tuple(
        _agent(world, state, a, live, bases, to, ahead.get(a.kind.index, {})) for a in state.agents
    )
    phases = tuple(
        sorted(
            (
                to.where(where, "phase"),
                _phase(where, p, everybody, live & ~_known(world, state, where), to),
            )
            for where, p in state.phases.items()
            if where[:2] in world.used_barriers
        )
    )
    turns = tuple(
        (
            key, t.threads, t.count, to.bits(t.before & live & ~told(state, key[0])), t.waiting,
            to.event(t.last),
        )
        for key, t in sorted(state.turns.items())
    )  # fmt: skip
    memory = tuple(
        sorted(
            (to.where(w, "access"), _entries(world, w, entries, live, to))
            for w, entries in state.memory.items()
        )
    )
    valid = tuple(sorted((to.where(w, "access"), v) for w, v in state.valid.items()))
    ranges = tuple(
        sorted((*_count(world, state, u, bases), lead.get(u, -1)) for u in {*state.ranges, *bases})
    )
    chosen = frozenset(state.chosen.items())
    flying = tuple(sorted(to.all(tuple(state.flying))))
    walked = relative(world, state)
    semaphores = tuple(
        (near(key, s, world, state), s.value, s.owner, s.before & live, s.end, s.waiters, s.past,
         s.asking, s.come)
        for key, s in state.semaphores.items()
    )  # fmt: skip
    common = to.bits(state.live & everybody)
    return agents, phases, turns, memory, valid, flying, ranges, chosen, semaphores, walked, common


def _phase(where: Where, p: Phase, everybody: int, news: int, to: Turn) -> object:
    """Return what matters of a barrier's running phase; `news` is what a wait can still tell."""
    end, previous = (-1 if e < 0 or everybody >> FACTS * e & 1 else e for e in (p.end, p.previous))
    return (
        to.parity(where, p.parity), p.pending, p.nbytes, to.bits(p.before & news),
        to.bits(p.last & news), to.event(end), to.event(previous),
        tuple(sorted(to.all(p.waiters))), to.bits(p.before & _bits(p.waiters)), p.remote,
        p.was_remote, p.alive, p.init, tuple(sorted(to.all(p.came))),
        tuple(sorted(to.all(p.coming))), tuple(sorted(to.all(p.announced))),
    )  # fmt: skip


def _entries(
    world: World, where: Where, entries: tuple[Entry, ...], live: int, to: Turn
) -> tuple[Entry, ...]:
    """Return the accesses of a piece of memory that somebody may still ask about."""
    left = (e for e in entries if _asked(where, e, live))
    if not to.r:
        return tuple(left)
    start, _ = world.heads[to.where(where, "access")]
    by = start - world.heads[where][0]
    return tuple(
        sorted(
            e._replace(event=to.event(e.event), start=e.start + by, end=e.end + by) for e in left
        )
    )


def _ahead(world: World, a: Agent, bases: dict[Unknown, int]) -> dict[str, int]:
    """Return by how much threads that add a loop's length are ahead of what they have put down.

    They are about to execute `p = p + n` for the length n of a loop that others still run: nobody
    reads p before.
    """
    program = world.code.programs[a.kind.index]
    i = program[a.at] if a.at < len(program) else None
    if a.gate is not None or not isinstance(i, Set) or not i.terms:
        return {}
    if linear(i.expr)[1].get(Var(i.name)) != 1:
        return {}
    if any(times < 0 for _, times in i.terms):
        return {}
    by = sum(times * bases.get(unknown_of(world, a, atom), 0) for atom, times in i.terms)
    return {i.name: by}


def _agent(
    world: World,
    state: State,
    a: Agent,
    live: int,
    bases: dict[Unknown, int],
    to: Turn,
    ahead: dict[str, int],
) -> object:
    counters: dict[str, tuple[int, int]] = {}
    for _, unknown, name, _ in a.loops:
        if unknown is not None:
            base = bases[unknown]
            counters[name] = _modulo(world, name, base, to), a.env[name] - base
            if unknown.atom in world.pinned:
                counters[name] = a.env[name], 0
    env = tuple(
        (name, counters.get(name) or (_modulo(world, name, value + ahead.get(name, 0), to), 0))
        for name, value in sorted(a.env.items())
    )
    depth = len([loop for loop in a.loops if loop[1] is not None])
    if a.done:
        live = 0
    return (
        a.at, a.done, a.waiting, bool(a.gate), env, to.bits(a.mine & live),
        to.bits(a.warp & live), to.bits(a.all & live),
        tuple(loop[0] for loop in a.loops), tuple(t for t in a.turns if t[0] <= depth),
        tuple(_pairs(group, to) for group in a.bulk), _pairs(a.bulk_open, to),
        tuple(to.all(ends) for ends in a.copies), to.all(a.copies_open),
        tuple(_mmas(group, to) for group in a.mma), _mmas(a.mma_open, to), a.clean,
        to.bits(a.fenced & state.live), a.registers, a.arrived, a.unmet, a.first,
        to.bits(a.spoken & live),
        margins(world, state, a),
    )  # fmt: skip


def _pairs(group: tuple[tuple[int, int], ...], to: Turn) -> tuple[tuple[int, int], ...]:
    return tuple((to.event(read), to.event(write)) for read, write in group)


def _mmas(
    group: tuple[tuple[str, str, tuple[int, ...]], ...], to: Turn
) -> tuple[tuple[str, str, tuple[int, ...]], ...]:
    return tuple((result, source, to.all(ends)) for result, source, ends in group)


def _asked(where: Where, entry: Entry, live: int) -> bool:
    """Whether somebody may still ask about an access: an asynchronous one is known or it is not.

    In global memory another CTA has to fence even what an engine did.
    """
    return where[0] < 0 or not entry.proxy or bool(live >> FACTS * entry.event & 1)


def _known(world: World, state: State, where: Where) -> int:
    """Return what a wait on a barrier can tell nobody any more."""
    key = where[0], where[1]
    if key not in world.waiters:
        world.waiters[key] = tuple(
            kind.index
            for kind in world.kinds
            if kind.cta == where[0]
            and any(
                isinstance(i, Do)
                and isinstance(i.site.stmt, kir.MBarrierWaitParity)
                and i.site.stmt.barrier.name == where[1]
                for i in world.code.programs[kind.index]
            )
        )
    known = -1
    for index in world.waiters[key]:
        if not state.agents[index].done:
            known &= state.agents[index].all
    return known


def _bits(events: tuple[int, ...]) -> int:
    return sum(1 << FACTS * event for event in events)


def _modulo(world: World, name: str, value: int, to: Turn) -> int:
    if name in to.spin.names:
        value = (value - to.r) % to.spin.period
    threshold, period = world.code.cycles.get(name, (0, 1))
    return value if value < threshold else threshold + (value - threshold) % period


def _outer(unknown: Unknown, bases: dict[Unknown, int]) -> tuple[int, ...]:
    if not unknown.outer:
        return ()
    around = [base for u, base in bases.items() if not u.outer]
    return (unknown.outer[0] - (around[0] if around else 0), *unknown.outer[1:])


def _count(
    world: World, state: State, unknown: Unknown, bases: dict[Unknown, int]
) -> tuple[int, tuple[int, ...], int, bool, bool, int, int]:
    known, base = known_of(world, state, unknown), bases.get(unknown)
    return (
        unknown.atom, _outer(unknown, bases), unknown.turn, known.exact, base is None,
        known.low - (base or 0), min(known.low, limit(world, state, unknown)),
    )  # fmt: skip


def _forget(world: World, state: State) -> None:
    """Drop the counts that nobody will compare with again, and variables that nobody will read."""
    for a in state.agents:
        read = world.last_reads[a.kind.index]
        held = {loop[2] for loop in a.loops}
        for name in [n for n in a.env if n not in held and a.at > read.get(n, -1)]:
            del a.env[name]
    for unknown in list(state.ranges):
        if not any(_asks(world, a, unknown) for a in state.agents):
            state.most = max(state.most, state.ranges[unknown].low)
            del state.ranges[unknown]


def _asks(world: World, a: Agent, unknown: Unknown) -> bool:
    """Whether these threads may still compare with a count."""
    if a.done or a.at > last_use(world, a.kind.index, unknown.atom):
        return False
    if not unknown.outer:
        return True
    values = tuple(a.env[loop[2]] for loop in a.loops if loop[1] is not None)
    if not values:
        return True
    return values[: len(unknown.outer)] <= unknown.outer


def last_use(world: World, index: int, atom: int) -> int:
    """Return the last place in a program from which a count may still be asked for."""
    key = index, atom
    if key not in world.last_uses:
        found = -1
        meant = next(e for e, number in world.code.atoms.found.items() if number == atom)
        program = world.code.programs[index]
        loops = [(at, i.end) for at, i in enumerate(program) if isinstance(i, Enter)]
        for at, i in enumerate(program):
            match i:
                case Enter():
                    exprs = [i.stop]
                case Branch():
                    exprs = [i.expr]
                case Set():
                    exprs = [i.expr]
                case _:
                    continue
            if any(_mentions(e, meant) for e in exprs):
                ends = [end - 1 for start, end in loops if start <= at < end]
                found = max(found, at, *ends)
        world.last_uses[key] = found
    return world.last_uses[key]


def _mentions(expr: Expr, atom: Expr) -> bool:
    return bool(variables(expr) & variables(atom)) or isinstance(atom, Var)
