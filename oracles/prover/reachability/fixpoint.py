"""The prover's main engine: every state that a kernel can reach, until states repeat.

All threads of a cluster go through their code together, iteration by iteration.  Of every event it
is known which others precede it in *every* execution (`state`); what one execution might
have decided by chance is asked as an obligation (`sync`).  Before each iteration the whole
state is compared with those seen before, with events named by their places, positions of rings
modulo their use and counts relative to the iteration: when it repeats, so does all that follows.
Of two states that differ in what is known only, one that knows what both do is followed instead.
At each step the loops may end or go on, so all trip counts share their beginnings.

No thread knows the trip counts.  Where one matters and is open, the state forks: `ForkError` asks
for a state in which it is decided.  A count that several loops use, or one loop several times, is
decided for all uses at once while it is small (`World.few`), and for each use beyond.  Every loop
of unknown length has a gate in front of each iteration, so that the threads that run it go through
its rounds together as far as they can.

Notes
-----
Why one execution for each trip count is enough: take any other execution and its first event that
does not happen as followed here.  A wait that should see phase j started after phase j-1 completed
(asked), so an older phase cannot satisfy it; phase j+1 needs the wait to have returned (asked), so
a younger one cannot.  A phase gets only its own arrivals and bytes: later ones start after its
completion (asked), earlier ones were needed by earlier phases, and their number is right (asked),
also where it grows on the way: then an arrival of the phase comes later still (asked).
Generations of named barriers are distinguished likewise; groups are counted by one thread.  Hence
there is no such first event.

A loop inside another may have another length each time it is entered, which is more than a launch
can show; so is a count that a second loop uses again.  What is refuted only that way is asked
again with one length for all (`pinned`), and stays open if that does not show it.  Then it is asked
again of whole launches, in which every number is known, and trip counts, conditions and CTAs come
together (`showing`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from fuser.expr import Expr, Kind, Op, Var, substitute, variables
from fuser.kernel import ir as kir
from oracles.prover import launches
from oracles.prover.arithmetic import UnsupportedError, linear
from oracles.prover.clock import working
from oracles.prover.launches import Launch
from oracles.prover.reachability.canonical import Abstraction, Form
from oracles.prover.reachability.code import (
    Asked,
    AtLeast,
    Branch,
    Code,
    Compiler,
    Condition,
    Do,
    Enter,
    Jump,
    Known,
    Next,
    Set,
    Several,
    assemble,
    compared,
)
from oracles.prover.reachability.ctas import Reading, apart, crews, private, readings, single
from oracles.prover.reachability.path import Assigned, Decided, Recorder, Served, Split, Tested
from oracles.prover.reachability.rules import Findings, Rule, Violation, said
from oracles.prover.reachability.state import (
    Agent,
    Events,
    Phase,
    Range,
    State,
    Unknown,
    Where,
    knows,
)
from oracles.prover.reachability.statements import ContestError, budget, contended, execute
from oracles.prover.reachability.step import EVERY, Scene, Step
from oracles.prover.reachability.sync import left
from oracles.prover.reachability.world import World
from oracles.prover.sites import Site
from oracles.prover.solver import Known as Facts

RLIMIT = 100_000
"""Work limit of a question to z3."""
SHORT = 64
"""Rounds of a loop of decided length that are gone through without comparing states."""


class ForkError(Exception):
    """A number that no thread knows must be compared with `value` before anyone goes on."""

    def __init__(self, unknown: Unknown, value: int) -> None:
        super().__init__(f"{unknown.atom} >= {value}?")
        self.unknown = unknown
        self.value = value


class ChoiceError(Exception):
    """A condition on parameters must be decided before anyone goes on."""

    def __init__(self, test: Expr) -> None:
        super().__init__(f"{test}?")
        self.test = test


class Execution(Scene):
    """A state on its way, until its threads are done or wait forever."""

    log: Callable[[State, Agent, Do, int], None] | None = None
    """Called after every statement that some threads have executed, with its iteration."""

    def __init__(
        self, world: World, state: State, events: Events, findings: Findings, single_arrivals: bool
    ) -> None:
        super().__init__(world, state, events, findings, single_arrivals)
        self._still: dict[int, Callable[[], bool]] = {}
        self._undecided: set[int] = set()

    # --- going on -------------------------------------------------------------------------------

    def settle(self) -> None:
        """Let all threads go on until each waits, for another or at a gate."""
        self._undecided.clear()
        moved = True
        while moved:
            moved = False
            for a in self.state.agents:
                if not (a.done or a.waiting or a.gate or a.kind.index in self._undecided):
                    still = self._still.get(a.kind.index)
                    if still is None or not still():
                        moved |= self._advance(a)

    def sets_out(self) -> None:
        """Begin a step of its own: threads that wait look again, so that it is noted why."""
        self._still.clear()

    def _waits(self, a: Agent, do: Do) -> None:
        """Put down how to tell that threads would still wait, without a look at all they need."""
        phases = self.state.phases
        match do.site.stmt:
            case kir.MBarrierWaitParity(barrier):
                where = a.kind.cta, barrier.name, do.values["bar"](a.env)
                phase = phases[where]
                count = phase.count
                self._still[a.kind.index] = lambda: (
                    phase.count == count and phase.alive and phases[where] is phase
                )
            case kir.ClusterWait():
                at = a.at
                self._still[a.kind.index] = lambda: a.at == at and not a.met
            case _:
                pass

    def _advance(self, a: Agent) -> bool:
        """Let threads of one kind go on as far as they can; return whether they did."""
        program = self.world.code.programs[a.kind.index]
        last = self.world.last_statements[a.kind.index]
        moved = False
        while True:
            if a.at > last:
                a.ends()
                return True
            if a.waiting:
                return moved
            i = program[a.at]
            match i:
                case Do():
                    return self._execute(a, i) or moved
                case Set(name):
                    value = self._exact(a, i)
                    if value is None:
                        self._undecided.add(a.kind.index)  # a count, until the state forks
                        return moved
                    self.state.notes(Assigned(a.kind.index, name, i.expr))
                    a.sets(name, value)
                case Enter():
                    if not self._enter(a, i):
                        return moved
                case Next():
                    self.state.notes(Assigned(a.kind.index, i.name, i.expr))
                    a.next_round(i.enter)
                case Branch():
                    answer = self._decide(a, i.test)
                    self.state.notes(Tested(a.kind.index, i.expr, answer))
                    a.at = a.at + 1 if answer else i.orelse
                case Jump(to):
                    a.at = to
            moved = True

    def _execute(self, a: Agent, do: Do) -> bool:
        """Execute a statement; return whether that has changed anything."""
        if self.world.idle[do.site.index] and self.log is None:
            a.goes_on()
            return True
        before, step = a.at, Step(self, a, do)
        moved = execute(step) or bool(a.waiting) or a.at != before
        if not moved:
            self._waits(a, do)
        elif self.log is not None:
            self.log(self.state, a, do, step.k)
        return moved

    def _enter(self, a: Agent, i: Enter) -> bool:
        """Begin a loop, or its next iteration, or leave it; False in front of a closed gate."""
        if not a.loops or a.loops[-1].number != i.number:
            self.state.notes(Assigned(a.kind.index, i.name, 0))
            a.enters(i.number, i.atom, i.name)
        if a.waits_at_gate():
            return False
        answer = self._decide(a, i.test)
        self.state.notes(Tested(a.kind.index, i.expr, answer))
        if answer:
            a.begins_round()
        else:
            a.leaves(i.end)
        return True

    # --- deciding -------------------------------------------------------------------------------

    def _exact(self, a: Agent, i: Set) -> int | None:
        """Return the next value of a variable, None while somebody else has to decide it."""
        value = i.value(a.env)
        for atom, times in i.terms:
            known = self.known_of(self.unknown_of(a, atom))
            if not known.exact:
                return None
            value += times * known.low
        return value

    def _decide(self, a: Agent, test: Condition) -> bool:
        """Decide a condition.

        Raises
        ------
        ForkError
            If a trip count has to be decided first.
        ChoiceError
            If the condition itself has to be.
        """
        match test:
            case Known(_, value):
                return value(a.env) != 0
            case AtLeast(atom, _, bound, less):
                return self._at_least(self.unknown_of(a, atom), bound(a.env)) != less
            case Several(first, second, every):
                if self._decide(a, first) != every:
                    return not every
                return self._decide(a, second)
            case Asked(expr, holds):
                return self._chosen(a, expr) == holds

    def _chosen(self, a: Agent, test: Expr) -> bool:
        """Decide a condition on parameters once for all threads."""
        plain = substitute(test, {Var(name): value for name, value in a.env.items()})
        if isinstance(plain, int):
            return plain != 0
        moving = {loop.name for loop in a.loops if loop.unknown is not None}
        if plain != test and moving:
            fixed = substitute(test, {Var(n): v for n, v in a.env.items() if n not in moving})
            if fixed != plain:
                raise UnsupportedError(f"the condition `{test}` need not repeat along the loop")
        if plain not in self.state.chosen:
            raise ChoiceError(plain)
        return self.state.chosen[plain]

    def _at_least(self, unknown: Unknown, value: int) -> bool:
        known = self.known_of(unknown)
        if known.low >= value:
            return True
        if known.exact or value > self.world.most.get(unknown.atom, value):
            return False
        few = self.world.few.get(unknown.atom, 0)
        if known.low < few:
            raise ForkError(Unknown(unknown.atom, (), EVERY), min(value, few))
        raise ForkError(unknown, value)

    def ways_on(self, error: ForkError | ChoiceError) -> list[State]:
        """Return the states in which a test has either answer, or a count is decided.

        The one to follow first, yes or the smallest count, is last: this state itself.
        """
        if isinstance(error, ChoiceError):
            answers = [(self.state.copy(), False), (self.state, True)]
            fork = object()
            for way, (other, answer) in enumerate(answers):
                other.chosen[error.test] = answer
                other.notes(Decided(fork, way, 2, error.test))
            return [other for other, _ in answers]
        least = self.known_of(error.unknown).low
        exact = (Range(value, exact=True) for value in range(error.value - 1, least - 1, -1))
        *others, last = (Range(error.value), *exact)
        ranges = [*((self.state.copy(), known) for known in others), (self.state, last)]
        fork = object()
        for way, (other, known) in enumerate(ranges):
            other.ranges[error.unknown] = known
            other.notes(Split(fork, way, len(ranges), error.unknown, known, least))
        return [other for other, _ in ranges]

    def counting(self) -> bool:
        """Whether the threads that go on next are in a loop with a decided number of rounds to go.

        Such a state need not be compared with others: none before it on its way is the same, and
        after few rounds the loop is over, or may be.
        """
        for a in self.state.at_gate():
            unknown, k = a.loops[-1].unknown, a.k
            assert unknown is not None, "gates are of loops of unknown length"
            known, most = self.known_of(unknown), self.world.few.get(unknown.atom, 0)
            if not (known.low <= SHORT if known.exact else 0 < k < min(known.low, most)):
                return False
        return True

    # --- the end --------------------------------------------------------------------------------

    def over(self) -> bool:
        """Whether no thread can go on: all are done, and that is judged, or they wait forever.

        Raises
        ------
        ContestError
            If it has to be decided who gets registers first.
        """
        if self.state.over:
            self._ended()
        elif not any(a.gate for a in self.state.agents):
            self._stuck()
        else:
            return False
        return True

    def _wrong(self, rule: Rule, site: Site, says: str, k: int = -1) -> None:
        self.findings.record(self.violation(rule, site, says, k))

    def _ended(self) -> None:
        """Check that nothing is in flight when the threads of a CTA are gone."""
        state, sites = self.state, self.world.code.sites
        for event, (cta, site) in state.flying.items():
            self.findings.ask()
            if not knows(state.known_in(cta), event):
                k = state.when.get(event, (-1, 0))[0]
                says = f"{said(sites[site], k)} is still in flight when the CTA exits"
                found = self.violation(Rule.EXIT, sites[site], says, k)
                self.findings.record(replace(found, event=event))
        self._reached()
        self._outlived()
        for a in state.agents:
            if a.arrived:
                at = next(s for s in sites if isinstance(s.stmt, kir.ClusterArrive))
                says = f"{a.kind} has arrived at the cluster's barrier and never waits"
                self._wrong(Rule.SYNC_COUNT, at, says)
        for where, phase in state.phases.items():
            self.findings.ask()
            self._short(where, phase)
        for semaphore in state.semaphores.values():
            left(self, semaphore)

    def _short(self, where: Where, phase: Phase) -> bool:
        """Check that a phase got the bytes that it expects; return whether it did not."""
        if not (phase.alive and phase.nbytes and phase.site >= 0):
            return False
        total = "short of" if phase.nbytes > 0 else "beyond"
        says = (
            f"phase {phase.count} of {where[1]}[{where[2]}] is {abs(phase.nbytes)} bytes "
            f"{total} what it expects, and never completes"
        )
        self._wrong(Rule.BYTES, self.world.code.sites[phase.site], says)
        return True

    def _reached(self) -> None:
        """Check that no barrier of threads is left half reached."""
        for (cta, number), now in self.state.barriers.items():
            if number < 0 or cta < -1 or not now.threads:
                continue
            self.findings.ask()
            if now.count:
                name = f"barrier {number}" if cta >= 0 else "the cluster's barrier"
                says = f"{now.count} of {now.threads} threads have arrived at {name} at the end"
                kinds = kir.ClusterArrive if cta < 0 else kir.BlockSync | kir.NamedArrive
                arrive = next(
                    s for s in self.world.code.sites
                    if isinstance(s.stmt, kinds) and getattr(s.stmt, "barrier", number) == number
                )  # fmt: skip
                self._wrong(Rule.SYNC_COUNT, arrive, says)

    def _outlived(self) -> None:
        """Check that the launches before have ended when this one does.

        That no thread of these CTAs waits is wrong if others do the same; else one has to that is
        in every launch.
        """
        kernel, sites = self.world.kernel, self.world.code.sites
        if not kernel.dependent:
            return
        self.findings.ask()
        if self.state.ended >= 0:
            return
        waits = [s for s in sites if isinstance(s.stmt, kir.GridDependencyWait)]
        if not sites:
            self.findings.doubts("nothing is executed, so nobody waits for the launches before")
            return
        given = {*kernel.params, kir.GRID, *(loop.index for s in waits for loop in s.loops)}
        if all(variables(test) <= given for s in waits for test in s.conditions):
            says = "no thread waits for the launches before this one, which may end before they do"
            self._wrong(Rule.DEPENDENCY, (waits or sites)[0], says)
        elif not any(_comes(kernel, s, cta) for s in waits for cta in (0, kir.GRID - 1)):
            says = "not every CTA comes here, and nothing tells that any does"
            self.findings.doubts(f"{waits[0].where}: {says}")

    def _stuck(self) -> None:
        """Explain why nobody can go on."""
        contended(self)
        ready = [(where, phase) for where, phase in self.state.phases.items() if not phase.pending]
        if any(self._short(where, phase) for where, phase in ready):
            return
        a, why, look = self._cause([a for a in self.state.agents if not a.done])
        i = self.world.code.programs[a.kind.index][a.at]
        says, rule = f"{a.kind} waits forever", Rule.LIVENESS
        if not isinstance(i, Do):
            self._wrong(rule, self.world.code.sites[0], says, a.k)
            return
        match i.site.stmt:
            case kir.MBarrierWaitParity(barrier):
                phase = self.state.phases.get((a.kind.cta, barrier.name, i.values["bar"](a.env)))
                if phase is not None:
                    left, of = phase.pending, phase.arrivals
                    says += f": {left} of {of} arrivals of phase {phase.count} are missing"
                    says += f"; {why}" if why else ""
                    rule = Rule.ARRIVALS if 0 < left < of else rule
            case kir.SetMaxNReg():
                says += ": the registers it asks for are not given back"
                rule = Rule.BUDGET
            case kir.LastArriving(semaphore):
                says = f"not all CTAs arrive at {semaphore.name}: none is the last"
                rule = Rule.TURN_VALUES
            case kir.BlockSync(barrier):
                now = self.state.barriers[a.kind.cta, barrier]
                says += f": {now.count} of {now.threads} threads arrive at the barrier"
            case _:
                pass
        found = self.violation(rule if self.holds(rule) else Rule.LIVENESS, i.site, says, a.k)
        self.findings.record(replace(found, look=f"line {i.site.line}: {look}" if look else ""))

    def _cause(self, waiting: list[Agent]) -> tuple[Agent, str, str]:
        """Return whose wait at an mbarrier keeps all others from going on, why, and what to mend.

        Best is one where nobody arrives any more; then one of whose phase some arrivals came; then
        one that is a phase ahead.  Else who comes first.
        """
        waits: list[tuple[Agent, Do, Phase]] = []
        for a in waiting:
            i = self.world.code.programs[a.kind.index][a.at]
            if isinstance(i, Do) and isinstance(i.site.stmt, kir.MBarrierWaitParity):
                where = a.kind.cta, i.site.stmt.barrier.name, i.values["bar"](a.env)
                phase = self.state.phases.get(where)
                if phase is not None and phase.pending:
                    waits.append((a, i, phase))
        for a, i, _ in waits:
            if self._deserted(i.site.stmt):
                return a, "nobody is left who arrives there", ""
        for a, _, phase in waits:
            if phase.pending < phase.arrivals:
                return a, "", ""
        for a, _, phase in waits:
            if phase.count == 0 and (slot := self._fills_unused(a)):
                says = f"nothing has used {slot} yet, so that no phase has to be over"
                return a, says, "the parity is a phase ahead"
        return waiting[0], "", ""

    def _deserted(self, wait: kir.Stmt) -> bool:
        """Tell whether no thread has an arrival before it, or in the loop in which it is."""
        for a in self.state.agents:
            program = self.world.code.programs[a.kind.index][: None if not a.done else 0]
            here = program[a.at] if a.at < len(program) else None
            now = here.site.loops[:1] if isinstance(here, Do) else ()
            for at, i in enumerate(program):
                if not (isinstance(i, Do) and _arrives(i.site.stmt, wait)):
                    continue
                if at > a.at or (now and i.site.loops[:1] == now):
                    return False
        return True

    def _fills_unused(self, a: Agent) -> str:
        """Return the slot that threads load into behind a wait, if nothing has used it."""
        for i in self.world.code.programs[a.kind.index][a.at + 1 :]:
            if isinstance(i, Do) and isinstance(i.site.stmt, kir.TmaLoad):
                name, slot = i.site.stmt.dst.buffer.name, i.values["slot"](a.env)
                used = self.state.memory.get((a.kind.cta, name, slot))
                return "" if used else f"{name}[{slot}]"
            if isinstance(i, Do) and isinstance(i.site.stmt, kir.MBarrierWaitParity | kir.Load):
                break
        return ""


def _arrives(stmt: kir.Stmt, wait: kir.Stmt) -> bool:
    """Tell whether a statement arrives on the mbarrier that another one waits on."""
    arrivals = kir.MBarrierArrive | kir.MBarrierArriveExpectTx | kir.CpAsyncMBarrierArrive
    return isinstance(stmt, arrivals) and stmt.barrier == getattr(wait, "barrier", None)


def _comes(kernel: kir.Kernel, site: Site, cta: Expr) -> bool:
    """Whether a CTA comes to a statement in every launch, in the first iteration of its loops."""
    there: dict[Var, Expr] = {loop.index: 0 for loop in site.loops}
    there |= {kir.BLOCK: cta, kir.RANK: cta % kernel.cluster}
    rounds = (
        Op(Kind.LE, stop.b, stop.a)  # a quotient is at least 1
        if isinstance(stop := loop.stop, Op) and stop.kind is Kind.FLOORDIV
        else Op(Kind.LE, 1, stop)
        for loop in site.loops
    )
    known = Facts((*kernel.requires, Op(Kind.LE, 1, kir.GRID)), RLIMIT)
    return all(known.gives(substitute(test, there)) for test in (*site.guards, *rounds))


# --- all states, until they repeat ----------------------------------------------------------------


STATES = 10_000
"""States that are looked at before giving up."""
UNPLACED = 600
"""States of a CTA of which nothing is known, before it is followed in each of its places.

