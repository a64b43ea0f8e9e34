"""The end of a CTA, and why threads may never come there."""

from __future__ import annotations

from fuser.kernel import ir as kir
from oracles.prover.reachability.grid.semaphores import turns_end
from oracles.prover.reachability.program.code import Do
from oracles.prover.reachability.register_pool import contended
from oracles.prover.reachability.rules import Rule
from oracles.prover.reachability.state import FACTS, Agent, Phase, State, Where
from oracles.prover.reachability.witness.words import said
from oracles.prover.reachability.world import World


def ended(world: World, state: State) -> None:
    """Check that nothing is in flight when the threads of a CTA are gone."""
    known: dict[int, int] = {}
    for a in state.agents:
        known[a.kind.cta] = known.get(a.kind.cta, 0) | a.mine
    for event, (cta, site) in state.flying.items():
        world.checked += 1
        if not known[cta] >> FACTS * event & 1:
            k = state.when.get(event, (-1, 0))[0]
            says = f"{said(world, world.code.sites[site], k)} is still in flight when the CTA exits"
            world.wrong(state, Rule.EXIT, "exit", world.code.sites[site], k, says, event=event)
    _reached(world, state)
    _met(world, state)
    for where, phase in state.phases.items():
        world.checked += 1
        _short(world, state, where, phase)
    turns_end(world, state)


def _short(world: World, state: State, where: Where, phase: Phase) -> bool:
    """Check that a phase got the bytes that it expects; return whether it did not."""
    if not (phase.alive and phase.nbytes and phase.site >= 0):
        return False
    total = "short of" if phase.nbytes > 0 else "beyond"
    says = (
        f"phase {phase.count} of {where[1]}[{where[2]}] is {abs(phase.nbytes)} bytes "
        f"{total} what it expects, and never completes"
    )
    world.wrong(state, Rule.BYTES, "bytes", world.code.sites[phase.site], -1, says)
    return True


def _reached(world: World, state: State) -> None:
    """Check that no barrier of threads is left half reached."""
    for (cta, number), turn in state.turns.items():
        if number < 0 or cta < -1 or not turn.threads:
            continue
        world.checked += 1
        if turn.count:
            name = f"barrier {number}" if cta >= 0 else "the cluster's barrier"
            says = f"{turn.count} of {turn.threads} threads have arrived at {name} at the end"
            at = next(s for s in world.code.sites if _is_of(s.stmt, cta, number))
            world.wrong(state, Rule.SYNC_COUNT, "collective", at, -1, says)


def _met(world: World, state: State) -> None:
    """Check that who arrives at the cluster's barrier waits there, too."""
    for a in state.agents:
        if a.arrived:
            at = next(s for s in world.code.sites if isinstance(s.stmt, kir.ClusterArrive))
            says = f"{a.kind} has arrived at the cluster's barrier and never waits"
            world.wrong(state, Rule.SYNC_COUNT, "collective", at, -1, says)


def _is_of(stmt: kir.Stmt, cta: int, number: int) -> bool:
    """Whether a statement arrives at a barrier of threads."""
    match stmt:
        case kir.BlockSync(barrier) | kir.NamedArrive(barrier):
            return cta >= 0 and barrier == number
        case kir.ClusterArrive():
            return cta < 0
        case _:
            return False


def stuck(world: World, state: State) -> None:
    """Explain why nobody can go on.

    Raises
    ------
    ContestError
        If somebody could, were he given registers that another waits for too.
    """
    contended(world, state)
    ready = [(where, phase) for where, phase in state.phases.items() if phase.pending == 0]
    if any(_short(world, state, where, phase) for where, phase in ready):
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
            case kir.SetMaxNReg():
                says += ": the registers it asks for are not given back"
                kind, rule = "registers", Rule.BUDGET
            case kir.LastArriving(semaphore):
                kind, rule = "semaphore", Rule.TURN_VALUES
                says = f"not all CTAs come to {semaphore.name}: none is the last"
            case kir.BlockSync(barrier):
                turn = state.turns[a.kind.cta, barrier]
                says += f": {turn.count} of {turn.threads} threads arrive at the barrier"
            case _:
                pass
    world.wrong(state, rule, kind, site, k, says)
    if rule in world.off:
        world.wrong(state, Rule.LIVENESS, "deadlock", site, k, says)
