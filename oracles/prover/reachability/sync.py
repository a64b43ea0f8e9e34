"""Where threads wait for each other: barriers of threads, mbarriers, and CTAs on a semaphore.

Every obligation of the argument in `fixpoint` is asked here: threads that reach a named barrier
know that its last generation is over; a wait at an mbarrier is not behind and not lapped, arrivals
and bytes come in their own phase, and add up.

CTAs of a group are followed together, each as far as it can go.  A semaphore's value in the
execution at hand is its value in all of them, since each release is asked to be ordered after the
one before and after all who saw that value, and no wait can see an older value that is the same.

Notes
-----
An execution in which a CTA is the last to arrive at an integer is one in which its threads find
there what all the others have left.  So it may be followed as if it waited for them, for each CTA
that could be the last; the others go on at once and learn nothing.

A semaphore whose index goes on along a loop is another integer in every iteration of it, and known
by that: in a canonical form by how far that is beyond the *floor*, the first iteration that any
thread may still reach.  A semaphore below the floor is never used again: nobody comes back to an
iteration, since the loop is entered once.  So it is judged as at the end of the launch, and
forgotten.  That leaves few at a time, whose events take the places of those of `SLOTS` iterations
before.

Source: PTX ISA, "Memory Consistency Model", release and acquire patterns.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import count

from fuser.expr import Expr, Kind, Op, Var, eq, fold, substitute, variables
from fuser.kernel import ir as kir
from oracles.prover import launches
from oracles.prover.arithmetic import UnsupportedError, function, linear
from oracles.prover.reachability.code import Do
from oracles.prover.reachability.ctas import group_of
from oracles.prover.reachability.path import Compared, Kept, Number, Tested
from oracles.prover.reachability.rules import Rule, said
from oracles.prover.reachability.state import (
    ONES,
    SHARED,
    Agent,
    Generation,
    Phase,
    Place,
    Semaphore,
    Where,
    bit,
    bits,
    knows,
)
from oracles.prover.reachability.step import NOBODY, Scene, Step
from oracles.prover.sites import Site

# --- barriers of threads --------------------------------------------------------------------------


CLUSTER_BARRIER, CLUSTER_DONE = (-1, 0), (-1, 1)
"""The cluster's barrier, and its last generation, which threads wait for."""


def block_sync(step: Step, stmt: kir.BlockSync | kir.NamedArrive) -> bool:
    """Reach a named barrier; whether the threads go on without the others.

    The last thread to arrive lets all of them go on.
    """
    stays = isinstance(stmt, kir.BlockSync)
    key = step.cta, stmt.barrier
    now = step.state.generation(key)
    now.begins(stmt.threads)
    name = f"barrier {stmt.barrier}"
    if now.threads != stmt.threads:
        says = f"{name} is used with {now.threads} and with {stmt.threads} threads"
        step.wrong(Rule.SYNC_COUNT, says)
    step.findings.ask()
    if now.last >= 0 and not step.knows(now.last):
        earlier = step.world.code.sites[step.state.when[now.last][1]]
        says = f"nothing keeps it apart from the last generation of {name}"
        step.wrong(Rule.SYNC_APART, says, earlier=earlier)
    now.comes(step.a, step.a.mine, stays=stays)
    if stays:
        step.a.stops("sync")
    if now.count > now.threads:
        says = f"{now.count} threads arrive at {name}, which takes {now.threads}"
        step.wrong(Rule.SYNC_COUNT, says)
    if now.count >= now.threads:
        end = step.event("generation", key)
        facts = bit(end) | (now.before if step.holds(Rule.SYNC_JOINS) else 0)
        step.state.meet(now.waiting)
        step.state.let_go(now.waiting, facts)
        now.completes(end)
    return not stays


def warp_sync(step: Step) -> None:
    """Reach a `WarpSync`: the two kinds of lanes of these warps go on together."""
    if step.state.mate(step.a).waiting != "warp":
        step.a.stops("warp")
    else:
        step.state.join_warps(step.a, joins=step.holds(Rule.WARP_JOINS))