It has at most a few times as many as in one place, and there are up to ten of those.
"""
AHEAD = 64
"""Loops, or rounds of one, by which a role may be ahead; more, and it runs ahead without end."""
FORKS = 512
"""The largest number that a count is compared with; more, and it grows from round to round."""
LOOSE = "not confirmed with one length for all loops"
"""What stays open where only lengths that no launch has show it."""
PINNED = 9
"""Lengths of inner loops that are tried to confirm a refutation."""
Settle = Callable[["Exploration"], None]
"""Is told of an exploration that found nothing wrong; what that has kept may be forgotten then."""


@dataclass(frozen=True, slots=True)
class Closed:
    """What the engine found: obligations that do not hold, by severity.

    `checked` is how many were asked, `states` how many different states there are; `reason` why not
    every state was seen: empty if all were, or if there is a violation.  `explorations` are those
    of all readings, for who distrusts them.
    """

    violations: tuple[Violation, ...]
    warnings: tuple[Violation, ...]
    checked: int
    states: int
    reason: str = ""
    explorations: tuple[Exploration, ...] = ()


def judge(
    kernel: kir.Kernel,
    *,
    policy: str = "default",
    without: frozenset[Rule] = frozenset(),
    sizes: Sequence[int] = (),
    settle: Settle | None = None,
) -> Closed:
    """Judge the order of events in a finished kernel, for every trip count.

    `without` are axioms and obligations to leave out, to see whether anybody notices; `sizes` those
    of groups of CTAs that stand for all, if they are known.  `settle` is told of each exploration
    on the way, so that not all have to stay in memory until the last one is over.

    Raises
    ------
    UnsupportedError
        If something in the kernel is not modelled.
    """
    found: list[Violation] = []
    checked = states = 0
    reason = ""
    explorations: list[Exploration] = []
    compiler = Compiler(kernel)
    todo = list(readings(kernel, sizes))
    sizes = sizes or sorted({one.many for one in todo if one.together})
    whole, several = True, todo[0].together
    for number, reading in enumerate(todo):
        alone = several and not reading.together
        if alone and whole:
            break
        try:
            most = UNPLACED if alone and not reading.fixed[0] else STATES
            one = opened(compiler, reading, policy=policy, without=without, states=most)
            many, why = one.confirmed(reading, first=number == 0)
        except UnsupportedError:
            if not alone or reading.fixed[0]:
                raise
            todo += single(kernel, sizes)
            continue
        if alone and not reading.fixed[0] and (one.findings.failed or why):
            todo += single(kernel, sizes)
            continue
        whole = whole and not one.world.pinned
        explorations.append(one)
        if settle is not None and not one.findings.failed:
            settle(one)
        states += many
        checked += one.findings.checked
        reason = reason or why or one.findings.doubt
        found += one.findings.violations
        refuted = any(v.severity == "error" for v in found)
        if refuted and not (reading.together and reading.many == 1):
            break
    return _closed(found, checked, states, reason, explorations)


def together(parts: Sequence[Closed]) -> Closed:
    """Return what was found in several parts of one kernel's launches."""
    found = [v for one in parts for v in (*one.violations, *one.warnings)]
    reason = next((one.reason for one in parts if one.reason), "")
    explorations = [e for one in parts for e in one.explorations]
    checked, states = (sum(one.checked for one in parts), sum(one.states for one in parts))
    return _closed(found, checked, states, reason, explorations)


