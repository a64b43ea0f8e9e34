"""The CTA that comes last: which one it is is told by the reading, and it waits for the others.

An execution in which a CTA is the last to come to an integer is one in which its threads find there
what all the others have left.  So it may be followed as if it waited for them, for each CTA that
could be the last; the others go on at once and learn nothing.
"""

from __future__ import annotations

from fuser import kernel_ir as kir
from oracles import launches
from oracles.arithmetic import UnsupportedError
from oracles.closure_code import Do
from oracles.closure_rules import Rule
from oracles.closure_state import ONES, Agent, State, Turn
from oracles.closure_turns import bounds, go_on, integer, one_integer, place_of, whole_role
from oracles.closure_world import World
from oracles.preconditions import function


def come(world: World, state: State, a: Agent, do: Do, stmt: kir.ElectLast, k: int) -> None:
    """Come to an integer with all threads of a role; the last CTA stays until all have come."""
    site, cta = do.site, a.kind.cta
    whole_role(world, state, site, stmt.barrier, k)
    threads = site.place.warps * kir.WARP
    meet = state.turns.setdefault(place_of(cta, site), Turn(threads))
    one_integer(world, state, meet, a, do, k)
    meet.count += a.kind.count
    meet.waiting = (*meet.waiting, a.kind.index)
    a.waiting = "last"
    if meet.count < threads:
        return
    if not world.follows_turns:
        bounds(world, state, do, stmt.semaphore, do.index, k)
        go_on(state, cta, site, 0)
        return
    world.checked += 2
    ctas, share = _counted(world, a, do, stmt)
    if ctas != share:
        says = f"{ctas} CTAs are to come to {stmt.semaphore.name}, and {share} share it"
        world.wrong(state, Rule.COLLECTIVE, "collective", site, k, says)
    key = integer(world, state, a, do, stmt.semaphore, k)
    semaphore = state.semaphores[key]
    if cta in semaphore.come:
        says = f"comes to {key[0]} a second time, and may be counted for another CTA"
        world.wrong(state, Rule.TURN_VALUES, "semaphore", site, k, says)
    semaphore.come = (*semaphore.come, cta)
    semaphore.value, semaphore.site = len(semaphore.come) % world.ctas, site.index
    if Rule.LAST_KNOWS not in world.off:
        for index in meet.waiting:
            semaphore.before |= state.agents[index].mine & ONES  # fences do not reach another CTA
    if do.values["last"](a.env):
        semaphore.asking = ((cta, 0, site.index, k),)
    else:
        go_on(state, cta, site, 0)
    if semaphore.value == 0:
        for last, _, number, _ in semaphore.asking:
            go_on(state, last, world.code.sites[number], semaphore.before)
        semaphore.asking = ()


def _counted(world: World, a: Agent, do: Do, stmt: kir.ElectLast) -> tuple[int, int]:
    """Return how many CTAs are to come, and how many share the integer.

    Raises
    ------
    UnsupportedError
        If the first is not known here, and no small launch has two numbers.
    """
    try:
        return do.values["ctas"](a.env), world.ctas
    except UnsupportedError:
        if do.index != 0:
            raise
        for one in launches.small(world.kernel, clusters=2):
            values = {**one.params, kir.GRID.name: one.grid}
            ctas = function(stmt.ctas)(values)
            if ctas != one.grid:
                return ctas, one.grid
        raise
