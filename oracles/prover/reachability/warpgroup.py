"""What the warps of a warpgroup know of each other through the products that they start together.

A product runs when all four warps have started their part, so whoever has seen the end of it knows
that the others have returned from their waits before it.  That says nothing of memory: each warp
reads its rows of `a`, and `b`, for itself.  That one warp has seen the end of its part is noted all
the same, at the fact `OWN` of the others' reads, for its arrivals to tell (`Agent.spoken`): one
arrival for four warps is worth a warning.  For what it does itself it has to wait like any other.

Source: PTX ISA, "wgmma.mma_async", "wgmma.wait_group".
"""

from __future__ import annotations

from oracles.prover.reachability.rules import Rule
from oracles.prover.reachability.state import FACTS, ONES, OWN, Agent, State, Turn
from oracles.prover.reachability.world import World
from oracles.prover.sites import Site

AGES = 4
"""Products of a warpgroup that are told apart, from the latest; older ones tell nothing."""
_FIRST = -16
"""Where the records of warpgroups begin among the turns of a state."""


def warpgroup(world: World, state: State, a: Agent, site: Site) -> tuple[Agent, ...]:
    """Return the threads that execute a statement as one warpgroup, if they are one."""
    place = site.place
    if site.elected or place.warps != 4 or place.first % 4:
        return ()
    return tuple(b for b in state.agents if b.kind.cta == a.kind.cta and place.has(b.kind))


def note_group(world: World, state: State, group: tuple[Agent, ...]) -> None:
    """Put down what has preceded the product that a warpgroup starts, if that can matter."""
    if not world.spoken_for:
        return
    key = _key(group[0])
    for age in range(AGES - 1, 0, -1):
        if (key, age - 1) in state.turns:
            state.turns[key, age] = state.turns[key, age - 1].copy()
    facts = state.turns[key, 1].before if (key, 1) in state.turns else 0
    for a in group:
        facts |= a.mine & ~world.access_bits
        for end in a.mma_open[-1][2]:
            facts |= 1 << FACTS * end + OWN
    state.turns[key, 0] = Turn(before=facts)


def learn_of_group(world: World, state: State, a: Agent) -> None:
    """Let threads that have awaited products know what preceded these in their warpgroup.

    What all of them know by then is forgotten, so that it tells no states apart.
    """
    age = sum(len(group) for group in a.mma) + len(a.mma_open)
    key = _key(a)
    record = state.turns.get((key, age))
    if record is None or Rule.AWAIT_ORDERS in world.off:
        return
    others = record.before & ONES << OWN
    state.learn(a, record.before & ~others)
    a.spoken |= others
    known = -1
    for b in state.agents:
        if _key(b) == key:
            known &= b.all | b.spoken
    for older in range(age, AGES):
        if (key, older) in state.turns:
            state.turns[key, older].before &= ~known


def told(state: State, key: int) -> int:
    """Return what the records of a warpgroup tell nobody any more; 0 for turns of other sorts.

    Only its own threads learn from a record, and what holds for all of them already is no news.
    """
    if key > _FIRST:
        return 0
    known = -1
    for a in state.agents:
        if not a.done and _key(a) == key:
            known &= a.all | a.spoken
    return known


def one_for_all(world: World, state: State, site: Site, earlier: Site, k: int) -> None:
    """Object to a write that one warp of a warpgroup has allowed for all of them."""
    says = "only one warp of the warpgroup has seen its part of the product end"
    severity = "error" if world.policy == "strict" else "warning"
    world.wrong(state, Rule.WAR, "WAR", site, k, says, earlier=earlier, severity=severity)


def _key(a: Agent) -> int:
    return _FIRST - 64 * a.kind.cta - a.kind.warps[0] // 4