def _closed(
    found: Sequence[Violation],
    checked: int,
    states: int,
    reason: str,
    explorations: Sequence[Exploration],
) -> Closed:
    """Sum up, with each violation once."""
    first: dict[tuple[object, ...], Violation] = {}
    for v in found:
        line = v.earlier.line if v.earlier else 0
        first.setdefault((v.severity, v.kind, v.later.line, line), v)
    violations = tuple(v for v in first.values() if v.severity == "error")
    warnings = tuple(v for v in first.values() if v.severity != "error")
    why = "" if violations else reason
    return Closed(violations, warnings, checked, states, why, tuple(explorations))


def opened(
    kernel: kir.Kernel | Compiler,
    reading: Reading,
    *,
    policy: str,
    without: frozenset[Rule] = frozenset(),
    pinned: Mapping[int, int] | None = None,
    states: int = STATES,
) -> Exploration:
    """Return the exploration of a kernel in a reading, before it has begun.

    Who has several readings of it gives its compiler.
    `pinned` gives lengths of loops, by unknown; beside these, loops in which CTAs do not meet that
    are followed together go round as few times as there is.  It gives up after so many `states`.
    """
    compiler = kernel if isinstance(kernel, Compiler) else Compiler(kernel)
    world = World(compiler.code(reading.fixed, reading.facts), policy)
    given: dict[int, int] = {}
    if reading.together:
        given = {atom: world.least.get(atom, 0) for atom in private(world.code)}
    pinned = given | dict(pinned or {})
    world = replace(world, together=reading.together, pinned=pinned)
    return Exploration(world, without, states=states)


