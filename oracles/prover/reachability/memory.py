"""Memory in the prover's states: every two accesses that conflict are ordered.

Of each slot (and each tensor that is written and read) the accesses are kept that a later one may
have to be ordered after.  A write, once it is ordered after all of them, stands for them.
"""

from __future__ import annotations

from oracles.prover.reachability.grid.walk import behind, came, written_here
from oracles.prover.reachability.program.boxes import Share, alike, outside, place, share, strides
from oracles.prover.reachability.program.code import Do
from oracles.prover.reachability.rules import Rule
from oracles.prover.reachability.state import FACTS, GLOBAL, OWN, SHARED, Agent, Entry, State, Where
from oracles.prover.reachability.warpgroup import one_for_all
from oracles.prover.reachability.witness.words import pair, said, spot
from oracles.prover.reachability.world import World
from oracles.prover.sites import Site, adds
from oracles.prover.tiles import Meet

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
    do: Do | None = None,
) -> int:
    """Judge an access of a piece of memory and keep it; return its event.

    Parameters
    ----------
    writes, proxy, engine : bool
        Whether it writes; goes through the async proxy; ends later than it begins.
    do : Do or None
        The statement of an access of global memory.
    """
    before = a.mine, a.warp, a.all
    index = a.kind.index
    if not writes and where[0] >= 0 and not state.valid.get(where):
        _unwritten(world, state, a, site, where, k)
    if do is not None and (not writes or adds(site.stmt)) and not outside(do, a):
        _unfilled(world, state, do, a, where, k)
    rolls = do is not None and any(world.region(where).rolls)
    if do is not None and rolls and behind(world, state, do, a, where):
        world.doubt = f"{site.where}: some of what was done here before is not known any more"
    for other in world.overlaps[where]:
        for entry in state.memory.get(other, ()):
            if not writes and not entry.writes:
                continue
            world.checked += 1
            names = other[1], where[1]
            level, sure = world.meet(entry.site, entry.agent, site.index, index, names), True
            if do is not None:
                how = shared(world, state, do, a, where, other, entry)
                if how is None:
                    continue
                level, sure = level if how is Share.SAME else Meet.ANY, how is not Share.MAYBE
            if level is Meet.NEVER:
                continue
            past = before[level] >> FACTS * entry.event
            foreign = where[0] < 0 and world.kinds[entry.agent].cta != a.kind.cta
            fenced = past >> GLOBAL & 1 or not (writes or entry.writes)
            if not sure and (not past & 1 or (proxy and not fenced)):
                name = where[1]
                world.doubt = f"{site.where}: nothing tells which elements of {name} it shares"
            elif not past & 1 and entry.proxy and not entry.writes and past >> OWN & 1:
                one_for_all(world, state, site, world.code.sites[entry.site], k)
            elif not past & 1:
                _race(world, state, a, site, entry, other, k, where, writes=writes)
            elif proxy and (not entry.proxy or (foreign and entry.writes)):
                _fenced(
                    world, state, a, site, entry, other, past, k, where,
                    writes=writes, foreign=foreign,
                )  # fmt: skip
    event = _kept(world, state, a, site, where, writes=writes, proxy=proxy, engine=engine)
    state.when[event] = k, site.index
    if do is not None and world.rolling:
        state.places[event] = place(do, a, world.rolling)
    if do is not None and rolls:
        came(world, state, do, a, where, writes=writes)
    return event


def shared(
    world: World, state: State, do: Do, a: Agent, here: Where, there: Where, entry: Entry
) -> Share | None:
    """Return how an access shares elements with an earlier one, None if it does not."""
    how, one, other = world.shares[here[2], there[2]], world.region(here), world.region(there)
    if how is Share.MAYBE and (here == there or alike(one, other)):
        if state.places.get(entry.event) == place(do, a, world.rolling):
            return share(one, other, still=True)
        if strides(one, other, world.positive):
            return None
    return how


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
        beside = [e for e in old if adds(site.stmt) and not _stands_for(world, a, e)]
        old = _uncovered(world, a, site, old, start, end)
        old = tuple(e for e in {*old, *beside} if e.event != same)
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