def cluster_arrive(step: Step, *, relaxed: bool) -> None:
    """Arrive at the cluster's barrier."""
    kernel = step.world.kernel
    now = step.state.generation(CLUSTER_BARRIER, kernel.threads * kernel.cluster)
    step.findings.ask()
    if now.count >= now.threads or (now.last >= 0 and not step.knows(now.last)):
        step.wrong(Rule.SYNC_APART, "arrives twice at the cluster's barrier without a wait between")
    # that launches have ended is over for the whole grid: it needs no fence
    told = step.a.fenced | step.a.mine & step.state.past if relaxed else step.a.mine
    now.comes(step.a, told, stays=False)
    step.a.arrived, step.a.met = True, False
    if now.count >= now.threads:
        end = step.event("generation", CLUSTER_BARRIER)
        step.state.begun = step.events.number(Place("begun"))
        done = Generation(before=now.before | bit(end) | bit(step.state.begun), last=end)
        step.state.barriers[CLUSTER_DONE] = done
        for b in step.state.agents:
            b.met = b.arrived
        now.completes(end)


def cluster_wait(step: Step) -> bool:
    """Wait at the cluster's barrier; False until all threads of the cluster have arrived."""
    if not step.a.arrived:
        says = "waits at the cluster's barrier without having arrived"
        step.wrong(Rule.COLLECTIVE, says)
        return True
    if not step.a.met:
        return False
    step.a.arrived = step.a.met = False
    done = step.state.barriers[CLUSTER_DONE]
    step.a.learns(done.before if step.holds(Rule.CLUSTER_JOINS) else bit(done.last))
    return True


# --- mbarriers ------------------------------------------------------------------------------------


def initialise(step: Step, barrier: kir.MBarrier) -> None:
    """Begin the life of a barrier, on bytes of buffers that are out of use."""
    state, name = step.state, barrier.name
    step.alone(Rule.INIT, f"{name} is initialised")
    event = step.event("init", step.cta, name)
    for slot in range(barrier.slots):
        for other, number in ((name, slot), *step.world.layout.barriers_beside[name, slot]):
            old = state.phases.get((step.cta, other, number))
            step.findings.ask()
            if old is not None and (old.alive or not step.all_know(old.end)):
                says = f"{name} is initialised more than once"
                if other != name:
                    says = f"{name} lies on bytes of {other}, which may still be alive"
                step.wrong(Rule.INIT, says)
        for other, number in step.world.layout.buffers_under[name, slot]:
            where = step.cta, other, number
            step.findings.ask()
            for entry in state.memory.get(where, ()):
                site = step.world.code.sites[entry.site]
                covers = step.world.accesses.cover(site, entry.agent, where, (barrier, slot))
                if covers and not step.all_know(entry.event):
                    says = f"{name} lies on bytes of {other} that are still in use"
                    step.wrong(Rule.INIT, says, earlier=site)
            state.valid[where] = False
        state.phases[step.cta, name, slot] = Phase(barrier.arrivals, event, barrier.arrivals)
    step.a.owns(event)


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
        # whoever knows of all arrivals and bytes of a phase knows its end
        over = phase.came and all(map(step.all_know, phase.came))
        users = [phase.init, *phase.waiters, *((phase.end,) if phase.end >= 0 and not over else ())]
        # a phase that has begun holds nobody up: what has come is known, what comes is too late
        begun = phase.pending != phase.arrivals
        idle = not phase.nbytes and (not begun or bool(phase.coming))
        users += phase.coming
        unknown = next((event for event in users if not step.all_know(event)), -1)
        if not idle or unknown >= 0:
            says = f"{barrier.name}[{slot}] may still be in use when it is invalidated"
            earlier = None
            if unknown in phase.waiters:
                k, number = step.state.when[unknown]
                earlier = step.world.code.sites[number]
                by = step.world.code.kinds[step.events.agent(unknown)]
                says += f": {by} may still be at {said(earlier, k)}"
            step.wrong(Rule.INIT, says, earlier=earlier, event=unknown)
        phase.alive, phase.end = False, gone


