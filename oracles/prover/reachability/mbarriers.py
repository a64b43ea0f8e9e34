"""Where threads meet at mbarriers.

Every obligation of the argument in `closure` about phases is asked here: a wait is not behind and
not lapped, arrivals and bytes come in their own phase, and add up.
"""

from __future__ import annotations

from fuser.kernel import ir as kir
from oracles.prover.reachability.rules import Rule
from oracles.prover.reachability.state import FACTS, SHARED, Agent, Phase, State, Where
from oracles.prover.reachability.witness.words import said
from oracles.prover.reachability.world import World
from oracles.prover.sites import Site


def initialise(
    world: World, state: State, a: Agent, site: Site, barrier: kir.MBarrier, k: int
) -> None:
    """Begin the life of a barrier."""
    cta = a.kind.cta
    if a.kind.count > 1:
        says = f"{barrier.name} is initialised by {a.kind.count} threads"
        world.wrong(state, Rule.INIT, "init", site, k, says)
    event = world.event(state, "init", cta, barrier.name)
    for slot in range(barrier.slots):
        old = state.phases.get((cta, barrier.name, slot))
        if old is not None and (old.alive or not a.all >> FACTS * old.end & 1):
            says = f"{barrier.name} is initialised more than once"
            world.wrong(state, Rule.INIT, "init", site, k, says)
        _reuse(world, state, a, site, barrier, slot, k)
        state.phases[cta, barrier.name, slot] = Phase(
            barrier.arrivals, event, pending=barrier.arrivals
        )
    state.own(a, event)


def _reuse(
    world: World, state: State, a: Agent, site: Site, barrier: kir.MBarrier, slot: int, k: int
) -> None:
    """Check that buffers on the barrier's bytes are out of use, and end what they hold."""
    for _, name, number in world.barrier_bytes[barrier.name, slot]:
        where = a.kind.cta, name, number
        world.checked += 1
        for entry in state.memory.get(where, ()):
            if not a.all >> FACTS * entry.event & 1:
                says = f"{barrier.name} lies on bytes of {name} that are still in use"
                earlier = world.code.sites[entry.site]
                world.wrong(state, Rule.INIT, "init", site, k, says, earlier=earlier)
        state.valid[where] = False


def invalidate(
    world: World, state: State, a: Agent, site: Site, barrier: kir.MBarrier, k: int
) -> None:
    """End the life of a barrier."""
    gone = world.event(state, "gone", a.kind.cta, barrier.name)
    state.when[gone] = k, site.index
    for slot in range(barrier.slots):
        phase = state.phases.get((a.kind.cta, barrier.name, slot))
        world.checked += 1
        if phase is None or not phase.alive:
            says = f"{barrier.name} is invalidated, but not alive"
            world.wrong(state, Rule.INIT, "init", site, k, says)
            continue
        state.own(a, gone)
        users = [e for e in (phase.end, phase.init, *phase.waiters) if e >= 0]
        idle = phase.pending == phase.arrivals and not phase.nbytes
        if not idle or any(not a.all >> FACTS * e & 1 for e in users):
            says = f"{barrier.name}[{slot}] may still be in use when it is invalidated"
            world.wrong(state, Rule.INIT, "init", site, k, says)
        phase.alive = False
        phase.end = gone


def living(
    world: World, state: State, a: Agent, site: Site, where: Where, slots: int, k: int
) -> Phase | None:
    """Return the running phase that a statement uses, checked to be visible to it."""
    cta, name, slot = where
    world.checked += 1
    if not 0 <= slot < slots:
        says = f"{name}[{slot}] is outside its {slots} slots"
        world.wrong(state, Rule.BOUNDS, "bounds", site, k, says)
        return None
    phase = state.phases.get(where)
    if phase is None or not phase.alive:
        moment = "before its mbarrier_init" if phase is None else "after its invalidation"
        world.wrong(state, Rule.INIT, "init", site, k, f"{name} is used {moment}")
        return None
    seen = a.all >> FACTS * phase.init
    if not seen & 1:
        says = f"no block_sync makes {name} visible to {a.kind}"
        world.wrong(state, Rule.INIT, "init", site, k, says)
    elif cta != a.kind.cta and not seen >> SHARED & 1:
        says = f"no fence_mbarrier_init makes {name} visible to {a.kind}, of another CTA"
        world.wrong(state, Rule.INIT, "init", site, k, says)
    return phase


