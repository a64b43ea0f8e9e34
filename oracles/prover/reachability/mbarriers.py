"""Arrivals and waits at mbarriers.

Every obligation of the argument in `fixpoint` about phases is asked here: a wait is not behind and
not lapped, arrivals and bytes come in their own phase, and add up.
"""

from __future__ import annotations

from dataclasses import replace

from fuser.kernel import ir as kir
from oracles.prover.reachability.rules import Rule
from oracles.prover.reachability.state import SHARED, Phase, Where, bits, knows
from oracles.prover.reachability.step import Step


def initialise(step: Step, barrier: kir.MBarrier) -> None:
    """Begin the life of a barrier."""
    state, name = step.state, barrier.name
    step.alone(Rule.INIT, f"{name} is initialised")
    event = step.event("init", step.cta, name)
    for slot in range(barrier.slots):
        old = state.phases.get((step.cta, name, slot))
        if old is not None and (old.alive or not step.all_know(old.end)):
            step.wrong(Rule.INIT, f"{name} is initialised more than once")
        _take_bytes(step, barrier, slot)
        state.phases[step.cta, name, slot] = Phase(barrier.arrivals, event, barrier.arrivals)
    step.a.owns(event)


def _take_bytes(step: Step, barrier: kir.MBarrier, slot: int) -> None:
    """Check that buffers on the barrier's bytes are out of use, and end what they hold."""
    for name, number in step.world.layout.buffers_under[barrier.name, slot]:
        where = step.cta, name, number
        step.findings.ask()
        for entry in step.state.memory.get(where, ()):
            if not step.all_know(entry.event):
                says = f"{barrier.name} lies on bytes of {name} that are still in use"
                step.wrong(Rule.INIT, says, earlier=step.world.code.sites[entry.site])
        step.state.valid[where] = False


def invalidate(step: Step, barrier: kir.MBarrier) -> None:
    """End the life of a barrier."""
    gone = step.event("gone", step.cta, barrier.name)
    for slot in range(barrier.slots):
        phase = step.state.phases.get((step.cta, barrier.name, slot))
        step.findings.ask()
        if phase is None or not phase.alive:
            step.wrong(Rule.INIT, f"{barrier.name} is invalidated, but not alive")
            continue
        step.a.owns(gone)
        users = [e for e in (phase.end, phase.init, *phase.waiters) if e >= 0]
        idle = phase.pending == phase.arrivals and not phase.nbytes
        if not (idle and all(map(step.all_know, users))):
            says = f"{barrier.name}[{slot}] may still be in use when it is invalidated"
            step.wrong(Rule.INIT, says)
        phase.alive, phase.end = False, gone