class Visit:
    """A statement that uses the running phase of one slot of a barrier.

    `phase` is None if the slot does not exist, or is not alive.
    """

    def __init__(self, step: Step, barrier: kir.MBarrier, where: Where) -> None:
        self.step, self.where = step, where
        self.phase = self._living(barrier)

    @property
    def name(self) -> str:
        """The slot, for words."""
        return f"{self.where[1]}[{self.where[2]}]"

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

    def fenced(self) -> None:
        """Warn, by the strict policy, of an engine that completes where no init is fenced."""
        step, phase = self.step, self.phase
        if phase is None or step.world.policy != "strict" or self.where[0] != step.cta:
            return
        if step.all_know(phase.init) and not knows(step.a.all >> SHARED, phase.init):
            says = f"no fence_mbarrier_init stands behind the mbarrier_init of {self.where[1]}"
            found = step.violation(Rule.INIT, step.site, says, step.k)
            step.findings.record(replace(found, severity="warning"))

    def _in_phase(self, phase: Phase, what: str = "") -> None:
        """Check that arrivals and bytes of a phase come after the one before."""
        step = self.step
        step.findings.ask()
        if phase.end >= 0 and phase.came and all(map(step.all_know, phase.came)):
            # whoever knows of all arrivals and bytes of a phase knows its end, and no more
            step.a.learns(bits([phase.end]))
        if phase.end < 0 or step.knows(phase.end):
            return
        says = (
            f"nothing orders the completion of phase {phase.count - 1} of {self.name} before "
            f"{what}{said(step.site, step.k)} in phase {phase.count}"
        )
        step.wrong(Rule.PHASE_EARLY, says, event=phase.end)

    def arrive(
        self,
        nbytes: int = 0,
        *,
        raises: bool = False,
        releases: int = -1,
        stmt: kir.MBarrierArrive | None = None,
    ) -> None:
        """Count the arrivals of each thread, and have the phase expect bytes for each.

        If it `raises`, the phase is first made to wait for one arrival more of each; `releases` is
        what the arrival releases, if not what the threads know.  A statement says how often each
        arrives, and of which memory and how far it releases.
        """
        step, phase, a = self.step, self.phase, self.step.a
        if phase is None:
            return
        self._in_phase(phase)
        remote = self.where[0] != step.cta
        if step.single_arrivals:
            event = step.event(
                "arrive", step.site.index, step.agent, where=self.where, parity=phase.parity
            )
            if releases < 0:
                a.owns(event)
            phase.comes(event)
            if remote:
                step.state.fly(event, self.where[0], step.site.index)
        if remote and (stmt is None or stmt.scope is kir.Scope.CTA):
            step.wrong(Rule.SCOPE, "an arrival at another CTA releases at cta scope only")
        step.findings.ask()
        phase.nbytes += nbytes * a.kind.count
        phase.site = step.site.index
        if raises:
            self._announce(phase)
            phase.pending += a.kind.count
        comes = (stmt.count if stmt is not None else 1) * a.kind.count
        if phase.pending < comes:
            says = (
                f"{comes} arrivals on {self.name}, whose phase "
                f"{phase.count} has {phase.pending} of {phase.arrivals} left"
            )
            step.wrong(Rule.ARRIVALS, says)
        released = a.mine | a.cumulative if releases < 0 else releases
        narrow = stmt is not None and stmt.space is kir.Space.SHARED
        if narrow and step.holds(Rule.SCOPE):
            released = step.of_its_shared_memory(released)
        phase.pending = max(0, phase.pending - comes)
        self._hands_over(phase, released, far=remote)
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
        event = step.own_event("announced", self.where)
        phase.announced = tuple(sorted({*phase.announced, event}))

    def deliver(self, nbytes: int, facts: int, end: int, *, far: bool = False) -> None:
        """Let a copy count its bytes as complete on the running phase.

        If it is `far` they are released at the scope of the cluster, to who waits at that.
        """
        step, phase = self.step, self.phase
        if phase is None:
            return
        self._in_phase(phase, "the bytes of ")
        phase.nbytes -= nbytes
        self._hands_over(phase, facts, far=far)
        phase.site = phase.site if phase.site >= 0 else step.site.index
        if step.single_arrivals:
            phase.comes(end)
        self._complete(phase)

    def _hands_over(self, phase: Phase, facts: int, *, far: bool) -> None:
        """Release facts to who waits for a phase: if it is `far` at the scope of the cluster."""
        if far:
            phase.far |= facts
        else:
            phase.before |= facts

    def _complete(self, phase: Phase) -> None:
        """End the running phase if all its arrivals and bytes are in."""
        step, state = self.step, self.step.state
        if phase.pending or phase.nbytes:
            return
        before = phase.before | phase.far | phase.last | phase.last_far
        sites = step.world.code.sites
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
                seen = f"phase {phase.count - 1}" if phase.count else "that none has run"
                who = step.world.code.kinds[step.events.agent(wait)]
                says = (
                    f"phase {phase.count} of {self.name} may complete before "
                    f"{said(sites[number], k)} by {who} has seen {seen}, and would wait for phase "
                    f"{phase.count + 1} then"
                )
                found = step.violation(Rule.PHASE_LAPPED, sites[number], says, k)
                step.findings.record(replace(found, earlier=sites[phase.site], event=wait))
                break
        end = step.events.number(Place("phase", (), self.where, phase.parity))
        phase.completes(state.take(end, step.k, phase.site))