def _stands_for(world: World, a: Agent, entry: Entry) -> bool:
    """Whether whoever follows a sum follows this access too.

    Where sums may come in any order, another one need not follow this one.
    """
    free = world.kernel.determinism != "bitwise"
    if free and not adds(world.code.sites[entry.site].stmt):
        return False
    return bool(a.mine >> FACTS * entry.event & 1)


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


def _unwritten(world: World, state: State, a: Agent, site: Site, where: Where, k: int) -> None:
    name, reads = spot(world, where), f"{said(world, site, k)} by {a.kind}"
    says = f"nothing orders a write of {name} before {reads}"
    if where in state.valid:
        says = f"the bytes of {name} are written as another buffer's before {reads}"
    world.wrong(state, Rule.WRITTEN, "RAW", site, k, says)


def _unfilled(world: World, state: State, do: Do, a: Agent, where: Where, k: int) -> None:
    if not world.scratch(where):
        return
    site = do.site
    put = (other for other in world.overlaps[where] if other in state.valid)
    written = [other for other in put if written_here(world, state, do, a, other, where)]
    if not written:
        says = f"nothing has written this box of {where[1]}, a workspace"
        world.wrong(state, Rule.WRITTEN, "RAW", site, k, says)
    elif not world.filled(where, written):
        world.doubt = f"{site.where}: nothing tells that all of this box of {where[1]} is written"


def _race(
    world: World,
    state: State,
    a: Agent,
    site: Site,
    entry: Entry,
    of: Where,
    k: int,
    where: Where,
    *,
    writes: bool,
) -> None:
    kind, rule = _HAZARD[entry.writes, writes]
    when, _ = state.when.get(entry.event, (-1, 0))
    before, after = pair(world, entry, when, of, site, a.kind.index, k, where)
    says = f"nothing orders {before} before {after}"
    earlier = world.code.sites[entry.site]
    if adds(earlier.stmt) and type(earlier.stmt) is type(site.stmt):
        if world.kernel.determinism != "bitwise":
            return
        kind, rule = "determinism", Rule.DETERMINISM
        says += ": both add, in either order, and the kernel promises the same bits"
    elif world.kinds[entry.agent].cta != a.kind.cta and world.kernel.cluster == 1:
        if state.lacking >> FACTS * entry.event & 1:
            kind, rule = "scope", Rule.SCOPE
            says += ": a release that is relaxed or too narrow orders only what is fenced before it"
        elif entry.engine and entry.writes:
            kind, rule = "drain", Rule.DRAIN
            says += ": its turn was given away with the bulk writes in flight"
    world.wrong(state, rule, kind, site, k, says, earlier=earlier, event=entry.event)


def _fenced(
    world: World,
    state: State,
    a: Agent,
    site: Site,
    entry: Entry,
    of: Where,
    past: int,
    k: int,
    where: Where,
    *,
    writes: bool,
    foreign: bool,
) -> None:
    """Check that an access of the other proxy, or CTA, reaches this one through a fence."""
    fact = GLOBAL if where[0] < 0 else SHARED
    rule, severity = Rule.PROXY, "error"
    if entry.writes and not past >> fact & 1:
        says = "no fence_async_proxy orders the generic write before the copy"
        if entry.proxy:
            says = "no fence_async_proxy stands between the acquire and the copy"
    elif entry.writes:
        if past >> OWN & 1 or entry.engine or foreign:
            return
        says = "the fence_async_proxy stands with the reader, not with the writer"
        rule, severity = Rule.PROXY_WRITER, "warning"
    elif writes and not past >> fact & 1:
        says = "no fence_async_proxy orders the generic read before the refill"
        rule, severity = Rule.PROXY_READ, "error" if world.policy == "strict" else "warning"
    else:
        return
    known = world.violations.get(("proxy", site.index, entry.site))
    if known is not None and severity in ("warning", known.severity):
        return
    when, _ = state.when.get(entry.event, (-1, 0))
    before, after = pair(world, entry, when, of, site, a.kind.index, k, where)
    world.wrong(
        state, rule, "proxy", site, k, f"{says}: {before}, then {after}",
        earlier=world.code.sites[entry.site], severity=severity, event=entry.event,
    )  # fmt: skip