class Visit:
    """A statement that uses the running phase of one slot of a barrier.

    `phase` is None if the slot does not exist, or is not alive.
    """

    def __init__(self, step: Step, barrier: kir.MBarrier, where: Where) -> None:
        self.step, self.where = step, where
        self.name = f"{where[1]}[{where[2]}]"
        self.phase = self._living(barrier)

    def _living(self, barrier: kir.MBarrier) -> Phase | None:
        """Return the running phase, checked to be visible."""
        step, (cta, name, slot) = self.step, self.where
        step.findings.ask()
        if not 0 <= slot < barrier.slots:
            step.wrong(Rule.BOUNDS, f"{self.name} is outside its {barrier.slots} slots")
            return None
        phase = step.state.phases.get(self.where)
        if phase is None or not phase.alive:
            moment = "before its mbarrier_init" if phase is None else "after its invalidation"
            step.wrong(Rule.INIT, f"{name} is used {moment}")
            return None
        kind = step.a.kind
        if not step.all_know(phase.init):
            step.wrong(Rule.INIT, f"no block_sync makes {name} visible to {kind}")
        elif cta != step.cta and not knows(step.a.all >> SHARED, phase.init):
            says = f"no fence_mbarrier_init makes {name} visible to {kind}, of another CTA"
            step.wrong(Rule.INIT, says)
        return phase

    def _in_phase(self, phase: Phase, what: str = "") -> None:
        """Check that what comes to a phase comes after the one before."""
        step = self.step
        step.findings.ask()
        if phase.end < 0 or step.knows(phase.end):
            return
        if phase.came and all(map(step.all_know, phase.came)):
            # whoever knows of all arrivals and bytes of a phase knows its end, and no more
            step.a.learns(bits([phase.end]))
            return
        says = (
            f"nothing orders the completion of phase {phase.count - 1} of {self.name} before "
            f"{what}{step.said(step.site, step.k)} in phase {phase.count}"
        )
        step.wrong(Rule.PHASE_EARLY, says, event=phase.end)

    def arrive(
        self,
        nbytes: int = 0,
        *,
        raises: bool = False,
        releases: int = -1,
        scope: kir.Scope = kir.Scope.CTA,
    ) -> None:
        """Count an arrival of each thread, and have the phase expect bytes for each.

        If it `raises`, the phase is first made to wait for one arrival more of each; `releases` is
        what the arrival releases, if not what the threads know, and `scope` how far.
        """
        step, phase, a = self.step, self.phase, self.step.a
        if phase is None:
            return
        self._in_phase(phase)
        remote = self.where[0] != step.cta
        if step.single_arrivals:
            event = step.event("arrive", self.where, step.site.index, step.agent, phase.parity)
            if releases < 0:
                a.owns(event)
            phase.comes(event)
            if remote:
                step.state.fly(event, self.where[0], step.site.index)
        if remote:
            phase.remote = True
            if scope is kir.Scope.CTA:
                step.wrong(Rule.SCOPE, "an arrival at another CTA releases at cta scope only")
        step.findings.ask()
        phase.nbytes += nbytes * a.kind.count
        phase.site = step.site.index
        if raises:
            self._announce(phase)
            phase.pending += a.kind.count
        if phase.pending < a.kind.count:
            says = (
                f"{a.kind.count} arrivals on {self.name}, whose phase "
                f"{phase.count} has {phase.pending} of {phase.arrivals} left"
            )
            step.wrong(Rule.ARRIVALS, says)
        released = a.mine | a.cumulative if releases < 0 else releases
        phase.pending = max(0, phase.pending - a.kind.count)
        phase.before |= released
        if not raises:
            phase.announced = tuple(e for e in phase.announced if not knows(released, e))
        self._complete(phase)

    def expect(self, nbytes: int) -> None:
        """Make the phase expect bytes of each thread, without an arrival."""
        step, phase = self.step, self.phase
        if phase is None:
            return
        self._in_phase(phase)
        step.findings.ask()
        phase.nbytes += nbytes * step.a.kind.count
        phase.site = step.site.index
        if phase.pending:
            self._announce(phase)
        else:
            says = "these bytes are expected when no arrival of the phase is missing any more"
            step.wrong(Rule.PHASE_EARLY, says, kind="bytes")
        self._complete(phase)

    def _announce(self, phase: Phase) -> None:
        """Note that a phase has more to wait for, which an arrival of it has to come after."""
        step = self.step
        event = step.own_event("announced", self.where, step.site.index, step.agent)
        phase.announced = tuple(sorted({*phase.announced, event}))

    def deliver(self, nbytes: int, facts: int, end: int) -> None:
        """Let a copy count its bytes as complete on the running phase."""
        step, phase = self.step, self.phase
        if phase is None:
            return
        self._in_phase(phase, "the bytes of ")
        phase.nbytes -= nbytes
        phase.before |= facts
        phase.site = phase.site if phase.site >= 0 else step.site.index
        if step.single_arrivals:
            phase.comes(end)
        self._complete(phase)

    def _complete(self, phase: Phase) -> None:
        """End the running phase if all its arrivals and bytes are in."""
        step, state = self.step, self.step.state
        if phase.pending or phase.nbytes:
            return
        before, sites = phase.before | phase.last, step.world.code.sites
        step.findings.ask()
        for event in phase.announced:
            k, number = state.when[event]
            kind, what = "arrivals", "this arrival is"
            if isinstance(sites[number].stmt, kir.MBarrierExpectTx):
                kind, what = "bytes", "these bytes are"
            says = (
                f"all arrivals of phase {phase.count} of {self.name} may come before {what} "
                "expected, and complete it without"
            )
            found = step.violation(Rule.PHASE_EARLY, sites[number], says, k)
            step.findings.record(replace(found, kind=kind))
        for wait in phase.waiters:
            if not knows(before, wait):
                k, number = state.when[wait]
                says = (
                    f"phase {phase.count} of {self.name} may complete before a wait has "
                    f"seen phase {phase.count - 1}"
                )
                found = step.violation(Rule.PHASE_LAPPED, sites[number], says, k)
                step.findings.record(replace(found, earlier=sites[phase.site], event=wait))
                break
        end = step.events.number(("phase", self.where, phase.parity))
        phase.completes(state.take(end, step.k, phase.site))

    def wait(self, stmt: kir.MBarrierWaitParity, parity: int) -> None:
        """Go on where a phase of this parity is complete."""
        step, phase = self.step, self.phase
        if phase is None or not stmt.retry:
            return
        if parity not in (0, 1):
            step.wrong(Rule.PHASE_BEHIND, f"{parity} is no parity")
        step.findings.ask()
        if phase.previous >= 0 and not step.knows(phase.previous):
            says = (
                f"may pass on a phase older than {phase.count - 1} of {self.name}: "
                f"nothing orders phase {phase.count - 2} before it"
            )
            step.wrong(Rule.PHASE_BEHIND, says)
        if phase.was_remote and stmt.scope is kir.Scope.CTA:
            says = f"{step.said(step.site, step.k)} is at cta scope, and another CTA arrives"
            step.wrong(Rule.SCOPE, says)
        if step.holds(Rule.WAIT_ACQUIRES):
            step.a.learns(phase.last)
        event = step.own_event("wait", self.where, step.site.index, step.agent)
        phase.waiters = tuple(sorted({*phase.waiters, event}))


def must_wait(step: Step, stmt: kir.MBarrierWaitParity, where: Where, parity: int) -> bool:
    """Whether the phase of a parity that threads wait for is still running."""
    found = step.state.phases.get(where)
    running = found is not None and found.alive and found.parity == parity
    return running and stmt.retry