def mbarrier_wait(step: Step, stmt: kir.MBarrierWaitParity, where: Where) -> bool:
    """Go on where a phase of the parity is complete; False while it still runs."""
    parity, running = step.value("parity"), step.state.phases.get(where)
    if stmt.retry and running is not None and running.alive and running.parity == parity:
        return False
    visit = Visit(step, stmt.barrier, where)
    phase = visit.phase
    if phase is None or not stmt.retry:
        return True
    if parity not in (0, 1):
        step.wrong(Rule.PHASE_BEHIND, f"{parity} is no parity")
    step.findings.ask()
    over = phase.earlier and all(map(step.all_know, phase.earlier))
    if phase.previous >= 0 and not (over or step.knows(phase.previous)):
        says = (
            f"may pass on a phase older than {phase.count - 1} of {visit.name}: "
            f"nothing orders phase {phase.count - 2} before it"
        )
        step.wrong(Rule.PHASE_BEHIND, says)
    far = phase.last_far
    if stmt.scope is kir.Scope.CTA and step.holds(Rule.SCOPE):
        step.state.lack(far)
        step.state.lands(where[0], far)
        far = 0
    if step.holds(Rule.WAIT_ACQUIRES):
        step.a.learns(phase.last | far)
    event = step.own_event("wait", where)
    phase.waiters = tuple(sorted({*phase.waiters, event}))
    return True


# --- semaphores: which integer --------------------------------------------------------------------

SLOTS = 2
"""Iterations whose semaphores are distinguished at a time."""
Key = tuple[str, Expr]


def index_of(do: Do, a: Agent) -> Expr:
    """Return which integer of a semaphore a statement means now."""
    assert do.index is not None, "semaphores have an index"
    return substitute(do.index, {Var(n): v for n, v in a.env.items()})


def _integer(step: Step, semaphore: kir.Semaphore) -> tuple[Key, Semaphore]:
    """Return the semaphore that a statement means now; a new one is put down.

    Raises
    ------
    UnsupportedError
        If it need not be another one in another iteration, or CTAs run too far apart.
    """
    index, state, walk = index_of(step.do, step.a), step.state, step.world.walk
    key = semaphore.name, index
    at = _iteration(step, semaphore)
    if key not in state.semaphores:
        if index != step.do.index and walk is None and not isinstance(index, int):
            says = "which integers are different is not known"
            raise UnsupportedError(f"{step.site.where}: {says}")
        if at is not None:
            forget(step)
            for one in state.semaphores.values():
                if one.at is not None and one.at != at and (one.at - at) % SLOTS == 0:
                    says = "CTAs that share tiles are too far apart"
                    raise UnsupportedError(f"{step.site.where}: {says}")
        elif any(_may_be(index, other) for name, other in state.semaphores if name == key[0]):
            says = f"whether {key[0]}[{index}] is another integer is not known"
            raise UnsupportedError(f"{step.site.where}: {says}")
        state.semaphores[key] = Semaphore(at=at)
        if at is not None and walk is not None:
            state.notes(Kept(turn_of(semaphore.name, at), step.variable(walk)))
    _bounds(step, semaphore, index)
    return key, state.semaphores[key]


def turn_of(name: str, at: int) -> Number:
    """Return the number of the iteration whose integer a semaphore is, one of `SLOTS`."""
    return "turn", (name, at % SLOTS)


def _iteration(step: Step, semaphore: kir.Semaphore) -> int | None:
    """Return in which iteration CTAs are that go from one integer to the next, None if none do.

    What it depends on is noted: all variables of the index, and whether an earlier one is the same.
    """
    assert step.do.index is not None, "semaphores have an index"
    names, walk = {v.name for v in variables(step.do.index)}, step.world.walk
    step.depends(sorted(names - {walk}))
    if walk is None or walk not in names & step.a.env.keys():
        return None
    at, now = step.a.env[walk], step.variable(walk)
    slot = eq(Op(Kind.MOD, Var(walk), SLOTS), at % SLOTS)
    step.state.notes(Tested(step.agent, slot, answer=True))
    for (name, _), one in step.state.semaphores.items():
        if name == semaphore.name and one.at is not None:
            step.state.notes(Compared(Kind.EQ, turn_of(name, one.at), now, one.at == at))
    return at