def _in_phase(
    world: World, state: State, a: Agent, site: Site, phase: Phase, where: Where, k: int, what: str
) -> None:
    world.checked += 1
    if phase.end >= 0 and not a.mine >> FACTS * phase.end & 1:
        if phase.came and all(a.all >> FACTS * e & 1 for e in phase.came):
            # whoever knows of all arrivals and bytes of a phase knows its end, and no more
            state.learn(a, 1 << FACTS * phase.end)
            return
        says = (
            f"nothing orders the completion of phase {phase.count - 1} of "
            f"{where[1]}[{where[2]}] before {what}{said(world, site, k)} in phase {phase.count}"
        )
        world.wrong(state, Rule.PHASE_EARLY, "parity", site, k, says, event=phase.end)


def arrive(
    world: World,
    state: State,
    a: Agent,
    site: Site,
    where: Where,
    barrier: kir.MBarrier,
    k: int,
    *,
    nbytes: int = 0,
    counts: bool = True,
    raises: bool = False,
    releases: int = -1,
    scope: kir.Scope = kir.Scope.CTA,
) -> None:
    """Count an arrival of each thread, or (without `counts`) only expect bytes.

    With `raises`, the phase is first made to wait for one arrival more of each thread.
    """
    phase = living(world, state, a, site, where, barrier.slots, k)
    if phase is None:
        return
    _in_phase(world, state, a, site, phase, where, k, "")
    remote = where[0] != a.kind.cta
    if world.follows_arrivals and counts:
        event = world.event(state, "arrive", where, site.index, a.kind.index, phase.parity)
        if releases < 0:
            state.own(a, event)
        state.when[event] = k, site.index
        phase.coming = tuple(sorted({*phase.coming, event}))
        if remote:
            state.flying[event] = where[0], site.index
    if remote:
        phase.remote = True
        if scope is kir.Scope.CTA:
            says = "an arrival at another CTA releases at cta scope only"
            world.wrong(state, Rule.SCOPE, "scope", site, k, says)
    phase.nbytes += nbytes * a.kind.count
    phase.site = site.index
    world.checked += 1
    if raises:
        _announce(world, state, a, site, phase, where, k)
        phase.pending += a.kind.count
    if counts:
        if phase.pending < a.kind.count:
            says = (
                f"{a.kind.count} arrivals on {where[1]}[{where[2]}], whose phase "
                f"{phase.count} has {phase.pending} of {phase.arrivals} left"
            )
            world.wrong(state, Rule.ARRIVALS, "arrivals", site, k, says)
        phase.pending = max(0, phase.pending - a.kind.count)
        released = a.mine | a.spoken if releases < 0 else releases
        phase.before |= released
        if not raises:
            phase.announced = tuple(e for e in phase.announced if not released >> FACTS * e & 1)
    elif phase.pending == 0:
        says = "these bytes are expected when no arrival of the phase is missing any more"
        world.wrong(state, Rule.PHASE_EARLY, "bytes", site, k, says)
    else:
        _announce(world, state, a, site, phase, where, k)
    complete(world, state, phase, where, k)


def _announce(
    world: World, state: State, a: Agent, site: Site, phase: Phase, where: Where, k: int
) -> None:
    """Note that a phase has more to wait for, which an arrival of it has to come after."""
    event = world.event(state, "announced", where, site.index, a.kind.index)
    state.own(a, event)
    state.when[event] = k, site.index
    phase.announced = tuple(sorted({*phase.announced, event}))


