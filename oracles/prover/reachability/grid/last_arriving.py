"""The CTA that comes last: which one it is is told by the reading, and it waits for the others.

An execution in which a CTA is the last to come to an integer is one in which its threads find there
what all the others have left.  So it may be followed as if it waited for them, for each CTA that
could be the last; the others go on at once and learn nothing.
"""

from __future__ import annotations

from fuser.kernel import ir as kir
from oracles.prover import launches
from oracles.prover.arithmetic import UnsupportedError
from oracles.prover.preconditions import function
from oracles.prover.reachability.grid.semaphores import come_together, go_on, known_to
from oracles.prover.reachability.program.code import Do
from oracles.prover.reachability.rules import Rule
from oracles.prover.reachability.state import ONES, Agent, State
from oracles.prover.reachability.world import World


def come(world: World, state: State, a: Agent, do: Do, stmt: kir.LastArriving, k: int) -> None:
    """Come to an integer with all threads of a role; the last CTA stays until all have come."""
    site, cta = do.site, a.kind.cta
    key = come_together(world, state, a, do, stmt, "last", k)
    if key is None:
        return
    world.checked += 2
    ctas, share = _counted(world, a, do, stmt)
    if ctas != share:
        says = f"{ctas} CTAs are to come to {stmt.semaphore.name}, and {share} share it"
        world.wrong(state, Rule.COLLECTIVE, "collective", site, k, says)
    semaphore = state.semaphores[key]
    if cta in semaphore.come:
        says = f"comes to {key[0]} a second time, and may be counted for another CTA"
        world.wrong(state, Rule.TURN_VALUES, "semaphore", site, k, says)
    semaphore.come = (*semaphore.come, cta)
    semaphore.value, semaphore.site = len(semaphore.come) % world.ctas, site.index
    if Rule.LAST_KNOWS not in world.off:
        # Fences do not reach another CTA.
        semaphore.before |= known_to(state, cta, site) & ONES
    if do.values["last"](a.env):
        semaphore.asking = ((cta, 0, site.index, k),)
    else:
        go_on(state, cta, site, 0)
    if semaphore.value == 0:
        for last, _, number, _ in semaphore.asking:
            go_on(state, last, world.code.sites[number], semaphore.before)
        semaphore.asking = ()


def _counted(world: World, a: Agent, do: Do, stmt: kir.LastArriving) -> tuple[int, int]:
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