def _may_be(index: Expr, other: Expr) -> bool:
    """Whether two indices, written differently, may be one integer all the same."""
    constant, parts = linear(index - other)
    return bool(parts) or constant == 0


def _name(key: Key, semaphore: Semaphore) -> tuple[object, ...]:
    """Return the name of a semaphore in events, which later ones take over."""
    return key if semaphore.at is None else (key[0], "iteration", semaphore.at % SLOTS)


def _bounds(step: Step, semaphore: kir.Semaphore, index: Expr | None) -> None:
    """Check that a semaphore has an integer, where its number is known."""
    count, known = semaphore.count, step.do.index
    if not isinstance(index, int) or not isinstance(count, int):
        return
    if not 0 <= index < count:
        step.wrong(Rule.BOUNDS, f"{semaphore.name}[{index}] is outside its {count}")
    elif known is not None:
        for test in (fold(Kind.LE, 0, known), fold(Kind.LT, known, count)):
            step.state.notes(Tested(step.agent, test, answer=True))


def forget(scene: Scene) -> None:
    """Drop the semaphores that nobody uses any more, after a look at what they are left at."""
    if scene.world.walk is None:
        return
    walk, state = scene.world.walk, scene.state
    least = scene.floor(walk)
    for key, one in list(state.semaphores.items()):
        if one.at is not None and (least == NOBODY or one.at < least):
            for a in state.agents:
                if not a.done and walk in a.env:
                    now = a.kind.index, walk
                    state.notes(Compared(Kind.LT, turn_of(key[0], one.at), now, answer=True))
            left(scene, one)
            del state.semaphores[key]


def left(scene: Scene, semaphore: Semaphore) -> None:
    """Check that a semaphore is left at 0, as the next launch expects it."""
    scene.findings.ask()
    if semaphore.value:
        says = f"leaves {semaphore.value}, which is not the 0 that the next launch expects"
        site = scene.world.code.sites[semaphore.site]
        scene.findings.record(scene.violation(Rule.TURN_VALUES, site, says))


# --- the threads of a role arrive together --------------------------------------------------------


def _place(cta: int, site: Site) -> tuple[int, int]:
    """Return where the threads of a role wait together, for a value or for the last CTA."""
    return cta, -1 - site.place.first


def _whole_role(step: Step) -> None:
    """Check that all threads of a role reach a statement, which join by a barrier of their own."""
    step.findings.ask()
    if says := step.world.badly_joined[step.site.index]:
        step.wrong(Rule.COLLECTIVE, says)


def _arrive(step: Step, now: Generation, waiting: str) -> None:
    """Let threads wait for others, at one integer of a semaphore."""
    for number in now.waiting[:1]:
        b = step.state.agents[number]
        other = step.world.code.programs[number][b.at]
        if isinstance(other, Do) and index_of(other, b) != index_of(step.do, step.a):
            says = "is reached by threads that mean different integers of the semaphore"
            step.wrong(Rule.COLLECTIVE, says)
        walk = step.world.walk
        if walk is not None and walk in step.a.env and walk in b.env:
            theirs = b.kind.index, walk
            step.state.notes(Compared(Kind.EQ, step.variable(walk), theirs, answer=True))
    now.comes(step.a, 0)
    step.a.stops(waiting)


def _role_arrives(
    step: Step, stmt: kir.BlockSerializeWait | kir.LastArriving, waiting: str
) -> tuple[Key, Semaphore] | None:
    """Wait for all threads of a role; return which integer they then mean, once all are here.

    None where some are still to arrive.  Where turns are not followed all go on at once.
    """
    _whole_role(step)
    now = step.state.generation(_place(step.cta, step.site), step.site.place.warps * kir.WARP)
    _arrive(step, now, waiting)
    if now.count < step.site.place.warps * kir.WARP:
        return None
    if not step.world.together:
        _bounds(step, stmt.semaphore, step.do.index)
        _let_go(step, step.cta, step.site, 0)
        return None
    return _integer(step, stmt.semaphore)


def _waiting(scene: Scene, cta: int, site: Site) -> tuple[int, ...]:
    """Return the threads of a role that wait at a statement."""
    return scene.state.barriers[_place(cta, site)].waiting


