"""Memory in the prover's states: every two accesses that conflict are ordered.

Of each slot (and each tensor that is written and read) the accesses are kept that a later one may
have to be ordered after.  A write, once it is ordered after all of them, stands for them.
"""

from __future__ import annotations

from oracles.closure_code import Site
from oracles.closure_rules import Rule
from oracles.closure_state import FACTS, GLOBAL, OWN, SHARED, Agent, Entry, State, Where
from oracles.closure_tiles import Meet
from oracles.closure_world import World

_HAZARD = {
    (True, False): ("RAW", Rule.RAW),
    (False, True): ("WAR", Rule.WAR),
    (True, True): ("WAW", Rule.WAW),
}
"""Name and rule of a hazard by (earlier writes, later writes)."""


def access(
    world: World,
    state: State,
    a: Agent,
    site: Site,
    where: Where,
    k: int,
    *,
    writes: bool,
    proxy: bool = False,
    engine: bool = False,
    adds: bool = False,
) -> int:
    """Judge an access of a piece of memory and keep it; return its event.

    Parameters
    ----------
    writes, proxy, engine, adds : bool
        Whether it writes; goes through the async proxy; ends later than it begins; is atomic.
    """
    before = a.mine, a.warp, a.all
    index = a.kind.index
    if not writes and where[0] >= 0 and not state.valid.get(where):
        _unwritten(world, state, site, where, k)
    for other in world.overlaps[where]:
        for entry in state.memory.get(other, ()):
            if not writes and not entry.writes:
                continue
            world.checked += 1
            if entry.site == site.index and adds:
                continue
            level = world.meet(entry.site, entry.agent, site.index, index)
            if level is Meet.NEVER:
                continue
            past = before[level] >> FACTS * entry.event
            if not past & 1:
                _race(world, state, a, site, entry, k, writes=writes)
            elif proxy and not entry.proxy:
                _fenced(world, state, site, entry, past, k, where, writes=writes)
    event = _kept(world, state, a, site, where, writes=writes, proxy=proxy, engine=engine)
    state.when[event] = k, site.index
    return event


def _kept(
    world: World,
    state: State,
    a: Agent,
    site: Site,
    where: Where,
    *,
    writes: bool,
    proxy: bool,
    engine: bool,
) -> int:
    """Put an access down, and drop those that it stands for."""
    index = a.kind.index
    start, end = world.heads.get(where, (0, 1))
    same = -1 if engine else world.event(state, "access", where, site.index, index)
    old = state.memory.get(where, ())
    if writes:
        for other in world.overlaps[where]:
            if other != where and (there := state.memory.get(other)):
                state.memory[other] = _uncovered(world, a, site, there, start, end)
            state.valid[other] = other == where
        old = _uncovered(world, a, site, old, start, end)
        old = tuple(e for e in old if e.event != same)
    else:
        past = a.mine
        old = tuple(
            e
            for e in old
            if e.event != same
            and not (e.site == site.index and e.agent == index and past >> FACTS * e.event & 1)
        )
    state.memory[where] = old
    event = world.engine(state, a, where, site.index) if engine else same
    entry = Entry(event, site.index, index, writes, proxy, engine, start, end)
    state.memory[where] = tuple(sorted((*old, entry)))
    if not engine:
        state.own(a, event)
    return event


def _uncovered(
    world: World,
    a: Agent,
    site: Site,
    entries: tuple[Entry, ...],
    start: int,
    end: int,
) -> tuple[Entry, ...]:
    """Return the entries that a write of `start ... end` does not yet stand for.

    Ordinary threads write a part of a tile each; only all parts together stand for what another
    statement did.
    """
    if world.spread(site) is None:
        return tuple(e for e in entries if not (start <= e.start and e.end <= end))
    out = []
    everybody = world.writers(site, a.kind.cta)
    for e in entries:
        if not (start <= e.start and e.end <= end):
            out.append(e)
            continue
        if e.site == site.index:
            if e.agent != a.kind.index:
                out.append(e)
            continue
        by, parts = e.cover
        parts = (parts if by == site.index else 0) | 1 << a.kind.index
        if parts & everybody != everybody:
            out.append(e._replace(cover=(site.index, parts)))
    return tuple(out)


def _unwritten(world: World, state: State, site: Site, where: Where, k: int) -> None:
    name = f"{where[1]}[{where[2]}]"
    if where in state.valid:
        says = f"the bytes of {name} have been written as another buffer's"
    else:
        says = f"nothing has written {name}"
    world.wrong(state, Rule.WRITTEN, "RAW", site, k, says)


def _race(
    world: World, state: State, a: Agent, site: Site, entry: Entry, k: int, *, writes: bool
) -> None:
    kind, rule = _HAZARD[entry.writes, writes]
    when, _ = state.when.get(entry.event, (-1, 0))
    earlier = world.code.sites[entry.site]
    if entry.agent < 0:
        says = f"nothing orders what the turn before did before this by {a.kind}"
    else:
        who = f" by {world.kinds[entry.agent]}"
        says = f"nothing orders it{who} (k={when}) before this by {a.kind}"
    world.wrong(state, rule, kind, site, k, says, earlier=earlier)


def _fenced(
    world: World,
    state: State,
    site: Site,
    entry: Entry,
    past: int,
    k: int,
    where: Where,
    *,
    writes: bool,
) -> None:
    """Check that an ordinary access reaches this one through a proxy fence."""
    fact = GLOBAL if where[0] < 0 else SHARED
    earlier = world.code.sites[entry.site]
    if entry.writes:
        if not past >> fact & 1:
            says = "no fence_async_proxy orders the generic write before the copy"
            world.wrong(state, Rule.PROXY, "proxy", site, k, says, earlier=earlier)
        elif not past >> OWN & 1 and not entry.engine and entry.agent >= 0:
            says = "the fence_async_proxy stands with the reader, not with the writer"
            world.wrong(
                state, Rule.PROXY_WRITER, "proxy", site, k, says, earlier=earlier,
                severity="warning",
            )  # fmt: skip
    elif writes and not past >> fact & 1:
        says = "no fence_async_proxy orders the generic read before the refill"
        severity = "error" if world.policy == "strict" else "warning"
        world.wrong(
            state, Rule.PROXY_READ, "proxy", site, k, says, earlier=earlier, severity=severity
        )