class Exploration:
    """All states of a kernel in one reading, and what is wrong in them.

    Single arrivals are followed in clusters, and where a phase seems to be entered early, awaited
    too soon, or running when its barrier is invalidated, without: they tell that a phase is over to
    threads that have not waited for it, which few kernels need.
    """

    def __init__(
        self,
        world: World,
        without: frozenset[Rule] = frozenset(),
        *,
        single_arrivals: bool = False,
        states: int = STATES,
    ) -> None:
        self.world, self.findings, self._most = world, Findings(without), states
        self.single_arrivals = single_arrivals or world.kernel.cluster > 1
        self.abstraction = Abstraction(world)
        self.events = Events(self.abstraction.rotation.places)
        self.recorder, self.joined = Recorder(), False

    def forget(self) -> None:
        """Forget what was kept: somebody has looked at it."""
        self.recorder = Recorder()

    def start(self) -> State:
        """Return the state in which all threads are about to begin."""
        return State([Agent(kind, 0) for kind in self.world.code.kinds])

    def execution(self, state: State) -> Execution:
        """Return a state on its way."""
        return Execution(self.world, state, self.events, self.findings, self.single_arrivals)

    def stands(self) -> None:
        """Judge what no order of events in a CTA decides: register budgets, what CTAs share."""
        scene = self.execution(State([]))
        apart(self.world.code, self.findings, scene.trips)
        budget(scene)

    def explore(self) -> tuple[int, str]:
        """Look at all states; return how many there are, and why some were left.

        What is wrong, or in doubt, where states were joined is looked at again without: it may be
        so only where less is known than is.
        """
        before, single = self.findings.copy(), self.single_arrivals
        try:
            found = self._explore_by(before, joins=True)
            if not (self.joined and (self.findings.doubt or self.findings.more_than(before))):
                return found
        except UnsupportedError:
            if not self.joined:
                raise
        self.findings.go_back(before)
        self.single_arrivals = single
        return self._explore_by(before, joins=False)

    def _explore_by(self, before: Findings, *, joins: bool) -> tuple[int, str]:
        found = self._explore(joins=joins)
        behind = Rule.PHASE_EARLY, Rule.PHASE_BEHIND, Rule.INIT
        early = any(v.rule in behind for v in self.findings.violations)
        if early and not self.single_arrivals:
            self.single_arrivals = True
            self.findings.go_back(before)
            found = self._explore(joins=joins)
        return found

    def _explore(self, *, joins: bool) -> tuple[int, str]:
        seen: dict[object, tuple[int, Form]] = {}
        todo = [self.start()]
        self.recorder = recorder = Recorder()
        self.joined = False
        why = ""
        while todo:
            state = todo.pop()
            if state.origin in recorder.joined:
                continue
            execution = self.execution(state)
            while True:
                working("state", len(recorder.states))
                try:
                    execution.settle()
                    if self.findings.failed:
                        return len(recorder.states), ""
                    if execution.over():
                        recorder.end(state)
                        break
                except (ForkError, ChoiceError) as error:
                    if isinstance(error, ForkError) and error.value > FORKS:
                        why = f"a count is compared with more than {FORKS} in the end"
                        break
                    todo += execution.ways_on(error)
                    break
                except ContestError as contest:
                    fork, many = object(), len(contest.states)
                    for way, other in enumerate(contest.states):
                        other.notes(Served(fork, way, many))
                    todo += contest.states
                    break
                if not execution.counting():
                    whole = state.copy()
                    form = Form(execution, self.abstraction)
                    key = form.key if joins else (form.key, form.known)
                    like = seen.get(key)
                    if like is not None and form.knows_all(like[1]):
                        recorder.meet(whole, like[0])
                        break
                    if like is not None:
                        self.joined = True
                        todo.append(self._join(whole, form, like, seen))
                        break
                    seen[key] = len(recorder.states), form
                    recorder.keep(state, whole)
                    execution.sets_out()
                    if max(len(state.ranges), state.lead) > AHEAD:
                        why = f"a role runs more than {AHEAD} loops, or rounds, ahead of another"
                        break
                    if len(seen) > self._most:
                        says = f"more than {self._most} states, and none repeats all others"
                        return len(seen), says
                state.pass_gate()
            if self.findings.failed:
                return len(recorder.states), ""
        recorder.drop_joined()
        return len(recorder.states), why

    def _join(
        self, whole: State, form: Form, like: tuple[int, Form], seen: dict[object, tuple[int, Form]]
    ) -> State:
        """Return the state that is followed instead of two of one key: it knows what both do."""
        number, kept = like
        state = self.recorder.states[number].copy()
        kept.meet(state, form)
        seen[form.key] = self.recorder.join(whole, number, state), kept
        state.pass_gate()
        return state

    def confirmed(self, reading: Reading, *, first: bool) -> tuple[int, str]:
        """Explore; what is refuted only by lengths that no launch has is asked again.

        Return how many states there are, and why it stays open, if it does.  The `first` reading
        of a kernel is asked what no order of events decides, too.
        """
        if first:
            self.stands()
        sure = self.findings.copy()  # a launch shows each of them
        try:
            states, why = self.explore()
        except UnsupportedError:
            if not self.findings.failed:
                raise
            states, why = 0, ""
        guessed = any(v not in sure.violations for v in self.findings.errors)
        loose = guessed and (bool(self.abstraction.parted) or _loose(self.world.code))
        if loose and not self._shown_by_one_length(reading):
            says = self.findings.errors[0]
            why = f"{says.later.where}: {says.says}; {LOOSE}"
            self.findings.go_back(sure, asked=False)
        return states, why

    def _shown_by_one_length(self, reading: Reading) -> bool:
        """Whether one length for each loop, the same in every round, shows a violation too."""
        world, code = self.world, self.world.code
        shown = max(v.trips for v in self.findings.errors)
        enters = [i for i in code.instructions if isinstance(i, Enter)]
        nests = any(i.depth for i in enters)
        ends = [_ended_by(i) for i in enters if i.atom >= 0 and (i.depth or not nests)]
        inner = frozenset[int]().union(*ends)
        # what shows late is asked late first: the short lengths before it have shown nothing
        late = (shown, shown + 1) if shown >= PINNED else ()
        for trips in (*late, *range(PINNED)):
            pinned = dict.fromkeys(inner | self.abstraction.parted, trips)
            again = opened(
                world.kernel, reading,
                policy=world.policy, without=self.findings.off, pinned=pinned,
            )  # fmt: skip
            again.explore()
            if again.findings.failed:
                self.findings.go_back(again.findings, asked=False)
                return True
        return False