def deliver(
    world: World,
    state: State,
    a: Agent,
    site: Site,
    where: Where,
    nbytes: int,
    facts: int,
    end: int,
    k: int,
) -> None:
    """Let a copy count its bytes as complete on the running phase."""
    barrier = next(b for b in world.kernel.barriers if b.name == where[1])
    phase = living(world, state, a, site, where, barrier.slots, k)
    if phase is None:
        return
    _in_phase(world, state, a, site, phase, where, k, "the bytes of ")
    phase.nbytes -= nbytes
    phase.before |= facts
    if world.follows_arrivals:
        phase.coming = tuple(sorted({*phase.coming, end}))
    phase.site = phase.site if phase.site >= 0 else site.index
    complete(world, state, phase, where, k)


def complete(world: World, state: State, phase: Phase, where: Where, k: int) -> None:
    """End the running phase if all its arrivals and bytes are in."""
    if phase.pending or phase.nbytes:
        return
    before = phase.before | phase.last
    world.checked += 1
    for event in phase.announced:
        when, number = state.when[event]
        late = world.code.sites[number]
        kind, what = "arrivals", "this arrival is"
        if isinstance(late.stmt, kir.MBarrierExpectTx):
            kind, what = "bytes", "these bytes are"
        says = (
            f"all arrivals of phase {phase.count} of {where[1]}[{where[2]}] may come before {what} "
            "expected, and complete it without"
        )
        world.wrong(state, Rule.PHASE_EARLY, kind, late, when, says)
    for wait in phase.waiters:
        if not before >> FACTS * wait & 1:
            when, site = state.when[wait]
            says = (
                f"phase {phase.count} of {where[1]}[{where[2]}] may complete before a wait has "
                f"seen phase {phase.count - 1}"
            )
            world.wrong(
                state, Rule.PHASE_LAPPED, "parity", world.code.sites[site], when, says,
                earlier=world.code.sites[phase.site], event=wait,
            )  # fmt: skip
            break
    phase.previous = phase.end
    phase.end = world.event(state, "phase", where, phase.parity)
    phase.last = before | 1 << FACTS * phase.end
    state.when[phase.end] = k, phase.site
    phase.count += 1
    phase.parity ^= 1
    phase.pending = phase.arrivals
    phase.before = 0
    phase.waiters = phase.announced = ()
    phase.was_remote, phase.remote = phase.remote, False
    phase.came, phase.coming = phase.coming, ()


def wait(
    world: World,
    state: State,
    a: Agent,
    site: Site,
    stmt: kir.MBarrierWaitParity,
    where: Where,
    parity: int,
    k: int,
) -> bool:
    """Wait for the phase of a parity; False if it is still running."""
    found = state.phases.get(where)
    if found is not None and found.alive and found.parity == parity and stmt.retry:
        return False
    phase = living(world, state, a, site, where, stmt.barrier.slots, k)
    if phase is None or not stmt.retry:
        return True
    if parity not in (0, 1):
        world.wrong(state, Rule.PHASE_BEHIND, "parity", site, k, f"{parity} is no parity")
    world.checked += 1
    if phase.previous >= 0 and not a.mine >> FACTS * phase.previous & 1:
        says = (
            f"may pass on a phase older than {phase.count - 1} of {where[1]}[{where[2]}]: "
            f"nothing orders phase {phase.count - 2} before it"
        )
        world.wrong(state, Rule.PHASE_BEHIND, "parity", site, k, says)
    if phase.was_remote and stmt.scope is kir.Scope.CTA:
        says = f"{said(world, site, k)} is at cta scope, and another CTA arrives"
        world.wrong(state, Rule.SCOPE, "scope", site, k, says)
    if Rule.WAIT_ACQUIRES not in world.off:
        state.learn(a, phase.last)
    event = world.event(state, "wait", where, site.index, a.kind.index)
    state.own(a, event)
    state.when[event] = k, site.index
    if event not in phase.waiters:
        phase.waiters = tuple(sorted((*phase.waiters, event)))
    return True