def _let_go(scene: Scene, cta: int, site: Site, facts: int) -> None:
    """Let all threads of a role go on, knowing what each of them knew, and more."""
    waiting = _waiting(scene, cta, site)
    scene.state.let_go(waiting, facts | scene.state.known_together(waiting))
    scene.state.barriers[_place(cta, site)].completes()


# --- turns ----------------------------------------------------------------------------------------


def wait_for_turn(step: Step, stmt: kir.BlockSerializeWait) -> None:
    """Wait for a turn with all threads of a role, or of the CTA."""
    found = _role_arrives(step, stmt, "turn")
    if found is not None:
        key, semaphore = found
        asked = step.cta, step.value("turn"), step.site.index, step.k
        semaphore.asking = (*semaphore.asking, asked)
        _serve(step, key, semaphore)


def _serve(step: Step, key: Key, semaphore: Semaphore) -> None:
    """Wake the CTAs waiting for the value that a semaphore has."""
    for asked in semaphore.asking:
        cta, turn, number, k = asked
        if turn == semaphore.value:
            facts = _seen(step, semaphore, asked)
            place = Place("took", (_name(key, semaphore), cta, number))
            took = step.state.take(step.events.number(place), k, number)
            semaphore.asking = tuple(one for one in semaphore.asking if one != asked)
            semaphore.waiters = (*semaphore.waiters, took)
            _let_go(step, cta, step.world.code.sites[number], facts | bit(took))


def _seen(step: Step, semaphore: Semaphore, asked: tuple[int, int, int, int]) -> int:
    """Judge a wait that sees its value; return what it then knows."""
    cta, turn, number, k = asked
    world, site = step.world, step.world.code.sites[number]
    assert isinstance(site.stmt, kir.BlockSerializeWait), "waits only"
    # One thread looks at the value for all of them: the one that a role elects.
    looks = step.state.agents[min(_waiting(step, cta, site))].mine
    step.findings.ask()
    for value, ended in semaphore.past:
        if value == turn and not knows(looks, ended):
            says = f"may see a turn {turn} that came before, and goes on too early"
            step.findings.record(step.violation(Rule.TURN_VALUES, site, says, k))
    if semaphore.owner in (-1, cta):
        return semaphore.before
    residency = world.kernel.residency
    if residency == "any" or (residency == "ticket" and semaphore.owner > cta):
        says = "waits for a CTA that may never run: " + (
            "nothing is known about CTAs running at once"
            if residency == "any"
            else "it draws a later ticket"
        )
        step.findings.record(step.violation(Rule.RESIDENCY, site, says, k))
    if site.stmt.scope is not kir.Scope.GPU:
        # the turn comes all the same; what the CTA of the turn before has done may not be seen
        step.state.lack(semaphore.before)
    elif step.holds(Rule.TURN_ACQUIRES):
        return bit(semaphore.end) | semaphore.before
    return bit(semaphore.end)


def release(step: Step, stmt: kir.BlockSerializeRelease) -> None:
    """Give the turn away, to a CTA that then knows what this thread does."""
    a, state = step.a, step.state
    step.findings.ask()
    step.alone(Rule.TURN_VALUES, "is executed")
    if not step.world.together:
        _bounds(step, stmt.semaphore, step.do.index)
        return
    key, semaphore = _integer(step, stmt.semaphore)
    turn = step.value("turn")
    wide = stmt.scope is kir.Scope.GPU and not stmt.relaxed
    covered = (a.mine if wide else a.fenced) & ONES  # fences do not reach another CTA
    needed = {semaphore.end, semaphore.again} - {-1}
    if turn != semaphore.value or semaphore.before & ~covered:
        # Else it is all the same whether a wait sees the value before or after it.
        needed |= {*semaphore.waiters}
    if not all(map(step.knows, needed)):
        says = f"releases turn {turn} while turn {semaphore.value} is not its own"
        step.wrong(Rule.TURN_VALUES, says)
    state.lack(a.mine & ~covered)
    # A value whose end everybody knows is seen by nobody any more.
    everybody = state.known_to_all(state.agents)
    semaphore.forgets(lambda ended: knows(everybody, ended))
    used = {semaphore.end, semaphore.again, *(ended for _, ended in semaphore.past)}
    free = (n for n in count() if _gave(step, key, semaphore, n) not in used)
    end = step.event("gave", _name(key, semaphore), next(free))
    semaphore.releases(turn, step.cta, covered, end, step.site.index)
    a.owns(end)
    _serve(step, key, semaphore)