def _ended_by(loop: Enter) -> frozenset[int]:
    """Return the counts that end a loop: its length, or those that stand in its test instead."""
    asked = compared(loop.test)
    return frozenset({loop.atom}) if loop.atom in asked else asked


def _loose(code: Code) -> bool:
    """Whether some loop may be given other lengths than a launch can."""
    atoms = [[i.atom for i in p if isinstance(i, Enter) and i.atom >= 0] for p in code.programs]
    nests = any(isinstance(i, Enter) and i.atom >= 0 and i.depth for i in code.instructions)
    return nests or any(len(set(found)) < len(found) for found in atoms)


# --- launches that show what is refuted -----------------------------------------------------------


CTAS = 4
"""Clusters of a launch that are followed, or groups of CTAs that share a semaphore."""


def showing(kernel: kir.Kernel, trips: int, *, policy: str) -> Launch | None:
    """Return a launch in which a refuted kernel goes wrong, None if a bounded search finds none.

    Launches with the `trips` that show it are tried first, then those in which a loop that goes
    round a few times more or less than a count has the count itself.
    """
    tried: set[tuple[object, ...]] = set()
    for count in _counts(kernel, trips):
        for launch in launches.reaching(kernel, count):
            key = launch.grid, *sorted(launch.params.items())
            if key in tried:
                continue
            tried.add(key)
            if in_launch(kernel, launch, policy):
                return launch
    return None


