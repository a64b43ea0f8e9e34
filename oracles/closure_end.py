"""The end of a CTA, and why threads may never come there."""

from __future__ import annotations

from fuser import kernel_ir as kir
from oracles.closure_code import Do
from oracles.closure_rules import Rule
from oracles.closure_state import FACTS, Agent, State
from oracles.closure_world import World


def ended(world: World, state: State) -> None:
    """Check that nothing is in flight when the threads of a CTA are gone."""
    known: dict[int, int] = {}
    for a in state.agents:
        known[a.kind.cta] = known.get(a.kind.cta, 0) | a.mine
    for event, (cta, site) in state.flying.items():
        world.checked += 1
        if not known[cta] >> FACTS * event & 1:
            k = state.when.get(event, (-1, 0))[0]
            says = "is still in flight when the CTA exits; nobody waits for it"
            world.wrong(state, Rule.EXIT, "exit", world.code.sites[site], k, says)
    waits = world.turn_values["wait"]
    world.checked += bool(waits)
    if waits and not state.released:
        says = "a turn is taken and never released"
        world.wrong(state, Rule.TURN_VALUES, "semaphore", waits[0][1], -1, says)


def stuck(world: World, state: State) -> None:
    """Explain why nobody can go on."""
    for where, phase in state.phases.items():
        if phase.alive and phase.pending == 0 and phase.nbytes and phase.site >= 0:
            total = "short of" if phase.nbytes > 0 else "beyond"
            says = (
                f"phase {phase.count} of {where[1]}[{where[2]}] is {abs(phase.nbytes)} bytes "
                f"{total} what it expects, and never completes"
            )
            site = world.code.sites[phase.site]
            world.wrong(state, Rule.BYTES, "bytes", site, -1, says)
            return
    for a in state.agents:
        if not a.done:
            _waits(world, state, a)
            return


def _waits(world: World, state: State, a: Agent) -> None:
    i = world.code.programs[a.kind.index][a.at]
    says, kind, rule = f"{a.kind} waits for ever", "deadlock", Rule.LIVENESS
    site = i.site if isinstance(i, Do) else world.code.sites[0]
    k = a.env[a.loops[-1][2]] if a.loops else -1
    if isinstance(i, Do):
        match site.stmt:
            case kir.MBarrierWaitParity(barrier):
                where = a.kind.cta, barrier.name, i.values["bar"](a.env)
                phase = state.phases.get(where)
                if phase is not None:
                    left, of = phase.pending, phase.arrivals
                    says += f": {left} of {of} arrivals of phase {phase.count} are missing"
                    if 0 < left < of:
                        kind, rule = "arrivals", Rule.ARRIVALS
            case kir.BlockSync(barrier):
                turn = state.turns[a.kind.cta, barrier]
                says += f": {turn.count} of {turn.threads} threads arrive at the barrier"
            case _:
                pass
    world.wrong(state, rule, kind, site, k, says)
    if rule in world.off:
        world.wrong(state, Rule.LIVENESS, "deadlock", site, k, says)
