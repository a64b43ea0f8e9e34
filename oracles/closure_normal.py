"""The normal form of a state: equal for two states that have the same future.

Counters of loops of unknown length are relative to the slowest thread in the loop, and that one's
modulo what its value is used for; so are the counts that end them.  Whatever nobody can ask about
any more is left out, and so is what everybody knows: an event that precedes whatever anybody does
next is never missed again.
"""

from __future__ import annotations

from fuser import kernel_ir as kir
from fuser.expr import Expr, Var, variables
from oracles.closure_code import Branch, Do, Enter, Set
from oracles.closure_spin import Turn, turn
from oracles.closure_state import FACTS, Agent, Entry, Phase, Range, State, Unknown, Where
from oracles.closure_warpgroup import told
from oracles.closure_world import World


def normal(world: World, state: State) -> object:
    """Return the normal form of a state, forgetting in passing what is over."""
    state.sweep()
    everybody = -1
    for a in state.agents:
        if not a.done:
            everybody &= a.all
    live = state.live & ~everybody
    bases: dict[Unknown, int] = {}
    for a in state.agents:
        for _, unknown, name, _ in a.loops:
            if unknown is not None:
                value = a.env[name]
                bases[unknown] = min(bases.get(unknown, value), value)
    _forget(world, state)
    still = world.pinned or state.semaphores
    by = 0 if still else world.spin.by(world.code, state.agents)
    to = turn(world.spin, world.events, by)
    agents = tuple(_agent(world, state, a, live, bases, to) for a in state.agents)
    phases = tuple(
        sorted(
            (
                to.where(where, "phase"),
                _phase(state, where, p, live & ~_known(world, state, where), to),
            )
            for where, p in state.phases.items()
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
        sorted(
            (u.atom, _outer(u, bases), u.turn, _relative(u, r, bases))
            for u, r in state.ranges.items()
        )
    )
    chosen = frozenset(state.chosen.items())
    flying = tuple(sorted(to.all(tuple(state.flying))))
    semaphores = tuple(
        (key, s.value, s.owner, s.before & live, s.end, s.waiters, s.past, s.asking)
        for key, s in state.semaphores.items()
    )
    return agents, phases, turns, memory, valid, flying, ranges, chosen, semaphores


def _phase(state: State, where: Where, p: Phase, news: int, to: Turn) -> object:
    """Return what matters of a barrier's running phase; `news` is what a wait can still tell."""
    return (
        to.parity(where, p.parity), p.pending, p.nbytes, to.bits(p.before & news),
        to.bits(p.last & news), to.event(p.end), to.event(p.previous),
        tuple(sorted(to.all(p.waiters))), to.bits(p.before & _bits(p.waiters)), p.remote,
        p.was_remote, p.alive, p.init, tuple(sorted(to.all(p.came))),
        tuple(sorted(to.all(p.coming))),
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


def _agent(
    world: World, state: State, a: Agent, live: int, bases: dict[Unknown, int], to: Turn
) -> object:
    counters: dict[str, tuple[int, int]] = {}
    for _, unknown, name, _ in a.loops:
        if unknown is not None:
            base = bases[unknown]
            counters[name] = _modulo(world, name, base, to), a.env[name] - base
            if unknown.atom in world.pinned:
                counters[name] = a.env[name], 0
    env = tuple(
        (name, counters.get(name) or (_modulo(world, name, value, to), 0))
        for name, value in sorted(a.env.items())
    )
    depth = len([loop for loop in a.loops if loop[1] is not None])
    return (
        a.at, a.done, a.waiting, bool(a.gate), env, to.bits(a.mine & live),
        to.bits(a.warp & live), to.bits(a.all & live),
        tuple(loop[0] for loop in a.loops), tuple(t for t in a.turns if t[0] <= depth),
        tuple(_pairs(group, to) for group in a.bulk), _pairs(a.bulk_open, to),
        tuple(to.all(ends) for ends in a.copies), to.all(a.copies_open),
        tuple(_mmas(group, to) for group in a.mma), _mmas(a.mma_open, to), a.clean,
        to.bits(a.fenced & state.live), a.registers,
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


def _relative(unknown: Unknown, known: Range, bases: dict[Unknown, int]) -> tuple[bool, bool, int]:
    base = bases.get(unknown)
    return known.exact, base is None, known.low - (base or 0)


def _forget(world: World, state: State) -> None:
    """Drop the counts that nobody will compare with again."""
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
