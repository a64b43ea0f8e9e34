"""Turns of CTAs on a semaphore: what one CTA needs of the turn before, and owes to the next.

Each CTA is judged alone, by assuming of the turn before what it has to guarantee to the next.  The
turn before wrote every workspace (an event that nobody in this CTA knows until it has waited); the
next may touch all of them, so whatever this one did to them precedes its release.

Notes
-----
By induction over turns: if every CTA guarantees that at its release all its accesses are done and
known to the releasing thread, assuming that of its predecessor, all of them do.
"""

from __future__ import annotations

from fuser import kernel_ir as kir
from oracles.closure_code import Site
from oracles.closure_rules import Rule
from oracles.closure_state import FACTS, Agent, Entry, State, Turn
from oracles.closure_world import World


def begin(world: World, state: State, *, first: bool) -> None:
    """Let the turn before have used every tensor that turns share."""
    if first or not world.kernel.semaphores:
        return
    release = next(
        (s for s in world.code.sites if isinstance(s.stmt, kir.BlockSerializeRelease)), None
    )
    if release is None:
        return
    for name in sorted(world.tracked):
        event = world.event(state, "before", name)
        entry = Entry(event, release.index, -1, True, False, False, 0, 1)
        state.memory[-1, name, 0] = (entry,)


def take_turn(
    world: World,
    state: State,
    a: Agent,
    site: Site,
    stmt: kir.BlockSerializeWait,
    turn: int,
    k: int,
) -> bool:
    """Wait for a turn with all threads of the CTA."""
    if a.waiting:
        return False
    key = a.kind.cta, -1
    world.checked += 1
    world.turn_values["wait"].append((turn, site))
    if site.elected or site.place.warps * kir.WARP != world.kernel.threads:
        says = "block_serialize_wait is executed by all threads of the CTA only"
        world.wrong(state, Rule.COLLECTIVE, "collective", site, k, says)
    if world.kernel.residency == "any":
        says = "waits for a CTA that may never run: nothing is known about CTAs running at once"
        world.wrong(state, Rule.RESIDENCY, "residency", site, k, says)
    if stmt.scope is not kir.Scope.GPU:
        says = "acquires at a scope that does not reach the CTA of the turn before"
        world.wrong(state, Rule.SCOPE, "scope", site, k, says)
    meet = state.turns.setdefault(key, Turn(world.kernel.threads))
    meet.count += a.kind.count
    meet.before |= a.mine
    meet.waiting = (*meet.waiting, a.kind.index)
    a.waiting = "sync"
    if meet.count < world.kernel.threads:
        return False
    facts = meet.before
    if Rule.TURN_ACQUIRES not in world.off:
        for name in world.tracked:
            number = world.events.get(("before", name))
            if number is not None:
                facts |= 1 << FACTS * number
    for index in meet.waiting:
        other = state.agents[index]
        state.learn(other, facts)
        other.waiting = ""
        other.at += 1
    meet.count, meet.before, meet.waiting = 0, 0, ()
    return False


def release_turn(
    world: World,
    state: State,
    a: Agent,
    site: Site,
    stmt: kir.BlockSerializeRelease,
    turn: int,
    k: int,
) -> None:
    """Give the turn away: all that this CTA did to shared tensors is done, and known here."""
    world.turn_values["release"].append((turn, site))
    state.released += 1
    world.checked += 1
    if state.released > 1:
        says = "releases a turn that is no longer its own"
        world.wrong(state, Rule.TURN_VALUES, "semaphore", site, k, says)
    if not a.kind.alone:
        says = f"is executed by {a.kind.count} threads"
        world.wrong(state, Rule.TURN_VALUES, "semaphore", site, k, says)
    if stmt.scope is not kir.Scope.GPU and not stmt.relaxed:
        says = "releases at a scope that does not reach the CTA of the next turn"
        world.wrong(state, Rule.SCOPE, "scope", site, k, says)
    covered = a.fenced if stmt.relaxed else a.mine
    for name in world.tracked:
        for entry in state.memory.get((-1, name, 0), ()):
            world.checked += 1
            if entry.agent < 0 and world.turn == 0:
                continue
            if covered >> FACTS * entry.event & 1:
                continue
            earlier = world.code.sites[entry.site]
            if stmt.relaxed and a.mine >> FACTS * entry.event & 1:
                says = "a relaxed release without a thread_fence(gpu) before it orders nothing"
                world.wrong(state, Rule.SCOPE, "scope", site, k, says, earlier=earlier)
            elif entry.engine:
                says = f"announces {name} while bulk writes of it are in flight"
                world.wrong(state, Rule.DRAIN, "drain", site, k, says, earlier=earlier)
            else:
                kind, rule = ("RAW", Rule.RAW) if entry.writes else ("WAR", Rule.WAR)
                says = f"announces {name} before all threads of this CTA are done with it"
                world.wrong(state, rule, kind, site, k, says, earlier=earlier)