def _gave(step: Step, key: Key, semaphore: Semaphore, number: int) -> int:
    """Return the event of a release, one of several that may be told apart."""
    return step.events.number(Place("gave", (_name(key, semaphore), number)))


# --- the last-arriving CTA ------------------------------------------------------------------------


def elect_last(step: Step, stmt: kir.LastArriving) -> None:
    """Arrive at an integer with all threads of a role; the last CTA stays until all have."""
    found = _role_arrives(step, stmt, "last")
    if found is None:
        return
    (name, _), semaphore = found
    cta, site = step.cta, step.site
    step.findings.ask(2)
    ctas, share = _counted(step, stmt)
    if ctas != share:
        says = f"{ctas} CTAs are to arrive at {stmt.semaphore.name}, and {share} share it"
        step.wrong(Rule.COLLECTIVE, says)
    if cta in semaphore.arrived:
        says = f"arrives at {name} a second time, and may be counted for another CTA"
        step.wrong(Rule.TURN_VALUES, says)
    semaphore.arrived = (*semaphore.arrived, cta)
    semaphore.value, semaphore.site = len(semaphore.arrived) % step.world.ctas, site.index
    if step.holds(Rule.LAST_KNOWS):
        # Fences do not reach another CTA.
        semaphore.before |= step.state.known_together(_waiting(step, cta, site)) & ONES
    if step.value("last"):
        semaphore.asking = ((cta, 0, site.index, step.k),)
    else:
        _let_go(step, cta, site, 0)
    if semaphore.value == 0:
        for last, _, number, _ in semaphore.asking:
            _let_go(step, last, step.world.code.sites[number], semaphore.before)
        semaphore.asking = ()


def _counted(step: Step, stmt: kir.LastArriving) -> tuple[int, int]:
    """Return how many CTAs are to arrive, and how many share the integer.

    Raises
    ------
    UnsupportedError
        If the first is not known here, and no small launch has two numbers.
    """
    try:
        return step.value("ctas"), step.world.ctas
    except UnsupportedError:
        if step.do.index != 0:
            raise
        for one in launches.small(step.world.kernel, clusters=2):
            ctas = function(stmt.ctas)({**one.params, kir.GRID.name: one.grid})
            if ctas != one.grid:
                return ctas, one.grid
        raise


# --- all CTAs of a grid ---------------------------------------------------------------------------


def grid_barrier(kernel: kir.Kernel, semaphore: kir.Semaphore, cta: int = 0) -> tuple[int, int]:
    """Return where CTAs meet by a semaphore."""
    return -2 - kernel.semaphores.index(semaphore), cta


def grid_sync(step: Step, stmt: kir.GridSync) -> None:
    """Reach a barrier of CTAs; the last thread of the group to arrive lets all go on."""
    world, state = step.world, step.state
    _whole_role(step)
    assert step.do.index is not None, "semaphores have an index"
    step.depends(sorted({v.name for v in variables(step.do.index)} - {world.walk}))
    _bounds(step, stmt.semaphore, index_of(step.do, step.a))
    many = world.ctas if world.together else 1
    where = grid_barrier(world.kernel, stmt.semaphore, 0 if many > 1 else step.cta)
    now = state.generation(where, step.site.place.warps * kir.WARP * many)
    _arrive(step, now, "grid")
    if world.together:
        ctas = step.value("ctas")
        if ctas != world.ctas:
            says = f"waits for {ctas} CTAs, and {world.ctas} share {stmt.semaphore.name}"
            step.wrong(Rule.COLLECTIVE, says)
        granted = world.kernel.together == stmt.ctas and group_of(world.kernel).consecutive
        if not (ctas == 1 or world.kernel.residency == "co-resident" or granted):
            says = "waits for CTAs that may never run: nothing is known about so many at once"
            step.wrong(Rule.RESIDENCY, says)
    if now.count < now.threads:
        return
    everyone = 0
    if world.together and step.holds(Rule.GRID_JOINS):
        everyone = state.known_together(now.waiting) & ONES  # fences do not reach another CTA
    for cta in range(world.ctas):
        mine = [index for index in now.waiting if state.agents[index].kind.cta == cta]
        state.let_go(mine, everyone | state.known_together(mine))
    now.completes()