def _counts(kernel: kir.Kernel, trips: int) -> list[int]:
    """Return how many rounds a loop may have whose end follows from a count with that value."""
    stops = [stmt.stop for stmt in kernel.walk() if isinstance(stmt, kir.ForLoop)]
    ends = [linear(stop) for stop in stops]
    more = [constant for constant, parts in ends if list(parts.values()) == [1]]
    return list(dict.fromkeys((trips, *(trips + rounds for rounds in more))))


def in_launch(kernel: kir.Kernel, launch: Launch, policy: str) -> tuple[Violation, ...]:
    """Return what goes wrong among some of the CTAs of a launch.

    A launch that cannot be followed, such as one without tiles that divides by their number, shows
    nothing.
    """
    known: dict[Expr, Expr] = {var: launch.params[var.name] for var in kernel.params}
    known[kir.GRID] = launch.grid
    for fixed in islice(crews(kernel, known, launch.grid), CTAS):
        try:
            world = World(assemble(kernel, fixed), policy)
            one = Exploration(replace(world, together=world.among_ctas))
            one.stands()
            one.explore()
        except (UnsupportedError, ZeroDivisionError):
            return ()
        if one.findings.failed:
            return tuple(one.findings.violations)
    return ()


def blamed(kernel: kir.Kernel, closed: Closed, launch: Launch, policy: str) -> Closed:
    """Return what a launch shows, if it shows nothing of what was found for lengths of loops."""
    if kernel.semaphores:
        return closed
    known = {(v.kind, v.later.line) for v in closed.violations}
    there = in_launch(kernel, launch, policy)
    if not there or any((v.kind, v.later.line) in known for v in there):
        return closed
    trips = max(launch.trips.values(), default=0)
    found = [replace(v, trips=trips) for v in there]
    return _closed(found, closed.checked, closed.states, "", closed.explorations)
